"""The world around the scheduler: one heap of events, delivered in order of time, then of registration."""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random

from msgspec import Struct

from autosched import policy_registry
from autosched.core import events
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
from autosched.core.events import Event
from autosched.core.lifecycles import Placing
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.scheduler import Scheduler
from autosched.model import (
    OWN_HOST,
    Goal,
    HostName,
    JobId,
    JobLoad,
    JobSpec,
    JobState,
    Outcome,
    PoolName,
    Step,
    StepId,
    TaskIndex,
    TaskLoad,
    UnitName,
    at_host,
    host_of,
)
from autosched.protocol import Span
from autosched.sim.estimate_quality import LEARNED, EstimateQuality
from autosched.sim.fault_model import Sickness
from autosched.sim.scenario import HostPlan, Scenario
from autosched.sim.simulated_client import SimClient
from autosched.sim.simulation_result import SimulationResult
from autosched.stages import STAGES

EVENTS_BASE = 10_000
EVENTS_PER_STEP = 20

AWAY_S = 4.0
"""Mean seconds until a disconnected client reconnects; a scenario may give it up before."""
TURN_S = 2.0
"""Maximum seconds until it is the turn of a client to be started."""
HOST_LEASE_S = 10.0
"""Seconds after which a host that cannot be reached ends its clients."""
HOST_RETURN_S = 1.0
"""Seconds after which a host has found a restarted daemon."""
MODEL = "0" * 64


class Entry(Struct, frozen=True):
    """One event and the scheduler's actions: a line of the journal."""

    now: float
    event: Event
    actions: tuple[Action, ...]
    more: bool = False
    """Whether the next entry is of the same instant, so that this one started nothing."""


@dataclass(slots=True)
class Process:
    """The process that hosts a job, as it really is."""

    client: SimClient
    host: HostName = OWN_HOST
    life: int = 0  # number of processes that this job has had
    alive: bool = False
    loss_due: bool = False  # its ClientLost is scheduled
    progressed: bool = False  # since its start
    new: bool = False  # not connected yet
    away: bool = False  # survived a daemon, or was disconnected, and has not reconnected
    missed: bool = False  # away, and the daemon does not know it yet
    running: dict[StepId, None] = field(default_factory=dict)
    unsaid: list[tuple[Step, Outcome]] = field(default_factory=list)
    """Steps that ended while it was away."""
    unheard: dict[StepId, tuple[Step, Outcome]] = field(default_factory=dict)
    """Steps that its helpers ended while their hosts could not be reached."""


@dataclass(slots=True)
class Running:
    """A running step. Its remaining work shrinks by `rate` per second; `version` makes outdated ends recognisable."""

    step: Step
    outcome: Outcome
    remaining_s: float
    since: float
    rate: float = 0.0
    version: int = 0


def events_max(scenario: Scenario) -> int:
    """Maximum number of events of a scenario that ends by itself."""
    return EVENTS_BASE + EVENTS_PER_STEP * sum(1 for plan in scenario.jobs for _ in plan.works())


