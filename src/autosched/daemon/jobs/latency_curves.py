"""How each job's latency fell, as far as it was seen in this life of the daemon: a few points per job, from the stream.

The exact curves of one job are made from its records on request; these are for looking at all jobs.
"""

from autosched.core.actions import EndJob
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Recorded, RecordsTagged
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.model import JobId, TaskIndex

JOBS_KEPT = 200
"""Ended ones; the oldest are forgotten."""
POINTS_MAX = 120
"""Per job; when there are more, every second one goes."""

Point = tuple[float, int, float]
"""When (scheduler clock), after how many trials, and the latency of the network in seconds: expected, at the job's end
measured."""


class Curves:
    """Fed by the stream, after the progress has counted the record."""

    KINDS = (Recorded, RecordsTagged, EndJob)

    def __init__(self, progress: ProgressRegistry) -> None:
        self._progress = progress
        self._best_s: dict[JobId, dict[TaskIndex, float | None]] = {}
        self.of: dict[JobId, list[Point]] = {}
        self._ended: dict[JobId, None] = {}

    def take(self, happening: DaemonEvent) -> None:
        """Something happened."""
        match happening.what:
            case Recorded(job=job, task=task):
                known, best_s = self._best_s.setdefault(job, {}), self._progress.get(job).best_s(task)
                if best_s != known.get(task):
                    known[task] = best_s
                    self._add(job, happening.at)
            case RecordsTagged(job=job):
                self._add(job, happening.at)
            case EndJob(job=job):
                self._best_s.pop(job, None)
                self._add(job, happening.at)
                if job in self.of:
                    self._ended[job] = None
                if len(self._ended) > JOBS_KEPT:
                    oldest = next(iter(self._ended))
                    del self._ended[oldest], self.of[oldest]

    def _add(self, job: JobId, now: float) -> None:
        """Add a point where the latency has changed; it rises where a disturbed measurement is corrected."""
        progress = self._progress.get(job)
        if (whole_s := progress.whole_s) is None:
            return
        points = self.of.setdefault(job, [])
        if not points or whole_s != points[-1][2]:
            points.append((now, progress.trials, whole_s))
        if len(points) > POINTS_MAX:
            del points[1:-1:2]
