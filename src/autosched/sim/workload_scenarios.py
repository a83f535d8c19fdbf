"""Workloads as scenarios: an instance with its hosts and devices, and a recording with changes."""

import zlib
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from autosched.errors import RequestError
from autosched.model import DEVICE_POOL, HOST_POOL, JobId, Pool, PoolName, Unit
from autosched.sim.scenario import Scenario, ScenarioJob, Work
from autosched.stages import BUILD, PROFILE, UPDATE
from autosched.workloads.instances import Instance, InstanceJob
from autosched.workloads.recordings import RecordedJob, RecordedStep, Recording

PATIENCE_S = 1e9
"""Maximum seconds of a step: nothing hangs here."""


def instance_scenario(instance: Instance) -> Scenario:
    """The scenario of an instance: each host is a pool of one lane, since a job is tied to its host; the devices are
    one pool."""
    hosts = tuple(Pool(host_pool(host), (Unit(f"host/{host}", (host,)),)) for host in range(instance.hosts))
    first = instance.hosts
    devices = Pool("device:cpu", tuple(Unit(f"cpu{i}", (first + i,)) for i in range(instance.devices)))
    return Scenario(
        pools=(*hosts, devices),
        jobs=tuple(_instance_job(job) for job in instance.jobs),
        seed=zlib.crc32(instance.name.encode()),  # wrong estimates differ between instances
        step_timeout_s=PATIENCE_S,
        attach_timeout_s=PATIENCE_S,
    )


def host_pool(host: int) -> PoolName:
    """The pool of the lanes of one host among several."""
    return f"{HOST_POOL}/{host}"


def _instance_job(job: InstanceJob) -> ScenarioJob:
    host, device = (host_pool(job.host),), ("device:cpu",)
    rounds = tuple(
        (Work(BUILD, host, build_s), Work(PROFILE, device, profile_s), Work(UPDATE, host, update_s))
        for build_s, profile_s, update_s in job.iterations
    )
    return ScenarioJob(tasks=(rounds,), arrives_at=job.arrival_s)


# Recordings -----------------------------------------------------------------------------------------------------------


class Change(Struct, frozen=True, kw_only=True):
    """Changes of a recorded load."""

    hosts: int = 1
    """Number of hosts, each with the same number of lanes; a job stays on its host."""
    lanes: int | None = None
    """Number of lanes per host."""
    devices: Mapping[PoolName, int] = {}
    """Pool to its number of units."""
    added: tuple[tuple[JobId, int], ...] = ()
    """Copies of recorded jobs: each arrives together with its original."""


AS_IT_WAS = Change()


def recorded_scenario(recording: Recording, jobs: Sequence[RecordedJob], change: Change = AS_IT_WAS) -> Scenario:
    """These jobs and their copies, on other resources. The first of them arrives at 0.

    Jobs are assigned to hosts in the order of their arrival, each to the host with the least work. The number of a
    job's tasks in a round is that of its client: one more than its host has lanes and its device's pool has units.
    """
    pools = _pools(recording.pools, jobs, change)
    units = {pool.name: len(pool.units) for pool in pools}
    hosts = [HOST_POOL, *(host_pool(host) for host in range(1, change.hosts))]
    work_s = dict.fromkeys(hosts, 0.0)
    start = min(job.arrived_at for job in jobs)
    plans = list[ScenarioJob]()
    for job in with_copies(jobs, change.added):
        host = min(hosts, key=lambda name: work_s[name])
        work_s[host] += sum(step.held_s for step in job.steps() if HOST_POOL in step.pools)
        plans.append(_recorded_job(job, start, host, units))
    return Scenario(pools=pools, jobs=tuple(plans), step_timeout_s=PATIENCE_S, attach_timeout_s=PATIENCE_S)


def with_copies(jobs: Iterable[RecordedJob], added: Iterable[tuple[JobId, int]]) -> list[RecordedJob]:
    """Jobs and copies in the order of their arrival. Raises RequestError for a copy of an unknown job."""
    everything = list(jobs)
    by_id = {job.job: job for job in everything}
    for job, copies in added:
        if job not in by_id:
            raise RequestError(f"job {job} cannot be added: no step of it is in this recording")
        everything += [by_id[job]] * copies
    return sorted(everything, key=lambda job: job.arrived_at)  # stable: copies come after all others of their time


def _pools(recorded: Sequence[Pool], jobs: Iterable[RecordedJob], change: Change) -> tuple[Pool, ...]:
    """The recording's pools with other numbers of units; pools that no job uses are left out."""
    asked = {pool for job in jobs for step in job.steps() for pool in step.pools}
    pools = {pool.name: pool.units for pool in recorded if pool.name in asked}
    for name in sorted(change.devices.keys() - pools.keys()):
        raise RequestError(f"these jobs use no {name}; they use {', '.join(pools)}")
    for name, count in change.devices.items():
        pools[name] = _resized(pools[name], count, f"{name.removeprefix(DEVICE_POOL)}/planned")
    if HOST_POOL in pools and change.lanes is not None:
        pools[HOST_POOL] = _resized(pools[HOST_POOL], change.lanes, f"{HOST_POOL}/planned")
    hosts = {HOST_POOL: pools.pop(HOST_POOL, ())}
    for host in range(1, change.hosts):
        lanes = tuple(Unit(f"{host_pool(host)}/{lane}") for lane in range(len(hosts[HOST_POOL])))
        hosts[host_pool(host)] = lanes
    return tuple(Pool(name, units) for name, units in (hosts | pools).items() if units)


def _resized(units: tuple[Unit, ...], count: int, name: str) -> tuple[Unit, ...]:
    """The first units, or all and further ones."""
    return (*units[:count], *(Unit(f"{name}{number}") for number in range(len(units), count)))


def _recorded_job(job: RecordedJob, start: float, host: PoolName, units: Mapping[PoolName, int]) -> ScenarioJob:
    def works(steps: Iterable[RecordedStep]) -> tuple[Work, ...]:
        return tuple(
            Work(step.stage, tuple(host if pool == HOST_POOL else pool for pool in step.pools), step.held_s)
            for step in steps
        )

    number = {task: index for index, task in enumerate(job.tasks, start=1)}
    devices = max(
        (units[pool] for step in job.steps() for pool in step.pools if pool.startswith(DEVICE_POOL)), default=0
    )
    return ScenarioJob(
        tasks=tuple(tuple(works(steps) for steps in rounds) for rounds in job.tasks.values()),
        before=works(job.before),
        after=works(job.after),
        order=tuple(number[task] for task in job.order),
        under_way_max=units.get(host, 0) + devices + 1,
        arrives_at=job.arrived_at - start,
        client_start_s=job.client_start_s,
        name=job.spec.name,
        priority=job.spec.priority,
        deadline_s=job.spec.deadline_s,
    )
