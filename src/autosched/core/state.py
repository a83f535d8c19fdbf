"""The scheduler's state and its invariants."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import product

from autosched.core.estimates import Estimates
from autosched.core.events import UnitDrained
from autosched.core.remaining_work import PoolWork, RemainingWork
from autosched.model import (
    Goal,
    JobFailure,
    JobId,
    JobSpec,
    JobState,
    Pool,
    PoolName,
    Step,
    StepId,
    TaskIndex,
    TaskLoad,
    Unit,
    UnitName,
)

Key = tuple[float | int | str, ...]
"""Place of a task in a queue: the smallest goes first."""
Oracle = Callable[[JobId, TaskIndex], Sequence[tuple[str, tuple[PoolName, ...], float]]]
"""Stage, pools and seconds of the steps that a task has still to make, the running one included: for simulations."""


@dataclass(slots=True)
class Task:
    """One task as the scheduler sees it: its last load, and where its next step stands."""

    job: JobId
    index: TaskIndex
    load: TaskLoad
    ready_at: float = 0.0
    ticket: int = 0
    """0: not waiting. Otherwise the queue entries that carry this number are valid, all others are stale."""
    queued_in: tuple[PoolName, ...] = ()
    step: StepId | None = None
    """At most one step in flight."""
    at: str = ""
    """The stage for which it waits, or that runs; empty when it does neither."""
    key: Key = ()
    """Its place in the queues, as of when it was last reckoned."""


@dataclass(slots=True)
class Job:
    """One job: its client's standing and its tasks in the order in which the client named them."""

    id: JobId
    spec: JobSpec
    submitted_at: float
    owner: str = ""
    state: JobState = JobState.STARTING
    failure: JobFailure | None = None
    ended_at: float | None = None
    attached: bool = False
    cut_off: str = ""
    """Why its client, which was attached, cannot be reached; empty when it can."""
    held: str = ""
    """Why none of its steps start; empty when they do."""
    speak_deadline_at: float | None = None
    """Set while only the client can bring the job on: until it connects, and while it names nothing to run."""
    losses: int = 0
    """Clients lost since one of them left a record."""
    failed_steps: int = 0
    last_error: str = ""
    """Stage and message of the last step that failed as a whole."""
    tasks: dict[TaskIndex, Task] = field(default_factory=dict)
    steps: dict[StepId, None] = field(default_factory=dict)
    """Running, in the order of their start."""
    waiting: int = 0
    """Tasks of this job that stand in a queue."""
    at: dict[str, int] = field(default_factory=dict)
    """How many of its tasks are at each stage."""
    places: dict[str, tuple[PoolName, ...]] = field(default_factory=dict)
    """Where its stages run, as far as its client has said."""
    rounds_left: float | None = None
    """Rounds that no task has begun, by its client's word."""
    rounds_seen: int = 0
    """Builds that are done."""
    done_s: float = 0.0
    """Seconds that its steps took so far."""
    outlook: RemainingWork = field(default_factory=RemainingWork)


@dataclass(slots=True)
class Slot:
    """A unit, its places in the pools, and the step that holds it."""

    unit: Unit
    places: list[tuple[PoolName, int]] = field(default_factory=list)
    holder: StepId | None = None


@dataclass(slots=True)
class Queue:
    """A pool's waiting tasks and free units. Both heaps may hold stale entries, dropped when they come up."""

    pool: Pool
    heap: list[tuple[Key, int, JobId, TaskIndex]] = field(default_factory=list)
    """(policy key, ticket, job, task), the next to start first."""
    waiting: int = 0
    free: list[int] = field(default_factory=list)
    """Indices into pool.units, the first free one first."""
    listed: list[bool] = field(default_factory=list)
    """Which units stand in `free`, so that none stands there twice."""

    def offer(self, index: int) -> None:
        """A unit may be free."""
        if not self.listed[index]:
            self.listed[index] = True
            heapq.heappush(self.free, index)


