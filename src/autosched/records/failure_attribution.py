"""Attributes failed measurements to candidates or devices. Pure: times come from the caller, of one clock.

A candidate that fails is tried once more, on another device of the kind if there is one. If it fails again, it is
blocked permanently, provided that one of the two devices has measured something else successfully since: where nothing
works, nothing is learned about candidates. If it passes on another device, that is evidence against the device where it
failed.

Clients report what they want. So a candidate is blocked for the jobs of the owners whose jobs failed, and for all when
those are two. Evidence of one owner against a device is told apart from that of several.
"""

from collections import deque
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

from msgspec import Struct

from autosched.model import Failure, JobId, UnitName

DOUBTFUL = (Failure.RUN_ERROR, Failure.RUN_TIMEOUT, Failure.RUN_CRASH, Failure.WRONG_RESULT)
"""Failures that a faulty device may cause as well as a faulty candidate. A failed build needs no device."""
CASES_MAX = 100_000
"""Maximum number of cases; the oldest are dropped."""
WORDS_MAX = 200
MISHAPS_MAX = 3
WITHIN_S = 600.0
"""Seconds within which this number of failures, each of another candidate or task, quarantines a device."""
PAUSE_MAX_S = 3_600.0


class Suspect(Struct, frozen=True):
    """A candidate, identified across all jobs."""

    place: str
    """Scope in which its measurements are comparable: backend, target and kind of device."""
    workload: str
    sha256: str


class Incident(Struct, frozen=True):
    """A failure of a suspect on a device."""

    unit: UnitName
    at: float
    words: str
    """Message of the failure."""
    job: JobId
    number: int
    """Number of the record."""
    owner: str = ""
    """Owner of the job; empty for incidents before owners were noted, which count for all."""


class Case(Struct, frozen=True):
    """Evidence about one suspect."""

    number: int
    suspect: Suspect
    mishaps: tuple[Incident, ...]
    """The first incident, and the last."""
    blocked: bool = False

    @property
    def owners(self) -> set[str]:
        """Owners of the jobs that failed."""
        return {one.owner for one in self.mishaps}

    @property
    def is_shared(self) -> bool:
        """Whether the evidence is of several owners, so that it counts for all."""
        return len(self.owners) > 1 or "" in self.owners

    def blocks(self, owner: str) -> bool:
        """Whether the candidate is blocked for the jobs of an owner."""
        return self.blocked and (self.is_shared or owner in self.owners)

    @property
    def reason(self) -> str:
        """The reason in words."""
        return "; ".join(f"{one.words} on {one.unit} (job {one.job})" for one in self.mishaps)


class Finding(Struct, frozen=True):
    """Evidence about candidates from one measurement."""

    changed: tuple[Case, ...] = ()
    closed: tuple[Case, ...] = ()
    """Closed cases: the candidates are no longer suspected."""
    against: tuple[tuple[UnitName, Case], ...] = ()
    """Devices on which something failed that passes on another device."""


