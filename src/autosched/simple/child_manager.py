"""The child processes of a simple backend's job, by the lease that they work for, each answer with a deadline."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing, suppress

import msgspec

from autosched.backend import Lease
from autosched.errors import StepFailed
from autosched.process.pipe_messages import Lines
from autosched.simple.child_process import CRASHED, DEBUG, Answer, Item, Order, answers

START_S = 30.0
"""For an interpreter to start and to import the author's module, on a busy machine."""
TIMED_OUT = "timeout"
"""Code of the answer that a child did not give."""


class Children:
    """Runs orders; `kill` comes from another thread."""

    def __init__(self) -> None:
        self._running: dict[int, set[subprocess.Popen[bytes]]] = {}
        """By the step whose lease they work for."""
        self._killed: set[int] = set()
        """Steps whose leases were killed."""
        self._lock = threading.Lock()

    def kill(self, lease: Lease | None = None) -> None:
        """End what works for this lease (None: all), also what is about to start for it."""
        with self._lock:
            for step in [lease.step] if lease is not None else list(self._running):
                self._killed.add(step)
                for process in self._running.get(step, ()):
                    _kill(process)

    def one(self, order: Order, lease: Lease) -> Answer:
        """The child's answer to an order as a whole. Raises StepFailed as `each` does."""
        order = msgspec.structs.replace(order, cores=lease.cores)
        if os.environ.get(DEBUG):
            return list(answers(order))[1]
        child = self._child(order, 1, lease, lease.timeout_s, time.monotonic() + lease.timeout_s)
        with closing(child):
            for answer in child:
                return answer
        raise StepFailed("the time of the step was over")

    def each(self, order: Order, items: Sequence[Item], lease: Lease, timeout_s: float) -> Iterator[Answer]:
        """An answer for each item as it comes. A child that dies or exceeds `timeout_s` costs the item it was at.

        Raises StepFailed when the lease is killed or its time is over, and when the author's module cannot be imported.
        """
        if os.environ.get(DEBUG):
            yield from list(answers(msgspec.structs.replace(order, items=tuple(items))))[1:]
            return
        given = 0
        until = time.monotonic() + lease.timeout_s
        while given < len(items):
            if time.monotonic() >= until:
                raise StepFailed(f"the time of the step was over after {given} of {len(items)} choices")
            rest = msgspec.structs.replace(order, items=tuple(items[given:]), cores=lease.cores)
            for answer in self._child(rest, len(items) - given, lease, timeout_s, until):
                yield answer
                given += 1

    def _child(
        self, order: Order, wanted: int, lease: Lease, timeout_s: float, until: float
    ) -> Generator[Answer, None, None]:
        inner, outer = os.pipe()
        with os.fdopen(inner, "rb", buffering=0) as pipe:
            process = self._start(order, outer, lease)
            try:
                lines = Lines(pipe.fileno())
                if (answer := self._next(lines, process, START_S, until)).code:
                    if time.monotonic() >= until:
                        return
                    raise StepFailed(f"{order.backend} cannot be imported in a process of its own: {answer.error}")
                for _ in range(wanted):
                    answer = self._next(lines, process, timeout_s, until)
                    if lease.step in self._killed:
                        raise StepFailed(f"{order.method} was killed")
                    yield answer
                    if answer.code in (CRASHED, TIMED_OUT):
                        return
            finally:
                _kill(process)
                process.wait()
                with self._lock:
                    self._running[lease.step].discard(process)
                    if not self._running[lease.step]:
                        del self._running[lease.step]
                if lease.step in self._killed:
                    raise StepFailed(f"{order.method} was killed")

    def _start(self, order: Order, outer: int, lease: Lease) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-m", "autosched.simple.child_process", str(outer)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self._lock:
            try:
                if lease.step in self._killed:
                    raise StepFailed(f"{order.method} was killed")
                process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=2, pass_fds=(outer,), env=environment, start_new_session=True
                )
            finally:
                os.close(outer)
            self._running.setdefault(lease.step, set()).add(process)
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin as pipe:  # it died at once, and reading its answers will say so
            pipe.write(msgspec.json.encode(order))
        return process

    @staticmethod
    def _next(lines: Lines, process: "subprocess.Popen[bytes]", timeout_s: float, until: float) -> Answer:
        line = lines.next(min(timeout_s, max(0.0, until - time.monotonic())))
        if line is None:
            return Answer(error=f"it took longer than {timeout_s:g} s", code=TIMED_OUT)
        if not line:
            _kill(process)  # what it has left in its group; its own exit code stays
            code = process.wait()
            how = f"it was killed by {signal.Signals(-code).name}" if code < 0 else f"it ended with exit code {code}"
            return Answer(error=how, code=CRASHED)
        return msgspec.msgpack.decode(line, type=Answer)


def _kill(process: "subprocess.Popen[bytes]") -> None:
    """End it and its group, unless it has been waited for: its number may be another's then."""
    with suppress(ProcessLookupError, PermissionError):
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
