"""Short methods to play events to the scheduler. Checks all invariants after each event."""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from autosched.core.actions import Action, EndJob, RevokeStep, StartClient, StartStep, StopClient
from autosched.core.events import (
    ClientAttached,
    ClientLost,
    DeadlineReached,
    Event,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    StepEnded,
)
from autosched.core.policies.policy import INTERLEAVED, Policy
from autosched.core.scheduler import Scheduler
from autosched.model import JobFailure, JobLoad, JobSpec, Outcome, Pool, Step, TaskLoad, Unit
from transcripts import through_codec_action, through_codec_event

A = TypeVar("A", bound=Action)

HOST = ("host",)
DEVICE = ("device:cpu",)
BOTH = ("host", "device:cpu")


def pool(name: str, *units: str) -> Pool:
    return Pool(name, tuple(Unit(unit) for unit in units))


ONE_EACH = (pool("host", "host/0"), pool("device:cpu", "cpu0"))
ONE_CORE = (pool("host", "core0"), pool("device:cpu", "core0"))


def wants(task: int, pools: Sequence[str] = HOST, stage: str = "build", *, timeout_s: float | None = None) -> TaskLoad:
    return TaskLoad(task=task, resources_next=tuple(pools), stage_next=stage, timeout_s=timeout_s)


def idle(task: int) -> TaskLoad:
    return TaskLoad(task=task)


def complete(task: int) -> TaskLoad:
    return TaskLoad(task=task, complete=True)


class Story:
    def __init__(
        self,
        pools: tuple[Pool, ...] = ONE_EACH,
        policy: Policy = INTERLEAVED,
        *,
        step_timeout_s: float = 600.0,
        attach_timeout_s: float = 60.0,
    ) -> None:
        self.core = Scheduler(policy)
        self.state = self.core.state
        self.now = 0.0
        self.said: list[Action] = []
        self.tell(ResourcesDeclared(pools, step_timeout_s, attach_timeout_s))

    def tell(self, event: Event, at: float | None = None) -> list[Action]:
        self.now = self.now if at is None else at
        self.decision = self.core.handle(self.now, through_codec_event(event))
        actions = [through_codec_action(action) for action in self.decision.actions]
        self.state.check_all(exclusive=not self.state.shares_units)
        self.said += actions
        return actions

    # events

    def submit(self, *, external: bool = False) -> int:
        job = self.state.last_job + 1
        self.tell(JobSubmitted(job, JobSpec(name=f"job {job}", model="0" * 64, external=external)))
        return job

    def attach(self, job: int, *loads: TaskLoad, at: float | None = None) -> list[Step]:
        return steps(self.tell(ClientAttached(job, JobLoad(tasks=loads)), at))

    def running(self, *loads: TaskLoad, at: float | None = None) -> int:
        job = self.submit()
        self.attach(job, *loads, at=at)
        return job

    def end(
        self,
        step: int,
        *loads: TaskLoad,
        at: float | None = None,
        outcome: Outcome = Outcome.DONE,
        job_complete: bool = False,
        failure: JobFailure | None = None,
    ) -> list[Action]:
        return self.tell(StepEnded(step, outcome, JobLoad(tasks=loads, complete=job_complete, failure=failure)), at)

    def lose(self, job: int, at: float | None = None, *, progressed: bool = False) -> list[Action]:
        return self.tell(ClientLost(job, "killed by signal 9", progressed), at)

    def cancel(self, job: int, at: float | None = None) -> list[Action]:
        return self.tell(JobCancelRequested(job, "ada"), at)

    def wait(self) -> list[Action]:
        assert self.wake_at is not None, "nothing is waited for"
        return self.tell(DeadlineReached(), max(self.now, self.wake_at))

    # state

    @property
    def wake_at(self) -> float | None:
        return self.decision.wake_at

    def holders(self) -> dict[str, int | None]:
        return {name: slot.holder for name, slot in self.state.slots.items()}

    def starts(self) -> list[tuple[int, int]]:
        """Returns (job, task) of each started step, in order."""
        return [(step.job, step.task) for step in steps(self.said)]


def of(kind: type[A], actions: Iterable[Action]) -> list[A]:
    return [action for action in actions if isinstance(action, kind)]


def steps(actions: Iterable[Action]) -> list[Step]:
    return [action.step for action in of(StartStep, actions)]


__all__ = [
    "BOTH", "DEVICE", "HOST", "ONE_CORE", "ONE_EACH", "EndJob", "RevokeStep", "StartClient", "StopClient", "Story",
    "complete", "idle", "of", "pool", "steps", "wants",
]  # fmt: skip
