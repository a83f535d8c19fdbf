"""A clock that stands still while its process does: stopped by a signal, or on a virtual machine that is migrated.

By the loop's own clock, all peers would have been silent for that time, and be given up before their messages are read.
"""

import asyncio
import threading

BEAT_S = 1.0
STOOD_STILL_S = 1.0
"""Delay of a beat, in seconds, from which on the process was suspended and the loop not just busy."""


class Clock:
    """The clock of one event loop; it beats as long as the loop runs."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._stood_still_s = self._due_at = 0.0
        self._beat()

    def time(self) -> float:
        """Seconds of the loop's clock, without the time in which this process was suspended."""
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
    """The latest clock of a thread."""

    loop: asyncio.AbstractEventLoop | None = None
    clock: Clock


_LATEST = _Latest()


def clock() -> Clock:
    """The clock of the running loop."""
    if (loop := asyncio.get_running_loop()) is not _LATEST.loop:
        _LATEST.loop, _LATEST.clock = loop, Clock(loop)
    return _LATEST.clock
