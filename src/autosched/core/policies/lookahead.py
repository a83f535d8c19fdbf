"""Simulates the waiting and running steps to their end under a rule, with estimated durations.

A plan is found by simulating a few rules, then fixed orders of the jobs that a local search improves step by step. Its
random numbers depend on the state alone, so that equal states give equal plans.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from operator import truediv

from autosched.core.lifecycles import Key
from autosched.core.policies import work_estimation
from autosched.core.policies.dispatching_rules import FIRST_COME, RULES, Rule, RuleInput, named, order, ordered, rank
from autosched.core.remaining_work import Pools
from autosched.core.state import Job, State, Task
from autosched.model import JobId, PoolName, StepId
from autosched.stages import StageRole

OPERATIONS_MAX = 4_000
"""Maximum number of steps of a simulation. Beyond, rounds are left out evenly."""
LEAST_LEFT = 0.05
"""Expected remaining duration of an overdue step, as a share of its expected duration."""
SAFE = 2e-7
"""Minimum gain for choosing first come, first served despite uncertainty, in units of the score: 20 % of the mean
completion time."""

Operation = tuple[int, float, int]
"""Number of the pool, seconds, rank of the stage."""


@dataclass(slots=True)
class Chain:
    """The expected steps of one task, one after the other."""

    job: int
    """Number in `Snapshot.jobs`."""
    operations: list[Operation]
    ready_at: float
    running_until: float | None
    """End of the chain's first operation; None while the operation waits."""


@dataclass(slots=True)
class Snapshot:
    """The input of simulations. They do not change it."""

    now: float
    jobs: list[JobId]
    priorities: list[int]
    homes: list[int]
    """Number of the pool in which each job builds; -1: unknown."""
    units: list[int]
    """Number of units of each pool."""
    chains: list[Chain] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Forecast:
    """The outcome of a simulation."""

    makespan_s: float
    """Seconds until the last job ends."""
    completion_s: float
    """Sum of the seconds until each job ends."""


Score = Callable[[Forecast, Forecast], float]
"""Score of a forecast, given the forecast of the search's first rule; smaller is better."""


def snapshot(state: State) -> Snapshot:
    """The state as a job shop. Pools that share a unit count as one. A step in several pools uses the first one."""
    numbers, units = _pools(state)
    jobs = [job for job in state.active if not state.jobs[job].held and not state.has_left(state.jobs[job].host)]
    total = sum(work_estimation.rounds_left(state.jobs[job]) * work_estimation.ROUND_STAGES for job in jobs)
    thin = min(1.0, OPERATIONS_MAX / total) if total else 1.0
    shot = Snapshot(
        now=state.now,
        jobs=jobs,
        priorities=[state.jobs[job].spec.priority for job in jobs],
        homes=[
            numbers.get(place[0], -1) if (place := work_estimation.build_pools(state, state.jobs[job])) else -1
            for job in jobs
        ],
        units=units,
    )
    for number, job_id in enumerate(jobs):
        job = state.jobs[job_id]
        chains = [_chain(state, job, task, number, numbers) for task in job.tasks.values() if task.stage]
        if state.oracle is None and chains:
            _share_rounds(state, job, chains, numbers, thin)
        shot.chains.extend(chain for chain in chains if chain.operations)
        sharers = [step for task in job.tasks.values() for step in task.steps[1:]]
        shot.chains.extend(_held(state, step, number, numbers) for step in sharers)
    return shot


def _pools(state: State) -> tuple[dict[PoolName, int], list[int]]:
    """Numbers of the pools and their units; pools with a common unit have the same number."""
    numbers: dict[PoolName, int] = {}
    owners: dict[str, int] = {}
    units: list[int] = []
    for name, queue in state.queues.items():
        known = next((owners[unit.name] for unit in queue.pool.units if unit.name in owners), None)
        numbers[name] = len(units) if known is None else known
        if known is None:
            units.append(0)
        for unit in queue.pool.units:
            if unit.name not in owners:
                owners[unit.name] = numbers[name]
                units[numbers[name]] += 1
    return numbers, units


def _chain(state: State, job: Job, task: Task, number: int, numbers: dict[PoolName, int]) -> Chain:
    running_until = None
    if state.oracle is not None:
        ahead = state.oracle(job.id, task.index)
        operations = [(numbers[pools[0]], s, rank(state, stage)) for stage, pools, s in ahead]
    else:
        cycle = work_estimation.cycle(state, job)
        known = job.places.get(task.stage)
        pools = task.queued_in if task.waiting or known is None else state.pools_of(job, known)
        names = [(task.stage, pools), *work_estimation.rest_of_round(cycle, task.stage)]
        operations = [_operation(state, job, stage, pools, numbers) for stage, pools in names]
        own_s = state.estimates.of_task(job.id, task.index, task.stage, task.load.expected_s, typical=state.typical)
        if own_s is not None:
            operations[0] = (operations[0][0], own_s, operations[0][2])
    if task.step is not None and operations:
        pool, seconds, place = operations[0]
        started_at = state.steps[task.step].started_at
        running_until = max(started_at + seconds, state.now + LEAST_LEFT * seconds)
        operations[0] = (pool, running_until - state.now, place)
    return Chain(number, operations, task.ready_at, running_until)


