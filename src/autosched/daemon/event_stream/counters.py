"""Counters of the daemon since its start, from the stream and from its own loop and disk.

`web/metrics.py` shows them to Prometheus. Nothing here is larger than the words that name its parts: stages, which
clients may invent, are bounded.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence

from autosched.core.actions import EndJob
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Recorded, RecordsTagged, StepEnded, StepStarted
from autosched.model import Purpose

STAGES_MAX = 32
OTHER = "other"
STEP_BOUNDS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0)
QUICK_BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Histogram:
    """How many values were at most so large, and their sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One more."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Upper bounds as text and how many were not above, as Prometheus wants them."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


def _steps() -> "defaultdict[str, Histogram]":
    return defaultdict(lambda: Histogram(STEP_BOUNDS_S))


class Counters:
    """Counts of this life of the daemon."""

    def __init__(self) -> None:
        self.happenings: Counter[str] = Counter()
        """By name."""
        self.steps: Counter[tuple[str, str]] = Counter()
        """Ended ones by stage and outcome."""
        self.step_s = _steps()
        """By stage, how long leases of done steps lasted."""
        self.wait_s = _steps()
        """By stage, how long tasks waited for a lease."""
        self.trials: Counter[str] = Counter()
        """By outcome: "ok", or the reason of the failure."""
        self.retakes = 0
        self.disturbed = 0
        self.jobs_ended: Counter[str] = Counter()
        self.lag_s = Histogram(QUICK_BOUNDS_S)
        self._stages: set[str] = set()

    def known(self, stage: str) -> str:
        """The stage's name; "other" for those beyond the first so many."""
        if stage not in self._stages:
            if len(self._stages) >= STAGES_MAX:
                return OTHER
            self._stages.add(stage)
        return stage

    def take(self, happening: DaemonEvent) -> None:
        """Something happened."""
        self.happenings[happening.name] += 1
        match happening.what:
            case StepStarted(stage=stage, waited_s=waited_s):
                self.wait_s[self.known(stage)].add(waited_s)
            case StepEnded(stage=stage, outcome=outcome, held_s=held_s):
                stage = self.known(stage)
                self.steps[stage, outcome] += 1
                if outcome == "done":
                    self.step_s[stage].add(held_s)
            case Recorded(purpose=purpose, failure=failure):
                if purpose == Purpose.TRIAL:
                    self.trials[failure or "ok"] += 1
                elif purpose != Purpose.KNOWN:
                    self.retakes += 1
            case EndJob(state=ended):
                self.jobs_ended[ended.value] += 1
            case RecordsTagged(records=records):
                self.disturbed += records
