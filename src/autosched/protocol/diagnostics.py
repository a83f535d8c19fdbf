"""Methods of operators about the inside of a daemon: figures, queues, stalls and tasks of its event loop."""

from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import JobId
from autosched.protocol.method import Done, Method, Role


class Figures(Struct, frozen=True):
    """Numbers and words by section; times in the unit that the name ends in."""

    sections: dict[str, dict[str, str | int | float]]


class GetFigures(Method, frozen=True):
    """How the daemon is, in figures: one section, or all."""

    result = Figures
    least_role = Role.VIEWER
    section: Annotated[str, Meta(max_length=20)] = ""


class Place(Struct, frozen=True):
    """A task that waits."""

    job: JobId
    task: int
    stage: str
    waited_s: float


class QueueView(Struct, frozen=True):
    """The tasks that wait for a pool, the next one first."""

    pool: str
    units: int
    free: int
    waiting: int
    first: tuple[Place, ...]


class QueueList(Struct, frozen=True):
    """All pools."""

    queues: tuple[QueueView, ...]


class ListQueues(Method, frozen=True):
    """List the waiting tasks of each pool in scheduling order, at most `limit` of each."""

    result = QueueList
    least_role = Role.VIEWER
    limit: Annotated[int, Meta(ge=1, le=100)] = 5


class Stall(Struct, frozen=True):
    """A pause of the daemon's loop, and the call that caused it."""

    id: int
    at: str
    """Wall time, ISO 8601."""
    seconds: float
    where: str
    """Stack during the stall, the innermost call first; empty when it was not sampled."""


class StallList(Struct, frozen=True):
    """The latest, newest last."""

    stalls: tuple[Stall, ...]


class ListStalls(Method, frozen=True):
    """When the daemon's loop stood still."""

    result = StallList
    least_role = Role.VIEWER


class LoopTask(Struct, frozen=True):
    """Something that goes on in the daemon, an asyncio task."""

    id: int
    """As long as it lives."""
    name: str
    stack: tuple[str, ...]
    """Where it waits, the outermost call first."""


class LoopTaskList(Struct, frozen=True):
    """All of them, the oldest first."""

    tasks: tuple[LoopTask, ...]


class ListLoopTasks(Method, frozen=True):
    """List the tasks of the daemon's event loop, and where each of them waits."""

    result = LoopTaskList
    audited = False


class SettingChange(Struct, frozen=True):
    """A setting that is another in the file than in the daemon."""

    name: str
    old: str
    new: str
    restart: bool
    """It becomes true at the next start only."""


class Reloaded(Struct, frozen=True):
    """Settings that changed, or would change."""

    file: str
    changes: tuple[SettingChange, ...]
    reverts_in_s: float | None = None
    """Everything is undone then, unless it is confirmed."""


class Reload(Method, frozen=True):
    """Read the settings again: with `check` only say what would change; with `timeout_s` undo it then, unless it is
    confirmed."""

    result = Reloaded
    check: bool = False
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class ConfirmReload(Method, frozen=True):
    """Keep what was reloaded."""

    result = Done
