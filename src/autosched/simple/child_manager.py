"""The child processes of a simple backend's job, by lease; each answer has a deadline."""

import os
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing

import msgspec

from autosched.backend import Lease
from autosched.errors import StepFailed
from autosched.process.answering_child import AnsweringChild
from autosched.simple.child_process import CRASHED, DEBUG, Answer, Item, Order, answers

START_S = 30.0
"""Maximum seconds for an interpreter to start and import the author's module, on a busy machine."""
TIMED_OUT = "timeout"
"""Code of an answer that did not come in time."""


class Children:
    """Runs orders in child processes; `kill` is called from another thread."""

    def __init__(self) -> None:
        self._running: dict[int, set[AnsweringChild]] = {}
        """By the step of the lease that they work for."""
        self._killed: set[int] = set()
        """Steps whose leases were killed."""
        self._lock = threading.Lock()

    def kill(self, lease: Lease | None = None) -> None:
        """Kill the children of a lease (None: all), including those that are about to start."""
        with self._lock:
            for step in [lease.step] if lease is not None else list(self._running):
                self._killed.add(step)
                for child in self._running.get(step, ()):
                    child.kill()

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
        """Yield an answer for each item as it comes. If a child dies or exceeds `timeout_s`, its current item fails.

        Raises StepFailed if the lease is killed or its time is over, or if the author's module cannot be imported.
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
        child = self._start(order, lease)
        try:
            if (answer := self._next(child, START_S, until)).code:
                if time.monotonic() >= until:
                    return
                raise StepFailed(f"{order.backend} cannot be imported in a process of its own: {answer.error}")
            for _ in range(wanted):
                answer = self._next(child, timeout_s, until)
                if lease.step in self._killed:
                    raise StepFailed(f"{order.method} was killed")
                yield answer
                if answer.code in (CRASHED, TIMED_OUT):
                    return
        finally:
            child.close()
            with self._lock:
                self._running[lease.step].discard(child)
                if not self._running[lease.step]:
                    del self._running[lease.step]
            if lease.step in self._killed:
                raise StepFailed(f"{order.method} was killed")

    def _start(self, order: Order, lease: Lease) -> AnsweringChild:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        with self._lock:
            if lease.step in self._killed:
                raise StepFailed(f"{order.method} was killed")
            child = AnsweringChild("autosched.simple.child_process", environment=environment)
            self._running.setdefault(lease.step, set()).add(child)
        child.tell(msgspec.json.encode(order), last=True)
        return child

    @staticmethod
    def _next(child: AnsweringChild, timeout_s: float, until: float) -> Answer:
        answer = child.answer(min(timeout_s, max(0.0, until - time.monotonic())))
        if answer is None:
            return Answer(error=f"it took longer than {timeout_s:g} s", code=TIMED_OUT)
        if not answer:
            return Answer(error=f"it {child.how_it_ended()}", code=CRASHED)
        return msgspec.msgpack.decode(answer, type=Answer)
