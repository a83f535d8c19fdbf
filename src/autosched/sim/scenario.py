"""A scenario: the jobs and the faults. Data only; equal seeds give equal scenarios."""

from collections.abc import Iterator
from random import Random

from msgspec import Struct
from msgspec.structs import replace

from autosched.core.policies.policy import POLICIES
from autosched.model import (
    DEVICE_POOL,
    HOST_POOL,
    Goal,
    HostName,
    JobId,
    Pool,
    PoolName,
    TaskIndex,
    Unit,
    UnitName,
    lent_by,
)
from autosched.stages import BUILD, COMPILE, EVALUATE, IMPORT, PROFILE, SELECT, UPDATE

HOST, DEVICE = HOST_POOL, f"{DEVICE_POOL}cpu"
CANDIDATES = tuple(f"c{n}" for n in range(8))
"""Names of candidates; few, so that jobs share them."""


class Work(Struct, frozen=True):
    """One step that a task will make."""

    stage: str
    pools: tuple[PoolName, ...]
    duration_s: float
    """Duration in seconds without sharing units."""
    timeout_s: float | None = None
    candidate: str = ""
    """Candidate of the measurement; empty for none."""


Round = tuple[Work, ...]
"""The stages between two updates. A lost client loses its current round."""


class ScenarioJob(Struct, frozen=True, kw_only=True):
    """One simulated job: `before` and `after` are the network's own steps; the tasks run in parallel between them."""

    tasks: tuple[tuple[Round, ...], ...]
    """Rounds of task 1, task 2 and so on."""
    pool: tuple[Round, ...] = ()
    """Rounds of no particular task, after those of `tasks`. An idle task takes the next one, as in a search that
    chooses by gain."""
    before: Round = ()
    after: Round = ()
    order: tuple[TaskIndex, ...] | None = None
    """The task of each round, in the order in which rounds begin; None: every task begins its next round as soon as it
    can."""
    under_way_max: int = 1
    """With an order: maximum tasks that are in a round."""
    arrives_at: float = 0.0
    cancelled_at: float | None = None
    client_start_s: float | None = None
    """None: as in the scenario."""
    name: str = ""
    priority: int = 0
    deadline_s: float | None = None

    def works(self) -> Iterator[Work]:
        """All its steps."""
        yield from self.before
        for rounds in (*self.tasks, self.pool):
            for steps in rounds:
                yield from steps
        yield from self.after


class Faults(Struct, frozen=True, kw_only=True):
    """Probabilities per step, per client and per life of the daemon. No faults after `until_s`."""

    step_fails: float = 0.0
    step_hangs: float = 0.0
    """The step does not end by itself, only by its deadline."""
    revoke_ignored: float = 0.0
    """The client does not kill a step that it was told to kill."""
    client_dies: float = 0.0
    """The client dies during a step."""
    client_never_attaches: float = 0.0
    answer_is_late: float = 0.0
    """A dead client's last StepEnded arrives after its loss."""
    restarts: tuple[float, ...] = ()
    """Times at which the daemon dies and restarts."""
    client_outlives: float = 0.0
    """The client survives the daemon, and reconnects to the next one."""
    client_cut_off: float = 0.0
    """The client is disconnected during a step: it continues, and reconnects later; messages to it are lost
    meanwhile."""
    drains: tuple[tuple[float, UnitName, float], ...] = ()
    """Start, unit and end of drains."""
    broken: tuple[str, ...] = ()
    """Candidates that fail on every device, also after `until_s`."""
    sick: tuple[tuple[float, UnitName, float], ...] = ()
    """Start, device and end of periods in which most measurements fail."""
    until_s: float = float("inf")


class HostPlan(Struct, frozen=True):
    """A host beside the daemon's own, and the periods in which it cannot be reached."""

    name: HostName
    pools: tuple[Pool, ...]
    joins_at: float = 0.0
    cuts: tuple[tuple[float, float], ...] = ()
    """Start and end of each period. A host that is cut off for long ends its clients itself."""


