"""The builds of a round that are still to be measured, shared by the steps of several devices.

A step takes half of an even share of the rest, at least one build: faster devices take more, and all end at about the
same time (guided self-scheduling: Polychronopoulos and Kuck, IEEE Transactions on Computers 36(12), 1987).
"""

import threading
from collections.abc import Callable, Sequence
from math import ceil
from typing import Protocol

from msgspec import Struct

from autosched.backend import Built, Measured
from autosched.model import StepId

SAME_CODE = "not measured: the same object code as {}"


class Timed(Struct, frozen=True):
    """An undisturbed latency, measured on a device of the job's kind."""

    latency_s: tuple[float, ...]
    source: str
    """Origin in words: "record 12"."""


class Keep(Protocol):
    """Makes a record of a measurement."""

    def __call__(self, measured: Measured, *, elsewhere: bool = False) -> int:
        """Return the record's number. `elsewhere`: the measurement is of another round or step, and a disturbance of
        this step does not concern it."""


class RoundWork:
    """The builds of one round of a task. Each object code is measured once, because a timing belongs to machine code.

    Thread-safe: each step calls from its own thread.
    """

    def __init__(
        self, built: Sequence[Built], timed: Callable[[str], Timed | None], *, devices: int, copies: bool
    ) -> None:
        """`timed`: the known timing of the object code with a digest. `devices`: maximum devices that share the round;
        with one, the first step gets everything. `copies`: whether builds of equal code share a measurement;
        measurements that are repeated do not."""
        self._waiting = list(built)
        self._timed, self._devices, self._copies = timed, devices, copies
        self._here: dict[str, tuple[Timed, StepId | None]] = {}
        """Code measured in the round, with the step that measured it if that still runs."""
        self._under_way: set[str] = set()
        """Code that a step is measuring."""
        self._steps: set[StepId] = set()
        self._lock = threading.Lock()

    def take(self, step: StepId, keep: Keep) -> list[Built]:
        """Return builds for a step to measure; none if nothing is left for it. Known timings become records.

        A copy of code that a running step has measured is left to that step: a disturbance of one concerns the other.
        """
        with self._lock:
            self._steps.add(step)
            own, left = list[Built](), list[Built]()
            codes = set(self._under_way)
            for one in self._waiting:
                code = one.code if self._copies else ""
                measured, by = self._here.get(code, (None, None))
                known = measured or (self._timed(code) if code else None)
                if known is not None and by in (None, step):
                    detail = SAME_CODE.format(known.source)
                    keep(Measured(one.candidate, known.latency_s, None, detail, one.build_s), elsewhere=by is None)
                elif known is not None or (code and code in codes):
                    left.append(one)
                else:
                    codes.add(code)
                    own.append(one)
            count = len(own) if self._devices == 1 else ceil(len(own) / (2 * max(self._devices, len(self._steps))))
            chosen = own[:count]
            self._under_way.update(one.code for one in chosen if one.code)
            taken = {one.candidate for one in chosen}
            still = {one.candidate for one in (*own, *left)} - taken
            self._waiting = [one for one in self._waiting if one.candidate in still]
            return chosen

    def measured(self, step: StepId, built: Built, measured: Measured, keep: Keep) -> None:
        """Record a measurement of one of the builds that a step took."""
        with self._lock:
            number = keep(measured)
            self._under_way.discard(built.code)
            if measured.latency_s and built.code:
                self._here[built.code] = Timed(measured.latency_s, f"record {number}"), step

    def leave(self, step: StepId, unmeasured: Sequence[Built]) -> None:
        """End a step's part; its unmeasured builds are for other steps."""
        with self._lock:
            self._steps.discard(step)
            self._waiting = [*unmeasured, *self._waiting]
            self._under_way.difference_update(one.code for one in unmeasured)
            for code, (timed, by) in self._here.items():
                if by == step:
                    self._here[code] = timed, None
