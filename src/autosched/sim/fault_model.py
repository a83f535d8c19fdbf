"""Faulty candidates and devices in a simulated world, and their attribution by `autosched.records.failure_attribution`.

It does what the daemon's attribution and quarantine do, without a disk, hooks and sentinels: a probe sees the truth.
"""

from collections.abc import Callable, Mapping
from functools import partial
from random import Random

from autosched.core.events import Event, UnitDrained, UnitReturned
from autosched.model import JobId, Outcome, Step, StepId, UnitName
from autosched.records.failure_attribution import (
    CandidateSuspicion,
    DeviceSuspicion,
    Finding,
    Incident,
    Mishap,
    Suspect,
)
from autosched.sim.scenario import Faults
from autosched.sim.simulated_client import SimClient

PAUSE_S = 5.0
SICK_FAILS = 0.8
"""Share of measurements on a faulty device that fail."""
BY = "the world"
QUARANTINE = "quarantined by the world"
Later = Callable[[float, JobId, Callable[[], Event | None]], None]


class Sickness:
    """The true faults, and those that the daemon assumes."""

    def __init__(
        self,
        faults: Faults,
        seed: int,
        drained: Mapping[UnitName, UnitDrained],
        clock: Callable[[], float],
        later: Later,
    ) -> None:
        """`drained`: as the scheduler sees it; `later`: schedules a function after a number of seconds."""
        self._faults, self._drained, self._clock, self._later = faults, drained, clock, later
        self._rng = Random(f"sickness/{seed}")
        self._blame, self._ward = CandidateSuspicion(), DeviceSuspicion(PAUSE_S)
        self.never: dict[str, None] = {}
        """Candidates that were blocked so far."""
        self.blocked: dict[StepId, None] = {}
        """Steps that did not run their blocked candidate."""

    def restart(self) -> None:
        """Start the next daemon, which only knows the cases."""
        self._blame, self._ward = CandidateSuspicion(self._blame.cases.values()), DeviceSuspicion(PAUSE_S)

    def is_sick(self, device: UnitName, now: float) -> bool:
        """Whether a device is really faulty."""
        return any(unit == device and begin <= now < end for begin, unit, end in self._faults.sick)

    def is_blocked(self, candidate: str) -> bool:
        """Whether a candidate is blocked."""
        known = self._blame.cases.get(_suspect(candidate))
        blocked = known is not None and known.blocked
        assert blocked or candidate not in self.never, f"{candidate} was blocked, and is to be run again"
        return blocked

    def blocks(self, candidate: str, step: Step) -> bool:
        """Whether a step does not run its candidate."""
        if blocked := self.is_blocked(candidate):
            self.blocked[step.id] = None
        return blocked

    def is_to_be_repeated(self, step: Step, candidate: str, outcome: Outcome, client: SimClient) -> bool:
        """Attribute the end of a step; returns whether the step must be repeated."""
        device = step.units[-1]
        if not candidate or step.id in self.blocked or outcome is Outcome.LOST:
            return False
        if outcome is Outcome.DONE:
            return not self._measured(step, candidate, device) and (
                client.may_retry(step.task) and not self.is_blocked(candidate)
            )
        mishap = Mishap(self._clock(), (step.job, step.task), "a step failed", "", False)
        if self._ward.against(device, mishap) is not None:
            self._later(0.0, 0, partial(self._enters, device))
        return False

    def _measured(self, step: Step, candidate: str, device: UnitName) -> bool:
        """Whether the measurement succeeded."""
        now, suspect = self._clock(), _suspect(candidate)
        drawn = self._rng.random() if self.is_sick(device, now) else 1.0
        if candidate in self._faults.broken or drawn < SICK_FAILS:
            self._note(self._blame.failed(suspect, Incident(device, now, "simulated", step.job, 0)))
            return False
        self._ward.well(device)
        found = self._blame.passed(suspect, device, now)
        self._note(found)
        for culprit, _ in found.against:
            if self._ward.against(culprit, Mishap(now, suspect, "it passes elsewhere", "", True)) is not None:
                self._later(0.0, 0, partial(self._enters, culprit))
        return True

    def _enters(self, device: UnitName) -> Event | None:
        if device in self._drained:
            return None
        self._note(self._blame.excuse(device))
        self._later(self._ward.enters(device, self._clock()), 0, partial(self._is_probed, device))
        return UnitDrained(device, QUARANTINE, BY)

    def _is_probed(self, device: UnitName) -> Event | None:
        if device not in self._drained or self._drained[device].reason != QUARANTINE:
            return None  # an operator has drained it meanwhile
        if self.is_sick(device, self._clock()):
            self._later(self._ward.probed(device), 0, partial(self._is_probed, device))
            return None
        self._ward.leaves(device, self._clock())
        return UnitReturned(device, BY)

    def _note(self, found: Finding) -> None:
        for case in (case for case in found.changed if case.blocked):
            name, mishaps = case.suspect.sha256, case.mishaps
            assert len(mishaps) == 2, f"{name} was blocked after {len(mishaps)} failures"
            sick = all(self.is_sick(one.unit, one.at) for one in mishaps)
            assert sick or name in self._faults.broken, f"{name} was blamed without a reason"
            self.never[name] = None


def _suspect(candidate: str) -> Suspect:
    return Suspect("simulated", "simulated", candidate)
