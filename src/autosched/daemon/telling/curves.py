"""How each job's latency fell, as far as it was seen in this life of the daemon: a few points per job, from the stream.

The exact curves of one job are made from its records when somebody looks at it; these are for looking at all jobs.
"""

from autosched.core.actions import EndJob
from autosched.daemon.telling.happenings import Happening, Recorded
from autosched.daemon.telling.progress import Ledger
from autosched.model import JobId, Purpose, TaskIndex

JOBS_KEPT = 200
"""Ended ones; the oldest are forgotten."""
POINTS_MAX = 120
"""Per job; when there are more, every second one goes."""

Point = tuple[float, int, float]
"""When (scheduler clock), after how many trials, and the estimate of the network's latency in seconds."""


class Curves:
    """Fed by the stream, after the ledger has counted the record."""

    KINDS = (Recorded, EndJob)

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._best: dict[JobId, dict[TaskIndex, float]] = {}
        self.of: dict[JobId, list[Point]] = {}
        self._ended: dict[JobId, None] = {}

    def take(self, happening: Happening) -> None:
        """Something happened."""
        match happening.what:
            case Recorded(job=job, task=task, latency_s=float(latency_s), purpose=Purpose.TRIAL | Purpose.AGAIN):
                best = self._best.setdefault(job, {})
                if latency_s < best.get(task, float("inf")):
                    best[task] = latency_s
                    self._add(job, happening.at)
            case EndJob(job=job):
                self._best.pop(job, None)
                if job in self.of:
                    self._ended[job] = None
                if len(self._ended) > JOBS_KEPT:
                    oldest = next(iter(self._ended))
                    del self._ended[oldest], self.of[oldest]

    def _add(self, job: JobId, now: float) -> None:
        progress = self._ledger.of(job)
        estimate_s = progress.estimate_s
        if estimate_s is None:
            return
        points = self.of.setdefault(job, [])
        if not points or estimate_s < points[-1][2]:
            points.append((now, progress.trials, estimate_s))
        if len(points) > POINTS_MAX:
            del points[1:-1:2]
