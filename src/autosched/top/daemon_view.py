"""A daemon at one moment, as it is shown."""

from msgspec import Struct

from autosched.model import JobState
from autosched.protocol import DaemonInfo, JobView, UnitView

ENDED_SHOWN = 30
"""Jobs that have ended, beside the active ones."""


class DaemonView(Struct, frozen=True):
    """A daemon at one moment."""

    info: DaemonInfo
    jobs: tuple[JobView, ...]
    """The active ones first, oldest first; then those that ended, the last one first."""
    units: tuple[UnitView, ...]
    now: float
    """Scheduler clock, seconds."""


def ordered(jobs: tuple[JobView, ...]) -> tuple[JobView, ...]:
    """As they are shown."""
    active = [job for job in jobs if not JobState(job.state).ended]
    ended = [job for job in jobs if JobState(job.state).ended]
    return (*active, *sorted(ended, key=lambda job: -(job.ended_at or 0.0))[:ENDED_SHOWN])
