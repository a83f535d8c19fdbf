"""A clock that stands still while this process does: stopped by a signal, or on a virtual machine that is moved.

By the loop's own clock everybody would have been silent all that time, and be given up before what they said is read.
"""

import asyncio
import threading

BEAT_S = 1.0
STOOD_STILL_S = 1.0
"""A beat that is later than this is not late because the loop is busy."""


class Clock:
    """The clock of one event loop; it beats as long as the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stood_still_s = self._due_at = 0.0
        self._beat()

    def time(self) -> float:
        """Seconds of the loop's clock, but for those in which this process stood still."""
        now = self._loop.time()
        if (late_s := now - self._due_at) > STOOD_STILL_S:
            self._stood_still_s += late_s
            self._due_at = now
        return now - self._stood_still_s

    def _beat(self) -> None:
        self._due_at = self._loop.time() + BEAT_S
        self._loop.call_at(self._due_at, self._next)

    def _next(self) -> None:
        self.time()
        self._beat()


class _Latest(threading.local):
    """A thread's."""

    loop: asyncio.AbstractEventLoop | None = None
    clock: Clock


_LATEST = _Latest()


def clock() -> Clock:
    """The running loop's."""
    if (loop := asyncio.get_running_loop()) is not _LATEST.loop:
        _LATEST.loop, _LATEST.clock = loop, Clock(loop)
    return _LATEST.clock
