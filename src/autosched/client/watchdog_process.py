"""Backstop: a sibling process that kills a frozen client.

The client's own watchdog does not run then, while processes that it has started may go on, on units that the daemon
soon takes to be free.

A client that its daemon has started needs none: the daemon ends it.
"""

import os
import select
import time
from contextlib import suppress

import psutil

from autosched.model import StepId
from autosched.process import standby_process
from autosched.process.standby_process import NEVER


class WatchdogProcess:
    """Kills this process, and all that it has started, should a step not have ended by its last moment."""

    def __init__(self) -> None:
        """Forks: to be made before there are threads."""
        self._last: dict[StepId, float] = {}
        client = os.getpid()
        _, self._told = standby_process.fork(lambda heard: _stand_by(client, heard))

    def expect(self, step: StepId, within_s: float) -> None:
        """The step ends within this time, or nothing of this client may be left."""
        self._last[step] = time.monotonic() + within_s
        self._tell()

    def ended(self, step: StepId) -> None:
        """It has."""
        self._last.pop(step, None)
        self._tell()

    def _tell(self) -> None:
        standby_process.tell(self._told, min(self._last.values(), default=NEVER))


def _stand_by(client: int, heard: int) -> None:
    """In the process beside: until the client has ended, whose end of the pipe closes then, or has to."""
    last_at: float | None = NEVER
    while last_at is not None:
        left_s = None if last_at == NEVER else max(0.0, last_at - time.monotonic())
        if not select.select([heard], [], [], left_s)[0]:
            return _kill(client)
        last_at = standby_process.hear(heard)


def _kill(client: int) -> None:
    """Kill the client and all its descendants, which are looked up before the first one dies."""
    own = os.getpid()
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(client)
        for process in (one, *(child for child in one.children(recursive=True) if child.pid != own)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
