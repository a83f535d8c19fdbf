"""Threads that run compiled networks in this process, whatever threads ask for it.

TVM has a pool of workers for each thread that runs kernels, keeps it after the thread's end, and loses its workers in a
forked process. Its virtual machine serves one thread at a time. So only a bounded number of threads runs kernels:

- The leader, the first thread that asks, runs them itself, without any cost.
- Work of all other threads is handed to executors, which live as long as the process. There are as many executors for a
  number of threads as the process has cores for.

Before a fork the present inferences end. The forked process has new threads: workers do not survive a fork.
"""

import os
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from autosched_runtime import thread_pool

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")


class Context:
    """A thread that runs kernels: the leader or an executor."""

    def __init__(self, threads: int) -> None:
        """`threads`: number of threads of its pool, which cannot grow."""
        self.threads = threads
        self.running = threading.RLock()
        """Held during an inference. A signal handler of the thread may fork, so the lock is reentrant."""


class _Mine(threading.local):
    """Role of the calling thread. Thread identifiers are reused after a thread's end, so they cannot tell it."""

    context: Context | None = None
    """None: it is neither the leader nor an executor."""


class InferenceThreads:
    """The leader and the executors of this process."""

    def __init__(self) -> None:
        self._mine = _Mine()
        self._reset()

    def _reset(self) -> None:
        self._changing = threading.RLock()  # reentrant as those of contexts: a signal handler may fork
        self._has_leader = False
        """Whether there is a leader, or was one: a thread's pool outlives it, so that there is no second one."""
        self._executors: dict[int, ThreadPoolExecutor] = {}
        """Executors by the number of threads of their pools."""
        self._contexts: list[Context] = []

    def mine(self, threads: int) -> Context | None:
        """The context of the calling thread, if it may run kernels on a number of threads itself."""
        context = self._mine.context
        if context is None and not self._has_leader:
            context = self._led_by_caller(threads)
        return context if context is not None and threads <= context.threads else None

    def run(self, threads: int, work: Callable[[Context], T]) -> T:
        """Run `work` in an executor with a pool of a number of threads; returns its result.

        It gets the context that runs it, in which nothing else runs meanwhile.
        """
        return self.submit(threads, work).result()

    def submit(self, threads: int, work: Callable[[Context], T]) -> "Future[T]":
        """As `run`, without waiting for the result."""
        return self._executor(threads).submit(self._in_executor, threads, work)

    def _led_by_caller(self, threads: int) -> Context | None:
        """Make the calling thread the leader if there is none and its pool suffices."""
        with self._changing:
            if not self._has_leader and threads <= thread_pool.capacity():
                self._has_leader = True
                self._mine.context = Context(threads)
                self._contexts.append(self._mine.context)
        return self._mine.context

    def _executor(self, threads: int) -> "ThreadPoolExecutor":
        if (found := self._executors.get(threads)) is None:
            with self._changing:
                if (found := self._executors.get(threads)) is None:
                    from concurrent.futures import ThreadPoolExecutor  # most programs need none

                    count = max(1, thread_pool.usable() // threads)
                    found = ThreadPoolExecutor(count, f"inference-{threads}", self._begin, (threads,))
                    self._executors[threads] = found
        return found

    def _begin(self, threads: int) -> None:
        """Make the calling thread an executor."""
        self._mine.context = Context(threads)
        with self._changing:
            self._contexts.append(self._mine.context)

    def _in_executor(self, threads: int, work: Callable[[Context], T]) -> T:
        context = self._mine.context
        assert context is not None
        with context.running:
            thread_pool.use(threads)
            return work(context)

    def before_fork(self) -> None:
        """Wait until no inference runs, and let none begin."""
        self._changing.acquire()
        for context in self._contexts:
            context.running.acquire()

    def after_fork_in_parent(self) -> None:
        """Let inferences begin again."""
        for context in self._contexts:
            context.running.release()
        self._changing.release()

    def after_fork_in_child(self) -> None:
        """Begin with new threads: those of the parent do not exist here."""
        thread_pool.lose()
        self._mine.context = None
        self._reset()


THREADS = InferenceThreads()
os.register_at_fork(
    before=THREADS.before_fork,
    after_in_parent=THREADS.after_fork_in_parent,
    after_in_child=THREADS.after_fork_in_child,
)
