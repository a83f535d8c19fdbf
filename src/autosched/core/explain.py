"""Explains why a job does not continue: for which units it waits, which steps hold them, since when and until when.

`why_task` and `why_step` return data, `explain_job` sentences. All is derived from the state. O(n log n) in the waiting
tasks: for questions of users, not for decisions. `now`: time of the question; default: that of the last event.
"""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from autosched.core import placement
from autosched.core.lifecycles import CutOff, Queued
from autosched.core.policies.policy import POLICIES
from autosched.core.state import Job, JobEnd, Queue, State, Task
from autosched.formatting import count, duration, failed_steps
from autosched.model import OWN_HOST, JobId, JobState, PoolName, Step, StepId, TaskIndex, UnitName

TASKS_NAMED = 8
"""Maximum number of tasks in a group that are named. Further tasks are counted."""


class WhyStep(Struct, frozen=True, kw_only=True):
    """A running step: its units, since when and until when it holds them."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    held_s: float
    left_s: float
    """Seconds until its deadline; negative: overdue."""
    expected_left_s: float | None
    """Seconds until its end, as the client estimates; None: no estimate, or it has passed."""
    stopping: str
    """Reason why the step was revoked; empty: it was not."""


class WhyPool(Struct, frozen=True, kw_only=True):
    """One pool that a waiting task needs."""

    pool: PoolName
    units: int
    free: tuple[UnitName, ...]
    drained: tuple[tuple[UnitName, str], ...]
    """Drained units, each with the reason."""
    away: bool
    """Whether no unit gets steps, since the host cannot be reached."""
    gone: tuple[tuple[UnitName, str], ...]
    """Boards that are gone, each with the reason."""
    holders: tuple[WhyStep, ...]
    """Steps that hold a unit of this pool, in the order of the pool's units."""
    ahead: int
    """Number of tasks before this one in the queue."""
    first: tuple[JobId, TaskIndex]
    """The first task of the queue; this task itself if `ahead` is 0."""


class WhyTask(Struct, frozen=True, kw_only=True):
    """The pools for which a task waits, and what blocks each."""

    task: TaskIndex
    stage: str
    """The stage to run next."""
    waited_s: float
    pools: tuple[WhyPool, ...]


def why_step(state: State, step_id: StepId, now: float | None = None) -> WhyStep | None:
    """The units that a step holds; None: the step is not running."""
    step = state.steps.get(step_id)
    return None if step is None else _running(state, step, state.now if now is None else now)


def why_task(state: State, job: JobId, index: TaskIndex, now: float | None = None) -> WhyTask | None:
    """The pools for which a task waits; None: it does not wait, or does not exist."""
    now = state.now if now is None else now
    task = state.jobs[job].tasks.get(index) if job in state.jobs else None
    if task is None or task.waiting is None:
        return None
    pools = tuple(_blocked(state, state.queues[pool], task, now) for pool in task.queued_in)
    return WhyTask(task=index, stage=task.load.stage_next, waited_s=now - task.ready_at, pools=pools)


def explain_job(state: State, job: JobId, policy_name: str = "interleaved", now: float | None = None) -> list[str]:
    """The reasons why a job does not continue, as sentences, the most important first. Raises KeyError for an unknown
    job."""
    now = state.now if now is None else now
    it = state.jobs[job]
    if it.end is not None:
        return list(_ended(it, it.end, state, now))
    halted = [f"no steps start, all jobs wait: {state.paused}"] if state.paused else []
    halted += [f"job {job} is held and starts no steps: {it.held}"] if it.held else []
    cut_off = it.client.reason if isinstance(it.client, CutOff) else ""
    halted += [f"job {job} starts no steps: its client is cut off ({cut_off})"] if cut_off else []
    halted += _host(state, it, now)
    if it.state is JobState.STARTING:
        trouble = (
            [f"the last client of job {job} could not run, and the next one tries: {it.trouble}"] if it.trouble else []
        )
        return [*halted, *trouble, _starting(state, it, now)]
    lines = [f"task {step.task} {_runs(step)}" for s in it.steps if (step := why_step(state, s, now)) is not None]
    for group in _groups(state, it):
        if (first := why_task(state, job, group[0].index, now)) is not None:
            lines.extend(_waits(first, group, now, "" if halted else policy_name))
    lines = halted + (lines or ([] if it.waiting or cut_off else [_nothing_to_do(it, now)]))
    return [*lines, failed_steps(it.failed_steps, it.last_error)] if it.failed_steps else lines


