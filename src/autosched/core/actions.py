"""Everything the scheduler can ask for. Imperative; performed in order by the shell."""

from msgspec import Struct

from autosched.model import JobFailure, JobId, JobState, Step, StepId


class StartClient(Struct, frozen=True, tag=True):
    """Start the process that hosts this job."""

    job: JobId


class StopClient(Struct, frozen=True, tag=True):
    """End the process that hosts this job, within a second; answered by ClientLost, also if there was no process.

    Only for a job that has ended and holds no step the answer may be left out.
    """

    job: JobId
    reason: str


class StartStep(Struct, frozen=True, tag=True):
    """Tell the client to run this step on these units."""

    step: Step


class RevokeStep(Struct, frozen=True, tag=True):
    """Kill this step; its units stay leased until StepEnded or ClientLost says that it is dead."""

    step: StepId
    job: JobId
    reason: str


class EndJob(Struct, frozen=True, tag=True):
    """The job is over; tell the users that wait for it."""

    job: JobId
    state: JobState
    failure: JobFailure | None = None


class ReplacePolicy(Struct, frozen=True, tag=True):
    """The policy is broken and decides no more: say so loudly, and post PolicyChosen with what decides instead."""

    policy: str
    instead: str
    reason: str


Action = StartClient | StopClient | StartStep | RevokeStep | EndJob | ReplacePolicy
