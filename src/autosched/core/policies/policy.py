"""Scheduling order. A policy consists of data and pure functions of the state.

`key` orders the waiting tasks of one queue, smallest first; `admits` may hold back the first task of a queue, and with
it the queue, although units are free. Other packages add policies by an entry point in the group
``autosched.policies`` that names a `Policy`. A policy that raises an exception or takes too long is replaced by
`interleaved`, and operators and users are told.
"""

from collections.abc import Callable
from dataclasses import dataclass

from autosched.core.lifecycles import Key
from autosched.core.policies.lookahead import Search
from autosched.core.policies.predictive import foreseen_key, plan
from autosched.core.state import State, Task
from autosched.stages import StageRole


@dataclass(frozen=True)
class Policy:
    """A named order."""

    name: str
    key: Callable[[State, Task], Key]
    admits: Callable[[State, Task], bool] | None = None
    """Whether the first task of a queue may start now; None: always."""
    shares_units: bool = False
    """Whether several steps may hold one unit. Only for measuring the effect."""
    drifts: bool = False
    """Whether keys change while their tasks wait, so that the scheduler has to compute them anew."""
    plan: Callable[[State], Search | None] | None = None
    """The lookahead search to run now; None: the policy runs none."""
    holds_back: str = "for other jobs"
    """Reason why the policy holds tasks back, for `explain`."""


def _in_order_of_arrival(state: State, task: Task) -> Key:
    return (task.ready_at, task.job, task.index)


def _in_order_of_jobs(state: State, task: Task) -> Key:
    return (task.job, task.ready_at, task.index)


def _if_of_first_job(state: State, task: Task) -> bool:
    return task.job == next(job for job in state.active if not state.jobs[job].held)


def _round_by_round(state: State, task: Task) -> Key:
    """Rounds that have started first, then the task that has waited longest for its next round."""
    return (task.job, task.load.stage.role is StageRole.OPENS, task.ready_at, task.index)


def _if_nothing_runs(state: State, task: Task) -> bool:
    """Whether no step runs and the task is the first one of the first job. O(tasks of the job) per step."""
    if state.steps or not _if_of_first_job(state, task):
        return False
    waiting = (other for other in state.jobs[task.job].tasks.values() if other.waiting)
    return _round_by_round(state, task) == min(_round_by_round(state, other) for other in waiting)


def _in_lockstep(state: State, task: Task) -> Key:
    """The job that lags behind goes first, so that all jobs reach the same stage again."""
    return (task.load.stage.order, task.load.stage_next, *_in_order_of_arrival(state, task))


def _if_all_in_step(state: State, task: Task) -> bool:
    """Whether no step runs and no task lags behind this stage, or all running steps of this stage start right now.

    A job without an ended step blocks no other: it joins when the others reach its stage. O(tasks).
    """
    jobs = [job for job_id in state.active if not (job := state.jobs[job_id]).held]
    running = [state.steps[step] for job in jobs for step in job.steps]
    if running:
        return all(step.stage == task.load.stage_next and step.started_at == state.now for step in running)
    stage = _in_lockstep(state, task)[:2]
    for job in jobs:
        waiting = [_in_lockstep(state, other)[:2] for other in job.tasks.values() if other.waiting]
        if not waiting and (job.done_s or not state.jobs[task.job].done_s):
            return False
        if any(other < stage for other in waiting):
            return False
    return True


INTERLEAVED = Policy("interleaved", _in_order_of_arrival)
"""Thesis, Listing 2, its "round-robin": first in, first out per resource; ties by registration."""

SEQUENTIAL = Policy("sequential", _in_order_of_jobs, _if_of_first_job)
"""Thesis, Listing 3: the next job starts when the previous one is complete."""

STAGEWISE = Policy(
    "stagewise", _round_by_round, _if_nothing_runs, holds_back="while another step runs: one stage after the other"
)
"""Thesis, section 2.4.2: one stage after the other, also within a job, as a tuner does without a scheduler."""

SYNCHRONOUS = Policy("synchronous", _in_lockstep, _if_all_in_step, shares_units=True)
"""Thesis, Listing 4: all jobs run the same stage at once on the same resource. The worst case of interference, only
for measuring it."""

PREDICTIVE = Policy("predictive", foreseen_key, drifts=True, plan=plan)
"""Builds first, then the order that is best for the goal by estimated durations: the thesis' future work."""

POLICIES = {policy.name: policy for policy in (PREDICTIVE, INTERLEAVED, SEQUENTIAL, STAGEWISE, SYNCHRONOUS)}
ALIASES = {"round-robin": INTERLEAVED.name}
"""Other names of policies."""
