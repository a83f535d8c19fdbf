"""The scheduler's state machine: applies an event, then starts every waiting step whose units are free."""

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import assert_never

from msgspec.structs import replace

from autosched.core import events, idle_units, leases, placement
from autosched.core.actions import (
    Action,
    Decision,
    EndJob,
    LaunchClient,
    ReplacePolicy,
    RevokeStep,
    StartClient,
    StartStep,
    StopClient,
)
from autosched.core.events import Event, RuleChosen
from autosched.core.lifecycles import Attached, CutOff, Key, Lost, Placing, Queued, Starting, Waiting
from autosched.core.policies import lookahead, work_estimation
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.ranking import Ranking
from autosched.core.state import Job, JobEnd, State, Task
from autosched.model import (
    OWN_HOST,
    Goal,
    HostName,
    JobFailure,
    JobId,
    JobLoad,
    JobState,
    Outcome,
    PoolName,
    Step,
    StepId,
    TaskIndex,
    UnitName,
)
from autosched.stages import StageRole

CLIENT_LOSSES_MAX = 3
"""Maximum number of clients that a job may lose in a row without a new record. Then the job fails."""
TURN_S = 5.0
"""Additional seconds to connect, for each client that is started before this one."""
REVOKE_GRACE_S = 10.0
"""Seconds that a client has to kill a step. Then the client is killed."""
PLAN_EVERY = 4
"""Number of started steps between two lookahead searches."""