class Scenario(Struct, frozen=True, kw_only=True):
    """A complete simulation except for the policy."""

    pools: tuple[Pool, ...]
    jobs: tuple[ScenarioJob, ...]
    faults: Faults = Faults()
    seed: int = 0
    client_start_s: float = 0.0
    client_stop_s: float = 0.0
    step_timeout_s: float = 600.0
    attach_timeout_s: float = 60.0
    choices: tuple[tuple[float, str, Goal], ...] = ()
    """Times at which an operator chooses a policy and goal."""
    halts: tuple[tuple[float, JobId, float], ...] = ()
    """Start, job and end of holds; job 0: everything is paused."""
    hosts: tuple[HostPlan, ...] = ()
    movable: tuple[str, ...] = ()
    """Stages of all jobs that may run on other hosts than their client's."""
    divisible: tuple[str, ...] = ()
    """Stages of all jobs whose work several steps may share."""


def pools(lanes: int, devices: int) -> tuple[Pool, Pool]:
    """One host with a number of lanes, and of equal devices."""
    return (
        Pool(HOST, tuple(Unit(f"host/{i}", (i,)) for i in range(lanes))),
        Pool(DEVICE, tuple(Unit(f"cpu{i}", (lanes + i,)) for i in range(devices))),
    )


def with_hosts(scenario: Scenario) -> Scenario:
    """The scenario with one to three hosts that come and go; sometimes no other host has devices for the jobs."""
    rng = Random(f"hosts/{scenario.seed}")
    names = [f"lab{number}" for number in range(rng.randint(1, 3))]
    lanes, devices = scenario.pools
    hosts = tuple(_random_host(rng, name) for name in names)
    scenario = replace(scenario, movable=rng.choice(((), (BUILD,), (BUILD, PROFILE), (BUILD, PROFILE))))
    shares = Random(f"shares/{scenario.seed}")
    scenario = replace(scenario, divisible=shares.choice(((), (PROFILE,), (BUILD, PROFILE))))
    if rng.random() < 0.25:
        hosts = tuple(replace(host, joins_at=0.0) for host in hosts)
        return replace(scenario, pools=(lanes, Pool("device:gpu", devices.units)), hosts=hosts)
    return replace(scenario, hosts=hosts)


def _random_host(rng: Random, name: HostName) -> HostPlan:
    cuts, at = [], rng.choice((0.0, rng.randint(0, 20) / 2))
    joins_at = at
    for _ in range(rng.randint(0, 3)):
        at += rng.randint(1, 30) / 2
        cuts.append((at, at + rng.randint(1, 60) / 2))
        at = cuts[-1][1]
    return HostPlan(name, lent_by(name, pools(rng.randint(1, 2), rng.randint(1, 2))), joins_at, tuple(cuts))


def lower_bound_s(scenario: Scenario) -> float:
    """Lower bound of all schedules: the work on each pool, shared by its units, and the longest chain of one task.

    For jobs that all arrive at 0, pools without common units, and no faults.
    """
    work = {pool.name: 0.0 for pool in scenario.pools}
    longest_s = 0.0
    for job in scenario.jobs:
        for step in job.works():
            for pool in step.pools:
                work[pool] += step.duration_s
        chains = (sum(step.duration_s for steps in task for step in steps) for task in job.tasks)
        longest_s = max(
            longest_s, max(chains, default=0.0) + sum(step.duration_s for step in [*job.before, *job.after])
        )
    return max(longest_s, *(work[pool.name] / len(pool.units) for pool in scenario.pools))


def random_scenario(seed: int, faults: Faults | None = None) -> Scenario:
    """A few jobs with a few tasks on a few units, with all kinds of faults unless `faults` has fewer.

    Durations are multiples of 0.5 s, so that ties are frequent; sometimes one unit is in both pools, as on a machine
    with one core, or a step needs a lane and a device at once.
    """
    rng, names = Random(f"scenario/{seed}"), Random(f"candidates/{seed}")
    resources = pools(rng.randint(1, 3), rng.randint(1, 2))
    if rng.random() < 0.2:
        core = Unit("core0", (0,))
        resources = (Pool(HOST, (core,)), Pool(DEVICE, (core,)))
    both = resources[0].units[0] != resources[1].units[0]
    jobs = tuple(_random_job(rng, names, both) for _ in range(rng.randint(1, 6)))
    return Scenario(
        pools=resources,
        jobs=jobs,
        faults=_random_faults(rng, names, resources) if faults is None else faults,
        seed=seed,
        client_start_s=rng.choice((0.0, 0.5)),
        client_stop_s=rng.choice((0.0, 0.5)),
        step_timeout_s=40.0,
        attach_timeout_s=5.0,
        choices=tuple(_random_choice(rng) for _ in range(rng.choice((0, 0, 0, 1, 2)))),
        halts=tuple(_random_halt(rng, len(jobs)) for _ in range(rng.choice((0, 0, 1, 3)))) if faults is None else (),
    )


