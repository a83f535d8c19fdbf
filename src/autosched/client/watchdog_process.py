"""Backstop: a sibling process that kills a frozen client.

The client's own watchdog does not run then, while processes that it has started may go on, on units that the daemon
soon takes to be free.

A client that its daemon has started needs none: the daemon ends it.
"""

import os
import select
import struct
import time
from contextlib import suppress

import psutil

from autosched.model import StepId

MOMENT = struct.Struct("=d")
NEVER = float("inf")


class WatchdogProcess:
    """Kills this process, and all that it has started, should a step not have ended by its last moment."""

    def __init__(self) -> None:
        """Forks: to be made before there are threads."""
        self._last: dict[StepId, float] = {}
        read, self._told = os.pipe()
        client = os.getpid()
        if os.fork() == 0:
            try:
                os.close(self._told)
                _stand_by(client, read)
            finally:
                os._exit(0)
        os.close(read)
        os.set_blocking(self._told, False)

    def expect(self, step: StepId, within_s: float) -> None:
        """The step ends within this time, or nothing of this client may be left."""
        self._last[step] = time.monotonic() + within_s
        self._tell()

    def ended(self, step: StepId) -> None:
        """It has."""
        self._last.pop(step, None)
        self._tell()

    def _tell(self) -> None:
        with suppress(BlockingIOError):  # it is behind: then it will soon be told of a later moment
            os.write(self._told, MOMENT.pack(min(self._last.values(), default=NEVER)))


def _stand_by(client: int, told: int) -> None:
    """In the process beside: until the client has ended, whose end of the pipe closes then, or has to."""
    last_at = NEVER
    while True:
        left_s = None if last_at == NEVER else max(0.0, last_at - time.monotonic())
        if not select.select([told], [], [], left_s)[0]:
            return _kill(client)
        said = os.read(told, 4096 * MOMENT.size)
        if not said:
            return
        (last_at,) = MOMENT.unpack(said[-MOMENT.size :])


def _kill(client: int) -> None:
    """Kill the client and all its descendants, which are looked up before the first one dies."""
    own = os.getpid()
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(client)
        for process in (one, *(child for child in one.children(recursive=True) if child.pid != own)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
