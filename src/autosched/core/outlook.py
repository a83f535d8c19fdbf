"""What is still to be done, as far as anybody can tell: per job and per pool, in seconds.

A job is so many rounds that nobody has begun, and the rest of each round that is under way. Which stages a round has,
and where they run, is learned from the loads; until a job has shown a stage, other jobs' places stand in for it.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from autosched.model import PoolName

if TYPE_CHECKING:
    from autosched.core.state import Job, State

ROUND = ("select", "build", "profile", "update")
"""The stages of a round, in their order; a job need not have all of them."""
HOME = "build"
"""The stage whose pool is called the job's home: where its work for a device is prepared."""
UNKNOWN_S = 1.0
"""For a stage of which nothing is known while other stages are not known either: then only proportions count."""
DOUBT = 1.0
"""A stage never seen counts double for a bold estimate, one seen n times by 1 + 1 / (n + 1): what is unknown may be
long, and the sooner it is begun the sooner that is known."""

Pools = tuple[PoolName, ...]


@dataclass(slots=True)
class Outlook:
    """What one job has still to do, after the steps that have ended."""

    left_s: float = 0.0
    bold_s: float = 0.0
    """The same, with each estimate raised by how little it rests on."""
    pools: dict[PoolName, float] = field(default_factory=dict)
    """`left_s` by pool."""


@dataclass(slots=True)
class Totals:
    """What all jobs have still to do."""

    pools: dict[PoolName, float] = field(default_factory=dict)
    places: dict[str, Pools | None] = field(default_factory=dict)
    """Stage to where some job ran it; None: where that job builds."""
    busiest_s: float | None = None
    """What the busiest pool needs; None: not reckoned since something changed."""


def home(job: "Job") -> Pools:
    """Where the job builds; empty while it has not said."""
    return job.places.get(HOME, ())


def show_place(state: "State", job: "Job", stage: str, pools: Pools) -> None:
    """The job's client says where a stage runs."""
    if job.places.get(stage) != pools:
        job.places[stage] = pools
        state.totals.places[stage] = None if pools == home(job) else pools


def cycle(state: "State", job: "Job") -> list[tuple[str, Pools]]:
    """Stages of the job's round and their pools, as far as known."""
    stages = []
    for stage in ROUND:
        pools = job.places.get(stage)
        if pools is None and stage in state.totals.places:
            pools = state.totals.places[stage] or home(job)
        if pools:
            stages.append((stage, pools))
    return stages


def rest_of_round(stages: list[tuple[str, Pools]], stage: str) -> list[tuple[str, Pools]]:
    """The stages that follow this one in its round; none for a stage that is in no round."""
    names = [name for name, _ in stages]
    return stages[names.index(stage) + 1 :] if stage in names else []


def rounds_left(job: "Job") -> float:
    """Rounds that no task has begun. A client that cannot tell is believed to be half way through."""
    return job.rounds_left if job.rounds_left is not None else float(max(1, job.rounds_seen))


def look(state: "State", job: "Job") -> None:
    """Reckon anew what the job has to do. O(stages)."""
    old, new = job.outlook, Outlook()
    if not job.state.ended:
        (_reckon_exactly if state.oracle is not None else _reckon)(state, job, new)
    totals = state.totals.pools
    for pool, seconds in old.pools.items():
        totals[pool] = totals.get(pool, 0.0) - seconds
    for pool, seconds in new.pools.items():
        totals[pool] = totals.get(pool, 0.0) + seconds
    state.totals.busiest_s = None
    job.outlook = new


def _reckon(state: "State", job: "Job", outlook: Outlook) -> None:
    stages = cycle(state, job)
    places = dict(stages)
    counts = dict.fromkeys(places, rounds_left(job))
    times = {name: state.estimates.of_job(job.id, name) for name in places}
    known = [expected_s for expected_s, _ in times.values() if expected_s is not None]
    default_s = sum(known) / len(known) if known else UNKNOWN_S
    for stage, number in job.at.items():
        if number:
            places.setdefault(stage, job.places.get(stage, ()))
            counts[stage] = counts.get(stage, 0.0) + number
            for later, _ in rest_of_round(stages, stage):
                counts[later] += number
    for stage, count in counts.items():
        expected_s, seen = times[stage] if stage in times else state.estimates.of_job(job.id, stage)
        seconds = count * (default_s if expected_s is None else expected_s)
        outlook.left_s += seconds
        outlook.bold_s += seconds * (1.0 + DOUBT / (seen + 1.0))
        for pool in places[stage]:
            outlook.pools[pool] = outlook.pools.get(pool, 0.0) + seconds


def _reckon_exactly(state: "State", job: "Job", outlook: Outlook) -> None:
    assert state.oracle is not None
    for index in job.tasks:
        for _, pools, seconds in state.oracle(job.id, index):
            outlook.left_s += seconds
            for pool in pools:
                outlook.pools[pool] = outlook.pools.get(pool, 0.0) + seconds
    outlook.bold_s = outlook.left_s


def bottleneck_s(state: "State") -> float:
    """Seconds that the busiest pool needs for what is left. O(pools) when asked for the first time after a change."""
    queues, totals = state.queues, state.totals
    if totals.busiest_s is None:
        work = ((len(queues[pool].pool.units), s) for pool, s in totals.pools.items() if pool in queues)
        totals.busiest_s = max((s / units for units, s in work), default=0.0)
    return totals.busiest_s
