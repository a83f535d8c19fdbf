"""Start queue of clients."""

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable

from autosched.core.scheduler import TURN_S
from autosched.daemon.clients.client_state import Client
from autosched.daemon.runtime import spawn


class StartQueue:
    """As many clients start at a time as the daemon has cores.

    A hundred interpreters that start at once would keep the daemon from its work for half a minute, and none of them
    would be ready before all are.
    """

    def __init__(self, start: Callable[[Client], None]) -> None:
        self._start = start
        self._waiting: deque[Client] = deque()
        self._starting = 0

    def join(self, client: Client) -> None:
        """Start it when its turn comes, unless it is lost by then."""
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
        """One that is slow to start makes room for others."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TURN_S):
                await client.up.wait()
        self._starting -= 1
        self._next()
