"""Work for idle units of all hosts: tasks that wait for units of other hosts, and shares of running steps' work.

A full search runs after a second, and after any event except the end of a step. In between, only new entries are
examined. The end of a step therefore costs O(1) in the number of hosts, tasks and steps.
"""

from itertools import islice
from math import inf

from autosched.core import placement
from autosched.core.ranking import Ranking
from autosched.core.state import PoolKind, State, Task
from autosched.model import PoolName, StepId, UnitName, at_host

POOLS_MAX = 8
"""Maximum number of idle pools that are examined for one task or step, and in a full search."""
STEPS_MAX = 4
"""Maximum number of running steps that are examined for one idle unit, the last started ones first."""
LOOK_AGAIN_S = 1.0
"""Seconds between two full searches."""

Found = tuple[Task, tuple[UnitName, ...]]
"""A task, and units for its next step or for a further step that shares the work of its running step."""


def find(state: State, ranking: Ranking) -> Found | None:
    """Work for an idle unit; None: none is worth it."""
    if ranking.policy.shares_units:
        return None
    return next((found for kind in state.kinds.values() if (found := _of_kind(state, ranking, kind))), None)


def look_again(state: State) -> None:
    """Make the next search a full one."""
    for kind in state.kinds.values():
        kind.looked_at = -inf


def _of_kind(state: State, ranking: Ranking, kind: PoolKind) -> Found | None:
    if not kind.idle:
        kind.new_tasks.clear()
        kind.new_steps.clear()
        return None
    if state.now >= kind.looked_at + LOOK_AGAIN_S:
        kind.looked_at = state.now
        kind.new_idle.update(dict.fromkeys(islice(kind.idle, POOLS_MAX)))
    while kind.new_idle:
        pool = next(iter(kind.new_idle))
        if _is_idle(state, kind, pool) and (found := _for_pool(state, ranking, kind, pool)):
            return found
        del kind.new_idle[pool]
    while kind.new_tasks:
        job, index = next(iter(kind.new_tasks))
        if (task := state.jobs[job].tasks.get(index)) is not None and (found := _for_task(state, ranking, kind, task)):
            return found
        del kind.new_tasks[job, index]
    while kind.new_steps:
        step = next(iter(kind.new_steps))
        for pool in _near(state, kind, step):
            if _is_idle(state, kind, pool) and (found := _share(state, kind, pool, (step,))):
                return found
        del kind.new_steps[step]
    return None


def _is_idle(state: State, kind: PoolKind, pool: PoolName) -> bool:
    """Whether the pool has a free unit. Moves the pool to the end of the list."""
    kind.idle.pop(pool, None)
    if pool not in state.queues or state.first_free(pool) is None:
        return False
    kind.idle[pool] = None
    return True


def _for_pool(state: State, ranking: Ranking, kind: PoolKind, pool: PoolName) -> Found | None:
    if kind.queue.waiting and (task := ranking.mover(kind.queue, pool)) is not None:
        return task, tuple(state.free_for(task, pool, 1))
    return _share(state, kind, pool, tuple(islice(reversed(kind.divisible), STEPS_MAX)))


def _near(state: State, kind: PoolKind, step: StepId) -> list[PoolName]:
    """The idle pools of the hosts where a step's job has its client and helpers, then others."""
    if step not in kind.divisible:
        return []
    job = state.jobs[state.steps[step].job]
    own = (at_host(kind.queue.pool.name, host) for host in (job.host, *islice(job.helpers, POOLS_MAX)))
    return list(dict.fromkeys([pool for pool in own if pool in kind.idle] + list(islice(kind.idle, POOLS_MAX))))


def _for_task(state: State, ranking: Ranking, kind: PoolKind, task: Task) -> Found | None:
    if (waiting := task.waiting) is None or state.kinds.get(waiting.movable_in) is not kind:
        return None
    job = state.jobs[task.job]
    if job.held or not placement.is_worth_a_helper(state, job, task.load.stage_next):
        return None
    for pool in list(islice(kind.idle, POOLS_MAX)):
        fits = pool not in task.pools and _is_idle(state, kind, pool) and placement.may_run(state, job, pool)
        if fits and (units := state.free_for(task, pool, 1)):
            return (task, tuple(units)) if ranking.admits(task) else None
    return None


def _share(state: State, kind: PoolKind, pool: PoolName, steps: tuple[StepId, ...]) -> Found | None:
    """A share of the work of one of these steps. Units of pools with waiting tasks take none."""
    for number in steps:
        if number not in kind.divisible or not placement.may_share(state, state.steps[number], pool):
            continue
        task = state.jobs[state.steps[number].job].tasks[state.steps[number].task]
        for unit in state.free_for(task, pool, 1):
            if not any(state.queues[place].waiting for place, _ in state.slots[unit].places):
                return task, (unit,)
    return None
