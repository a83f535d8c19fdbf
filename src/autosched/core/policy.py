"""Who goes next. A policy is data and two pure functions over the state; the scheduler does the rest.

`key` orders the waiting tasks of one queue, smallest first; `admits` may hold back the first of a queue, and with it
the queue, although units are free.
"""

from collections.abc import Callable
from dataclasses import dataclass

from autosched.core.state import Key, State, Task


@dataclass(frozen=True)
class Policy:
    """A named rule. `shares_units` lets several steps hold one unit: only to measure what that costs."""

    name: str
    key: Callable[[State, Task], Key]
    admits: Callable[[State, Task], bool]
    shares_units: bool = False


def _in_order_of_arrival(state: State, task: Task) -> Key:
    return (task.ready_at, task.job, task.index)


def _builds_first(state: State, task: Task) -> Key:
    return (0 if task.load.stage_next == "build" else 1, *_in_order_of_arrival(state, task))


def _in_order_of_jobs(state: State, task: Task) -> Key:
    return (task.job, task.ready_at, task.index)


def _always(state: State, task: Task) -> bool:
    return True


def _if_of_first_job(state: State, task: Task) -> bool:
    return task.job == next(iter(state.active))


def _if_all_in_step(state: State, task: Task) -> bool:
    """Every active job waits for this very stage, or has started it at this very instant. O(jobs)."""
    for job in (state.jobs[job_id] for job_id in state.active):
        waits = [t.load.stage_next for t in job.tasks.values() if t.ticket]
        runs = [state.steps[step] for step in job.steps]
        if not waits and not runs:
            return False
        if any(stage != task.load.stage_next for stage in waits):
            return False
        if any(step.stage != task.load.stage_next or step.started_at != state.now for step in runs):
            return False
    return True


INTERLEAVED = Policy("interleaved", _in_order_of_arrival, _always)
"""Thesis, Listing 2: first in, first out per resource; ties by registration."""

SEQUENTIAL = Policy("sequential", _in_order_of_jobs, _if_of_first_job)
"""Thesis, Listing 3: the next job starts when the previous one is complete."""

SYNCHRONOUS = Policy("synchronous", _in_order_of_arrival, _if_all_in_step, shares_units=True)
"""Thesis, Listing 4: all jobs run the same stage at once on the same resource. The worst case of interference: only
to measure what it costs."""

BUILD_FIRST = Policy("build-first", _builds_first, _always)
"""Builds before updates, since a build feeds the device: the thesis' own hint (future work), without any estimate."""

POLICIES = {policy.name: policy for policy in (INTERLEAVED, SEQUENTIAL, SYNCHRONOUS, BUILD_FIRST)}
