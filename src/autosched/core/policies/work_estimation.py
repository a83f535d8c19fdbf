"""Estimates the remaining work, per job and per pool, in seconds.

A job is the rounds that no task has begun, and the rest of each round that is under way. Which stages a round has,
and where they run, is learned from the loads; until a job has shown a stage, other jobs' places stand in for it.
"""

from autosched.core.remaining_work import Pools, RemainingWork
from autosched.core.state import Job, State

ROUND = ("select", "build", "profile", "update")
"""The stages of a round, in their order; a job need not have all of them."""
HOME = "build"
"""The stage whose pool is called the job's home: where its work for a device is prepared."""
UNKNOWN_S = 1.0
"""For a stage of which nothing is known while other stages are not known either: then only proportions count."""


def build_pools(state: State, job: Job) -> Pools:
    """Where the job builds; empty while it has not said."""
    return state.pools_of(job, job.places.get(HOME, ()))


def show_place(state: State, job: Job, stage: str, pools: Pools) -> None:
    """The job's client says where a stage runs."""
    if job.places.get(stage) != pools:
        job.places[stage] = pools
        state.totals.places[stage] = None if pools == job.places.get(HOME, ()) else pools


def cycle(state: State, job: Job) -> list[tuple[str, Pools]]:
    """Stages of the job's round and their pools, as far as known."""
    stages = []
    for stage in ROUND:
        pools = job.places.get(stage)
        if pools is None and stage in state.totals.places:
            pools = state.totals.places[stage] or job.places.get(HOME, ())
        if pools:
            stages.append((stage, state.pools_of(job, pools)))
    return stages


def rest_of_round(stages: list[tuple[str, Pools]], stage: str) -> list[tuple[str, Pools]]:
    """The stages that follow this one in its round; none for a stage that is in no round."""
    names = [name for name, _ in stages]
    return stages[names.index(stage) + 1 :] if stage in names else []


def rounds_left(job: Job) -> float:
    """Rounds that no task has begun. A client that cannot tell is believed to be half way through."""
    return job.rounds_left if job.rounds_left is not None else float(max(1, job.rounds_seen))


def update_remaining_work(state: State, job: Job) -> None:
    """Reckon anew what the job has to do. O(stages)."""
    old, new = job.outlook, RemainingWork()
    if not job.state.ended:
        (_reckon_exactly if state.oracle is not None else _reckon)(state, job, new)
    state.totals.replace(old.pools, new.pools)
    job.outlook = new


def _reckon(state: State, job: Job, outlook: RemainingWork) -> None:
    of_job, typical = state.estimates.of_job, state.typical
    stages = [(stage, pools, *of_job(job.id, stage, typical=typical)) for stage, pools in cycle(state, job)]
    known = [expected_s for _, _, expected_s, _ in stages if expected_s is not None]
    default_s = sum(known) / len(known) if known else UNKNOWN_S
    count = rounds_left(job)
    left = dict(job.at)
    for stage, pools, expected_s, seen in stages:
        count += left.pop(stage, 0)  # who is at a stage of the round has all later ones before him, too
        outlook.add(pools, count * (default_s if expected_s is None else expected_s), seen)
    for stage, number in left.items():
        if number:
            expected_s, seen = of_job(job.id, stage, typical=typical)
            seconds = number * (default_s if expected_s is None else expected_s)
            outlook.add(state.pools_of(job, job.places.get(stage, ())), seconds, seen)


def _reckon_exactly(state: State, job: Job, outlook: RemainingWork) -> None:
    assert state.oracle is not None
    for index in job.tasks:
        for _, pools, seconds in state.oracle(job.id, index):
            outlook.add(pools, seconds, seen=float("inf"))
