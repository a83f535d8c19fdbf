"""Everything that can happen to the scheduler. Past tense; the class name is its name in the journal and the logs."""

from msgspec import Struct

from autosched.model import JobId, JobLoad, JobSpec, Outcome, Pool, StepId


class ResourcesDeclared(Struct, frozen=True, tag=True):
    """The daemon started with these pools. Steps of an earlier life are lost, their jobs start anew."""

    pools: tuple[Pool, ...]
    step_timeout_s: float
    attach_timeout_s: float
    policy: str = ""
    """By name, so that a replay decides as this life did; empty: the policy the scheduler was made with."""


class JobSubmitted(Struct, frozen=True, tag=True):
    """A user submitted a job; the id is the next one free."""

    job: JobId
    spec: JobSpec


class ClientAttached(Struct, frozen=True, tag=True):
    """The job's client is connected and has said what it can do."""

    job: JobId
    load: JobLoad


class ClientLost(Struct, frozen=True, tag=True):
    """The job's client is gone, and with it whatever it was running."""

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


class DeadlineReached(Struct, frozen=True, tag=True):
    """The time named by Scheduler.deadline() has come and nothing else happened."""


Event = (
    ResourcesDeclared | JobSubmitted | ClientAttached | ClientLost | StepEnded | JobCancelRequested | DeadlineReached
)