def _groups(state: State, job: Job) -> list[list[Task]]:
    """Groups of the job's tasks that wait for the same stage on the same pools, each in the order of the queue."""
    groups: dict[tuple[str, tuple[PoolName, ...]], list[Task]] = {}
    for queue in state.queues.values():
        for entry in sorted(entry for entry in queue.heap if entry[2] == job.id and state.is_live(*entry[1:])):
            task = job.tasks[entry[3]]
            if task.queued_in[0] == queue.pool.name:
                groups.setdefault((task.load.stage_next, task.queued_in), []).append(task)
    return list(groups.values())


def _running(state: State, step: Step, now: float) -> WhyStep:
    job = state.jobs[step.job]
    task = job.tasks.get(step.task)
    expected_s = task.load.expected_s if task is not None else None
    if task is not None and expected_s is not None:
        expected_s /= max(1, len(task.steps))
    expected_left_s = None if expected_s is None else step.started_at + expected_s - now
    return WhyStep(
        step=step.id,
        job=step.job,
        task=step.task,
        stage=step.stage,
        units=step.units,
        held_s=now - step.started_at,
        left_s=step.deadline_at - now,
        expected_left_s=expected_left_s if expected_left_s is not None and expected_left_s >= 0 else None,
        stopping=state.revoked.get(step.id, f"job {job.id} is {job.state.value}" if job.state.ended else ""),
    )


def _blocked(state: State, queue: Queue, task: Task, now: float) -> WhyPool:
    line = sorted(entry for entry in queue.heap if state.is_live(*entry[1:]))
    held_by = {unit.name: state.slots[unit.name].holder for unit in queue.pool.units}
    holders = dict.fromkeys(step for step in held_by.values() if step is not None)
    return WhyPool(
        pool=queue.pool.name,
        units=len(held_by),
        free=tuple(name for name, step in held_by.items() if step is None and _may_have(state, task, name)),
        drained=tuple((name, state.drained[name].reason) for name in held_by if name in state.drained),
        away=all(state.slots[name].away and name not in state.boards for name in held_by),
        gone=tuple((name, why) for name in held_by if name in state.boards and (why := state.boards[name].gone)),
        holders=tuple(_running(state, state.steps[step], now) for step in holders),
        ahead=next((place for place, entry in enumerate(line) if entry[2:] == (task.job, task.index)), len(line)),
        first=(line[0][2], line[0][3]) if line else (task.job, task.index),
    )


def _may_have(state: State, task: Task, unit: UnitName) -> bool:
    return state.is_usable(unit) and unit not in task.load.avoid


# Sentences --------------------------------------------------------------------------------------------------------


def _ended(job: Job, end: JobEnd, state: State, now: float) -> Iterator[str]:
    why = f": {end.failure.message}" if end.failure is not None else ""
    yield f"job {job.id} ended {duration(now - end.at)} ago, {end.state.value}{why}"
    for step_id in job.steps:
        step = _running(state, state.steps[step_id], now)
        held = ", ".join(step.units)
        yield f"task {step.task} still holds {held}: its {step.stage or 'step'} is not known to be dead"


def _host(state: State, job: Job, now: float) -> list[str]:
    """The reason why the job's host gets no steps."""
    host = state.hosts.get(job.host)
    if host is None or not host.away:
        return []
    told = f"its client runs on host {job.host}, which gets no steps: {host.away}"
    if host.lost_at is None:
        return [told]
    left = duration(max(0.0, host.lost_at - now))
    return [f"{told}. In {left} that host must have ended its clients itself: then the job goes on elsewhere"]


def _waits_for_host(state: State, job: Job) -> str:
    offers = {name: host for name, host in state.hosts.items() if placement.offers(name, host, job.spec.device)}
    away = "; ".join(f"{name} is away: {host.away}" for name, host in offers.items())
    return f"job {job.id} waits for a host with devices of the kind {job.spec.device} ({away})"


