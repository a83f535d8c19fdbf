"""Bounds the submissions that wait; others are refused, with a time to retry.

Only a few submissions run at the same time, so that reports of running jobs never wait behind many.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from autosched.errors import Busy

AT_ONCE = 4
"""Maximum submissions that run at the same time."""
WAITING_MAX = 256
"""Maximum submissions that wait."""
WAITING_OF_ONE_MAX = 64
"""Maximum submissions of one user that wait."""
RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
"""Bounds of the seconds to retry that a refusal names."""
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
        """Wait for a turn, and hold it for the block. Raises Busy when too many submissions wait."""
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