class Scheduler:
    """Decides which steps run. Has no clock, socket or plugin: the time arrives with each event."""

    def __init__(
        self,
        policy: Policy = INTERLEAVED,
        goal: Goal = Goal.BALANCED,
        *,
        policies: Mapping[str, Policy] = POLICIES,
        state: State | None = None,
    ) -> None:
        """`policies`: all policies, by name. `state`: state of an earlier scheduler with the same policy."""
        self.state = state or State(goal=goal)
        self._ranking = Ranking(self.state, policy)
        self.state.shares_units |= policy.shares_units
        self._policies = policies
        self._planned_for = (0, 0)
        self._planned_at: StepId = 0

    @property
    def policy(self) -> Policy:
        """The current policy."""
        return self._ranking.policy

    def handle(
        self, now: float, event: Event, started: tuple[Step, ...] | None = None, *, more: bool = False
    ) -> Decision:
        """Apply one event, then start every ready step that fits. Same history, same decision.

        `started`: steps that this event started before, from the journal; exactly these are started, without the
        policy. `more`: apply the event and start nothing, because the next event has the same time (Listing 2 also
        looks at all jobs before it starts any step).
        """
        state, ranking = self.state, self._ranking
        assert now >= state.now, f"time went back from {state.now} to {now}"
        state.now = now
        ranking.asleep = started is not None
        before = state.last_step
        if isinstance(event, events.ClientPlaced) and event.host is None and started is None:
            event = self._with_host(event)
        actions = [*self._apply(event), *self._expire()]
        if started is not None:
            actions += self._start_again(started)
            ranking.dirty.clear()
        elif not more:
            if not isinstance(event, events.StepEnded):
                idle_units.look_again(state)
            ranking.refresh()
            actions += self._start()
            actions += self._replaced()
        for step in range(before + 1, state.last_step + 1):
            state.check_step(step)
        if isinstance(event, events.StepEnded):
            state.check_step(event.step)
        return Decision(event, tuple(actions), self._deadline(), self._search_is_due())

    def _replaced(self) -> Iterator[Action]:
        """Report that a policy was replaced, and start the steps that it held back."""
        if self._ranking.stuck():
            self._ranking.replace("it starts nothing, although nothing runs and units are free")
        if (replaced := self._ranking.broken) is not None:
            self._ranking.broken = None
            yield from self._start()
            yield replaced

    def _jobs(self) -> tuple[JobId, int]:
        """Two numbers that change whenever the active jobs are others."""
        return self.state.last_job, len(self.state.active)

    def _search_is_due(self) -> bool:
        """Whether the policy searches ahead, and the jobs are others or several steps were started since."""
        since = self.state.last_step - self._planned_at
        return self.policy.plan is not None and (since >= PLAN_EVERY or self._jobs() != self._planned_for)

    def search(self) -> Iterator[RuleChosen | None]:
        """Search ahead for a better rule. Each item is a bounded piece of work.

        The last item is the event to post; None: the rule stays. Empty without a policy that searches.
        """
        if self.policy.plan is None:
            return iter(())
        anew = self._jobs() != self._planned_for
        self._planned_for, self._planned_at = self._jobs(), self.state.last_step
        return self._search(self.policy.plan, anew=anew)

    def _search(self, plan: Callable[[State], lookahead.Search | None], *, anew: bool) -> Iterator[RuleChosen | None]:
        state = self.state
        if (search := plan(state)) is None and state.rule:
            yield RuleChosen("")
        for rule in lookahead.search(state, search, anew=anew) if search is not None else ():
            yield RuleChosen(rule) if rule is not None and rule != state.rule else None

    def _deadline(self) -> float | None:
        """Time of the next DeadlineReached, unless another event comes first; None: none is needed."""
        while self.state.alarms and not self._alarm_is_live(*self.state.alarms[0]):
            heapq.heappop(self.state.alarms)
        return self.state.alarms[0][0] if self.state.alarms else None

    def _alarm_is_live(self, at: float, step: StepId, job: JobId) -> bool:
        if step:
            return step in self.state.steps
        return job in self.state.active and self.state.jobs[job].speak_by == at

    # What happened ------------------------------------------------------------------------------------------

    def _apply(self, event: Event) -> Iterable[Action]:
        match event:
            case events.StepEnded():  # most events are of this kind
                return self._settle(event)
            case events.ResourcesDeclared():
                return self._declare(event)
            case events.JobSubmitted():
                return self._admit(event)
            case events.HistoryRecalled(job=job_id, stages=stages):
                self.state.estimates.recall(job_id, stages)
                self._look(self.state.jobs[job_id])
            case events.PolicyChosen(policy=name, goal=goal):
                self.state.goal, self.state.rule = goal, ""
                return self._adopt(name)
            case RuleChosen(rule=rule):
                self.state.rule = rule
                self._ranking.reorder()
            case events.ClientAttached(job=job_id):
                return self._attach(self.state.jobs[job_id], event)
            case events.ClientCutOff(job=job_id, reason=reason):
                self._forget_tasks(self.state.jobs[job_id])
                self._await_return(self.state.jobs[job_id], reason)
            case events.ClientLost(job=job_id):
                return self._lose_client(self.state.jobs[job_id], event)
            case events.JobCancelRequested(job=job_id, by=by):
                if not (job := self.state.jobs[job_id]).state.ended:
                    return self._end(job, JobState.CANCELLED, JobFailure("job_cancelled", f"cancelled by {by}"))
            case events.JobAltered(job=job_id, priority=priority, deadline_s=deadline_s, held=held):
                job, self._planned_for = self.state.jobs[job_id], (0, 0)
                job.spec, job.held = replace(job.spec, priority=priority, deadline_s=deadline_s), held
                self._ranking.reorder()
            case events.Paused(reason=reason, until_restart=until_restart):
                self.state.paused, self.state.paused_until_restart = reason, until_restart
                self._ranking.dirty.update(dict.fromkeys(self.state.queues))
            case events.UnitDrained() | events.UnitReturned() | events.BoardJoined() | events.BoardGone():
                self._take_unit(event)
            case events.BoardForgotten(unit=unit):
                self.state.forget_board(unit)
            case events.HostJoined() | events.HostCutOff() | events.HostLeft() | events.HostForgotten():
                return self._take_host(event)
            case events.ClientPlaced(job=job_id, host=host):
                return self._place(self.state.jobs[job_id], host)
            case events.StagesFreed(job=job_id):
                self.state.jobs[job_id].movable, self.state.jobs[job_id].divisible = event.stages, event.divisible
                self._let_move([job_id])
            case events.JobPruned(job=job_id):
                assert job_id not in self.state.active, f"job {job_id} has not ended, and is not to be known any more"
                self.state.jobs.pop(job_id, None)
                self.state.last_job = max(self.state.last_job, job_id)
            case events.DeadlineReached():
                pass  # _expire asks to kill what is overdue, whatever the event
            case _:
                assert_never(event)
        return ()

    def _expire(self) -> Iterator[Action]:
        """Revoke overdue steps and stop silent clients. Units stay leased until the step is known to be dead."""
        while (at := self._deadline()) is not None and at <= self.state.now:
            _, step, job_id = heapq.heappop(self.state.alarms)
            if step and self._is_out_of_reach(self.state.steps[step]):
                heapq.heappush(self.state.alarms, (self.state.now + REVOKE_GRACE_S, step, job_id))
            elif step in self.state.revoked:
                yield StopClient(job=job_id, reason=f"step {step} was not killed within {REVOKE_GRACE_S:.0f} s")
            elif step:
                run = self.state.steps[step]
                if at < run.deadline_at and not any(unit in self.state.drained for unit in run.units):
                    continue  # its unit has returned in time
                reason = f"deadline passed after {at - run.started_at:.0f} s"
                self.state.revoked[step] = reason
                heapq.heappush(self.state.alarms, (self.state.now + REVOKE_GRACE_S, step, job_id))
                yield RevokeStep(step=step, job=job_id, reason=reason)
            else:
                job = self.state.jobs[job_id]
                match job.client:
                    case Attached():
                        silent = "named nothing to run"
                    case CutOff():
                        silent = "did not come back"
                    case _:
                        silent = "did not connect in time"
                self._speak_by(job, None)
                yield StopClient(job=job_id, reason=f"its client {silent}")

    def _is_out_of_reach(self, step: Step) -> bool:
        """Whether a helper runs the step on an unreachable host: the client could only wait."""
        slot = self.state.slots[step.units[0]]
        return slot.unit.host != self.state.jobs[step.job].host and slot.away and bool(slot.places)

    def _declare(self, event: events.ResourcesDeclared) -> Iterator[Action]:
        """Take the pools of a daemon that has just started. Every unfinished job needs a client, new or reconnected."""
        state, kept = self.state, dict.fromkeys(event.kept)
        for step in list(state.steps.values()):
            if step.job not in kept:
                self._release(step.id)
        for job in (state.jobs[job_id] for job_id in state.active):
            self._forget_tasks(job)
            if job.id not in kept:
                state.move_client(job, Queued())
        state.declare(event.pools)
        idle = dict.fromkeys(state.queues if state.hosts or state.kinds else ())
        state.shares_units = self.policy.shares_units
        self._ranking.forget()
        self._ranking.dirty.update(idle)
        if event.policy:
            state.goal, state.rule = event.goal, ""
            yield from self._adopt(event.policy)
        state.step_timeout_s, state.attach_timeout_s = event.step_timeout_s, event.attach_timeout_s
        for job in (state.jobs[job_id] for job_id in state.active):
            job.losses = 0
            if job.id not in kept:
                yield from self._await_client(job)
            else:
                self._await_return(job, "the daemon was started again")

    def _take_unit(
        self, event: events.UnitDrained | events.UnitReturned | events.BoardJoined | events.BoardGone
    ) -> None:
        """Let a unit get steps from now on, or none."""
        state = self.state
        match event:
            case events.UnitDrained(unit=unit, deadline_s=left_s):
                state.drained[unit] = event
                if left_s is not None and unit in state.slots and (step := state.slots[unit].holder):
                    heapq.heappush(state.alarms, (state.now + left_s, step, state.steps[step].job))
            case events.UnitReturned(unit=unit):
                state.drained.pop(unit, None)
            case events.BoardJoined() | events.BoardGone():
                unit = state.take_board(event)
        leases.offer(state, self._ranking, unit)  # tasks that wait for it may start, or those that avoid another unit

    def _take_host(
        self, event: events.HostJoined | events.HostCutOff | events.HostLeft | events.HostForgotten
    ) -> Iterable[Action]:
        match event:
            case events.HostJoined():
                return self._join(event)
            case events.HostCutOff(host=host, reason=reason, lost_at=lost_at):
                self.state.set_away(host, reason, lost_at)
                return ()
            case events.HostLeft(host=host, reason=reason):
                return self._leave(host, reason)
            case events.HostForgotten(host=host):
                del self.state.hosts[host]
                return self._place_waiting()

    def _join(self, event: events.HostJoined) -> Iterator[Action]:
        """Offer the host's units, and start the clients of jobs that wait for such a host."""
        state = self.state
        first = not state.hosts
        state.join(event.host, event.pools, event.machine, event.software)
        if first:
            self._let_move(state.active)
            self._ranking.dirty.update(dict.fromkeys(state.queues))  # which of them are idle is known from now on
        for unit in state.hosts[event.host].units:
            leases.offer(state, self._ranking, unit)
        yield from self._place_waiting()

    def _let_move(self, jobs: Iterable[JobId]) -> None:
        """Queue the waiting tasks of these jobs at other hosts too, where more stages may run there than before."""
        for task in [task for job in jobs for task in self.state.jobs[job].tasks.values() if task.waiting]:
            self._ranking.send(task, placement.alternatives(self.state, self.state.jobs[task.job], task.load))

    def _place_waiting(self) -> Iterator[Action]:
        """Start the clients of jobs that waited for a host which is there now."""
        for job in [self.state.jobs[number] for number in self.state.without_host]:
            if not placement.waits(self.state, job.spec):
                yield from self._await_client(job)

    def _leave(self, host: HostName, reason: str) -> Iterator[Action]:
        """Take a host out: its steps are dead. Its jobs continue elsewhere; the loss does not count against them."""
        state = self.state
        for step in state.steps_on(host):
            leases.release(state, self._ranking, step.id)
        active = [state.jobs[number] for number in state.active]
        for job in active:
            self._lose_helper(job, host)
        jobs = [job for job in active if job.host == host]
        for job in jobs:
            self._forget_tasks(job)
        for pool in state.hosts[host].pools:
            self._ranking.dirty.pop(pool.name, None)
        state.leave(host, reason)
        for job in jobs:
            if job.steps:  # on other hosts; when their end is known, so is that the client is lost
                self._await_return(job, reason)
            else:
                yield from self._await_client(job)

    def _lose_helper(self, job: Job, host: HostName) -> None:
        """The helper on a host is gone: the job's tasks wait for that host no more."""
        if host not in job.helpers:
            return
        del job.helpers[host]
        self._let_move([job.id])

    def _adopt(self, name: str) -> Iterator[Action]:
        policy, self._planned_for = self._policies.get(name), (0, 0)
        for job in self.state.active:
            self._look(self.state.jobs[job], always=True)
        self._ranking.adopt(policy or INTERLEAVED)
        if policy is None:
            there = ", ".join(self._policies)
            yield ReplacePolicy(name, INTERLEAVED.name, f"no policy {name!r} is installed; there are: {there}")

    def _admit(self, event: events.JobSubmitted) -> Iterator[Action]:
        state = self.state
        assert event.job == state.last_job + 1, f"job {event.job} does not follow {state.last_job}"
        state.last_job = event.job
        job = state.jobs[event.job] = Job(event.job, event.spec, state.now, event.owner)
        state.active[job.id] = None
        yield from self._await_client(job)

    def _await_client(self, job: Job) -> Iterator[Action]:
        job.helpers.clear()
        if job.host != OWN_HOST:
            job.host = OWN_HOST
            self._look(job)
        if not job.spec.external and placement.waits(self.state, job.spec):
            self.state.move_client(job, Queued())
            return
        before = 0 if job.spec.external else len(self.state.starting) - (job.id in self.state.starting)
        self.state.move_client(job, Placing(self._alarm(job, TURN_S * before)))
        if not job.spec.external:
            yield StartClient(job.id)

    def _alarm(self, job: Job, turn_s: float = 0.0) -> float:
        """The deadline of the client's next message, where nothing of the job runs or waits: only the client can
        continue it."""
        at = self.state.now + turn_s + self.state.attach_timeout_s
        heapq.heappush(self.state.alarms, (at, 0, job.id))
        return at

    def _speak_by(self, job: Job, at: float | None) -> None:
        """Change the deadline of the client's next message, in the same state."""
        if isinstance(job.client, Placing | Starting | Attached | CutOff):
            job.client = replace(job.client, speak_by=at)

    def _await_return(self, job: Job, reason: str) -> None:
        """Wait for a client that cannot be reached. Its steps go on; none of its tasks wait until it reconnects."""
        if not job.connected:  # it has as long again to connect
            return self._speak_by(job, self._alarm(job))
        bounded = job.spec.external and job.steps  # by the deadlines of its running steps
        self.state.move_client(job, CutOff(reason, None if bounded else self._alarm(job)))

    def _with_host(self, event: events.ClientPlaced) -> events.ClientPlaced:
        """The event with the host that is best now."""
        job = self.state.jobs[event.job]
        return replace(event, host=placement.choose(self.state, job)) if isinstance(job.client, Placing) else event

    def _place(self, job: Job, host: HostName | None) -> Iterator[Action]:
        """Start a job's client on a host; None: let the job wait for one."""
        if not isinstance(job.client, Placing):
            return  # the job has ended, or its host has left, before it was its turn
        if host is None:
            self.state.move_client(job, Queued())
            return
        self.state.move_client(job, Starting(job.client.speak_by))
        job.host = host
        self._look(job)
        yield LaunchClient(job.id, host)

    def _attach(self, job: Job, event: events.ClientAttached) -> Iterator[Action]:
        if job.end is not None:
            yield StopClient(job.id, "the job has ended")
            return
        if event.holds is not None:
            for step_id in [step for step in job.steps if step not in event.holds]:
                self._release(step_id)
            self._forget_tasks(job)
        self.state.move_client(job, Attached())
        job.trouble = ""
        load = event.load
        if job.steps:  # their ends are still to come and say this again; else what the client made would count as lost
            load = replace(load, complete=False, failure=None)
        yield from self._take_load(job, load)

    def _lose_client(self, job: Job, event: events.ClientLost) -> Iterator[Action]:
        """The steps of a lost client died with it. The job gets a new client, which resumes from its records."""
        for step_id in list(job.steps):
            self._release(step_id)
        self._forget_tasks(job)
        self._look(job)
        if job.end is not None:
            if not isinstance(job.client, Lost):
                self.state.move_client(job, Lost())
            return
        job.trouble = event.reason if event.hindered else ""
        if not self.state.has_left(job.host) and not event.hindered:  # else the host caused the loss
            job.losses = 1 if event.progressed else job.losses + 1
        if job.losses >= CLIENT_LOSSES_MAX or job.spec.external:
            yield from self._end(job, JobState.FAILED, JobFailure("job_failed", f"its client died: {event.reason}"))
            return
        yield from self._await_client(job)

    def _forget_tasks(self, job: Job) -> None:
        """Forget all tasks without a running step."""
        for task in [task for task in job.tasks.values() if task.running is None]:
            self._ranking.withdraw(task)
            del job.tasks[task.index]
        if not job.tasks:
            job.at.clear()

    def _settle(self, event: events.StepEnded) -> Iterable[Action]:
        step = self.state.steps.get(event.step)
        if step is None:
            return ()  # a late answer: the lease has ended already, and counts once
        job = self.state.jobs[step.job]
        if event.outcome is Outcome.DONE:
            self._learn(job, step, event.worked_s)
        self._release(event.step)
        if event.outcome is Outcome.FAILED:
            job.failed_steps, job.last_error = job.failed_steps + 1, f"{step.stage}: {event.error}"
        return () if job.end is not None else self._take_load(job, event.load or JobLoad())

    def _learn(self, job: Job, step: Step, worked_s: float | None) -> None:
        held_s = self.state.now - step.started_at
        seconds = held_s if worked_s is None else min(worked_s, held_s)  # a client that was cut off reports late
        job.done_s += seconds
        job.rounds_seen += self.state.role_of(step.stage) is StageRole.FEEDS
        running = job.tasks[step.task].running
        if running is not None and (running.dealt_out or len(running.steps) > 1):
            running.shared_s = seconds = running.shared_s + seconds
            if len(running.steps) > 1:
                return  # the stage takes as long as all of its steps together
        estimates, predicted = self.state.estimates, self.state.oracle is not None or self.state.estimates.told
        estimates.learn(job.id, step.task, step.stage, step.id, seconds)
        if predicted and estimates.are_wrong():
            self.state.oracle = None  # the predictions were wrong: from now on only measurements count
            estimates.start_again()

    def _take_load(self, job: Job, load: JobLoad) -> Iterable[Action]:
        """Phase 1 of Listing 2 for one job: each task whose stage is done joins the queue of its next resource."""
        ready: dict[TaskIndex, Task] = {}
        for said in load.tasks:
            if (problem := self.state.impossible(job, said)) is not None:
                return self._end(job, JobState.FAILED, JobFailure("not_found", problem))
            if (problem := leases.mismatch(self.state, job, said)) is not None:
                return self._end(job, JobState.FAILED, JobFailure("wire", problem))
            if (task := job.tasks.get(said.task)) is None:
                task = job.tasks[said.task] = Task(job=job.id, index=said.task, load=said)
            wanted = self.state.pools_of(job, said.resources_next) if said.stage_done and not said.complete else ()
            elsewhere = placement.alternatives(self.state, job, said) if wanted else ()
            now = task.waiting
            if now and now.ticket and (now.stage, now.pools, now.elsewhere) == (said.stage_next, wanted, elsewhere):
                task.load = said  # it goes on waiting where it stands
                continue
            self._ranking.withdraw(task)
            ready.pop(task.index, None)
            task.load = said
            if wanted and task.running is None:
                self.state.move_task(task, Waiting(said.stage_next, wanted, elsewhere))
                work_estimation.show_place(self.state, job, said.stage, said.resources_next)
                ready[task.index] = task
        job.rounds_left = load.rounds_left
        self._look(job)
        for task in ready.values():
            self._ranking.enter(task)
        if load.complete or load.failure is not None:
            state = JobState.FAILED if load.failure is not None else JobState.DONE
            return self._end(job, state, load.failure)
        if not job.steps and not job.waiting:
            self._speak_by(job, self._alarm(job))
        return ()

    def _look(self, job: Job, *, always: bool = False) -> None:
        """Update the job's remaining work, where the policy uses it."""
        if self._ranking.policy.drifts or always:
            work_estimation.update_remaining_work(self.state, job)

    def _end(self, job: Job, state: JobState, failure: JobFailure | None) -> Iterator[Action]:
        """End the job. Its running steps are killed; their units are free when that is known."""
        for task in job.tasks.values():
            self._ranking.withdraw(task)
        job.end = JobEnd(state, failure, self.state.now)
        if not job.connected:
            self.state.move_client(job, Lost())
        del self.state.active[job.id]
        self.state.estimates.forget(job.id)
        self._look(job, always=True)
        yield EndJob(job=job.id, state=state, failure=failure)
        yield StopClient(job=job.id, reason=f"job {job.id} is {state.value}")

    # Queues and leases --------------------------------------------------------------------------------------

    def _start(self) -> Iterator[Action]:
        """Phase 2 of Listing 2: each resource with a free unit takes the first of its queue, again and again.

        Resources may have units in common, so the first task among the first of their queues goes first. Each start
        makes the queues that the task leaves dirty again, since another task is first there now.
        """
        queues, ranking = self.state.queues, self._ranking
        if self.state.paused:
            ranking.dirty.clear()
            return
        if ranking.policy.admits is not None:  # tasks that it held back may start now, in any queue
            ranking.dirty.update(dict.fromkeys(queues))
        heads: dict[PoolName, tuple[Key, int, Task]] = {}
        while True:
            for pool in ranking.dirty:
                heads.pop(pool, None)
                room = queues[pool].waiting and (ranking.policy.shares_units or self.state.first_free(pool) is not None)
                if room and (head := ranking.head(pool)) is not None:
                    heads[pool] = head
                elif (self.state.hosts or self.state.kinds) and self.state.first_free(pool) is not None:
                    self.state.note_idle(pool)
            ranking.dirty.clear()
            if not heads:
                if (found := idle_units.find(self.state, ranking)) is None:
                    return
                yield StartStep(self._lease(*found))
                continue
            pool = min(heads, key=lambda name: heads[name][:2])
            task = self._bound(heads[pool][2]) or heads[pool][2]
            units = self._room_elsewhere(task) or leases.units_for(self.state, ranking, task)
            if units is None:
                del heads[pool]
            else:
                yield StartStep(self._lease(task, units))

    def _bound(self, task: Task) -> Task | None:
        """A task of the same job that can run only on its client's host. It starts before this one, which helpers can
        run: otherwise helpers would wait for selections that come too late."""
        job, waiting = self.state.jobs[task.job], task.waiting
        if waiting is None or not waiting.elsewhere or not job.bound or self.state.first_free(waiting.pools[0]) is None:
            return None
        return next((job.tasks[index] for index in job.bound if job.tasks[index].queued_in == waiting.pools), None)

    def _room_elsewhere(self, task: Task) -> tuple[UnitName, ...] | None:
        """An idle unit of another host for a task that may move, where other tasks wait for the last free unit of its
        host: some of them may not move."""
        state, waiting = self.state, task.waiting
        if waiting is None or not waiting.movable_in or self._ranking.policy.shares_units:
            return None
        own = waiting.pools[0]
        if state.queues[own].waiting < 2 or len(state.free_units(own, 2)) > 1:
            return None
        others: list[PoolName] = []
        if placement.is_worth_a_helper(state, job := state.jobs[task.job], task.load.stage_next):
            idle = islice(state.kinds[waiting.movable_in].idle, idle_units.POOLS_MAX)
            there = (pool for pool in idle if pool in state.queues and pool not in task.pools)
            others = [pool for pool in there if placement.may_run(state, job, pool)]
        for pool in (*waiting.elsewhere, *others):
            if units := state.free_for(task, pool, 1):
                return tuple(units)
        return None

    def _start_again(self, steps: tuple[Step, ...]) -> Iterator[Action]:
        """Start the steps that the journal names, during a replay."""
        for step in steps:
            if step.job not in self.state.jobs:  # it was pruned since; its number was given all the same
                self.state.last_step = step.id
                continue
            task = self.state.jobs[step.job].tasks[step.task]
            assert task.stage, f"step {step.id} was started for a task that does not wait"
            again = self._lease(task, step.units, step.deadline_at)
            assert again.id == step.id, f"step {step.id} was started, and is now step {again.id}"
            yield StartStep(again)

    def _lease(self, task: Task, units: tuple[UnitName, ...], until: float | None = None) -> Step:
        self._ranking.leave(task)
        step = leases.grant(self.state, task, units, until)
        heapq.heappush(self.state.alarms, (step.deadline_at, step.id, step.job))
        return step

    def _release(self, step_id: StepId) -> None:
        leases.release(self.state, self._ranking, step_id)
