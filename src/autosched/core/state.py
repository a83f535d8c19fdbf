"""The scheduler's state and its invariants."""

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import product

from msgspec import Struct

from autosched.core.estimates import Estimates
from autosched.core.events import BoardGone, BoardJoined, UnitDrained
from autosched.core.lifecycles import (
    CLIENT,
    IDLE,
    NO_CLIENT,
    TASK,
    Attached,
    ClientState,
    CutOff,
    Key,
    Placing,
    Queued,
    Running,
    Starting,
    TaskState,
    Waiting,
    follow,
)
from autosched.core.remaining_work import PoolWork, RemainingWork
from autosched.model import (
    OWN_HOST,
    CudaDevice,
    Goal,
    HostName,
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
    at_host,
)
from autosched.stages import Stage, StageRole

BOARDS_KEPT_S = 7 * 86_400.0
"""Seconds after which a board that is gone is forgotten at a start of the daemon."""
NAMES_MAX = 10_000
"""Maximum number of cached pool names of hosts."""
Oracle = Callable[[JobId, TaskIndex], Sequence[tuple[str, tuple[PoolName, ...], float]]]
"""Stage, pools and seconds of a task's remaining steps, including the running one. For simulations."""


@dataclass(slots=True)
class Task:
    """A task: its last load report, and the state of its next step."""

    job: JobId
    index: TaskIndex
    load: TaskLoad
    ready_at: float = 0.0
    """Time at which it last began to wait."""
    state: TaskState = IDLE

    @property
    def waiting(self) -> Waiting | None:
        """Its state while it waits for units; None: it does not."""
        return state if isinstance(state := self.state, Waiting) else None

    @property
    def running(self) -> Running | None:
        """Its state while steps run; None: none does."""
        return state if isinstance(state := self.state, Running) else None

    @property
    def stage(self) -> str:
        """The stage that runs or waits for units; empty: neither."""
        return self.state.stage

    @property
    def step(self) -> StepId | None:
        """The first of its running steps; None: none runs."""
        return next(iter(state.steps)) if isinstance(state := self.state, Running) else None

    @property
    def steps(self) -> tuple[StepId, ...]:
        """All running steps."""
        return tuple(state.steps) if isinstance(state := self.state, Running) else ()

    @property
    def queued_in(self) -> tuple[PoolName, ...]:
        """Pools of the client's host in which it waits; the next step needs one unit of each."""
        return state.pools if isinstance(state := self.state, Waiting) else ()

    @property
    def pools(self) -> tuple[PoolName, ...]:
        """The pools in whose queues the task waits, each once."""
        return state.all_pools if isinstance(state := self.state, Waiting) else ()


class JobEnd(Struct, frozen=True):
    """The end of a job."""

    state: JobState
    failure: JobFailure | None
    at: float


@dataclass(slots=True)
class Job:
    """A job: the state of its client, and its tasks in the order in which the client named them."""

    id: JobId
    spec: JobSpec
    submitted_at: float
    owner: str = ""
    client: ClientState = NO_CLIENT
    end: JobEnd | None = None
    """None: it has not ended."""
    host: HostName = OWN_HOST
    """Host of its client; the daemon's own while none is chosen."""
    movable: tuple[str, ...] = ()
    """Stages that may run on other hosts."""
    divisible: tuple[str, ...] = ()
    """Stages of which several steps may share the work."""
    helpers: dict[HostName, None] = field(default_factory=dict)
    """Other hosts with a helper of the present client, since a step has run there."""
    held: str = ""
    """Reason why none of the job's steps start; empty: they do."""
    trouble: str = ""
    """Why its last client could not run, for a reason of the machine; empty: it could."""
    losses: int = 0
    """Number of clients lost since the last new record."""
    failed_steps: int = 0
    last_error: str = ""
    """Stage and message of the last step that failed as a whole."""
    tasks: dict[TaskIndex, Task] = field(default_factory=dict)
    steps: dict[StepId, None] = field(default_factory=dict)
    """Running steps, in the order of their start."""
    waiting: int = 0
    """Number of tasks in a queue."""
    bound: dict[TaskIndex, None] = field(default_factory=dict)
    """Waiting tasks that cannot move to another host. Empty without other hosts."""
    at: dict[str, int] = field(default_factory=dict)
    """Number of tasks at each stage."""
    places: dict[str, tuple[PoolName, ...]] = field(default_factory=dict)
    """Pools of each stage that the client has named, by their names on its host."""
    rounds_left: float | None = None
    """Number of rounds that have not started, as the client reports it."""
    rounds_seen: int = 0
    """Number of ended build steps."""
    done_s: float = 0.0
    """Total seconds of its ended steps."""
    remaining: RemainingWork = field(default_factory=RemainingWork)

    @property
    def connected(self) -> bool:
        """Whether its client has connected. It may be cut off."""
        return isinstance(self.client, (Attached, CutOff))

    @property
    def state(self) -> JobState:
        """State of the job, as users see it."""
        if self.end is not None:
            return self.end.state
        return JobState.RUNNING if self.connected else JobState.STARTING

    @property
    def failure(self) -> JobFailure | None:
        """Why the job ended; None: it has not, or is done."""
        return None if self.end is None else self.end.failure

    @property
    def speak_by(self) -> float | None:
        """Deadline of the client's next message, while only the client can continue the job: until it connects, and
        while it names no work. None: there is none."""
        return state.speak_by if isinstance(state := self.client, (Placing, Starting, Attached, CutOff)) else None