def _held(state: State, step_id: StepId, number: int, numbers: dict[PoolName, int]) -> Chain:
    """A step that shares the work of a running step, for the expected rest of its duration."""
    step, job = state.steps[step_id], state.jobs[state.steps[step_id].job]
    stage_s, _ = state.estimates.of_job(job.id, step.stage, typical=state.typical)
    share_s = (stage_s or work_estimation.UNKNOWN_S) / len(job.tasks[step.task].steps)
    until = max(step.started_at + share_s, state.now + LEAST_LEFT * share_s)
    pool = next((pool for pool, _ in state.slots[step.units[0]].places), "")
    return Chain(number, [(numbers.get(pool, 0), until - state.now, rank(state, step.stage))], step.started_at, until)


def _operation(state: State, job: Job, stage: str, pools: Pools, numbers: dict[PoolName, int]) -> Operation:
    seconds, _ = state.estimates.of_job(job.id, stage, typical=state.typical)
    if seconds is None:
        home_s, _ = state.estimates.of_job(job.id, state.stage_with(StageRole.FEEDS), typical=state.typical)
        seconds = home_s or work_estimation.UNKNOWN_S
    return (numbers[pools[0]], seconds, rank(state, stage))


def _share_rounds(state: State, job: Job, chains: list[Chain], numbers: dict[PoolName, int], thin: float) -> None:
    """Distribute the rounds that have not started over the job's chains."""
    stages = work_estimation.cycle(state, job)
    one = [_operation(state, job, stage, pools, numbers) for stage, pools in stages]
    rounds = round(work_estimation.rounds_left(job) * thin)
    for index, chain in enumerate(chains):
        chain.operations.extend(one * (rounds // len(chains) + (index < rounds % len(chains))))


def play(shot: Snapshot, rule: Rule) -> Forecast:
    """Simulate a rule to the end. Takes a few microseconds for each operation."""
    free = list(shot.units)
    queues: list[list[tuple[Key, int]]] = [[] for _ in free]
    ends: list[tuple[float, int]] = []
    left, pools, abreast = _totals(shot)
    place = [0] * len(shot.chains)
    finished = [0.0] * len(shot.jobs)
    rule_input = RuleInput(0, 0.0, 0.0, 0.0, 0, 0.0, False, 0.0)
    key, priorities, homes, chains, units = rule.key, shot.priorities, shot.homes, shot.chains, shot.units

    def enqueue(number: int, ready_at: float) -> int:
        chain = chains[number]
        pool, _, stage_rank = chain.operations[place[number]]
        job = chain.job
        home = homes[job]
        rule_input.rank, rule_input.left_s, rule_input.job = stage_rank, left[job], shot.jobs[job]
        rule_input.ready_at, rule_input.path_s = ready_at, left[job] / abreast[job]
        if rule.watches:
            rule_input.bottleneck_s = max(map(truediv, pools, units))
        rule_input.on_device, rule_input.build_pool_s = (pool != home, pools[home]) if home >= 0 else (False, 0.0)
        heapq.heappush(queues[pool], ((-priorities[job], *key(rule_input)), number))
        return pool

    dirty = dict.fromkeys(range(len(free)))
    for number, chain in enumerate(chains):
        if chain.running_until is not None:
            free[chain.operations[0][0]] -= 1
            heapq.heappush(ends, (chain.running_until, number))
    for number, chain in enumerate(chains):
        if chain.running_until is None:
            enqueue(number, chain.ready_at)
    now = shot.now
    while True:
        for pool in dirty:
            while free[pool] > 0 and queues[pool]:
                number = heapq.heappop(queues[pool])[1]
                free[pool] -= 1
                heapq.heappush(ends, (now + chains[number].operations[place[number]][1], number))
        dirty.clear()
        if not ends:
            break
        now = ends[0][0]
        while ends and ends[0][0] <= now:
            number = heapq.heappop(ends)[1]
            chain = chains[number]
            pool, seconds, _ = chain.operations[place[number]]
            free[pool] += 1
            dirty[pool] = None
            left[chain.job] -= seconds
            pools[pool] -= seconds
            place[number] += 1
            if place[number] < len(chain.operations):
                dirty[enqueue(number, now)] = None
            else:
                finished[chain.job] = now
                abreast[chain.job] -= 1
    return Forecast(now - shot.now, sum(max(end - shot.now, 0.0) for end in finished))


def _totals(shot: Snapshot) -> tuple[list[float], list[float], list[int]]:
    """Remaining work by job and by pool, and the number of chains of each job."""
    left, pools, abreast = [0.0] * len(shot.jobs), [0.0] * len(shot.units), [0] * len(shot.jobs)
    for chain in shot.chains:
        abreast[chain.job] += 1
        for pool, seconds, _ in chain.operations:
            left[chain.job] += seconds
            pools[pool] += seconds
    return left, pools, abreast


@dataclass(frozen=True, slots=True)
class Search:
    """Settings of a search for a plan."""

    rules: tuple[str, ...]
    """Rules to simulate. The first one is used unless another one is clearly better."""
    score: Score
    margin: float = 0.0
    """Required gain as a share of the score, times the doubt about the estimates."""
    moves: int = 10
    """Number of orders to try at average doubt; four times as many without doubt."""
    moves_first: int = 40
    """The same after the set of jobs has changed."""


def doubt(state: State) -> float:
    """Doubt about the estimates: 0.5 without observations, and less with the root of their number."""
    total_s = sum(state.jobs[job].remaining.left_s for job in state.active)
    if state.oracle is not None or not total_s:
        return 0.0
    weighted = 0.0
    for job in (state.jobs[job_id] for job_id in state.active):
        seen = min((state.estimates.of_job(job.id, s)[1] for s, _ in work_estimation.cycle(state, job)), default=0.0)
        weighted += job.remaining.left_s * 0.5 / (seen + 1.0) ** 0.5
    return weighted / total_s


def search(state: State, how: Search, *, anew: bool) -> Iterator[str | None]:
    """Search for a plan. Yields None after each simulation, and last the name of the rule to use."""
    if len(how.rules) == 1:
        yield how.rules[0]
        return
    shot, unsure = snapshot(state), doubt(state)
    rule, *others = how.rules
    reference = play(shot, RULES[rule])
    best = first = how.score(reference, reference)
    yield None
    for name in (*others, FIRST_COME.name):
        if (score := how.score(play(shot, RULES[name]), reference)) < best:
            best, rule = score, name
        yield None
    safe = FIRST_COME.name if score < first - SAFE else how.rules[0]  # FIRST_COME was simulated last
    if len(shot.jobs) > 1:
        candidate = _Orders(state, shot, how.score, reference)
        for _ in range(candidate.starts):
            candidate.start()
            yield None
        for _ in range(round((how.moves_first if anew else how.moves) / (0.25 + unsure))):
            candidate.move()
            yield None
        if candidate.best < best - 1e-9:
            best, rule = candidate.best, candidate.name()
    yield rule if best < first - abs(first) * how.margin * unsure - 1e-9 else safe


class _Orders:
    """Local search over fixed orders of the jobs: moves one job at a time, or switches whether builds go first."""

    def __init__(self, state: State, shot: Snapshot, score: Score, reference: Forecast) -> None:
        self._shot, self._score, self._reference = shot, score, reference
        self._chance = state.last_step * 2654435761 % 2**31 + 1
        active = shot.jobs
        by_work = sorted(active, key=lambda job: (state.jobs[job].remaining.left_s, job))
        self._starts = [(by_work[::-1], True), (by_work, True)]
        if (now := ordered(state.rule)) is not None:
            kept = (job for job in now[0] if job in state.active)
            self._starts.append(([*dict.fromkeys((*kept, *active))], now[1]))
        self.starts = len(self._starts)
        self.best = float("inf")
        self._jobs, self._builds_first = self._starts[0]

    def name(self) -> str:
        return order(self._jobs, builds_first=self._builds_first)

    def start(self) -> None:
        self._try(*self._starts.pop())

    def move(self) -> None:
        jobs, builds_first = list(self._jobs), self._builds_first
        if self._draw(10) == 0:
            builds_first = not builds_first
        else:
            job = jobs.pop(self._draw(len(jobs)))
            jobs.insert(self._draw(len(jobs) + 1), job)
        self._try(jobs, builds_first)

    def _try(self, jobs: list[JobId], builds_first: bool) -> None:
        rule = named(order(jobs, builds_first=builds_first))
        score = self._score(play(self._shot, rule), self._reference)
        if score <= self.best:
            self.best, self._jobs, self._builds_first = score, jobs, builds_first

    def _draw(self, below: int) -> int:
        """Lehmer's generator (Park and Miller, CACM 1988): the core has no random module."""
        self._chance = self._chance * 48271 % 2147483647
        return self._chance % below
