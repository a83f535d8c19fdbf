"""Poisonous candidates and sick devices in a simulated world, and what `autosched.blame` makes of them.

It does what the daemon's verdicts and quarantine do, without a disk, hooks and sentinels: a probe sees the truth.
"""

from random import Random

from autosched.blame import Blame, Finding, Mishap, Suspect, Ward
from autosched.model import JobId, Step, UnitName
from autosched.sim.scenario import Faults

PAUSE_S = 5.0
SICK_FAILS = 0.8
"""Of what is measured on a sick device so much fails."""
QUARANTINE = "quarantined by the world"


class Sickness:
    """What is true, and what is believed."""

    def __init__(self, faults: Faults, seed: int) -> None:
        self._faults = faults
        self._rng = Random(f"sickness/{seed}")
        self._blame, self._ward = Blame(), Ward(PAUSE_S)
        self._never: dict[str, None] = {}

    def restart(self) -> None:
        """The next daemon knows the cases, and no more."""
        self._blame, self._ward = Blame(self._blame.cases.values()), Ward(PAUSE_S)

    def is_sick(self, device: UnitName, now: float) -> bool:
        """The truth about a device."""
        return any(unit == device and begin <= now < end for begin, unit, end in self._faults.sick)

    def bars(self, candidate: str) -> bool:
        """Whether nobody is to run it any more."""
        known = self._blame.cases.get(_suspect(candidate))
        barred = known is not None and known.poisoned
        assert barred or candidate not in self._never, f"{candidate} was poisoned, and is to be run again"
        return barred

    def measured(self, step: Step, candidate: str, device: UnitName, now: float) -> tuple[bool, str]:
        """A measurement is over: whether it was good, and why its device, or another, is to be quarantined."""
        bad = candidate in self._faults.poison
        if self.is_sick(device, now):
            bad |= self._rng.random() < SICK_FAILS
        suspect = _suspect(candidate)
        if bad:
            self._note(self._blame.failed(suspect, Mishap(device, now, "simulated", step.job, 0)))
            return False, ""
        self._ward.well(device)
        found = self._blame.passed(suspect, device, now)
        self._note(found)
        named = ""
        for culprit, _ in found.against:
            if self._ward.against(culprit, suspect, "it passes elsewhere", now, proved=True):
                named = culprit
        return True, named

    def failed(self, device: UnitName, job: JobId, task: int, now: float) -> bool:
        """A step on the device failed as a whole: whether the device is to be quarantined."""
        return bool(self._ward.against(device, (job, task), "a step failed", now, proved=False))

    def enters(self, device: UnitName, now: float) -> float:
        """It is quarantined; returns after how many seconds to probe it."""
        self._note(self._blame.excuse(device))
        return self._ward.enters(device, now)

    def probe(self, device: UnitName, now: float) -> float | None:
        """Returns after how many seconds to probe again; None: it is well."""
        if self.is_sick(device, now):
            return self._ward.probed(device)
        self._ward.leaves(device, now)
        return None

    def _note(self, found: Finding) -> None:
        for case in found.changed:
            if case.poisoned:
                proved = [self.is_sick(one.device, one.at) or case.suspect.sha256 in self._faults.poison
                          for one in case.mishaps]  # fmt: skip
                assert len(proved) == 2, f"{case.suspect.sha256} was poisoned after {len(proved)} failures"
                assert all(proved), f"{case.suspect.sha256} was blamed without a reason"
                self._never[case.suspect.sha256] = None


def _suspect(candidate: str) -> Suspect:
    return Suspect("simulated", "simulated", candidate)
