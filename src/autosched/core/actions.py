"""Outputs of the scheduler: a decision on each event. Its actions have names in the imperative, and are performed in
order."""

from msgspec import Struct

from autosched.core.events import Event
from autosched.model import HostName, JobFailure, JobId, JobState, Step, StepId


class StartClient(Struct, frozen=True, tag=True):
    """The job needs a client: post ClientPlaced when it is its turn to be started."""

    job: JobId


class LaunchClient(Struct, frozen=True, tag=True):
    """Start the job's client process on this host."""

    job: JobId
    host: HostName


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


Action = StartClient | LaunchClient | StopClient | StartStep | RevokeStep | EndJob | ReplacePolicy


class Decision(Struct, frozen=True):
    """The whole answer to one event."""

    event: Event
    """The event for the journal, with what the core has chosen."""
    actions: tuple[Action, ...]
    wake_at: float | None
    """Time of the next DeadlineReached, unless another event comes first; None: none is needed."""
    search: bool
    """Whether to search ahead now, see `Scheduler.search`."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that the event starts, for the journal."""
        return tuple([action.step for action in self.actions if isinstance(action, StartStep)])
