"""Why a job does not go on: for what it waits, who holds that, since when and until when.

`why_task` and `why_step` give data, `explain_job` says it in sentences. All of it is read from the state; nothing
is remembered for the sake of explaining. O(waiting tasks): for people who ask, not for decisions.
"""

from collections.abc import Iterator
from enum import Enum

from msgspec import Struct

from autosched.core.state import Job, Queue, State, Task
from autosched.model import JobId, JobState, PoolName, Step, StepId, TaskIndex, UnitName

TASKS_EXPLAINED = 4
"""Waiting tasks that are explained one by one; the others are counted."""


class Standing(str, Enum):
    """Where a task stands."""

    RUNNING = "running"
    STOPPING = "stopping"  # told to stop, not known to be dead: its units are still held
    WAITING = "waiting"
    IDLE = "idle"  # its client names nothing to do
    COMPLETE = "complete"


class WhyStep(Struct, frozen=True, kw_only=True):
    """A running step: what it holds, since when and until when."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    held_s: float
    left_s: float
    """Until its deadline; negative when the deadline has passed."""
    expected_left_s: float | None
    """Until it should end, by its client's own word; None when the client gave no estimate or it has passed."""
    stopping: str
    """Why it was told to stop; empty when it was not."""


class WhyPool(Struct, frozen=True, kw_only=True):
    """One pool that a waiting task needs."""

    pool: PoolName
    units: int
    free: tuple[UnitName, ...]
    holders: tuple[WhyStep, ...]
    """Steps that hold a unit of this pool, in the order of the pool's units."""
    ahead: int
    """Tasks that stand before this one in the queue."""
    first: tuple[JobId, TaskIndex]
    """Who is at the head of the queue; this task itself when nothing stands before it."""


class WhyTask(Struct, frozen=True, kw_only=True):
    """Where one task stands, and what is in its way."""

    job: JobId
    task: TaskIndex
    standing: Standing
    stage: str
    """What runs, or what would run next."""
    waited_s: float = 0.0
    step: WhyStep | None = None
    pools: tuple[WhyPool, ...] = ()


def why_step(state: State, step_id: StepId) -> WhyStep | None:
    """What a step holds; None when it is not running."""
    step = state.steps.get(step_id)
    return None if step is None else _running(state, step)


def why_task(state: State, job: JobId, index: TaskIndex) -> WhyTask | None:
    """Where a task stands; None when the job has no such task now."""
    task = state.jobs[job].tasks.get(index) if job in state.jobs else None
    if task is None:
        return None
    if task.step is not None:
        running = _running(state, state.steps[task.step])
        standing = Standing.STOPPING if running.stopping else Standing.RUNNING
        return WhyTask(job=job, task=index, standing=standing, stage=running.stage, step=running)
    if task.ticket:
        return WhyTask(
            job=job,
            task=index,
            standing=Standing.WAITING,
            stage=task.load.stage_next,
            waited_s=state.now - task.ready_at,
            pools=tuple(_blocked(state, state.queues[pool], task) for pool in task.load.resources_next),
        )
    standing = Standing.COMPLETE if task.load.complete else Standing.IDLE
    return WhyTask(job=job, task=index, standing=standing, stage=task.load.stage_next)


def explain_job(state: State, job: JobId, policy_name: str = "interleaved") -> list[str]:
    """Why a job does not go on, in sentences, the most important first. KeyError for a job that never was."""
    it = state.jobs[job]
    if it.state.ended:
        return _ended(state, it)
    if it.state is JobState.STARTING:
        return [_starting(state, it)]
    whys = [why for index in it.tasks if (why := why_task(state, job, index)) is not None]
    lines = [
        f"task {why.task} {'is being stopped' if why.step.stopping else 'runs'}: {_describe(why.step)}"
        for why in whys
        if why.step is not None
    ]
    waiting = sorted((why for why in whys if why.standing is Standing.WAITING), key=lambda why: (_ahead(why), why.task))
    for why in waiting[:TASKS_EXPLAINED]:
        lines.extend(_waits(why, policy_name))
    if len(waiting) > TASKS_EXPLAINED:
        lines.append(f"{_count(len(waiting) - TASKS_EXPLAINED, 'more task')} of this job wait behind these.")
    if not lines:
        lines.append(_nothing_to_do(job, whys))
    return lines


def _running(state: State, step: Step) -> WhyStep:
    task = state.jobs[step.job].tasks.get(step.task)
    expected_s = task.load.expected_s if task is not None and task.step == step.id else None
    expected_left_s = None if expected_s is None else step.started_at + expected_s - state.now
    return WhyStep(
        step=step.id,
        job=step.job,
        task=step.task,
        stage=step.stage,
        units=step.units,
        held_s=state.now - step.started_at,
        left_s=step.deadline_at - state.now,
        expected_left_s=expected_left_s if expected_left_s is not None and expected_left_s >= 0 else None,
        stopping=state.revoked.get(step.id, ""),
    )