@dataclass(slots=True)
class Slot:
    """A unit, its index in each of its pools, and the step that holds it."""

    unit: Unit
    places: list[tuple[PoolName, int]] = field(default_factory=list)
    holder: StepId | None = None
    away: bool = False
    """Whether its host cannot be reached."""


@dataclass(slots=True)
class Queue:
    """Waiting tasks and free units of a pool. Stale entries of both heaps are dropped when they reach the top."""

    pool: Pool
    heap: list[tuple[Key, int, JobId, TaskIndex]] = field(default_factory=list)
    """(policy key, ticket, job, task), the next to start first."""
    waiting: int = 0
    free: list[int] = field(default_factory=list)
    """Heap of indices into pool.units of free units."""
    listed: list[bool] = field(default_factory=list)
    """Whether each unit is in `free`. Prevents duplicates."""

    def offer(self, index: int) -> None:
        """List a unit as free."""
        if not self.listed[index]:
            self.listed[index] = True
            heapq.heappush(self.free, index)


@dataclass(slots=True)
class PoolKind:
    """Pools of the same name on all hosts: the idle ones, and work for them. See idle_units.py."""

    queue: Queue
    """Waiting tasks that may run on any host. The queue has no units of its own."""
    divisible: dict[StepId, None] = field(default_factory=dict)
    """Running steps whose work further steps may share, in the order of their start."""
    idle: dict[PoolName, None] = field(default_factory=dict)
    """Pools that may have a free unit for which no task waits."""
    new_idle: dict[PoolName, None] = field(default_factory=dict)
    """New entries of `idle`. `new_tasks` and `new_steps`: the same of the queue and of `divisible`."""
    new_tasks: dict[tuple[JobId, TaskIndex], None] = field(default_factory=dict)
    new_steps: dict[StepId, None] = field(default_factory=dict)
    looked_at: float = -math.inf
    """Time of the last full search."""


@dataclass(slots=True)
class Host:
    """A machine other than the daemon's own."""

    pools: tuple[Pool, ...]
    machine: str = ""
    """Identity of the machine, independent of its name."""
    away: str = ""
    """Reason why its units get no steps; empty: they do."""
    lost_at: float | None = None
    """Time at which nothing runs there any more, while the host is away."""
    left: bool = False
    """Whether nothing runs there any more and its pools are removed."""
    software: str = ""
    """Digest of its software versions; empty: the same as on the daemon's host."""

    @property
    def units(self) -> tuple[UnitName, ...]:
        """All units that the host lends, each once."""
        return tuple(dict.fromkeys(unit.name for pool in self.pools for unit in pool.units))


@dataclass(slots=True)
class Board:
    """A board that registers itself with the daemon."""

    unit: Unit
    pool: PoolName
    gone: str = ""
    """Reason why the board is gone; empty: it is there."""
    gone_at: float = 0.0


