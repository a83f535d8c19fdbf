"""Bounds what may wait to be submitted: the rest is told when to come again.

A few submissions are under way at once, so that what running jobs report never waits behind more than these.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from autosched.errors import Busy

AT_ONCE = 4
WAITING_MAX = 256
WAITING_OF_ONE_MAX = 64
RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
WEIGHT = 0.1
"""EWMA weight of the newest submission time."""


class Admission:
    """The queue in front of submissions."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting: Counter[str] = Counter()
        self._each_s = 0.01

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a turn, and have it for the block. Raises Busy when too many wait already."""
        waiting = self._waiting.total()
        if waiting >= WAITING_MAX or self._waiting[who] >= WAITING_OF_ONE_MAX:
            whose = f"{self._waiting[who]} of them yours" if self._waiting[who] else "of others"
            retry_after_s = min(max(waiting * self._each_s / AT_ONCE, RETRY_MIN_S), RETRY_MAX_S)
            raise Busy(
                f"{waiting} submissions wait already, {whose}; try again in {retry_after_s:.1f} s", retry_after_s
            )
        self._waiting[who] += 1
        try:
            async with self._turns:
                began_at = self._clock()
                try:
                    yield
                finally:
                    self._each_s += WEIGHT * (self._clock() - began_at - self._each_s)
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who]
