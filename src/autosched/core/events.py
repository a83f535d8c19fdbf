"""Everything that can happen to the scheduler. Past tense; the class name is its name in the journal and the logs."""

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
    """The daemon started with these pools. Steps of an earlier life are lost, and their jobs start anew, but for those
    whose client may have outlived it."""

    pools: tuple[Pool, ...]
    step_timeout_s: float
    attach_timeout_s: float
    policy: str = ""
    """By name; empty: the policy the scheduler was made with."""
    goal: Goal = Goal.BALANCED
    kept: tuple[JobId, ...] = ()
    """Their clients may be alive: their steps, of which all units are there still, keep their leases until the client
    says which of them it has, or is lost."""


class JobSubmitted(Struct, frozen=True, tag=True):
    """A user submitted a job; the id is the next one free."""

    job: JobId
    spec: JobSpec
    owner: str = ""
    """Who; empty in journals that do not say."""


class ClientAttached(Struct, frozen=True, tag=True):
    """The job's client is connected, or has come back, and has said what it can do."""

    job: JobId
    load: JobLoad
    holds: tuple[StepId, ...] | None = None
    """The steps that it runs, or has ended without hearing that this is known; all other steps of the job are lost.
    None: there were none."""


class ClientCutOff(Struct, frozen=True, tag=True):
    """The job's client cannot be reached. It may go on with its steps, and be attached again; until then none start."""

    job: JobId
    reason: str


class ClientLost(Struct, frozen=True, tag=True):
    """The job's client is gone, and with it whatever it was running, also on other hosts."""

    job: JobId
    reason: str
    progressed: bool = False
    """Whether it left a record, from which the next client goes on."""


class StepEnded(Struct, frozen=True, tag=True):
    """A step ended. `load` is what the client can do now; None when the client could not be asked."""

    step: StepId
    outcome: Outcome
    load: JobLoad | None = None
    error: str = ""
    worked_s: float | None = None
    """How long the stage itself ran, by the client's clock; the scheduler has its own."""


class JobCancelRequested(Struct, frozen=True, tag=True):
    """A user wants the job stopped."""

    job: JobId
    by: str


class JobAltered(Struct, frozen=True, tag=True):
    """From now on the job is wanted so; while it is held, for a reason, none of its steps start."""

    job: JobId
    by: str
    priority: int
    deadline_s: float | None
    held: str = ""


class Paused(Struct, frozen=True, tag=True):
    """From now on no steps start at all; without a reason: they start again."""

    by: str
    reason: str = ""
    until_restart: bool = False
    """Whether it ends with the next start of the daemon: it waits for running steps in order to stop."""


class PolicyChosen(Struct, frozen=True, tag=True):
    """From now on this policy decides: an operator wants it, or the policy before it is broken."""

    policy: str
    goal: Goal
    by: str
    reason: str = ""


class RuleChosen(Struct, frozen=True, tag=True):
    """Looking ahead has shown which rule `predictive` does best to follow from now on."""

    rule: str


class Quarantined(Struct, frozen=True):
    """Why the daemon itself keeps a device away from work."""

    reason: str
    pause_s: float
    """Seconds until it is probed."""
    attempt: str = ""
    """Result of the last probe; empty: there was none."""


class UnitDrained(Struct, frozen=True, tag=True):
    """From now on this unit gets no steps; the one that runs on it goes on."""

    unit: UnitName
    reason: str
    by: str
    deadline_s: float | None = None
    """Seconds that a running step may go on, unless the unit is returned before."""
    quarantine: Quarantined | None = None
    """Set when the daemon itself drains a device, because it does not trust the device. `reason` tells it in words."""


class UnitReturned(Struct, frozen=True, tag=True):
    """A drained unit gets steps again."""

    unit: UnitName
    by: str


class HostJoined(Struct, frozen=True, tag=True):
    """A host lends these pools, or can be reached again: its units get steps. No step runs there but those of clients
    that the daemon knows."""

    host: HostName
    pools: tuple[Pool, ...]
    """Pools and units are called by the host: `model.at_host`."""
    machine: str = ""
    """Which machine it is, whatever its name."""
    software: str = ""
    """Digest of the versions there that decide how code is built and measured; empty: they are those of the daemon's
    own host. Stages of one job run on hosts with the same ones."""


class HostCutOff(Struct, frozen=True, tag=True):
    """A host cannot be reached, or leaves: its units get no steps. What runs there goes on until `lost_at`."""

    host: HostName
    reason: str
    lost_at: float | None = None
    """When the host itself must have ended all that runs there, in seconds of the scheduler's clock; None: it is asked
    to end it."""


class HostLeft(Struct, frozen=True, tag=True):
    """A host has gone, and nothing runs there any more: its clients are lost. Jobs for kinds of devices that it alone
    has wait until it is back. Clients elsewhere hear that their helpers there are gone, and end those steps."""

    host: HostName
    reason: str


class HostForgotten(Struct, frozen=True, tag=True):
    """A host that has left is not expected back."""

    host: HostName


class BoardJoined(Struct, frozen=True, tag=True):
    """A board that registers itself is there, for the first time or again: a device of the daemon's own host, which
    gets steps."""

    unit: Unit
    pool: PoolName


class BoardGone(Struct, frozen=True, tag=True):
    """Such a board is not there: it gets no steps until it joins again. A step that holds it ends by its client's
    word, or in its time."""

    unit: UnitName
    reason: str


class ClientPlaced(Struct, frozen=True, tag=True):
    """The job's client is started on this host, whose pools its job's stages get."""

    job: JobId
    host: HostName


class StagesFreed(Struct, frozen=True, tag=True):
    """The job's client says which stages may run on other hosts than its own: a helper of it runs them there, and what
    it needs for them is brought there."""

    job: JobId
    stages: tuple[str, ...]
    divisible: tuple[str, ...] = ()
    """Stages of which several steps, each on a unit of its own, may share the work."""


class HistoryRecalled(Struct, frozen=True, tag=True):
    """Stage times of the job's tasks in earlier jobs, as the store has them."""

    job: JobId
    stages: tuple[StageHistory, ...]


class JobPruned(Struct, frozen=True, tag=True):
    """This job, which had ended, is not known any more. In the journal it then also stands where the events of the job
    stood: a replay passes over all of them."""

    job: JobId


class DeadlineReached(Struct, frozen=True, tag=True):
    """The time named by Scheduler.deadline() has come and nothing else happened."""


Event = (
    ResourcesDeclared | JobSubmitted | HistoryRecalled | JobPruned | ClientAttached | ClientLost | StepEnded
    | JobCancelRequested | JobAltered | Paused | PolicyChosen | RuleChosen | UnitDrained | UnitReturned
    | ClientCutOff | HostJoined | HostCutOff | HostLeft | HostForgotten | BoardJoined | BoardGone | ClientPlaced
    | StagesFreed | DeadlineReached
)  # fmt: skip