@dataclass(slots=True)
class State:
    """The complete state. Only events change it."""

    now: float = 0.0
    step_timeout_s: float = 600.0
    attach_timeout_s: float = 60.0
    jobs: dict[JobId, Job] = field(default_factory=dict)
    active: dict[JobId, None] = field(default_factory=dict)
    """Jobs that have not ended, in order of submission."""
    starting: dict[JobId, None] = field(default_factory=dict)
    """Jobs whose client is `Placing` or `Starting`, without external jobs."""
    hosts: dict[HostName, Host] = field(default_factory=dict)
    """Hosts that have joined and are not forgotten, in the order of joining."""
    boards: dict[UnitName, Board] = field(default_factory=dict)
    """Boards that have registered themselves, including those that are gone, in that order."""
    without_host: dict[JobId, None] = field(default_factory=dict)
    """Jobs whose client is `Queued` until a host is back."""
    steps: dict[StepId, Step] = field(default_factory=dict)
    """Running steps."""
    slots: dict[UnitName, Slot] = field(default_factory=dict)
    queues: dict[PoolName, Queue] = field(default_factory=dict)
    kinds: dict[PoolName, PoolKind] = field(default_factory=dict)
    """Pools of the same base name on all hosts, for names whose steps may run on another host or be shared there."""
    revoked: dict[StepId, str] = field(default_factory=dict)
    """Reason of each revoked step that is not known to be dead."""
    drained: dict[UnitName, UnitDrained] = field(default_factory=dict)
    """Units that get no steps, with the event that drained them, including units that the daemon does not have now."""
    paused: str = ""
    """Reason why no steps of any job start; empty: they do."""
    paused_until_restart: bool = False
    shares_units: bool = False
    """Whether a policy that lets steps share units was used since the resources were declared."""
    goal: Goal = Goal.BALANCED
    rule: str = ""
    """Name of the rule that the lookahead search found best; empty: the rule of the goal."""
    estimates: Estimates = field(default_factory=Estimates)
    totals: PoolWork = field(default_factory=PoolWork)
    stages: dict[str, Stage] = field(default_factory=dict)
    """Stages with a role that loads have named, in the order of a job's life. Other names may be any number."""
    by_role: dict[StageRole, str] = field(default_factory=dict)
    """The first of these with each role."""
    oracle: Oracle | None = None
    alarms: list[tuple[float, StepId, JobId]] = field(default_factory=list)
    """Heap of (time, step, job): a step's deadline, or with step 0 that of the client's next message."""
    last_job: JobId = 0
    last_step: StepId = 0
    last_ticket: int = 0

    def meet(self, stage: Stage) -> None:
        """Remember a stage that a load names, if it has a role."""
        if stage.role is not StageRole.OTHER and stage.name not in self.stages:
            known = sorted((*self.stages.values(), stage), key=lambda one: one.order)
            self.stages = {one.name: one for one in known}
            self.by_role = {one.role: one.name for one in reversed(known)}

    def role_of(self, stage: str) -> StageRole:
        """The role of a stage in the order of steps."""
        known = self.stages.get(stage)
        return StageRole.OTHER if known is None else known.role

    def stage_with(self, role: StageRole) -> str:
        """The first stage with this role; empty if no load has named one."""
        return self.by_role.get(role, "")

    @property
    def typical(self) -> bool:
        """Whether estimates are typical durations. For the makespan, a rare long stage counts in full."""
        return self.goal is Goal.BALANCED

    def move_client(self, job: Job, new: ClientState) -> None:
        """Change the state of a job's client."""
        follow(CLIENT, job.client, new)
        job.client = new
        self.starting.pop(job.id, None)
        self.without_host.pop(job.id, None)
        match new:
            case Placing() | Starting() if not job.spec.external:
                self.starting[job.id] = None
            case Queued():
                self.without_host[job.id] = None

    def move_task(self, task: Task, new: TaskState) -> None:
        """Change a task's state. A waiting task has left its queues before."""
        follow(TASK, task.state, new)
        counts = self.jobs[task.job].at
        if (old_stage := task.state.stage) != new.stage:
            if old_stage:
                counts[old_stage] -= 1
            if new.stage:
                counts[new.stage] = counts.get(new.stage, 0) + 1
        task.state = new

    def declare(self, pools: tuple[Pool, ...]) -> None:
        """Replace all resources of the daemon's own host. Precondition: no task waits, and only running steps hold
        leases."""
        self.slots, self.queues, self.kinds, self.shares_units = {}, {}, {}, False
        self._add(pools)
        for host in (host for host in self.hosts.values() if not host.left):
            host.away = host.away or "the daemon was started again"
            self._add(host.pools, away=True)
        self._keep_boards()
        self._count_units()
        for step in self.steps.values():
            for name in step.units:
                self.slots.setdefault(name, Slot(Unit(name), away=True)).holder = step.id
            self.note_divisible(step)

    def join(self, name: HostName, pools: tuple[Pool, ...], machine: str, software: str) -> None:
        """Add a host, or take it back after it was away: its units get steps."""
        if name not in self.hosts or self.hosts[name].left:
            self.hosts[name] = Host(pools, machine, software=software)
            self._add(pools)
            self._count_units()
        assert self.hosts[name].pools == pools, f"{name} lends other units now, and has not left before"
        self.hosts[name].software = software
        self.set_away(name, "", None)

    def _keep_boards(self) -> None:
        """Keep the boards that registered before the daemon was started, as gone until they register again. Boards that
        were gone for long, and those that the resources name now, are forgotten."""
        held = {unit for step in self.steps.values() for unit in step.units}
        for name, board in list(self.boards.items()):
            forgotten = board.gone and self.now - board.gone_at > BOARDS_KEPT_S and name not in held
            if forgotten or name in self.slots:
                del self.boards[name]
                continue
            if not board.gone:
                board.gone, board.gone_at = "the daemon was started again", self.now
            self._grow(board.pool, board.unit, away=True)

    def take_board(self, event: BoardJoined | BoardGone) -> UnitName:
        """Add or remove a board that registers itself. Returns its name."""
        if isinstance(event, BoardJoined):
            self._join_board(event.unit, event.pool)
            return event.unit.name
        board = self.boards[event.unit]
        board.gone, board.gone_at, self.slots[event.unit].away = event.reason, self.now, True
        return event.unit

    def forget_board(self, name: UnitName) -> None:
        """Remove a board that is gone and that no step holds. Its pool goes with the last unit; no task waits there."""
        pool, queue = self.boards[name].pool, self.queues[self.boards[name].pool]
        assert self.boards[name].gone, f"{name} is there"
        assert self.slots[name].holder is None, f"a step holds {name}"
        del self.boards[name]
        del self.slots[name]
        if not (units := tuple(unit for unit in queue.pool.units if unit.name != name)):
            assert not queue.waiting, f"tasks wait for {pool}, whose last unit is forgotten"
            del self.queues[pool]
        else:
            queue.pool, queue.free, queue.listed = Pool(pool, units), list(range(len(units))), [True] * len(units)
            for index, unit in enumerate(units):
                slot = self.slots[unit.name]
                slot.places = [(place, index if place == pool else number) for place, number in slot.places]
        self._count_units()

    def _join_board(self, unit: Unit, pool: PoolName) -> None:
        """Add a board, or take it back: it gets steps."""
        if (known := self.boards.get(unit.name)) is None:
            assert unit.name not in self.slots, f"there is another unit {unit.name}"
            self._grow(pool, unit, away=False)
            self._count_units()
        else:
            assert known.pool == pool, f"{unit.name} was in {known.pool}, and is now in {pool}"
            queue, slot = self.queues[pool], self.slots[unit.name]
            units = tuple(unit if one.name == unit.name else one for one in queue.pool.units)
            queue.pool, slot.unit, slot.away = Pool(pool, units), unit, False
        self.boards[unit.name] = Board(unit, pool)

    def _grow(self, pool: PoolName, unit: Unit, *, away: bool) -> None:
        """Add a unit to a pool, which is created if it does not exist."""
        if (queue := self.queues.get(pool)) is None:
            return self._add((Pool(pool, (unit,)),), away=away)
        index = len(queue.pool.units)
        queue.pool = Pool(pool, (*queue.pool.units, unit))
        queue.listed.append(False)
        queue.offer(index)
        self.slots[unit.name] = Slot(unit, [(pool, index)], away=away)

    def set_away(self, name: HostName, reason: str, lost_at: float | None) -> None:
        """Mark a host as unreachable; with an empty reason: as reachable."""
        host = self.hosts[name]
        host.away, host.lost_at = reason, lost_at
        for unit in host.units:
            self.slots[unit].away = bool(reason)

    def leave(self, name: HostName, reason: str) -> None:
        """Remove the host's pools. Nothing runs there any more, and no task waits for it. A unit stays while the client
        has not reported the end of its step."""
        host = self.hosts[name]
        host.away, host.lost_at, host.left = reason, None, True
        for pool in host.pools:
            assert not self.queues[pool.name].waiting, f"tasks wait for {pool.name}, whose host leaves"
            del self.queues[pool.name]
        for unit in host.units:
            self.slots[unit].places.clear()
            self.forget_slot(unit)
        self._count_units()

    def forget_slot(self, unit: UnitName) -> None:
        """Forget a unit that is in no pool any more, unless a step holds it."""
        if (slot := self.slots[unit]).holder is None and not slot.places:
            del self.slots[unit]

    def _count_units(self) -> None:
        self.totals.declare({name: len(queue.pool.units) for name, queue in self.queues.items()})

    def _add(self, pools: tuple[Pool, ...], *, away: bool = False) -> None:
        for pool in pools:
            count = len(pool.units)
            self.queues[pool.name] = Queue(pool, free=list(range(count)), listed=[True] * count)
            for index, unit in enumerate(pool.units):
                slot = self.slots.setdefault(unit.name, Slot(unit, away=away))
                slot.unit, slot.away = unit, away
                slot.places.append((pool.name, index))

    def steps_on(self, host: HostName) -> list[Step]:
        """The running steps of clients on the host that hold a unit of it."""
        units = frozenset(self.hosts[host].units)
        steps = (step for step in self.steps.values() if not units.isdisjoint(step.units))
        return [step for step in steps if self.jobs[step.job].host == host]

    def has_left(self, host: HostName) -> bool:
        """Whether the host's pools are removed. Steps of helpers on other hosts may outlive it for a moment."""
        return host != OWN_HOST and (host not in self.hosts or self.hosts[host].left)

    def note_divisible(self, step: Step) -> None:
        """List a starting step whose work further steps may share."""
        job = self.jobs[step.job]
        alone = job.tasks[step.task].step == step.id
        if alone and step.stage in job.divisible and len(step.units) == 1 and not self.shares_units:
            for pool, _ in self.slots[step.units[0]].places[:1]:
                kind = self.kind(pool)
                kind.divisible[step.id] = kind.new_steps[step.id] = None

    def kind(self, pool: PoolName) -> PoolKind:
        """The pools of all hosts with the name of this pool; created if needed."""
        name = pool.partition("@")[0]
        if (known := self.kinds.get(name)) is None:
            known = self.kinds[name] = PoolKind(Queue(Pool(name, ())))
        return known

    def note_idle(self, pool: PoolName) -> None:
        """List a pool as idle: it has a free unit for which no task waits."""
        kind = self.kind(pool)
        if pool not in kind.idle:
            kind.idle[pool] = kind.new_idle[pool] = None

    def host_of(self, step: Step) -> HostName:
        """The host on whose units a step runs."""
        return self.slots[step.units[0]].unit.host

    def cores_of(self, step: Step) -> tuple[int, ...]:
        """Cores of a step's units, by their numbers on the host."""
        return tuple([core for unit in step.units for core in self.slots[unit].unit.cores])

    def gpu_of(self, step: Step) -> str:
        """UUID of the GPU that a step holds; empty if it holds none."""
        devices = (self.slots[unit].unit.accelerator for unit in step.units)
        return next((device.uuid for device in devices if isinstance(device, CudaDevice)), "")

    def is_usable(self, unit: UnitName) -> bool:
        """Whether the unit may get steps, now or when it is free."""
        return unit not in self.drained and not self.slots[unit].away

    def pools_of(self, job: Job, pools: tuple[PoolName, ...]) -> tuple[PoolName, ...]:
        """Pools of the job's host, by the names that its client uses."""
        return self.pools_at(job.host, pools)

    @staticmethod
    def pools_at(host: HostName, pools: tuple[PoolName, ...]) -> tuple[PoolName, ...]:
        """Pools of a host, by the names that they have there."""
        return pools if host == OWN_HOST else _at_host(host, pools)

    def movable_name(self, task: Task, waiting: Waiting) -> PoolName:
        """Name of the kind in whose queue a task waits, which is created if needed; empty: the task may not move, or
        there are no other hosts."""
        job = self.jobs[task.job]
        if not self.hosts or len(waiting.pools) != 1 or task.load.stage_next not in job.movable or job.spec.external:
            return ""  # an external client measures on a machine that nothing was compared with
        name = task.load.resources_next[0]
        self.kind(name)
        return name

    def first_free(self, pool: PoolName) -> UnitName | None:
        """The first free unit of the pool that may be leased; None: none. O(log units), amortised."""
        queue = self.queues[pool]
        while queue.free:
            name = queue.pool.units[queue.free[0]].name
            if (slot := self.slots[name]).holder is None and not slot.away and name not in self.drained:
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
        """Free units for one task: like `free_units`, without the units in `load.avoid`. They count for a waiting task
        if no other unit of its pools is usable."""
        if not (avoid := task.load.avoid):
            return self.free_units(pool, count)
        free = self.free_units(pool, count + len(avoid))
        would_do = (pool,) if len(task.queued_in) > 1 else (pool, *task.pools)
        others = (unit.name for one in would_do for unit in self.queues[one].pool.units)
        if task.waiting is None or any(name not in avoid and self.is_usable(name) for name in others):
            free = [name for name in free if name not in avoid]
        return free[:count]

    def sharer(self, unit: UnitName) -> StepId | None:
        """The first running step on the unit; None: none. O(steps)."""
        return next((step.id for step in self.steps.values() if unit in step.units), None)

    def is_live(self, ticket: int, job: JobId, index: TaskIndex) -> bool:
        """Whether a queue entry is valid. Entries of a held job are not; they are created again at its release."""
        known = self.jobs.get(job)
        task = known.tasks.get(index) if known is not None else None  # None: it was pruned
        if known is None or task is None or known.held:
            return False
        return isinstance(state := task.state, Waiting) and state.ticket == ticket

    def impossible(self, job: Job, load: TaskLoad) -> str | None:
        """Reason why no lease can ever fulfil the request of a task; None: one can. The task would block its queue."""
        queues, wanted = self.queues, self.pools_of(job, load.resources_next)
        for name in wanted:
            if name not in queues:
                return f"no resource is named {name!r}; there are: {', '.join(queues)}"
        if len(wanted) > 1 and one_of_each([[unit.name for unit in queues[n].pool.units] for n in wanted]) is None:
            return f"{load.stage_next!r} needs a unit each of {', '.join(wanted)} at once; there are too few units"
        return None

    def check_step(self, step_id: StepId) -> None:
        """Check the invariants of one step. Runs after each event that changes it, in production too."""
        step = self.steps.get(step_id)
        if step is None:
            assert step_id not in self.revoked, f"step {step_id} has ended and is still being revoked"
            return
        job = self.jobs[step.job]
        assert step_id in job.steps, f"step {step_id} is unknown to its job {job.id}"
        task = job.tasks.get(step.task)
        assert task is not None, f"step {step_id} runs for a task that job {job.id} does not have"
        running = task.running
        assert running is not None, f"step {step_id} runs, and its task does not"
        assert step_id in running.steps, f"step {step_id} is no step of its task"
        assert running.stage == step.stage, f"step {step_id} is a {step.stage}, and its task is at {running.stage}"
        assert step.units, f"step {step_id} runs on nothing"

    def check_all(self, *, exclusive: bool = True) -> None:
        """Check all invariants: after a replay, and in tests. O(state)."""
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
            held = (task for job in self.jobs.values() if job.held for task in job.tasks.values() if task.waiting)
            live += sum(1 for task in held if name in task.pools)
            assert live == queue.waiting, f"{name}: {queue.waiting} counted, {live} waiting"
            for index, member in enumerate(queue.pool.units):
                free = self.slots[member.name].holder is None and self.is_usable(member.name)
                assert not free or queue.listed[index], f"{member.name} is free and {queue.pool.name} does not know"
        for host, known in self.hosts.items():
            for pool in known.pools if not known.left else ():
                assert self.queues[pool.name].pool == pool, f"{pool.name} is not what {host} lends"
                assert all(self.slots[unit.name].away == bool(known.away) for unit in pool.units), f"{host} is away?"
        for name, board in self.boards.items():
            assert self.slots[name].away == bool(board.gone), f"{name} is gone?"
            assert self.slots[name].unit in self.queues[board.pool].pool.units, f"{name} is in no pool"
        for job in self.jobs.values():
            gone = self.has_left(job.host) and not job.steps  # else its helpers are ended
            assert job.state.ended or not gone, f"job {job.id} is nowhere"
            assert job.state.ended == (job.id not in self.active), f"job {job.id} is ended and active, or neither"
            assert job.waiting == sum(1 for t in job.tasks.values() if t.waiting), f"job {job.id} miscounts its queue"
            assert not (job.state.ended and job.waiting), f"job {job.id} has ended and still waits"
            for task in job.tasks.values():
                assert task.running is None or task.steps, f"task {task.index} of job {job.id} runs no step"


@lru_cache(maxsize=NAMES_MAX)
def _at_host(host: HostName, pools: tuple[PoolName, ...]) -> tuple[PoolName, ...]:
    return tuple([at_host(pool, host) for pool in pools])


def one_of_each(choices: Sequence[Sequence[UnitName]]) -> tuple[UnitName, ...] | None:
    """A unit from each list, no unit twice: the first such choice, None when there is none.

    Only the first n units of each of the n lists can matter: a longer list always has a unit that the others left.
    """
    short = [units[: len(choices)] for units in choices]
    return next((units for units in product(*short) if len(set(units)) == len(units)), None)
