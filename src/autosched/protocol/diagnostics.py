"""Methods of operators for diagnosing a daemon: figures, queues, stalls and tasks of its event loop."""

from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import JobId
from autosched.protocol.method import Done, Method, Role


class Figures(Struct, frozen=True):
    """Numbers and words by section; times in the unit that the name ends in."""

    sections: dict[str, dict[str, str | int | float]]


class GetFigures(Method, frozen=True):
    """Get figures of the daemon: one section, or all."""

    result = Figures
    least_role = Role.VIEWER
    section: Annotated[str, Meta(max_length=20)] = ""


class Place(Struct, frozen=True):
    """A waiting task."""

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
    """The queues of all pools."""

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
    """Stack during the stall, the innermost call first; empty if it was not sampled."""


class StallList(Struct, frozen=True):
    """The latest stalls, newest last."""

    stalls: tuple[Stall, ...]


class ListStalls(Method, frozen=True):
    """List stalls of the daemon's event loop."""

    result = StallList
    least_role = Role.VIEWER


class LoopTask(Struct, frozen=True):
    """An asyncio task of the daemon."""

    id: int
    """Valid as long as the task exists."""
    name: str
    stack: tuple[str, ...]
    """Where the task waits, the outermost call first."""


class LoopTaskList(Struct, frozen=True):
    """All tasks, the oldest first."""

    tasks: tuple[LoopTask, ...]


class ListLoopTasks(Method, frozen=True):
    """List the tasks of the daemon's event loop, and where each of them waits."""

    result = LoopTaskList
    audited = False


class SettingChange(Struct, frozen=True):
    """A setting that differs between the file and the daemon."""

    name: str
    old: str
    new: str
    restart: bool
    """Whether it takes effect at the next start only."""


class Reloaded(Struct, frozen=True):
    """Settings that changed, or would change."""

    file: str
    changes: tuple[SettingChange, ...]
    reverts_in_s: float | None = None
    """Seconds after which all changes are undone unless they are confirmed."""


class Reload(Method, frozen=True):
    """Read the settings again. With `check`, only list the changes; with `timeout_s`, undo them after that time unless
    they are confirmed."""

    result = Reloaded
    check: bool = False
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None


class ConfirmReload(Method, frozen=True):
    """Keep reloaded settings."""

    result = Done
