"""Counters since the daemon started, from the event stream, the event loop and the disk.

`web/metrics.py` exports them for Prometheus. The number of series is bounded: clients may name any stage, and only the
first `STAGES_MAX` are counted by name.
"""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence

from autosched.core.actions import EndJob
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Recorded, RecordsTagged, StepEnded, StepStarted
from autosched.model import Purpose

STAGES_MAX = 32
"""Maximum number of stages that are counted by name."""
OTHER = "other"
STEP_BOUNDS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1_000.0)
QUICK_BOUNDS_S = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)


class Histogram:
    """Numbers of values up to each bound, and the sum of all values."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """Add a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, int]]:
        """Upper bounds as text, and the number of values up to each, as Prometheus expects."""
        total, found = 0, []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            found.append((bound, total))
        return found


def _steps() -> "defaultdict[str, Histogram]":
    return defaultdict(lambda: Histogram(STEP_BOUNDS_S))


class Counters:
    """Counters since the daemon started."""

    def __init__(self) -> None:
        self.events: Counter[str] = Counter()
        """Events by name."""
        self.steps: Counter[tuple[str, str]] = Counter()
        """Ended steps by stage and outcome."""
        self.step_s = _steps()
        """Seconds of the leases of done steps, by stage."""
        self.wait_s = _steps()
        """Seconds that tasks waited for a lease, by stage."""
        self.trials: Counter[str] = Counter()
        """Trials by outcome: "ok", or the kind of failure."""
        self.retakes = 0
        self.disturbed = 0
        self.jobs_ended: Counter[str] = Counter()
        self.lag_s = Histogram(QUICK_BOUNDS_S)
        self._stages: set[str] = set()

    def known(self, stage: str) -> str:
        """The name under which a stage is counted: its own, or "other"."""
        if stage not in self._stages:
            if len(self._stages) >= STAGES_MAX:
                return OTHER
            self._stages.add(stage)
        return stage

    def take(self, event: DaemonEvent) -> None:
        """Count an event."""
        self.events[event.name] += 1
        match event.what:
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
