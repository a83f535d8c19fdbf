"""Remaining work in seconds, of one job and of all jobs by pool. Sums only: policies/work_estimation.py fills them."""

import heapq
from dataclasses import dataclass, field

from autosched.model import PoolName

DOUBT = 1.0
"""Factor d of the pessimistic estimate: a stage that was seen n times counts 1 + d / (n + 1) times its estimate. An
unknown stage may be long, and is found out sooner when it starts sooner."""
STALE_MIN = 64

Pools = tuple[PoolName, ...]


@dataclass(slots=True)
class RemainingWork:
    """Remaining work of one job, after the steps that have ended."""

    left_s: float = 0.0
    pessimistic_s: float = 0.0
    """Pessimistic estimate: `left_s` with each stage raised the more, the fewer observations it has."""
    pools: dict[PoolName, float] = field(default_factory=dict)
    """`left_s` by pool."""

    def add(self, pools: Pools, seconds: float, seen: float) -> None:
        """Add work in these pools. `seen`: number of observations behind the estimate."""
        self.left_s += seconds
        self.pessimistic_s += seconds * (1.0 + DOUBT / (seen + 1.0))
        for pool in pools:
            self.pools[pool] = self.pools.get(pool, 0.0) + seconds


@dataclass(slots=True)
class PoolWork:
    """Remaining work of all jobs."""

    pools: dict[PoolName, float] = field(default_factory=dict)
    places: dict[str, Pools | None] = field(default_factory=dict)
    """Pools of each stage, as some job ran it; None: the pool in which that job builds."""
    units: dict[PoolName, int] = field(default_factory=dict)
    """Number of units of each declared pool."""
    busy: list[tuple[float, PoolName]] = field(default_factory=list, compare=False)
    """Heap of (-seconds per unit, pool). Outdated entries are dropped when they reach the top."""

    def declare(self, units: dict[PoolName, int]) -> None:
        """Set the pools that exist now."""
        self.units = units
        self.busy = [(-seconds / units[pool], pool) for pool, seconds in self.pools.items() if pool in units]
        heapq.heapify(self.busy)

    def replace(self, old: dict[PoolName, float], new: dict[PoolName, float]) -> None:
        """Replace a job's old remaining work by its new one. O(its pools x log of all pools), amortised."""
        pools = self.pools
        for pool in old | new:
            pools[pool] = seconds = pools.get(pool, 0.0) - old.get(pool, 0.0) + new.get(pool, 0.0)
            if pool in self.units:
                heapq.heappush(self.busy, (-seconds / self.units[pool], pool))
        if len(self.busy) > 2 * len(self.units) + STALE_MIN:
            self.declare(self.units)

    def bottleneck_s(self) -> float:
        """Seconds that the busiest pool needs for its remaining work. O(log pools), amortised."""
        busy = self.busy
        while busy and -busy[0][0] != self.pools[busy[0][1]] / self.units[busy[0][1]]:
            heapq.heappop(busy)
        return -busy[0][0] if busy else 0.0
