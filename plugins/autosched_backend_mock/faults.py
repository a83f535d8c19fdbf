"""Faults on request, drawn from the job's seed, so that a client's life can be repeated."""

import random
from collections import Counter
from enum import Enum
from pathlib import Path

from autosched.model import TaskIndex
from autosched_backend_mock.options import Options

LIVES = "lives"
"""File with one byte for each client of the job. Without it, each client would crash at the same step, for ever."""


class Fault(Enum):
    """Faults of a step."""

    NONE = "none"
    FAIL = "fail"
    HANG = "hang"
    CRASH = "crash"


class Faults:
    """One life of a client."""

    def __init__(self, options: Options, seed: int, workdir: Path) -> None:
        self._options = options
        with (workdir / LIVES).open("ab") as lives:
            lives.write(b".")
            self._key = f"{seed}/{lives.tell()}"
        self._steps: Counter[tuple[TaskIndex, str]] = Counter()

    def of_stage(self, stage: str) -> Fault:
        """The fault that the options request in each step of a stage."""
        if self._options.crash_stage == stage:
            return Fault.CRASH
        return Fault.HANG if self._options.hang_stage == stage else Fault.NONE

    def of_step(self, task: TaskIndex, stage: str) -> Fault:
        """The fault of the next step of a round: a second try may end otherwise than the first."""
        if (always := self.of_stage(stage)) is not Fault.NONE:
            return always
        self._steps[task, stage] += 1
        drawn = random.Random(f"{self._key}/{task}/{stage}/{self._steps[task, stage]}").random()
        for fault, ratio in (
            (Fault.CRASH, self._options.crash_ratio),
            (Fault.HANG, self._options.hang_ratio),
            (Fault.FAIL, self._options.step_fail_ratio),
        ):
            if drawn < ratio:
                return fault
            drawn -= ratio
        return Fault.NONE
