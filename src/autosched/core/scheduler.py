"""The machine: apply one event, then start every waiting step whose units are free."""

import heapq
from collections.abc import Iterator
from typing import assert_never

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
from autosched.core.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.state import Job, State, Task, one_of_each
from autosched.model import JobFailure, JobId, JobLoad, JobState, Outcome, PoolName, Step, StepId, TaskLoad, UnitName

CLIENT_LOSSES_MAX = 3
"""Clients that a job may lose in a row, none of which left a record, before it is given up."""

REVOKE_GRACE_S = 10.0
"""How long a client may take to kill a step before it is killed itself."""


class Scheduler:
    """Decides what runs next. Holds no clock, no socket, no plugin: time arrives with each event."""

    def __init__(self, policy: Policy = INTERLEAVED) -> None:
        self.state = State()
        self.policy = policy
        self._alarms: list[tuple[float, StepId, JobId]] = []  # step 0: the job's client is to speak
        self._dirty: dict[PoolName, None] = {}  # pools in which something may be startable now

    def handle(self, now: float, event: Event) -> list[Action]:
        """Apply one event, then start every ready step that fits. Same history, same actions."""
        state = self.state
        assert now >= state.now, f"time went back from {state.now} to {now}"
        state.now = now
        before = state.last_step
        actions = [*self._apply(event), *self._expire(), *self._start()]
        for step in range(before + 1, state.last_step + 1):
            state.check_step(step)
        if isinstance(event, StepEnded):
            state.check_step(event.step)
        return actions

    def deadline(self) -> float | None:
        """When to send DeadlineReached if nothing else happens first; None: no need."""
        while self._alarms and not self._alarm_is_live(*self._alarms[0]):
            heapq.heappop(self._alarms)
        return self._alarms[0][0] if self._alarms else None

    def _alarm_is_live(self, at: float, step: StepId, job: JobId) -> bool:
        if step:
            return step in self.state.steps
        return self.state.jobs[job].speak_deadline_at == at

    # What happened ------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> Iterator[Action]:
        match event:
            case ResourcesDeclared():
                yield from self._declare(event)
            case JobSubmitted():
                yield from self._admit(event)
            case ClientAttached(job=job_id, load=load):
                yield from self._attach(self.state.jobs[job_id], load)
            case ClientLost(job=job_id):
                yield from self._lose_client(self.state.jobs[job_id], event)
            case StepEnded():
                yield from self._settle(event)
            case JobCancelRequested(job=job_id, by=by):
                yield from self._cancel(self.state.jobs[job_id], by)
            case DeadlineReached():
                pass  # _expire asks to kill what is overdue, whatever the event
            case _:
                assert_never(event)

    def _expire(self) -> Iterator[Action]:
        """Ask for the end of what is overdue. Units stay leased until somebody says that the step is dead."""
        while (at := self.deadline()) is not None and at <= self.state.now:
            _, step, job_id = heapq.heappop(self._alarms)
            if step in self.state.revoked:
                yield StopClient(job=job_id, reason=f"step {step} was not killed within {REVOKE_GRACE_S:.0f} s")
            elif step:
                reason = f"deadline passed after {at - self.state.steps[step].started_at:.0f} s"
                self.state.revoked[step] = reason
                heapq.heappush(self._alarms, (self.state.now + REVOKE_GRACE_S, step, job_id))
                yield RevokeStep(step=step, job=job_id, reason=reason)
            else:
                job = self.state.jobs[job_id]
                job.speak_deadline_at = None
                silent = "named nothing to run" if job.attached else "did not connect in time"
                yield StopClient(job=job_id, reason=f"its client {silent}")

    def _declare(self, event: ResourcesDeclared) -> Iterator[Action]:
        """A new life of the daemon: new pools, no step running, every unfinished job needs a client."""
        state = self.state
        if event.policy:
            self.policy = POLICIES[event.policy]
        for step_id in list(state.steps):
            self._release(step_id)
        state.declare(event.pools)
        self._dirty.clear()
        state.step_timeout_s, state.attach_timeout_s = event.step_timeout_s, event.attach_timeout_s
        for job in (state.jobs[job_id] for job_id in state.active):
            job.losses, job.waiting = 0, 0
            job.tasks.clear()
            yield from self._await_client(job)

    def _admit(self, event: JobSubmitted) -> Iterator[Action]:
        state = self.state
        assert event.job == state.last_job + 1, f"job {event.job} does not follow {state.last_job}"
        state.last_job = event.job
        job = state.jobs[event.job] = Job(id=event.job, spec=event.spec, submitted_at=state.now)
        state.active[job.id] = None
        yield from self._await_client(job)

    def _await_client(self, job: Job) -> Iterator[Action]:
        job.state, job.attached = JobState.STARTING, False
        self._await_word(job)
        if not job.spec.external:
            yield StartClient(job.id)

    def _await_word(self, job: Job) -> None:
        """Nothing of this job runs or waits: its client must speak, or nothing would ever happen to the job again."""
        job.speak_deadline_at = self.state.now + self.state.attach_timeout_s
        heapq.heappush(self._alarms, (job.speak_deadline_at, 0, job.id))

    def _attach(self, job: Job, load: JobLoad) -> Iterator[Action]:
        if job.state.ended:
            yield StopClient(job.id, "the job has ended")
            return
        job.attached, job.state, job.speak_deadline_at = True, JobState.RUNNING, None
        yield from self._take_load(job, load)

    def _lose_client(self, job: Job, event: ClientLost) -> Iterator[Action]:
        """Whatever the client ran died with it. The job gets a new client, which resumes from its records."""
        for step_id in list(job.steps):
            self._release(step_id)
        for task in job.tasks.values():
            self._withdraw(task)
        job.tasks.clear()
        job.attached, job.speak_deadline_at = False, None
        if job.state.ended:
            return
        job.losses = 1 if event.progressed else job.losses + 1
        if job.losses >= CLIENT_LOSSES_MAX or job.spec.external:
            yield from self._end(job, JobState.FAILED, JobFailure("job_failed", f"its client died: {event.reason}"))
            return
        yield from self._await_client(job)

    def _settle(self, event: StepEnded) -> Iterator[Action]:
        step = self.state.steps.get(event.step)
        if step is None:
            return  # a late answer of a step that is over: its lease is gone, so nothing may be counted
        job = self.state.jobs[step.job]
        self._release(event.step)
        if event.outcome is Outcome.FAILED:
            job.failed_steps, job.last_error = job.failed_steps + 1, f"{step.stage}: {event.error}"
        if not job.state.ended:
            yield from self._take_load(job, event.load or JobLoad())

    def _take_load(self, job: Job, load: JobLoad) -> Iterator[Action]:
        """Phase 1 of Listing 2 for one job: each task whose stage is done joins the queue of its next resource."""
        for said in load.tasks:
            if (problem := self._impossible(said)) is not None:
                yield from self._end(job, JobState.FAILED, JobFailure("not_found", problem))
                return
            task = job.tasks.setdefault(said.task, Task(job=job.id, index=said.task, load=said))
            wanted = said.resources_next if said.stage_done and not said.complete else ()
            if task.ticket and task.queued_in == wanted and task.load.stage_next == said.stage_next:
                task.load = said  # it goes on waiting where it stands
                continue
            self._withdraw(task)
            task.load = said
            if task.step is None and wanted:
                self._enqueue(task)
        if load.complete or load.failure is not None:
            state = JobState.FAILED if load.failure is not None else JobState.DONE
            yield from self._end(job, state, load.failure)
        elif not job.steps and not job.waiting:
            self._await_word(job)

    def _impossible(self, load: TaskLoad) -> str | None:
        """Why no lease can ever be what this task asks for. It would wait for ever, and with it all behind it."""
        queues, wanted = self.state.queues, load.resources_next
        unknown = next((name for name in wanted if name not in queues), None)
        if unknown is not None:
            return f"no resource is named {unknown!r}; there are: {', '.join(queues)}"
        if one_of_each([[unit.name for unit in queues[name].pool.units[: len(wanted)]] for name in wanted]) is None:
            return f"{load.stage_next!r} needs a unit each of {', '.join(wanted)} at once; there are not so many units"
        return None

    def _cancel(self, job: Job, by: str) -> Iterator[Action]:
        if not job.state.ended:
            yield from self._end(job, JobState.CANCELLED, JobFailure("job_cancelled", f"cancelled by {by}"))

    def _end(self, job: Job, state: JobState, failure: JobFailure | None) -> Iterator[Action]:
        """The job is over. Its running steps are killed; their units come free when that is known."""
        for task in job.tasks.values():
            self._withdraw(task)
        job.state, job.failure, job.ended_at, job.speak_deadline_at = state, failure, self.state.now, None
        del self.state.active[job.id]
        for queue in self.state.queues:  # a policy may have waited for this job to end
            self._dirty[queue] = None
        yield EndJob(job=job.id, state=state, failure=failure)
        yield StopClient(job=job.id, reason=f"job {job.id} is {state.value}")

    # Queues and leases --------------------------------------------------------------------------------------

    def _enqueue(self, task: Task) -> None:
        state = self.state
        state.last_ticket += 1
        task.ticket, task.ready_at, task.queued_in = state.last_ticket, state.now, task.load.resources_next
        state.jobs[task.job].waiting += 1
        key = self.policy.key(state, task)
        for pool in dict.fromkeys(task.queued_in):
            queue = state.queues[pool]
            heapq.heappush(queue.heap, (key, task.ticket, task.job, task.index))
            queue.waiting += 1
            self._dirty[pool] = None

    def _withdraw(self, task: Task) -> None:
        """Take a task out of its queues; its entries in the heaps go stale and are dropped when they come up."""
        if task.ticket:
            task.ticket = 0
            self.state.jobs[task.job].waiting -= 1
            for pool in dict.fromkeys(task.queued_in):
                self.state.queues[pool].waiting -= 1
                self._dirty[pool] = None

    def _start(self) -> Iterator[Action]:
        """Phase 2 of Listing 2: each resource with a free unit takes the first of its queue, again and again.

        Resources may have units in common, so whoever is first among the first of their queues goes first. Each start
        makes the queues that the task leaves dirty again, since somebody else is first there now.
        """
        queues = self.state.queues
        while heads := {name: head for name in self._dirty if (head := self._head(name)) is not None}:
            pool = min(heads, key=lambda name: queues[name].heap[0])
            task = heads[pool]
            units = self._units_for(task)
            if units is None:
                del self._dirty[pool]
                continue
            yield StartStep(self._lease(task, units))
        self._dirty.clear()

    def _head(self, pool: PoolName) -> Task | None:
        """The first waiting task of the pool, if the policy lets it go now."""
        state, queue = self.state, self.state.queues[pool]
        while queue.heap:
            _, ticket, job, index = queue.heap[0]
            if state.is_live(ticket, job, index):
                task = state.jobs[job].tasks[index]
                return task if self.policy.admits(state, task) else None
            heapq.heappop(queue.heap)
        return None

    def _units_for(self, task: Task) -> tuple[UnitName, ...] | None:
        """One unit of each pool that the task needs, or None. All or nothing, and only for the first of each queue:
        a task that needs two pools cannot be overtaken for ever by tasks that need one."""
        if any(self._head(pool) is not task for pool in task.queued_in):
            return None
        if self.policy.shares_units:
            return tuple(self.state.queues[pool].pool.units[0].name for pool in task.queued_in)
        return one_of_each([self.state.free_units(pool, len(task.queued_in)) for pool in task.queued_in])

    def _lease(self, task: Task, units: tuple[UnitName, ...]) -> Step:
        state = self.state
        self._withdraw(task)
        state.last_step += 1
        timeout_s = task.load.timeout_s or state.step_timeout_s
        step = Step(
            id=state.last_step,
            job=task.job,
            task=task.index,
            stage=task.load.stage_next,
            units=units,
            started_at=state.now,
            deadline_at=state.now + timeout_s,
        )
        state.steps[step.id] = step
        state.jobs[task.job].steps[step.id] = None
        task.step = step.id
        for unit in units:
            assert self.policy.shares_units or state.slots[unit].holder is None, f"{unit} is held already"
            state.slots[unit].holder = step.id
        heapq.heappush(self._alarms, (step.deadline_at, step.id, step.job))
        return step

    def _release(self, step_id: StepId) -> None:
        """The step is known to be dead: its units are free."""
        state = self.state
        step = state.steps.pop(step_id)
        state.revoked.pop(step_id, None)
        job = state.jobs[step.job]
        del job.steps[step_id]
        if (task := job.tasks.get(step.task)) is not None and task.step == step_id:
            task.step = None
        for unit in step.units:
            slot = state.slots[unit]
            if slot.holder == step_id:
                slot.holder = None
            for pool, index in slot.places:
                state.queues[pool].offer(index)
                self._dirty[pool] = None
