"""Actions: the outputs of the scheduler. Named in the imperative; the daemon performs them in order."""

from msgspec import Struct

from autosched.model import JobFailure, JobId, JobState, Step, StepId


class StartClient(Struct, frozen=True, tag=True):
    """Start the job's client process."""

    job: JobId


class StopClient(Struct, frozen=True, tag=True):
    """End the job's client process within a second. ClientLost follows, even if there was no process.

    ClientLost may be omitted for an ended job that holds no step.
    """

    job: JobId
    reason: str


class StartStep(Struct, frozen=True, tag=True):
    """Tell the client to run the step on its units."""

    step: Step


class RevokeStep(Struct, frozen=True, tag=True):
    """Kill the step. Its units stay leased until StepEnded or ClientLost reports its end."""

    step: StepId
    job: JobId
    reason: str


class EndJob(Struct, frozen=True, tag=True):
    """The job has ended: notify the users that wait for it."""

    job: JobId
    state: JobState
    failure: JobFailure | None = None


class ReplacePolicy(Struct, frozen=True, tag=True):
    """The policy has failed: report it, and post PolicyChosen with the policy that replaces it."""

    policy: str
    instead: str
    reason: str


Action = StartClient | StopClient | StartStep | RevokeStep | EndJob | ReplacePolicy