class CandidateSuspicion:
    """All cases, the oldest first."""

    def __init__(self, cases: Iterable[Case] = ()) -> None:
        self.cases: dict[Suspect, Case] = {}
        self._last = 0
        self._good_at: dict[UnitName, float] = {}
        self._open: dict[UnitName, dict[Suspect, None]] = {}
        """By device: cases of two failures, at least one of them there; decided when one of the devices proves
        sound."""
        self._blocked: dict[tuple[str, str], dict[Suspect, None]] = {}
        """By place and workload."""
        for case in cases:
            self._keep(case)
            self._last = max(self._last, case.number)

    def failed(self, suspect: Suspect, mishap: Incident) -> Finding:
        """Record a failed measurement."""
        known = self.cases.get(suspect)
        if known is None:
            self._last += 1
            case = self._keep(Case(self._last, suspect, (mishap,)))
            return Finding((case,), self._make_room())
        if known.blocked:
            if known.blocks(mishap.owner):
                return Finding()
            self._close(known)
            return Finding((self._keep(Case(known.number, suspect, (known.mishaps[0], mishap), True)),))
        first = known.mishaps[0]
        sound = any(self._good_at.get(one.unit, first.at) > first.at for one in (first, mishap))
        self._close(known)
        return Finding((self._keep(Case(known.number, suspect, (first, mishap), sound)),))

    def passed(self, suspect: Suspect, device: UnitName, at: float, owner: str = "") -> Finding:
        """Record a good measurement: its device is sound, and its candidate no suspect. It unblocks a candidate that
        another owner alone has blocked."""
        self._good_at[device] = at
        known = self.cases.get(suspect)
        if known is not None and not known.blocked:
            self._close(known)
        changed = []
        for case in [self.cases[other] for other in self._open.get(device, {})]:
            self._close(case)
            changed.append(self._keep(Case(case.number, case.suspect, case.mishaps, blocked=True)))
        if known is not None and known.blocked and not known.blocks(owner):
            self._close(known)
            return Finding(tuple(changed), (known,))
        if known is None or known.blocked:
            return Finding(tuple(changed))
        elsewhere = dict.fromkeys(one.unit for one in known.mishaps if one.unit != device)
        return Finding(tuple(changed), (known,), tuple((culprit, known) for culprit in elsewhere))

    def excuse(self, device: UnitName) -> Finding:
        """Drop the evidence of a faulty device about candidates that are not blocked yet."""
        changed, closed = [], []
        for case in [case for case in self.cases.values() if not case.blocked]:
            left = tuple(one for one in case.mishaps if one.unit != device)
            if len(left) == len(case.mishaps):
                continue
            self._close(case)
            if left:
                changed.append(self._keep(Case(case.number, case.suspect, left)))
            else:
                closed.append(case)
        return Finding(tuple(changed), tuple(closed))

    def forgive(self, number: int) -> Case | None:
        """Remove a case; None if there is none with this number."""
        found = next((case for case in self.cases.values() if case.number == number), None)
        if found is not None:
            self._close(found)
        return found

    def blocked(self, place: str, workloads: Iterable[str]) -> list[Case]:
        """Blocked candidates of these workloads."""
        wanted = (self._blocked.get((place, workload), {}) for workload in dict.fromkeys(workloads))
        return [self.cases[suspect] for suspects in wanted for suspect in suspects]

    def _keep(self, case: Case) -> Case:
        self.cases[case.suspect] = case
        for shelf in self._shelves(case):
            shelf[case.suspect] = None
        return case

    def _close(self, case: Case) -> None:
        del self.cases[case.suspect]
        for shelf in self._shelves(case):
            shelf.pop(case.suspect, None)

    def _shelves(self, case: Case) -> list[dict[Suspect, None]]:
        """Indexes that contain a case, besides the list of all."""
        if case.blocked:
            return [self._blocked.setdefault((case.suspect.place, case.suspect.workload), {})]
        if len(case.mishaps) > 1:
            return [self._open.setdefault(one.unit, {}) for one in case.mishaps]
        return []

    def _make_room(self) -> tuple[Case, ...]:
        if len(self.cases) <= CASES_MAX:
            return ()
        oldest = next(iter(self.cases.values()))
        self._close(oldest)
        return (oldest,)


class Mishap(Struct, frozen=True):
    """One piece of evidence against a device."""

    at: float
    what: Hashable
    """The candidate or task."""
    words: str
    owner: str
    """Owner of the job."""
    proved: bool
    """Whether its subject passed on another device."""


class Verdict(Struct, frozen=True):
    """Enough evidence against a device."""

    reason: str
    owners: frozenset[str]
    """Owners of the jobs that report it."""


@dataclass(slots=True)
class Chart:
    """Evidence against one device."""

    mishaps: deque[Mishap] = field(default_factory=lambda: deque(maxlen=100))
    level: int = 0
    """Number of quarantines without a good period after them."""
    returned_at: float | None = None


class DeviceSuspicion:
    """Evidence against devices, and the durations of quarantines."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s
        self._of: dict[UnitName, Chart] = {}

    def against(self, device: UnitName, mishap: Mishap) -> Verdict | None:
        """Add evidence against a device. Returns the verdict if there is enough now."""
        chart = self._of.setdefault(device, Chart())
        chart.mishaps.append(mishap)
        recent = {one.what: one.owner for one in chart.mishaps if mishap.at - one.at < WITHIN_S}
        if len(recent) < MISHAPS_MAX:
            return None
        chart.mishaps.clear()
        reason = f"{len(recent)} mishaps within {WITHIN_S / 60:.0f} min, the last: {mishap.words}"
        return Verdict(reason, frozenset(recent.values()))

    def well(self, device: UnitName) -> None:
        """Record a successful measurement: unproved evidence against the device is dropped."""
        if (chart := self._of.get(device)) is not None:
            proved = [mishap for mishap in chart.mishaps if mishap.proved]
            chart.mishaps.clear()
            chart.mishaps.extend(proved)

    def enters(self, device: UnitName, at: float) -> float:
        """Begin a quarantine; returns the seconds until the first probe, longer each time until the device stays
        good."""
        chart = self._of.setdefault(device, Chart())
        if chart.returned_at is None or at - chart.returned_at >= WITHIN_S:
            chart.level = 0
        return self.probed(device)

    def probed(self, device: UnitName) -> float:
        """Record a failed or absent probe; returns the seconds until the next one."""
        chart = self._of.setdefault(device, Chart())
        chart.level += 1
        return min(self._pause_s * 2.0 ** (chart.level - 1), max(PAUSE_MAX_S, self._pause_s))

    def leaves(self, device: UnitName, at: float) -> None:
        """End a quarantine."""
        self._of.setdefault(device, Chart()).returned_at = at

    def said(self, device: UnitName, at: float) -> str:
        """Present evidence against a device, in words."""
        chart = self._of.get(device)
        recent = [one.words for one in chart.mishaps if at - one.at < WITHIN_S] if chart is not None else []
        return f"{len(recent)} of {MISHAPS_MAX} mishaps, the last: {recent[-1]}" if recent else ""
