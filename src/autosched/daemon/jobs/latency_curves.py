"""Latency of each job over time since the daemon started, in a few points per job, for views of all jobs.

The exact curve of a single job is computed from its records on request.
"""

from autosched.core.actions import EndJob
from autosched.daemon.event_stream.daemon_events import DaemonEvent, Recorded, RecordsTagged
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.model import JobId, TaskIndex

JOBS_KEPT = 200
"""Maximum number of ended jobs whose curves are kept."""
POINTS_MAX = 120
"""Maximum number of points of a job; beyond, every second point is dropped."""

Point = tuple[float, int, float]
"""Time by the scheduler's clock, number of trials, and latency of the network in seconds: expected, at the job's end
measured."""


class Curves:
    """The curves of all jobs. Takes events after the progress registry has counted their records."""

    KINDS = (Recorded, RecordsTagged, EndJob)

    def __init__(self, progress: ProgressRegistry) -> None:
        self._progress = progress
        self._best_s: dict[JobId, dict[TaskIndex, float | None]] = {}
        self.of: dict[JobId, list[Point]] = {}
        self._ended: dict[JobId, None] = {}

    def take(self, event: DaemonEvent) -> None:
        """Take an event."""
        match event.what:
            case Recorded(job=job, task=task):
                known, best_s = self._best_s.setdefault(job, {}), self._progress.get(job).best_s(task)
                if best_s != known.get(task):
                    known[task] = best_s
                    self._add(job, event.at)
            case RecordsTagged(job=job):
                self._add(job, event.at)
            case EndJob(job=job):
                self._best_s.pop(job, None)
                self._add(job, event.at)
                if job in self.of:
                    self._ended[job] = None
                if len(self._ended) > JOBS_KEPT:
                    oldest = next(iter(self._ended))
                    del self._ended[oldest], self.of[oldest]

    def _add(self, job: JobId, now: float) -> None:
        """Add a point if the latency has changed. It rises when a disturbed measurement is corrected."""
        progress = self._progress.get(job)
        if (whole_s := progress.whole_s) is None:
            return
        points = self.of.setdefault(job, [])
        if not points or whole_s != points[-1][2]:
            points.append((now, progress.trials, whole_s))
        if len(points) > POINTS_MAX:
            del points[1:-1:2]