def _starting(state: State, job: Job, now: float) -> str:
    if isinstance(job.client, Queued):
        return _waits_for_host(state, job)
    again = f" ({count(job.losses, 'client')} of it died before)" if job.losses else ""
    if job.speak_by is None:
        return f"job {job.id}: its client did not connect in time and is being stopped{again}"
    left = duration(job.speak_by - now)
    if job.spec.external:
        return f"job {job.id} waits for its client, which its user starts; it must connect within {left}{again}"
    where = f" on host {job.host}" if job.host != OWN_HOST else ""
    return f"job {job.id}: its client is being started{where}; it must connect within {left}{again}"


def _waits(first: WhyTask, group: Sequence[Task], now: float, policy_name: str) -> Iterator[str]:
    """The sentences about a group of waiting tasks."""
    names = ", ".join(str(task.index) for task in group[:TASKS_NAMED])
    more = f" and {len(group) - TASKS_NAMED} more" if len(group) > TASKS_NAMED else ""
    tasks = f"task {names} has" if len(group) == 1 else f"tasks {names}{more} have"
    wanted = " and ".join(f"one of {pool.pool}" for pool in first.pools)
    longest = duration(now - min(task.ready_at for task in group))
    yield f"{tasks} waited {longest} for {wanted}, to {first.stage or 'go on'}"
    for pool in first.pools:
        yield f"  {pool.pool}: {_place(first, pool)}; {_free(pool)}"
        for name, reason in pool.drained:
            yield f"    {name} is drained and gets no steps: {reason}"
        for name, reason in pool.gone:
            yield f"    {name} is gone, and gets no steps until it is back: {reason}"
        for holder in pool.holders:
            yield f"    {', '.join(holder.units)} held by job {holder.job}, task {holder.task}: {_spoken(holder)}"
    if policy_name and all(pool.free and pool.ahead == 0 for pool in first.pools):
        why = POLICIES[policy_name].holds_back if policy_name in POLICIES else "for other jobs"
        yield f"  what it needs is free, but the policy {policy_name} holds it back {why}"


def _place(why: WhyTask, pool: WhyPool) -> str:
    if pool.ahead == 0:
        return f"task {why.task} is first in the queue"
    job, task = pool.first
    return f"{count(pool.ahead, 'task')} before task {why.task}, the first is task {task} of job {job}"


def _free(pool: WhyPool) -> str:
    if pool.away:
        return "its host is away"
    if pool.free:
        return f"free: {', '.join(pool.free)}"
    if len(pool.gone) == pool.units:
        return "its board is gone" if pool.units == 1 else f"all {pool.units} boards are gone"
    if len(pool.drained) == pool.units:
        return "its unit is drained" if pool.units == 1 else f"all {pool.units} units are drained"
    if pool.drained:
        return f"{count(pool.units - len(pool.drained), 'unit')} busy, {len(pool.drained)} drained"
    return "its unit is busy" if pool.units == 1 else f"all {pool.units} units are busy"


def _runs(step: WhyStep) -> str:
    return f"runs on {', '.join(step.units)}: {_spoken(step)}"


def _spoken(step: WhyStep) -> str:
    """ "build for 4s, likely done in 4s, killed in 9m56s"."""
    words = f"{step.stage or 'a step'} for {duration(step.held_s)}"
    if step.stopping:
        return f"{words}, told to stop ({step.stopping}), not known to be dead"
    if step.left_s < 0:
        return f"{words}, overdue; its host cannot be reached, so its end is not known"
    if step.expected_left_s is not None:
        words += f", likely done in {duration(step.expected_left_s)}"
    return f"{words}, killed in {duration(step.left_s)} at the latest"


def _nothing_to_do(job: Job, now: float) -> str:
    complete = sum(1 for task in job.tasks.values() if task.load.complete)
    tasks = f"; {complete} of {count(len(job.tasks), 'task')} complete" if job.tasks else ""
    if job.speak_by is None:
        return f"job {job.id}: its client named nothing to run and is being stopped{tasks}"
    left = duration(job.speak_by - now)
    return f"job {job.id}: its client names nothing to run now; without a word it is stopped in {left}{tasks}"
