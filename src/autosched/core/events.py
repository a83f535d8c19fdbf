"""Events: the inputs of the scheduler. Named in the past tense; class names are also used in the journal and logs."""

from msgspec import Struct

from autosched.model import (
    Goal,
    HostName,
    JobId,
    JobLoad,
    JobSpec,
    Outcome,
    Pool,
    PoolName,
    StageHistory,
    StepId,
    Unit,
    UnitName,
)


class ResourcesDeclared(Struct, frozen=True, tag=True):
    """The daemon started with these pools. Earlier steps are lost and their jobs get new clients, except for jobs whose
    client may have survived."""

    pools: tuple[Pool, ...]
    step_timeout_s: float
    attach_timeout_s: float
    policy: str = ""
    """Name of the policy; empty: the policy of the scheduler's constructor."""
    goal: Goal = Goal.BALANCED
    kept: tuple[JobId, ...] = ()
    """Jobs whose clients may be alive. Their steps keep their leases until the client reports its steps or is lost. All
    units of these steps still exist."""


class JobSubmitted(Struct, frozen=True, tag=True):
    """A user submitted a job. Its id follows that of the last job."""

    job: JobId
    spec: JobSpec
    owner: str = ""
    """The user; empty: not known, in old journals."""


class ClientAttached(Struct, frozen=True, tag=True):
    """The job's client has connected or reconnected, and has sent its load report."""

    job: JobId
    load: JobLoad
    holds: tuple[StepId, ...] | None = None
    """Steps that the client runs, or has ended without an acknowledgement; all other steps of the job are lost. None:
    the job had none."""


class ClientCutOff(Struct, frozen=True, tag=True):
    """The job's client cannot be reached. Its steps go on; no new steps start until the client reconnects."""

    job: JobId
    reason: str


class ClientLost(Struct, frozen=True, tag=True):
    """The job's client is gone, and with it all its steps, also on other hosts."""

    job: JobId
    reason: str
    progressed: bool = False
    """Whether the client left a new record, from which the next client continues."""
    hindered: bool = False
    """Whether its machine could not run it, so that the loss says nothing about the job."""


class StepEnded(Struct, frozen=True, tag=True):
    """A step ended. `load`: load report of the client after it; None: the client could not be asked."""

    step: StepId
    outcome: Outcome
    load: JobLoad | None = None
    error: str = ""
    worked_s: float | None = None
    """Seconds that the stage ran, by the client's clock; None: not reported."""


class JobCancelRequested(Struct, frozen=True, tag=True):
    """A user cancelled the job."""

    job: JobId
    by: str


class JobAltered(Struct, frozen=True, tag=True):
    """A user changed the job's priority, deadline or hold. No step of a held job starts; `held`: the reason."""

    job: JobId
    by: str
    priority: int
    deadline_s: float | None
    held: str = ""


class Paused(Struct, frozen=True, tag=True):
    """No steps of any job start from now on; with an empty reason: they start again."""

    by: str
    reason: str = ""
    until_restart: bool = False
    """Whether the pause ends at the daemon's next start: the daemon waits for running steps before it stops."""


class PolicyChosen(Struct, frozen=True, tag=True):
    """The policy was changed: by an operator, or because the earlier policy failed."""

    policy: str
    goal: Goal
    by: str
    reason: str = ""


class RuleChosen(Struct, frozen=True, tag=True):
    """The lookahead search chose the rule that `predictive` uses from now on."""

    rule: str


class Quarantined(Struct, frozen=True):
    """Facts about a quarantine of a device by the daemon."""

    reason: str
    pause_s: float
    """Seconds until the device is probed."""
    attempt: str = ""
    """Result of the last probe; empty: none yet."""


class UnitDrained(Struct, frozen=True, tag=True):
    """The unit gets no new steps from now on. A running step goes on."""

    unit: UnitName
    reason: str
    by: str
    deadline_s: float | None = None
    """Seconds after which a running step is revoked, unless the unit is returned before."""
    quarantine: Quarantined | None = None
    """Set when the daemon drained an unreliable device itself. `reason` says it in words."""


class UnitReturned(Struct, frozen=True, tag=True):
    """A drained unit gets steps again."""

    unit: UnitName
    by: str


class HostJoined(Struct, frozen=True, tag=True):
    """A host lends these pools, or can be reached again: its units get steps. Only steps of known clients run there."""

    host: HostName
    pools: tuple[Pool, ...]
    """Pools with the host in their names and units: `model.at_host`."""
    machine: str = ""
    """Identity of the machine, independent of its name."""
    software: str = ""
    """Digest of the software versions that affect builds and measurements; empty: the same as on the daemon's host. All
    stages of a job run on hosts with the same digest."""


class HostCutOff(Struct, frozen=True, tag=True):
    """A host cannot be reached, or is leaving: its units get no steps. Running steps go on until `lost_at`."""

    host: HostName
    reason: str
    lost_at: float | None = None
    """Time at which the host itself has ended all its steps, in seconds of the scheduler's clock; None: the daemon asks
    it to end them."""


class HostLeft(Struct, frozen=True, tag=True):
    """A host has left and nothing runs there any more: its clients are lost. Jobs for devices that only this host has
    wait until it is back. Clients on other hosts end the steps of their helpers there."""

    host: HostName
    reason: str


class HostForgotten(Struct, frozen=True, tag=True):
    """A host that has left is forgotten."""

    host: HostName


class BoardJoined(Struct, frozen=True, tag=True):
    """A board has registered itself, for the first time or again. It is a device of the daemon's own host, and gets
    steps."""

    unit: Unit
    pool: PoolName


class BoardGone(Struct, frozen=True, tag=True):
    """A board that registered itself is gone: it gets no steps until it joins again. A step that holds it ends when its
    client reports it, or at its deadline."""

    unit: UnitName
    reason: str


class BoardForgotten(Struct, frozen=True, tag=True):
    """A board that is gone, and that no step holds, is forgotten."""

    unit: UnitName


class ClientPlaced(Struct, frozen=True, tag=True):
    """It is the turn of the job's client to start, on this host. The job's stages run in the pools of that host."""

    job: JobId
    host: HostName | None = None
    """None before the decision: the core chooses the host. None in the journal: no host with the job's devices could be
    reached."""


class StagesFreed(Struct, frozen=True, tag=True):
    """The job's client reported which stages may run on other hosts. A helper runs them there, after their files were
    sent to it."""

    job: JobId
    stages: tuple[str, ...]
    divisible: tuple[str, ...] = ()
    """Stages whose work several steps may share, each on its own unit."""


class HistoryRecalled(Struct, frozen=True, tag=True):
    """Stage durations of the job's tasks in earlier jobs, from the store."""

    job: JobId
    stages: tuple[StageHistory, ...]


class JobPruned(Struct, frozen=True, tag=True):
    """An ended job was forgotten. In the journal this event also replaces the job's events, which a replay skips."""

    job: JobId


class DeadlineReached(Struct, frozen=True, tag=True):
    """The time `Decision.wake_at` was reached without another event."""


Event = (
    ResourcesDeclared | JobSubmitted | HistoryRecalled | JobPruned | ClientAttached | ClientLost | StepEnded
    | JobCancelRequested | JobAltered | Paused | PolicyChosen | RuleChosen | UnitDrained | UnitReturned
    | ClientCutOff | HostJoined | HostCutOff | HostLeft | HostForgotten | BoardJoined | BoardGone | BoardForgotten
    | ClientPlaced | StagesFreed | DeadlineReached
)  # fmt: skip
