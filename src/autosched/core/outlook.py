"""What is still to be done, as far as anybody can tell: per job and per pool, in seconds.

A job is so many rounds that nobody has begun, and the rest of each round that is under way. Which stages a round has,
and where they run, is learned from the loads; until a job has shown a stage, other jobs' places stand in for it.
"""

import heapq
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
STALE_MIN = 64

Pools = tuple[PoolName, ...]


@dataclass(slots=True)
class Outlook:
    """What one job has still to do, after the steps that have ended."""

    left_s: float = 0.0
    bold_s: float = 0.0
    """The same, with each estimate raised by how little it rests on."""
    pools: dict[PoolName, float] = field(default_factory=dict)
    """`left_s` by pool."""

    def add(self, pools: Pools, seconds: float, seen: float) -> None:
        """So much to do in these pools; how many observations say so."""
        self.left_s += seconds
        self.bold_s += seconds * (1.0 + DOUBT / (seen + 1.0))
        for pool in pools:
            self.pools[pool] = self.pools.get(pool, 0.0) + seconds


@dataclass(slots=True)
class Totals:
    """What all jobs have still to do."""

    pools: dict[PoolName, float] = field(default_factory=dict)
    places: dict[str, Pools | None] = field(default_factory=dict)
    """Stage to where some job ran it; None: where that job builds."""
    units: dict[PoolName, int] = field(default_factory=dict)
    """How many the declared pools have."""
    busy: list[tuple[float, PoolName]] = field(default_factory=list, compare=False)
    """A heap of (-seconds per unit, pool): what is true now, and what was and is dropped when it comes up."""

    def declare(self, units: dict[PoolName, int]) -> None:
        """These pools there are now."""
        self.units = units
        self.busy = [(-seconds / units[pool], pool) for pool, seconds in self.pools.items() if pool in units]
        heapq.heapify(self.busy)

    def replace(self, old: dict[PoolName, float], new: dict[PoolName, float]) -> None:
        """A job has something else to do than it had. O(its pools, log of all pools), amortised."""
        pools = self.pools
        for pool, seconds in old.items():
            pools[pool] -= seconds
        for pool, seconds in new.items():
            pools[pool] = pools.get(pool, 0.0) + seconds
        for pool in old | new:
            if pool in self.units:
                heapq.heappush(self.busy, (-pools[pool] / self.units[pool], pool))
        if len(self.busy) > 2 * len(self.units) + STALE_MIN:
            self.declare(self.units)

    def bottleneck_s(self) -> float:
        """Seconds that the busiest pool needs for what is left. O(log pools), amortised."""
        busy = self.busy
        while busy and -busy[0][0] != self.pools[busy[0][1]] / self.units[busy[0][1]]:
            heapq.heappop(busy)
        return -busy[0][0] if busy else 0.0


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
    state.totals.replace(old.pools, new.pools)
    job.outlook = new


def _reckon(state: "State", job: "Job", outlook: Outlook) -> None:
    stages = cycle(state, job)
    times = state.estimates.of_stages(job.id, [stage for stage, _ in stages], typical=state.typical)
    known = [expected_s for expected_s, _ in times if expected_s is not None]
    default_s = sum(known) / len(known) if known else UNKNOWN_S
    count = rounds_left(job)
    left = dict(job.at)
    for (stage, pools), (expected_s, seen) in zip(stages, times, strict=True):
        count += left.pop(stage, 0)  # who is at a stage of the round has all later ones before him, too
        outlook.add(pools, count * (default_s if expected_s is None else expected_s), seen)
    for stage, number in left.items():
        if number:
            expected_s, seen = state.estimates.of_job(job.id, stage, typical=state.typical)
            seconds = number * (default_s if expected_s is None else expected_s)
            outlook.add(job.places.get(stage, ()), seconds, seen)


def _reckon_exactly(state: "State", job: "Job", outlook: Outlook) -> None:
    assert state.oracle is not None
    for index in job.tasks:
        for _, pools, seconds in state.oracle(job.id, index):
            outlook.left_s += seconds
            for pool in pools:
                outlook.pools[pool] = outlook.pools.get(pool, 0.0) + seconds
    outlook.bold_s = outlook.left_s