@dataclass(slots=True)
class State:
    """Everything. Built by events alone."""

    now: float = 0.0
    step_timeout_s: float = 600.0
    attach_timeout_s: float = 60.0
    jobs: dict[JobId, Job] = field(default_factory=dict)
    active: dict[JobId, None] = field(default_factory=dict)
    """Jobs not ended, in order of registration."""
    starting: dict[JobId, None] = field(default_factory=dict)
    """Jobs that wait for a client which the daemon starts."""
    steps: dict[StepId, Step] = field(default_factory=dict)
    """Running steps."""
    slots: dict[UnitName, Slot] = field(default_factory=dict)
    queues: dict[PoolName, Queue] = field(default_factory=dict)
    revoked: dict[StepId, str] = field(default_factory=dict)
    """Told to stop, and why; not known to be dead."""
    drained: dict[UnitName, UnitDrained] = field(default_factory=dict)
    """Units that get no steps, and what made it so; also those that this life of the daemon does not have."""
    paused: str = ""
    paused_until_restart: bool = False
    """The same for all jobs."""
    shares_units: bool = False
    """Whether a policy that lets steps share units has decided since the resources were declared."""
    goal: Goal = Goal.BALANCED
    rule: str = ""
    """Name of the rule that looking ahead has found best; empty: the goal's own rule."""
    estimates: Estimates = field(default_factory=Estimates)
    totals: PoolWork = field(default_factory=PoolWork)
    oracle: Oracle | None = None
    alarms: list[tuple[float, StepId, JobId]] = field(default_factory=list)
    """A heap; step 0: the job's client is to speak."""
    last_job: JobId = 0
    last_step: StepId = 0
    last_ticket: int = 0

    @property
    def typical(self) -> bool:
        """Whether stages are taken to be as most are. For the makespan a giant among them counts in full."""
        return self.goal is Goal.BALANCED

    def declare(self, pools: tuple[Pool, ...]) -> None:
        """Replace all resources by these; only the steps that run are leased, no task waits."""
        self.slots, self.queues, self.starting, self.shares_units = {}, {}, {}, False
        self.totals.declare({pool.name: len(pool.units) for pool in pools})
        for pool in pools:
            count = len(pool.units)
            self.queues[pool.name] = Queue(pool, free=list(range(count)), listed=[True] * count)
            for index, unit in enumerate(pool.units):
                self.slots.setdefault(unit.name, Slot(unit)).places.append((pool.name, index))
        for step in self.steps.values():
            for name in step.units:
                self.slots[name].holder = step.id

    def first_free(self, pool: PoolName) -> UnitName | None:
        """The first unit of the pool that no step holds and that may be leased. O(log units), amortised."""
        queue = self.queues[pool]
        while queue.free:
            name = queue.pool.units[queue.free[0]].name
            if self.slots[name].holder is None and name not in self.drained:
                return name
            queue.listed[heapq.heappop(queue.free)] = False
        return None

    def free_units(self, pool: PoolName, count: int) -> list[UnitName]:
        """The first units of the pool that may be leased now, `count` at most. O(count log units), amortised."""
        queue = self.queues[pool]
        found: list[int] = []
        while len(found) < count and self.first_free(pool) is not None:
            found.append(heapq.heappop(queue.free))
        for index in found:
            heapq.heappush(queue.free, index)
        return [queue.pool.units[index].name for index in found]

    def free_for(self, task: Task, pool: PoolName, count: int) -> list[UnitName]:
        """The same for one task: not what it avoids, unless the pool has nothing else, busy or free."""
        if not (avoid := task.load.avoid):
            return self.free_units(pool, count)
        free = self.free_units(pool, count + len(avoid))
        others = (u.name for u in self.queues[pool].pool.units if u.name not in self.drained)
        if any(name not in avoid for name in others):
            free = [name for name in free if name not in avoid]
        return free[:count]

    def sharer(self, unit: UnitName) -> StepId | None:
        """The first running step that is on the unit. O(steps)."""
        return next((step.id for step in self.steps.values() if unit in step.units), None)

    def is_live(self, ticket: int, job: JobId, index: TaskIndex) -> bool:
        """Whether a queue entry is still what its task waits for. Those of a held job are made anew on its release."""
        known = self.jobs.get(job)
        task = known.tasks.get(index) if known is not None else None  # None: it was pruned
        return known is not None and task is not None and task.ticket == ticket and not known.held

    def impossible(self, load: TaskLoad) -> str | None:
        """Why no lease can ever be what this task asks for. It would wait for ever, and with it all behind it."""
        queues, wanted = self.queues, load.resources_next
        for name in wanted:
            if name not in queues:
                return f"no resource is named {name!r}; there are: {', '.join(queues)}"
        if len(wanted) > 1 and one_of_each([[unit.name for unit in queues[n].pool.units] for n in wanted]) is None:
            return f"{load.stage_next!r} needs a unit each of {', '.join(wanted)} at once; there are too few units"
        return None

    def check_step(self, step_id: StepId) -> None:
        """Check the invariants of one step after each event that touched it, in production too."""
        step = self.steps.get(step_id)
        if step is None:
            assert step_id not in self.revoked, f"step {step_id} has ended and is still being revoked"
            return
        job = self.jobs[step.job]
        assert step_id in job.steps, f"step {step_id} is unknown to its job {job.id}"
        task = job.tasks.get(step.task)
        assert task is not None, f"step {step_id} runs for a task that job {job.id} does not have"
        assert task.step == step_id, f"step {step_id} is not the step of its task"
        assert task.ticket == 0, f"task {step.task} of job {job.id} waits and runs at once"
        assert step.units, f"step {step_id} runs on nothing"

    def check_all(self, *, exclusive: bool = True) -> None:
        """Every invariant over everything: after a replay and in tests. O(everything)."""
        for step in self.steps.values():
            self.check_step(step.id)
            for unit in step.units if exclusive else ():
                assert self.slots[unit].holder == step.id, f"step {step.id} runs on {unit} without a lease"
        for name, slot in self.slots.items():
            if slot.holder is not None:
                assert slot.holder in self.steps, f"{name} is held by step {slot.holder}, which does not run"
                assert name in self.steps[slot.holder].units, f"{name} is held by a step that does not name it"
        for queue in self.queues.values():
            name, live = queue.pool.name, sum(1 for _, *entry in queue.heap if self.is_live(*entry))
            held = (task for job in self.jobs.values() if job.held for task in job.tasks.values() if task.ticket)
            live += sum(1 for task in held if name in task.queued_in)
            assert live == queue.waiting, f"{name}: {queue.waiting} counted, {live} waiting"
            for index, member in enumerate(queue.pool.units):
                free = self.slots[member.name].holder is None and member.name not in self.drained
                assert not free or queue.listed[index], f"{member.name} is free and {queue.pool.name} does not know"
        for job in self.jobs.values():
            assert job.state.ended == (job.id not in self.active), f"job {job.id} is ended and active, or neither"
            assert job.waiting == sum(1 for t in job.tasks.values() if t.ticket), f"job {job.id} miscounts its queue"
            assert not (job.state.ended and job.waiting), f"job {job.id} has ended and still waits"


def one_of_each(choices: Sequence[Sequence[UnitName]]) -> tuple[UnitName, ...] | None:
    """A unit from each list, no unit twice; the earliest such choice, None when there is none.

    As many units of each list as there are lists decide it: a longer list always has one that the others left.
    """
    short = [units[: len(choices)] for units in choices]
    return next((units for units in product(*short) if len(set(units)) == len(units)), None)