class Simulator:
    """Runs a scenario. `watch` sees the scheduler after every event, for checks."""

    def __init__(
        self,
        scenario: Scenario,
        policy: Policy = INTERLEAVED,
        watch: Callable[[Scheduler], None] | None = None,
        *,
        goal: Goal = Goal.BALANCED,
        estimates: EstimateQuality = LEARNED,
        choice: Mapping[str, Policy] = POLICIES,
    ) -> None:
        """`choice`: the policies that an operator may choose."""
        self.scenario = scenario
        self.scheduler = Scheduler(policy, goal, policies={**choice, policy.name: policy})
        self.history: list[Entry] = []
        self.spans: dict[StepId, Span] = {}
        self.ended: dict[JobId, tuple[float, JobState]] = {}
        self.arrived_at: dict[JobId, float] = {}
        self.now = 0.0
        self._watch = watch
        self._wake_at: float | None = None
        self._unsettled = False
        self._policy = self._configured = policy
        self._goal = goal
        self._rng = Random(f"world/{scenario.seed}")
        self._heap: list[tuple[float, JobId, int, Callable[[], Event | None]]] = []
        self._pushed = 0
        self._running: dict[StepId, Running] = {}
        self._steps: dict[StepId, Step] = {}
        self._cuts: dict[HostName, int] = {}  # number of times that a host was cut off
        self._down: dict[HostName, None] = {}
        self._on_unit: dict[UnitName, dict[StepId, None]] = {}
        arrivals = sorted(enumerate(scenario.jobs), key=lambda item: (item[1].arrives_at, item[0]))
        self.plans = {job: plan for job, (_, plan) in enumerate(arrivals, start=1)}
        self._processes = {
            job: Process(SimClient(plan, estimates.of(plan, f"{scenario.seed}/{job}")))
            for job, plan in self.plans.items()
        }
        if estimates.mode != "learned":
            self.scheduler.state.oracle = self._foresee
            for stage in STAGES.values():
                self.scheduler.state.meet(stage)  # the oracle names them before a load does
        self._events_max = events_max(scenario)
        drained = self.scheduler.state.drained
        self._sickness = Sickness(scenario.faults, scenario.seed, drained, lambda: self.now, self._later)

    def run(self) -> SimulationResult:
        """Run to the end."""
        for at in (0.0, *self.scenario.faults.restarts):
            self._later(at, 0, self._daemon_starts)
        for host in self.scenario.hosts:
            self._later(host.joins_at, 0, partial(self._host_joins, host))
            for cut_at, back_at in host.cuts:
                self._later(cut_at, 0, partial(self._host_is_cut_off, host, back_at - cut_at))
        for job, plan in self.plans.items():
            self._later(plan.arrives_at, job, partial(self._arrives, job))
            if plan.cancelled_at is not None:
                self._later(plan.cancelled_at, job, partial(self._is_cancelled, job))
        for at, policy, goal in self.scenario.choices:
            self._later(at, 0, partial(self._is_chosen, policy, goal, "its operator"))
        for at, unit, until in self.scenario.faults.drains:
            self._later(at, 0, partial(self._is_drained, unit))
            self._later(until, 0, partial(events.UnitReturned, unit, "its operator"))
        for at, job, until in self.scenario.halts:
            self._later(at, job, partial(self._is_halted, job, "it is looked at"))
            self._later(until, job, partial(self._is_halted, job, ""))
        for event in self._events():
            more = bool(self._heap) and self._heap[0][0] <= self.now
            decision = self._handle(event, more=more)
            for chosen in self.scheduler.search() if decision.search and not more else ():
                if chosen is not None:
                    self._handle(chosen)
        lent = (pool for host in self.scenario.hosts for pool in host.pools)
        units = (unit.name for pool in (*self.scenario.pools, *lent) for unit in pool.units)
        return SimulationResult.of(units, tuple(self.spans.values()), self.arrived_at, self.ended, len(self.history))

    def _foresee(self, job: JobId, task: TaskIndex) -> Sequence[tuple[str, tuple[PoolName, ...], float]]:
        """Remaining stages of the task, by the estimates."""
        future = self._processes[job].client.future(task)
        return [(work.stage, work.pools, work.duration_s) for work in future]

    def _handle(self, event: Event, *, more: bool = False) -> Decision:
        self._settle_span(event)
        self._unsettled = more
        decision = self.scheduler.handle(self.now, event, more=more)
        self._wake_at = decision.wake_at
        self.history.append(Entry(self.now, decision.event, decision.actions, more))
        for action in decision.actions:
            self._perform(action)
        if self._watch is not None:
            self._watch(self.scheduler)
        return decision

    # What comes next ----------------------------------------------------------------------------------------

    def _later(self, after_s: float, job: JobId, happen: Callable[[], Event | None]) -> None:
        """Schedule an event after some seconds, rounded to microseconds so that events of equal time are
        simultaneous."""
        self._pushed += 1
        heapq.heappush(self._heap, (round(self.now + after_s, 6), job, self._pushed, happen))

    def _events(self) -> Iterator[Event]:
        while True:
            deadline = self._wake_at
            if deadline is not None and (not self._heap or deadline < self._heap[0][0]):
                self.now = max(self.now, deadline)
                event: Event | None = events.DeadlineReached()
            elif self._heap:
                at, _, _, happen = heapq.heappop(self._heap)
                self.now = max(self.now, at)
                event = happen()
                if event is None and self._unsettled and not (self._heap and self._heap[0][0] <= self.now):
                    event = events.DeadlineReached()  # the event for this moment did not happen, and others wait for it
            else:
                return
            if event is not None:
                assert len(self.history) < self._events_max, f"no end after {self._events_max} events"
                yield event

    def _risk(self, probability: float) -> bool:
        """Whether a fault happens now. Draws no number if the probability is 0."""
        return probability > 0 and self.now < self.scenario.faults.until_s and self._rng.random() < probability

    # What happens by itself ---------------------------------------------------------------------------------

    def _daemon_starts(self) -> Event:
        kept = tuple(job for job in self._processes if self._outlives_daemon(job))
        for step, span in self.spans.items():
            if span.job not in kept:
                self._close(step, span, Outcome.LOST)
        self._sickness.restart()
        for host in (host for host in self.scenario.hosts if host.name in self._cuts and host.name not in self._down):
            self._later(0.0, 0, partial(self._host_is_cut_off, host, HOST_RETURN_S))
        scenario, self._policy = self.scenario, self._configured
        return events.ResourcesDeclared(
            scenario.pools, scenario.step_timeout_s, scenario.attach_timeout_s, self._policy.name, self._goal, kept
        )

    def _outlives_daemon(self, job: JobId) -> bool:
        """Whether the next daemon finds the job's client alive; it may still never reconnect."""
        process, known, faults = self._processes[job], self.scheduler.state.jobs.get(job), self.scenario.faults
        spoken = process.alive and known is not None and known.state is JobState.RUNNING
        if not (spoken and self._risk(faults.client_outlives)):
            self._dies(process)
            process.loss_due = False
            process.life += 1
            return False
        process.away, process.missed = True, False
        if not self._risk(faults.client_never_attaches):
            self._later(self.scenario.client_start_s, job, partial(self._returns, job, process.life))
        return True

    def _host_joins(self, host: HostPlan) -> Event | None:
        if host.name in self._down:
            return None
        self._cuts.setdefault(host.name, 0)
        return events.HostJoined(host.name, host.pools)

    def _host_is_cut_off(self, host: HostPlan, back_after_s: float) -> Event | None:
        """Cut a host off. Its clients are cut off too, and ended if that lasts."""
        if host.name in self._down or host.name not in self._cuts:
            return None
        self._down[host.name] = None
        self._cuts[host.name] += 1
        for job, process in self._processes.items():
            if process.host == host.name and process.alive and not process.away:
                process.away = process.missed = True
                self._later(self._rng.random(), job, partial(self._is_missed, job, process.life))
                self._later(back_after_s, job, partial(self._returns, job, process.life))
        self._later(HOST_LEASE_S, 0, partial(self._host_is_lost, host, self._cuts[host.name]))
        self._later(back_after_s, 0, partial(self._host_returns, host))
        known = self.scheduler.state.hosts[host.name]
        return None if known.left else events.HostCutOff(host.name, "it is silent", self.now + HOST_LEASE_S)

    def _host_returns(self, host: HostPlan) -> Event:
        self._down.pop(host.name, None)
        for process in self._processes.values():
            for step, outcome in [said for said in process.unheard.values() if host_of(said[0].units[0]) == host.name]:
                del process.unheard[step.id]
                self._later(0.0, step.job, partial(self._says_again, step, outcome, process.life))
        return events.HostJoined(host.name, host.pools)

    def _host_is_lost(self, host: HostPlan, cut: int) -> Event | None:
        if host.name not in self._down or self._cuts[host.name] != cut or self.scheduler.state.hosts[host.name].left:
            return None
        for job, process in self._processes.items():
            if process.host != host.name:
                self._loses_helper(process, host.name)
                continue
            known = self.scheduler.state.jobs.get(job)
            steps = known.steps if known is not None else {}
            elsewhere = any(self.scheduler.state.host_of(self.scheduler.state.steps[s]) != host.name for s in steps)
            self._dies(process)
            process.host, process.loss_due, process.life = OWN_HOST, elsewhere, process.life + 1
            if elsewhere:  # its helpers are ended first
                self._later(self._rng.random(), job, partial(self._is_lost, job, process.life, "its host has left"))
        return events.HostLeft(host.name, "it did not come back")

    def _loses_helper(self, process: Process, host: HostName) -> None:
        """End a helper with its host: its client reports the steps there as failed."""
        for step in [self._steps[step] for step in process.running if host_of(self._steps[step].units[0]) == host]:
            if step.id in self._running:
                self._vacate(step.id)
            elif process.unheard.pop(step.id, None) is None:
                continue  # ended, while its client is cut off
            after_s = self._rng.random()
            self._later(after_s, step.job, partial(self._says_again, step, Outcome.FAILED, process.life))

    def _has_its_turn(self, job: JobId) -> Event | None:
        """It is the turn of a job's client to be started."""
        known, process = self.scheduler.state.jobs.get(job), self._processes[job]
        over = known is None or not isinstance(known.client, Placing) or process.alive or process.loss_due
        return None if over else events.ClientPlaced(job)

    def _is_cut_off(self, job: JobId, life: int) -> Event | None:
        """Cut a client off; at first only the client knows."""
        process = self._processes[job]
        if process.life == life and process.alive and not process.away:
            process.away = process.missed = True
            self._later(self._rng.random(), job, partial(self._is_missed, job, life))
            if not self._risk(self.scenario.faults.client_never_attaches):
                self._later(2 * AWAY_S * self._rng.random(), job, partial(self._returns, job, life))
        return None

    def _is_missed(self, job: JobId, life: int) -> Event | None:
        process, known = self._processes[job], self.scheduler.state.jobs[job]
        if process.life != life or not process.missed or known.state.ended:
            return None
        process.missed = False
        return events.ClientCutOff(job, "its cable was cut")

    def _returns(self, job: JobId, life: int) -> Event | None:
        process = self._processes[job]
        if process.life != life or not (process.alive and process.away):
            return None
        process.away = process.missed = False
        for step, outcome in process.unsaid:
            self._later(0.0, job, partial(self._says_again, step, outcome, life))
        process.unsaid.clear()
        self._begins(process)
        return events.ClientAttached(job, process.client.load(), tuple(process.running))

    def _says_again(self, step: Step, outcome: Outcome, life: int) -> Event | None:
        process = self._processes[step.job]
        if process.life != life or step.id not in process.running:
            return None
        if process.away:
            process.unsaid.append((step, outcome))
            return None
        return self._ended(step, outcome)

    def _is_drained(self, unit: UnitName) -> Event:
        return events.UnitDrained(unit, "it is cleaned", "its operator", 5.0 if self.scenario.seed % 2 else None)

    def _is_halted(self, job: JobId, reason: str) -> Event | None:
        """Hold a job, or everything for job 0."""
        if not job:
            return events.Paused("its operator", reason)
        known = self.scheduler.state.jobs.get(job)
        if known is None:
            return None
        return events.JobAltered(job, "its user", known.spec.priority, known.spec.deadline_s, reason)

    def _arrives(self, job: JobId) -> Event:
        self.arrived_at[job] = self.now
        plan = self.plans[job]
        name, priority, deadline_s = plan.name or f"job {job}", plan.priority, plan.deadline_s
        return events.JobSubmitted(job, JobSpec(name=name, model=MODEL, priority=priority, deadline_s=deadline_s))

    def _is_cancelled(self, job: JobId) -> Event | None:
        return events.JobCancelRequested(job, "its user") if job in self.arrived_at else None

    def _is_chosen(self, policy: str, goal: Goal, by: str) -> Event:
        self._policy = policy_registry.load(policy)
        return events.PolicyChosen(policy, goal, by)

    def _attaches(self, job: JobId, life: int) -> Event | None:
        process = self._processes[job]
        if process.life != life or not process.alive or process.away:
            return None
        self._begins(process)
        known, freed = self.scheduler.state.jobs[job], (self.scenario.movable, self.scenario.divisible)
        if any(freed) and (known.movable, known.divisible) != freed:
            self._later(self._rng.random(), job, partial(self._frees_stages, job, life))
        return events.ClientAttached(job, process.client.load())

    @staticmethod
    def _begins(process: Process) -> None:
        if process.new:
            process.new = False
            process.client.resume()

    def _frees_stages(self, job: JobId, life: int) -> Event | None:
        process = self._processes[job]
        if process.life != life or not process.alive or process.away:
            return None
        return events.StagesFreed(job, self.scenario.movable, self.scenario.divisible)

    def _is_lost(self, job: JobId, life: int, reason: str) -> Event | None:
        process = self._processes[job]
        if process.life != life or not process.loss_due:
            return None
        process.loss_due = False
        return events.ClientLost(job, reason, process.progressed)

    def _step_ends(self, step_id: StepId, version: int, outcome: Outcome) -> Event | None:
        running = self._running.get(step_id)
        if running is None or running.version != version:
            return None
        self._vacate(step_id)
        process = self._processes[running.step.job]
        if process.host != (host := host_of(running.step.units[0])) and host in self._down:
            process.unheard[step_id] = running.step, outcome
            return None
        if process.away:
            process.unsaid.append((running.step, outcome))
            return None
        return self._ended(running.step, outcome)

    def _ended(self, step: Step, outcome: Outcome) -> Event:
        process = self._processes[step.job]
        del process.running[step.id]
        process.progressed |= outcome is Outcome.DONE
        if any(self._steps[other].task == step.task for other in process.running):  # they do the rest
            shared = TaskLoad(task=step.task, stage_done=False)
            load = JobLoad(tasks=(shared,), rounds_left=process.client.rounds_left)
            return events.StepEnded(step.id, outcome, load, "" if outcome is Outcome.DONE else "simulated failure")
        client, work = process.client, process.client.next_work(step.task)
        if work is not None and self._sickness.is_to_be_repeated(step, work.candidate, outcome, client):
            load = client.retry(step.task, step.units[-1])
        else:
            load = client.ended(step.task, ok=outcome is Outcome.DONE)
        return events.StepEnded(step.id, outcome, load, "" if outcome is Outcome.DONE else "simulated failure")

    # What the scheduler asks for ------------------------------------------------------------------------------

    def _perform(self, action: Action) -> None:
        match action:
            case StartClient(job=job):
                if self.scenario.hosts:
                    self._later(TURN_S * self._rng.random(), job, partial(self._has_its_turn, job))
                else:
                    self._start_client(job)
            case LaunchClient(job=job, host=host):
                assert host not in self._down, f"job {job} gets a client on {host}, which cannot be reached"
                self._processes[job].host = host
                self._start_client(job)
            case StopClient(job=job, reason=reason):
                self._stop_client(job, self._processes[job].life, reason)
            case StartStep(step=step):
                self._start_step(step)
            case RevokeStep(step=step_id):
                self._revoke(step_id)
            case ReplacePolicy(instead=instead):
                self._later(0.0, 0, partial(self._is_chosen, instead, self._goal, "the world"))
            case EndJob(job=job, state=state):
                assert job not in self.ended, f"job {job} ended twice"
                self.ended[job] = self.now, state

    def _start_client(self, job: JobId) -> None:
        process = self._processes[job]
        assert not process.alive, f"job {job} has a client already"
        process.life, process.alive, process.loss_due, process.progressed = process.life + 1, True, False, False
        process.new = True
        if not self._risk(self.scenario.faults.client_never_attaches):
            own_s, common_s = self.plans[job].client_start_s, self.scenario.client_start_s
            self._later(common_s if own_s is None else own_s, job, partial(self._attaches, job, process.life))

    def _stop_client(self, job: JobId, life: int, reason: str) -> Event | None:
        """Stop a client. One on an unreachable host is stopped when the host is back, unless the host has ended it."""
        process = self._processes[job]
        if process.host in self._down:
            if process.life == life:
                self._later(HOST_RETURN_S, job, partial(self._stop_client, job, life, reason))
        elif process.life == life:
            self._lose(job, self.scenario.client_stop_s, reason)
        return None

    def _start_step(self, step: Step) -> None:
        process, faults = self._processes[step.job], self.scenario.faults
        task = self.scheduler.state.jobs[step.job].tasks[step.task]
        self.spans[step.id] = Span(
            step=step.id, job=step.job, task=step.task, stage=step.stage, units=step.units,
            queued_at=task.ready_at, started_at=self.now, ended_at=None, outcome="",
        )  # fmt: skip
        if not process.alive or process.missed:
            return  # it died, or cannot be reached, and the scheduler will be told
        assert not process.away, f"step {step.id} was started for a client that has not come back"
        work = process.client.next_work(step.task)
        assert work is not None, f"step {step.id} was started for a task that is complete"
        assert work.stage == step.stage, f"step {step.id} is a {step.stage}; its client offered {work.stage}"
        drained, avoided = self.scheduler.state.drained, task.load.avoid
        assert not any(unit in drained for unit in step.units), f"step {step.id} was started on a drained unit"
        hosts, self._steps[step.id] = {host_of(unit) for unit in step.units}, step
        free = step.stage in self.scenario.movable and len(step.units) == 1
        assert hosts == {process.host} or free, f"step {step.id} runs on {hosts}, its client on {process.host!r}"
        assert not hosts & self._down.keys(), f"step {step.id} was started on a host that cannot be reached"
        for pool in (at_host(pool, host_of(step.units[0])) for pool in work.pools):
            units = [unit.name for unit in self.scheduler.state.queues[pool].pool.units if unit.name not in drained]
            forced = set(units) <= {*avoided, *step.units}
            assert forced or not {*units} & {*avoided} & {*step.units}, f"step {step.id} has what it avoids"
        sharers = [other for other in process.running if self._steps[other].task == step.task]
        process.running[step.id] = None
        if sharers:
            assert step.stage in self.scenario.divisible, f"step {step.id} shares a {step.stage}"
            self._share_work(step, [self._running[other] for other in sharers if other in self._running])
            return
        duration_s, outcome = work.duration_s, Outcome.DONE
        if self._sickness.blocks(work.candidate, step):
            duration_s = 0.0
        if self._risk(faults.step_hangs):
            duration_s = float("inf")
        elif self._risk(faults.step_fails):
            duration_s, outcome = duration_s * self._rng.random(), Outcome.FAILED
        elif self._risk(faults.client_dies):
            self._later(duration_s * self._rng.random(), step.job, partial(self._crashes, step, process.life))
        elif self._risk(faults.client_cut_off):
            self._later(duration_s * self._rng.random(), step.job, partial(self._is_cut_off, step.job, process.life))
        self._occupy(Running(step, outcome, duration_s, self.now))

    def _revoke(self, step_id: StepId) -> None:
        """Kill a step; the end is reported later."""
        running = self._running.get(step_id)
        if (
            running is not None
            and {self._processes[running.step.job].host, host_of(running.step.units[0])} & self._down.keys()
        ):
            return
        if running is not None and not self._risk(self.scenario.faults.revoke_ignored):
            running.version += 1
            happen = partial(self._step_ends, step_id, running.version, Outcome.FAILED)
            self._later(self.scenario.client_stop_s, running.step.job, happen)

    def _crashes(self, step: Step, life: int) -> Event | None:
        process = self._processes[step.job]
        if step.id in process.running and process.life == life:
            self._lose(step.job, self.scenario.client_stop_s, "simulated crash")
            if self._rng.random() < self.scenario.faults.answer_is_late:
                late = events.StepEnded(step.id, Outcome.DONE, process.client.load())
                self._later(self.scenario.client_stop_s + 0.5, step.job, lambda: late)
        return None

    def _lose(self, job: JobId, after_s: float, reason: str) -> None:
        """Kill a process now; the scheduler is told a little later. Returns True also if there was no process."""
        process = self._processes[job]
        self._dies(process)
        if not process.loss_due:
            process.loss_due = True
            self._later(after_s, job, partial(self._is_lost, job, process.life, reason))

    def _dies(self, process: Process) -> None:
        process.alive = process.away = process.missed = False
        for step in process.running:
            if step in self._running:  # otherwise it has ended, and its client could not report it
                self._vacate(step)
        process.running.clear()
        process.unsaid.clear()
        process.unheard.clear()

    # Units: who really runs where -----------------------------------------------------------------------------

    def _occupy(self, running: Running) -> None:
        self._running[running.step.id] = running
        for unit in running.step.units:
            users = self._on_unit.setdefault(unit, {})
            assert not users or self._policy.shares_units, f"{unit} runs steps {[*users]} and now {running.step.id}"
            users[running.step.id] = None
        self._share(running.step.units)

    def _share_work(self, step: Step, others: list[Running]) -> None:
        """Give a step an equal share of others' remaining work; one that hangs keeps its own."""
        left_s = [self._left_s(other) for other in others if other.remaining_s < float("inf")]
        share_s = sum(left_s) / (len(left_s) + 1)
        for other in others:
            if other.remaining_s < float("inf"):
                other.remaining_s, other.since, other.rate = share_s, self.now, 0.0
        self._occupy(Running(step, Outcome.DONE, share_s, self.now))
        for other in others:
            self._share(other.step.units)

    def _left_s(self, running: Running) -> float:
        return max(0.0, running.remaining_s - (self.now - running.since) * running.rate)

    def _vacate(self, step_id: StepId) -> None:
        running = self._running.pop(step_id)
        for unit in running.step.units:
            del self._on_unit[unit][step_id]
        self._share(running.step.units)

    def _share(self, units: tuple[UnitName, ...]) -> None:
        """Update the speed of all steps that run on these units."""
        for step_id in dict.fromkeys(step for unit in units for step in self._on_unit[unit]):
            running = self._running[step_id]
            rate = 1 / max(len(self._on_unit[unit]) for unit in running.step.units)
            if rate == running.rate:
                continue
            running.remaining_s = self._left_s(running)
            running.since, running.rate, running.version = self.now, rate, running.version + 1
            if running.remaining_s < float("inf"):
                happen = partial(self._step_ends, step_id, running.version, running.outcome)
                self._later(running.remaining_s / rate, running.step.job, happen)

    # What is told afterwards ------------------------------------------------------------------------------------

    def _settle_span(self, event: Event) -> None:
        if isinstance(event, events.StepEnded):
            self._close(event.step, self.spans[event.step], event.outcome)
        elif isinstance(event, events.ClientLost):
            for step in self.scheduler.state.jobs[event.job].steps:
                self._close(step, self.spans[step], Outcome.LOST)
        elif isinstance(event, events.ClientAttached) and event.holds is not None:
            for step in self.scheduler.state.jobs[event.job].steps.keys() - event.holds:
                self._close(step, self.spans[step], Outcome.LOST)
        elif isinstance(event, events.HostLeft):
            for running in self.scheduler.state.steps_on(event.host):
                self._close(running.id, self.spans[running.id], Outcome.LOST)

    def _close(self, step: StepId, span: Span, outcome: Outcome) -> None:
        if span.ended_at is None:
            self.spans[step] = Span(
                step=step, job=span.job, task=span.task, stage=span.stage, units=span.units,
                queued_at=span.queued_at, started_at=span.started_at, ended_at=self.now, outcome=outcome.value,
            )  # fmt: skip
