"""Bounds the work of one kind that runs and waits; more is refused, with a time to retry.

Little of a kind runs at the same time, and of one user less, so that reports of running jobs never wait behind much of
it, and no user waits long behind another.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from msgspec import Struct

from autosched.errors import Busy

RETRY_MIN_S, RETRY_MAX_S = 0.5, 30.0
"""Bounds of the seconds to retry that a refusal names."""
WEIGHT = 0.1
"""EWMA weight of the newest duration."""


class Bounds(Struct, frozen=True):
    """How much of one kind of work there may be."""

    what: str
    """The kind in words, in the plural."""
    at_once: int
    of_one_at_once: int
    """How much of it runs at the same time, of all and of one user."""
    waiting: int
    waiting_of_one: int
    """How much of it runs or waits, of all and of one user."""


SUBMISSIONS = Bounds("submissions", 4, 4, 256, 64)


class Admission:
    """The queue in front of one kind of work."""

    def __init__(self, clock: Callable[[], float], bounds: Bounds = SUBMISSIONS) -> None:
        self._clock, self._bounds = clock, bounds
        self._turns = asyncio.Semaphore(bounds.at_once)
        self._own_turns: dict[str, asyncio.Semaphore] = {}
        self._waiting: Counter[str] = Counter()
        self._each_s = 0.01

    @asynccontextmanager
    async def turn(self, who: str) -> AsyncIterator[None]:
        """Wait for a turn of a user, and hold it for the block. Raises Busy when too much waits."""
        waiting, bounds = self._waiting.total(), self._bounds
        if waiting >= bounds.waiting or self._waiting[who] >= bounds.waiting_of_one:
            whose = f"{self._waiting[who]} of them yours" if self._waiting[who] else "of others"
            retry_after_s = min(max(waiting * self._each_s / bounds.at_once, RETRY_MIN_S), RETRY_MAX_S)
            raise Busy(
                f"{waiting} {bounds.what} wait already, {whose}; try again in {retry_after_s:.1f} s", retry_after_s
            )
        self._waiting[who] += 1
        own = self._own_turns.setdefault(who, asyncio.Semaphore(bounds.of_one_at_once))
        try:
            async with own, self._turns:
                began_at = self._clock()
                try:
                    yield
                finally:
                    self._each_s += WEIGHT * (self._clock() - began_at - self._each_s)
        finally:
            self._waiting[who] -= 1
            if not self._waiting[who]:
                del self._waiting[who], self._own_turns[who]
