"""The states of a job's client and of a task, and the transitions between them.

A state carries what is known in that state alone. `CLIENT` and `TASK` list every transition with its cause; `follow`
reports any other one as an error of the scheduler. The diagrams in ARCHITECTURE.md are made from these tables.
"""

from collections.abc import Mapping

from msgspec import Struct

from autosched.model import PoolName, StepId

Key = tuple[float | int | str, ...]
"""Sort key of a task in a queue: the smallest starts first."""


# The client of a job --------------------------------------------------------------------------------------------------


class Queued(Struct, frozen=True, tag=True):
    """No client runs, and none is to be started: no host with devices of the job's kind can be reached. Also the first
    state of a job, for a moment."""


class Placing(Struct, frozen=True, tag=True):
    """The client is to be started on a host that is not chosen yet. For an external job: its user is to start it."""

    speak_by: float | None
    """Time by which it must connect; None: the time has passed, and the client is being stopped."""


class Starting(Struct, frozen=True, tag=True):
    """The client was started on the job's host, and has not connected."""

    speak_by: float | None
    """As in `Placing`."""


class Attached(Struct, frozen=True, tag=True):
    """The client is connected."""

    speak_by: float | None = None
    """Time by which it must name work; None: it has work, or is being stopped."""


class CutOff(Struct, frozen=True, tag=True):
    """The client cannot be reached. It may run its steps to their end; no other step starts until it reconnects."""

    reason: str
    speak_by: float | None = None
    """Time by which it must reconnect; None: the deadlines of its steps bound the wait, or it is being stopped."""


class Lost(Struct, frozen=True, tag=True):
    """The job has ended and has no client, or none that the daemon waits for."""


NO_CLIENT = Queued()
ClientState = Queued | Placing | Starting | Attached | CutOff | Lost

Moves = Mapping[type[Struct], Mapping[type[Struct], str]]
"""For each state, the states that may follow it, with the cause."""

_ENDED, _DIED, _LEFT = "the job ends", "it dies", "its host leaves, or the daemon starts again"
CLIENT: Moves = {
    Queued: {Queued: "no such host yet", Placing: "a host can be reached", Lost: _ENDED},
    Placing: {
        Queued: "no host can be reached, or the daemon starts again", Placing: _DIED, Starting: "its host is chosen",
        Attached: "it connects", Lost: _ENDED,
    },
    Starting: {Queued: _LEFT, Placing: _DIED, Attached: "it connects", Lost: _ENDED},
    Attached: {
        Queued: _LEFT, Placing: _DIED, Attached: "it connects again",
        CutOff: "its connection breaks", Lost: _ENDED,
    },
    CutOff: {
        Queued: _LEFT, Placing: _DIED, Attached: "it reconnects",
        CutOff: "the daemon starts again", Lost: _ENDED,
    },
    Lost: {},
}  # fmt: skip
"""Transitions of a job's client."""


# A task ---------------------------------------------------------------------------------------------------------------


class Idle(Struct, frozen=True, tag=True):
    """The task has nothing to run, as far as its client has said."""

    @property
    def stage(self) -> str:
        """No stage."""
        return ""


class Waiting(Struct, tag=True):
    """The task waits for the units of its next step. `ticket`, `key` and `movable_in` are set when it joins queues."""

    stage: str
    pools: tuple[PoolName, ...]
    """Pools of the client's host; the step needs one unit of each."""
    elsewhere: tuple[PoolName, ...] = ()
    """Alternative pools on other hosts, where the job has helpers; one unit is enough."""
    movable_in: PoolName = ""
    """Name of the kind in `State.kinds` in whose queue the task waits too; empty: in none."""
    ticket: int = 0
    """The queue entries with this number are valid, all others are stale. 0: it has not joined its queues yet."""
    key: Key = ()
    """Sort key in the queues, as last computed."""

    @property
    def all_pools(self) -> tuple[PoolName, ...]:
        """The pools in whose queues the task waits, each once."""
        if len(self.pools) == 1 and not self.elsewhere:
            return self.pools
        return tuple(dict.fromkeys((*self.pools, *self.elsewhere)))


class Running(Struct, tag=True):
    """Steps of the task run, all of one stage."""

    stage: str
    steps: dict[StepId, None]
    """The running steps, in the order of their start. Those after the first share its work, on other units."""
    shared_s: float = 0.0
    """Total seconds of ended steps that shared the stage's work."""
    dealt_out: bool = False
    """Whether one of several steps has ended: no work is left to share then."""


TaskState = Idle | Waiting | Running
IDLE = Idle()

TASK: Moves = {
    Idle: {Waiting: "its client names the next step"},
    Waiting: {Idle: "its client withdraws it or is lost", Running: "its units are free"},
    Running: {Idle: "its last step ends"},
}
"""Transitions of a task."""


def follow(moves: Moves, old: Struct, new: Struct) -> None:
    """Check a transition. Raises AssertionError."""
    assert type(new) in moves[type(old)], f"{new} cannot follow {old}"


def diagram() -> str:
    """All transitions as the text of a Mermaid state diagram."""
    lines = ["stateDiagram-v2"]
    for old, nexts in (*CLIENT.items(), *TASK.items()):
        lines += [f"    {old.__name__} --> {new.__name__}: {cause}" for new, cause in nexts.items()]
    return "\n".join(lines)
