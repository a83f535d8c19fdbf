"""Estimates the remaining work, per job and per pool, in seconds.

A job consists of the rounds that have not started, and of the rest of each running round. The stages of a round and
their pools are learned from load reports. Until a job has reported a stage, the pools of other jobs are assumed.
"""

from autosched.core.remaining_work import Pools, RemainingWork
from autosched.core.state import Job, State
from autosched.stages import Stage, StageRole

ROUND_STAGES = 4
"""Assumed number of stages of a round."""
UNKNOWN_S = 1.0
"""Assumed seconds of a stage while no stage has an estimate. Only proportions matter then."""


def build_pools(state: State, job: Job) -> Pools:
    """Pools in which the job builds; empty: not known yet."""
    return state.pools_of(job, _build_place(state, job))


def _build_place(state: State, job: Job) -> Pools:
    return job.places.get(state.stage_with(StageRole.FEEDS), ())


def show_place(state: State, job: Job, stage: Stage, pools: Pools) -> None:
    """Learn the pools of a stage from a load report."""
    if job.places.get(stage.name) != pools:
        state.meet(stage)
        job.places[stage.name] = pools
        state.totals.places[stage.name] = None if pools == _build_place(state, job) else pools


def cycle(state: State, job: Job) -> list[tuple[str, Pools]]:
    """The stages of the job's rounds and their pools, as far as known."""
    stages = []
    for stage in state.stages.values():
        if not stage.role.in_round:
            continue
        pools = job.places.get(stage.name)
        if pools is None and stage.name in state.totals.places:
            pools = state.totals.places[stage.name] or _build_place(state, job)
        if pools:
            stages.append((stage.name, state.pools_of(job, pools)))
    return stages


def rest_of_round(stages: list[tuple[str, Pools]], stage: str) -> list[tuple[str, Pools]]:
    """The stages that follow this one in a round; empty for a stage outside of rounds."""
    names = [name for name, _ in stages]
    return stages[names.index(stage) + 1 :] if stage in names else []


def rounds_left(job: Job) -> float:
    """Number of rounds that have not started. If the client does not know, the job is assumed to be half done."""
    return job.rounds_left if job.rounds_left is not None else float(max(1, job.rounds_seen))


def update_remaining_work(state: State, job: Job) -> None:
    """Compute the job's remaining work anew. O(stages)."""
    old, new = job.remaining, RemainingWork()
    if not job.state.ended:
        (_predict if state.oracle is not None else _estimate)(state, job, new)
    state.totals.replace(old.pools, new.pools)
    job.remaining = new


def _estimate(state: State, job: Job, remaining: RemainingWork) -> None:
    of_job, typical = state.estimates.of_job, state.typical
    stages = [(stage, pools, *of_job(job.id, stage, typical=typical)) for stage, pools in cycle(state, job)]
    known = [expected_s for _, _, expected_s, _ in stages if expected_s is not None]
    default_s = sum(known) / len(known) if known else UNKNOWN_S
    count = rounds_left(job)
    left = dict(job.at)
    for stage, pools, expected_s, seen in stages:
        count += left.pop(stage, 0)  # a task at a stage of the round has all later stages before it, too
        remaining.add(pools, count * (default_s if expected_s is None else expected_s), seen)
    for stage, number in left.items():
        if number:
            expected_s, seen = of_job(job.id, stage, typical=typical)
            seconds = number * (default_s if expected_s is None else expected_s)
            remaining.add(state.pools_of(job, job.places.get(stage, ())), seconds, seen)


def _predict(state: State, job: Job, remaining: RemainingWork) -> None:
    assert state.oracle is not None
    for index in job.tasks:
        for _, pools, seconds in state.oracle(job.id, index):
            remaining.add(pools, seconds, seen=float("inf"))