def _blocked(state: State, queue: Queue, task: Task) -> WhyPool:
    line = sorted(entry for entry in queue.heap if _is_live(state, entry[1], entry[2], entry[3]))
    place = next(i for i, entry in enumerate(line) if entry[1] == task.ticket)
    free, holders = [], {}
    for unit in queue.pool.units:
        holder = state.lanes[unit.name].holder
        if holder is None:
            free.append(unit.name)
        else:
            holders[holder] = _running(state, state.steps[holder])
    return WhyPool(
        pool=queue.pool.name,
        units=len(queue.pool.units),
        free=tuple(free),
        holders=tuple(holders.values()),
        ahead=place,
        first=(line[0][2], line[0][3]),
    )


def _is_live(state: State, ticket: int, job: JobId, index: TaskIndex) -> bool:
    task = state.jobs[job].tasks.get(index)
    return task is not None and task.ticket == ticket


# Sentences --------------------------------------------------------------------------------------------------------


def _ended(state: State, job: Job) -> list[str]:
    ago = f" {span(state.now - job.ended_at)} ago" if job.ended_at is not None else ""
    why = f": {job.failure.message}" if job.failure is not None else ""
    lines = [f"job {job.id} is {job.state.value}; it ended{ago}{why}."]
    for step_id in job.steps:
        lines.append(f"Still to die: {_describe(_running(state, state.steps[step_id]))}")
    return lines


def _starting(state: State, job: Job) -> str:
    who = "its client, which its user starts," if job.spec.external else "its client"
    again = f" It lost {_count(job.losses, 'client')} before." if job.losses else ""
    if job.attach_deadline_at is None:
        return f"job {job.id}: {who} did not connect in time and is being stopped.{again}"
    left_s = job.attach_deadline_at - state.now
    verb = "is awaited" if job.spec.external else "is being started"
    return f"job {job.id}: {who} {verb}; it must connect within {span(left_s)}.{again}"


def _waits(why: WhyTask, policy_name: str) -> Iterator[str]:
    wanted = " and ".join(f"one unit of {pool.pool}" for pool in why.pools)
    yield f"task {why.task} waits since {span(why.waited_s)} for {wanted}, to {why.stage or 'go on'}."
    for pool in why.pools:
        yield f"  {pool.pool}: {_queue_place(why, pool)}; {_free(pool)}."
        for holder in pool.holders:
            yield f"    held: {_describe(holder)}"
    if all(pool.free and pool.ahead == 0 for pool in why.pools):
        yield f"  Everything it needs is free: the policy {policy_name!r} holds it back for another job."


def _queue_place(why: WhyTask, pool: WhyPool) -> str:
    if pool.ahead == 0:
        return "first in the queue"
    job, task = pool.first
    first = f"task {task}" if job == why.job else f"task {task} of job {job}"
    return f"{_count(pool.ahead, 'task')} before it in the queue, {first} first"


def _free(pool: WhyPool) -> str:
    if not pool.free:
        return "its unit is busy" if pool.units == 1 else f"all {pool.units} units are busy"
    return f"{', '.join(pool.free)} free of {_count(pool.units, 'unit')}"


def _describe(step: WhyStep) -> str:
    what = f"{', '.join(step.units)} by job {step.job}, task {step.task}, {step.stage or 'step'} {step.step}"
    since = f"since {span(step.held_s)}"
    if step.stopping:
        return f"{what}, {since}; told to stop ({step.stopping}), not known to be dead yet."
    until = f"for {span(step.left_s)} at most" if step.left_s >= 0 else f"overdue by {span(-step.left_s)}"
    likely = f", {span(step.expected_left_s)} likely" if step.expected_left_s is not None else ""
    return f"{what}, {since}, {until}{likely}."


def _nothing_to_do(job: JobId, whys: list[WhyTask]) -> str:
    complete = sum(1 for why in whys if why.standing is Standing.COMPLETE)
    if not whys:
        return f"job {job}: its client is connected and has named no task yet."
    return f"job {job}: its client has nothing to run now; {complete} of {_count(len(whys), 'task')} complete."


def _ahead(why: WhyTask) -> int:
    return max(pool.ahead for pool in why.pools)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def span(seconds: float) -> str:
    """A duration for people: "8.3 s", "4 min 10 s", "2 h 5 min"."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s" if whole % 60 else f"{whole // 60} min"
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min"