def _random_halt(rng: Random, jobs: int) -> tuple[float, JobId, float]:
    at = rng.randint(1, 200) / 2
    return at, rng.randint(0, jobs), at + rng.randint(1, 60)


def _random_choice(rng: Random) -> tuple[float, str, Goal]:
    exclusive = [name for name, policy in POLICIES.items() if not policy.shares_units]
    return rng.randint(1, 200) / 2, rng.choice(exclusive), rng.choice(list(Goal))


def _random_faults(rng: Random, names: Random, resources: tuple[Pool, ...]) -> Faults:
    units = [unit.name for pool in resources for unit in pool.units]
    devices = [unit.name for unit in resources[1].units]
    return Faults(
        step_fails=rng.choice((0.0, 0.1)),
        step_hangs=rng.choice((0.0, 0.0, 0.05)),
        revoke_ignored=rng.choice((0.0, 0.0, 0.5)),
        client_dies=rng.choice((0.0, 0.0, 0.05)),
        client_never_attaches=rng.choice((0.0, 0.0, 0.2)),
        answer_is_late=0.5,
        restarts=tuple(rng.randint(1, 200) / 2 for _ in range(rng.choice((0, 0, 0, 1, 2)))),
        until_s=rng.choice((50.0, 200.0)),
        client_outlives=rng.choice((0.0, 0.7, 1.0)),
        drains=tuple(_random_drain(rng, units) for _ in range(rng.choice((0, 0, 1, 2)))),
        broken=tuple(CANDIDATES[: names.choice((0, 0, 1, 2))]),
        sick=tuple(_random_illness(names, devices) for _ in range(names.choice((0, 0, 1, 2)))),
        client_cut_off=names.choice((0.0, 0.0, 0.1)),
    )


def _random_drain(rng: Random, units: list[UnitName]) -> tuple[float, UnitName, float]:
    at = rng.randint(1, 200) / 2
    return at, rng.choice(units), at + rng.randint(1, 60)


def _random_illness(rng: Random, devices: list[UnitName]) -> tuple[float, UnitName, float]:
    at = rng.randint(0, 60) / 2
    return at, rng.choice(devices), at + rng.randint(20, 150)


def _random_job(rng: Random, names: Random, both: bool) -> ScenarioJob:
    def step(stage: str, pool: PoolName) -> Work:
        together = both and rng.random() < 0.1
        timeout_s = 30.0 if rng.random() < 0.2 else None
        duration_s = rng.randint(0, 20) / 2
        candidate = names.choice(CANDIDATES) if stage == PROFILE else ""
        return Work(stage, (HOST, DEVICE) if together else (pool,), duration_s, timeout_s, candidate)

    def one_round() -> Round:
        stages = ((SELECT, HOST), (BUILD, HOST), (PROFILE, DEVICE), (UPDATE, HOST))
        return tuple(step(stage, pool) for stage, pool in stages[rng.randint(0, 1) :])

    network = rng.random() < 0.5
    return ScenarioJob(
        tasks=tuple(tuple(one_round() for _ in range(rng.randint(1, 5))) for _ in range(rng.randint(1, 4))),
        before=(step(IMPORT, HOST),) if network else (),
        after=(step(COMPILE, HOST), step(EVALUATE, DEVICE)) if network else (),
        arrives_at=rng.choice((0.0, 0.0, rng.randint(0, 100) / 2)),
        cancelled_at=rng.randint(0, 200) / 2 if rng.random() < 0.1 else None,
        priority=rng.choice((0, 0, 0, rng.randint(-100, 100))),
        deadline_s=rng.choice((None, None, None, rng.randint(1, 400) / 2)),
    )
