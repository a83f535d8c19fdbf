"""Backstop: a sibling process that kills a frozen client.

A frozen client's own watchdog does not run, while its child processes may continue on units that the daemon soon
considers free.

Clients that the daemon starts need no backstop: the daemon ends them.
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
    """Kills this process and all its children if a step has not ended in time."""

    def __init__(self) -> None:
        """Fork the sibling; to be created before any thread."""
        self._last: dict[StepId, float] = {}
        client = os.getpid()
        _, self._told = standby_process.fork(lambda heard: _stand_by(client, heard))

    def expect(self, step: StepId, within_s: float) -> None:
        """Kill everything unless the step ends within some seconds."""
        self._last[step] = time.monotonic() + within_s
        self._tell()

    def ended(self, step: StepId) -> None:
        """Note that the step has ended."""
        self._last.pop(step, None)
        self._tell()

    def _tell(self) -> None:
        standby_process.tell(self._told, min(self._last.values(), default=NEVER))


def _stand_by(client: int, heard: int) -> None:
    """Loop of the sibling: runs until the client ends, which closes the pipe, or must be killed."""
    last_at: float | None = NEVER
    while last_at is not None:
        left_s = None if last_at == NEVER else max(0.0, last_at - time.monotonic())
        if not select.select([heard], [], [], left_s)[0]:
            return _kill(client)
        last_at = standby_process.hear(heard)


def _kill(client: int) -> None:
    """Kill the client and all its descendants, which are collected before the first one is killed."""
    own = os.getpid()
    with suppress(psutil.NoSuchProcess):
        one = psutil.Process(client)
        for process in (one, *(child for child in one.children(recursive=True) if child.pid != own)):
            with suppress(psutil.NoSuchProcess):
                process.kill()
