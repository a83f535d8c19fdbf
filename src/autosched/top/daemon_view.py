"""A daemon at one moment."""

from msgspec import Struct

from autosched.model import JobState
from autosched.protocol import DaemonInfo, JobView, UnitView

ENDED_SHOWN = 30
"""Number of ended jobs that are shown besides the active ones."""


class DaemonView(Struct, frozen=True):
    """A daemon at one moment."""

    info: DaemonInfo
    jobs: tuple[JobView, ...]
    """Active jobs, oldest first; then ended ones, the last one first."""
    units: tuple[UnitView, ...]
    now: float
    """Scheduler clock, seconds."""


def ordered(jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """Jobs in the order in which they are shown."""
    active = [job for job in jobs if not JobState(job.state).ended]
    ended = [job for job in jobs if JobState(job.state).ended]
    return (*active, *sorted(ended, key=lambda job: -(job.ended_at or 0.0))[:ENDED_SHOWN])
