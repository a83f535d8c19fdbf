"""Queue of clients that wait to be started."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable

from autosched.core.scheduler import TURN_S
from autosched.daemon.clients.client_state import Client
from autosched.daemon.runtime import spawn


class StartQueue:
    """Starts clients in order, at most as many at the same time as the daemon has cores.

    A hundred interpreters that start together would take all cores for half a minute, and none would be ready before
    the last.
    """

    def __init__(self, start: Callable[[Client], None]) -> None:
        self._start = start
        self._waiting: deque[Client] = deque()
        self._starting = 0

    def join(self, client: Client) -> None:
        """Add a client. It is skipped if it is lost before its turn."""
        self._waiting.append(client)
        self._next()

    def _next(self) -> None:
        while self._waiting and self._starting < len(os.sched_getaffinity(0)):
            client = self._waiting.popleft()
            if not client.lost:
                self._starting += 1
                self._start(client)
                spawn(self._settle(client), f"start client of job {client.job}")

    async def _settle(self, client: Client) -> None:
        """Free the place of a client that has connected, or is slow to start."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                await client.connected.wait()
        self._starting -= 1
        self._next()
