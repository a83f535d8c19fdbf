"""Leases: choice of a step's units (all of them or none), deadline, and release."""

from autosched.core.estimates import SURE_COUNT
from autosched.core.lifecycles import IDLE, Running
from autosched.core.ranking import Ranking
from autosched.core.state import Job, State, Task, one_of_each
from autosched.model import PoolName, Step, StepId, TaskLoad, UnitName


def current_resources(state: State, task: Task) -> tuple[PoolName, ...]:
    """Pools of the units that the task's running step holds; empty when none runs."""
    if task.step is None:
        return ()
    said = task.load.resources_next if task.load.stage_done else task.load.resources_now
    return state.pools_at(state.host_of(state.steps[task.step]), said)


def mismatch(state: State, job: Job, said: TaskLoad) -> str | None:
    """The error of a task's reported resources, compared with its lease; None if they match (thesis 4.1.2).

    A client that uses resources without a lease disturbs the measurements of others. A report without resources is not
    checked.
    """
    if not said.resources_now:
        return None
    task = job.tasks.get(said.task)
    step = state.steps.get(task.step) if task is not None and task.step is not None else None
    pools_now = state.pools_at(job.host if step is None else state.host_of(step), said.resources_now)
    used = " and ".join(pools_now)
    if step is None:
        return f"its client says that task {said.task} uses {used}, and no step of the task holds a lease"
    pools = [{pool for pool, _ in state.slots[unit].places} for unit in step.units]
    if not all(pools):
        return None  # their host has left, and the client does not know that yet
    fits = len(pools) == len(pools_now) and all(any(pool in of_unit for of_unit in pools) for pool in pools_now)
    if fits:
        return None
    return (
        f"its client says that task {said.task} uses {used}, and step {step.id} holds {' and '.join(step.units)}:"
        " no client may run elsewhere than where its lease is"
    )


def units_for(state: State, ranking: Ranking, task: Task) -> tuple[UnitName, ...] | None:
    """One unit of each pool that the task needs, or None. Only for the first task of each queue: otherwise tasks that
    need one pool could overtake a task that needs two for ever. Units of the client's host come first."""
    pools = task.queued_in
    if len(pools) > 1 and any((head := ranking.head(pool)) is None or head[2] is not task for pool in pools):
        return None
    if ranking.policy.shares_units:
        shared = [next((u.name for u in state.queues[p].pool.units if state.is_usable(u.name)), None) for p in pools]
        return None if None in shared else tuple(unit for unit in shared if unit is not None)
    if len(pools) == 1:
        if not task.load.avoid:
            free = (state.first_free(pool) for pool in task.pools)
            unit = next((unit for unit in free if unit is not None), None)
        else:
            unit = next((unit for pool in task.pools for unit in state.free_for(task, pool, 1)), None)
        return None if unit is None else (unit,)
    return one_of_each([state.free_for(task, pool, len(pools)) for pool in pools])


def grant(state: State, task: Task, units: tuple[UnitName, ...], until: float | None) -> Step:
    """Lease these units to the next step of a waiting task or, while a step runs, to a further step that shares its
    work. `until`: the deadline, if it is known from the journal."""
    state.last_step += 1
    host = state.slots[units[0]].unit.host
    running, claim_s = task.running, task.load.expected_s
    stage = task.load.stage_next if running is None else running.stage
    if state.oracle is None:
        job_s, seen = state.estimates.of_job(task.job, stage)
        expected_s = state.estimates.narrow(job_s, task.job, (task.index, stage), claim_s)
    else:
        expected_s, seen = state.oracle(task.job, task.index)[0][2], SURE_COUNT
    if running is None:
        state.estimates.begin(state.last_step, expected_s, stage, sure=seen >= SURE_COUNT)
    if until is None:
        unseen_s, spec = task.load.timeout_s or state.step_timeout_s, state.jobs[task.job].spec
        known_s = expected_s if task.index or (seen and not spec.learn_from) else None  # networks differ
        until = state.now + state.estimates.timeout_s(unseen_s, spec.step_timeout_s, known_s, stage)
        if host != state.jobs[task.job].host:  # its files have to be sent, and a helper may have to start
            until += state.step_timeout_s
    step = Step(
        id=state.last_step,
        job=task.job,
        task=task.index,
        stage=stage,
        units=units,
        started_at=state.now,
        deadline_at=until,
    )
    state.steps[step.id] = step
    state.jobs[task.job].steps[step.id] = None
    if host != state.jobs[task.job].host:
        state.jobs[task.job].helpers[host] = None
    if running is not None:
        running.steps[step.id] = None
    else:
        state.move_task(task, Running(stage, {step.id: None}))
        state.note_divisible(step)
    for unit in units:
        assert state.shares_units or state.slots[unit].holder is None, f"{unit} is held already"
        state.slots[unit].holder = step.id
    return step


def release(state: State, ranking: Ranking, step_id: StepId) -> None:
    """End a step's lease: the step is known to be dead, and its units are free."""
    step = state.steps.pop(step_id)
    state.revoked.pop(step_id, None)
    state.estimates.drop(step_id)
    job = state.jobs[step.job]
    del job.steps[step_id]
    for kind in state.kinds.values():
        kind.divisible.pop(step_id, None)
    task = job.tasks[step.task]
    running = task.running
    assert running is not None, f"step {step_id} runs, and its task does not"
    del running.steps[step_id]
    running.dealt_out = True
    if not running.steps:
        state.move_task(task, IDLE)
    for unit in step.units:
        slot = state.slots[unit]
        if slot.holder == step_id:
            slot.holder = state.sharer(unit) if state.shares_units else None
        offer(state, ranking, unit)
        state.forget_slot(unit)


def offer(state: State, ranking: Ranking, unit: UnitName) -> None:
    """List a unit as free, if it exists: a task that waits for it may start."""
    for pool, index in state.slots[unit].places if unit in state.slots else ():
        state.queues[pool].offer(index)
        ranking.dirty[pool] = None
