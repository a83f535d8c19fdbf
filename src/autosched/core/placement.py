"""Choice of the host for a job's client, and of other hosts for its stages.

A job's stages run on the units of its client's host. Those that may run elsewhere also get idle units of other hosts,
where a helper of the client runs them. A helper costs a start and an import of the model, once for each host.
"""

from collections.abc import Iterator

from autosched.core.lifecycles import Attached, CutOff, Starting
from autosched.core.policies import work_estimation
from autosched.core.state import Host, Job, State
from autosched.model import DEVICE_POOL, HOST_POOL, OWN_HOST, HostName, JobSpec, PoolName, Step, TaskLoad, at_host
from autosched.stages import StageRole

HELPER_START_S = 5.0
"""Assumed seconds for the start of a helper, without its import of the model."""
SHARE_LEAST_S = 0.5
"""Minimum seconds of work for each step that shares a stage. A step costs a start, a sentinel and messages."""
HELPER_WORTH = 5.0
"""Minimum ratio of a helper's expected work to the cost of its start."""


def choose(state: State, job: Job) -> HostName | None:
    """The host with the fewest jobs per device of the job's kind; None while no such host can be reached.

    Ties go to the daemon's own host, then to the host that joined first. A host whose devices of the kind are all
    drained is chosen only if all hosts are like that. Where no host has the kind, the daemon's own host is chosen and
    refuses the job, with the reason. O(active jobs).
    """
    if waits(state, job.spec):
        return None
    reachable = _reachable(state, job.spec) or [OWN_HOST]
    if len(reachable) == 1:
        return reachable[0]
    placed = dict.fromkeys(reachable, 1)
    for other in (state.jobs[number] for number in state.active):
        if other is not job and other.host in placed and isinstance(other.client, Starting | Attached | CutOff):
            placed[other.host] += 1
    ready = {host: _ready(state, job.spec, host) for host in reachable}
    return min(reachable, key=lambda host: (not ready[host], placed[host] / max(ready[host], 1)))


def waits(state: State, spec: JobSpec) -> bool:
    """Whether the job's client cannot be started until a known host is back. O(hosts)."""
    return bool(state.hosts) and not _reachable(state, spec) and any(_offering(state, spec))


def _reachable(state: State, spec: JobSpec) -> list[HostName]:
    return [host for host in _offering(state, spec) if host == OWN_HOST or not state.hosts[host].away]


def _offering(state: State, spec: JobSpec) -> Iterator[HostName]:
    """The known hosts with devices of the kind, including unreachable ones."""
    pool = DEVICE_POOL + spec.device
    if pool in state.queues:
        yield OWN_HOST
    for name, host in state.hosts.items():
        if offers(name, host, spec.device):
            yield name


def offers(name: HostName, host: Host, kind: str) -> bool:
    """Whether the host lends devices of this kind, reachable or not."""
    return any(pool.name == at_host(DEVICE_POOL + kind, name) for pool in host.pools)


def _ready(state: State, spec: JobSpec, host: HostName) -> int:
    units = state.queues[at_host(DEVICE_POOL + spec.device, host)].pool.units
    return sum(1 for unit in units if unit.name not in state.drained)


def alternatives(state: State, job: Job, said: TaskLoad) -> tuple[PoolName, ...]:
    """Pools of other hosts with helpers of the job, in which the task's next stage may run."""
    if not job.helpers or said.stage_next not in job.movable or len(said.resources_next) != 1:
        return ()
    pools = (at_host(said.resources_next[0], host) for host in job.helpers)
    return tuple(pool for pool in pools if pool in state.queues)


def pays(state: State, job: Job, stage: str, pool: PoolName) -> bool:
    """Whether it is worth running a stage of the job on the host of a pool."""
    return may_run(state, job, pool) and is_worth_a_helper(state, job, stage)


def may_run(state: State, job: Job, pool: PoolName) -> bool:
    """Whether the host of a pool has the same software versions as the host of the job's client."""
    return software_of(state, state.queues[pool].pool.units[0].host) == software_of(state, job.host)


def is_worth_a_helper(state: State, job: Job, stage: str) -> bool:
    """Whether one more helper is worth its start to a job: the stage's remaining work, shared by all of the job's
    helpers, is a multiple of what the start costs."""
    stage_s, _ = state.estimates.of_job(job.id, stage)
    import_s, _ = state.estimates.of_job(job.id, state.stage_with(StageRole.JOINS))
    left_s = work_estimation.rounds_left(job) * (stage_s or work_estimation.UNKNOWN_S)
    return left_s / (1 + len(job.helpers)) >= HELPER_WORTH * (HELPER_START_S + (import_s or 0.0))


def may_share(state: State, step: Step, pool: PoolName) -> bool:
    """Whether it is worth starting a step on the pool that shares the work of a running step."""
    job = state.jobs[step.job]
    running, host = job.tasks[step.task].running, state.queues[pool].pool.units[0].host
    if running is None or running.dealt_out or step.id in state.revoked:
        return False
    if job.end is not None or job.held or not isinstance(job.client, Attached):
        return False
    if host != job.host:
        if step.stage not in job.movable or job.spec.external:
            return False
        if host not in job.helpers and not pays(state, job, step.stage, pool):
            return False
    expected_s = state.estimates.expected_s(step.id)
    if expected_s is None:
        return True
    left_s = step.started_at + expected_s - state.now
    return left_s >= SHARE_LEAST_S * (len(running.steps) + 1)


def software_of(state: State, host: HostName) -> str:
    """Digest of the software versions on a host; empty: the same as on the daemon's host."""
    return "" if host == OWN_HOST else state.hosts[host].software


def units_elsewhere(state: State, job: Job) -> int:
    """Number of lanes and devices on other hosts that the job's stages could use."""
    others = [OWN_HOST, *(name for name, host in state.hosts.items() if not host.left and not job.spec.external)]
    alike = (name for name in others if name != job.host and software_of(state, name) == software_of(state, job.host))
    pools = (at_host(pool, name) for name in alike for pool in (HOST_POOL, DEVICE_POOL + job.spec.device))
    return sum(len(state.queues[pool].pool.units) for pool in pools if pool in state.queues)
