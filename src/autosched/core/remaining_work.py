"""Seconds of work that are left: for one job, and for all jobs on each pool. Sums only; outlook.py fills them."""

import heapq
from dataclasses import dataclass, field

from autosched.model import PoolName

DOUBT = 1.0
"""A stage never seen counts double for a bold estimate, one seen n times by 1 + 1 / (n + 1): what is unknown may be
long, and the sooner it is begun the sooner that is known."""
STALE_MIN = 64

Pools = tuple[PoolName, ...]


@dataclass(slots=True)
class RemainingWork:
    """Remaining work of one job, after the steps that have ended."""

    left_s: float = 0.0
    bold_s: float = 0.0
    """The same, with each estimate raised by how little it rests on."""
    pools: dict[PoolName, float] = field(default_factory=dict)
    """`left_s` by pool."""

    def add(self, pools: Pools, seconds: float, seen: float) -> None:
        """Add work in these pools. `seen`: number of observations behind the estimate."""
        self.left_s += seconds
        self.bold_s += seconds * (1.0 + DOUBT / (seen + 1.0))
        for pool in pools:
            self.pools[pool] = self.pools.get(pool, 0.0) + seconds


@dataclass(slots=True)
class PoolWork:
    """Remaining work of all jobs."""

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
        for pool in old | new:
            pools[pool] = seconds = pools.get(pool, 0.0) - old.get(pool, 0.0) + new.get(pool, 0.0)
            if pool in self.units:
                heapq.heappush(self.busy, (-seconds / self.units[pool], pool))
        if len(self.busy) > 2 * len(self.units) + STALE_MIN:
            self.declare(self.units)

    def bottleneck_s(self) -> float:
        """Seconds that the busiest pool needs for what is left. O(log pools), amortised."""
        busy = self.busy
        while busy and -busy[0][0] != self.pools[busy[0][1]] / self.units[busy[0][1]]:
            heapq.heappop(busy)
        return -busy[0][0] if busy else 0.0
