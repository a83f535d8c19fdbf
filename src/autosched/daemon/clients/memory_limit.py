"""Limit of the memory of clients and helpers, with all processes that they have started: one that takes too much is
ended before the machine has none left."""

import asyncio
import contextlib

from autosched import formatting
from autosched.launch import ClientProcess

INTERVAL_S = 0.25
"""Seconds between two checks of a process. New memory is written at a few gigabytes a second."""
UNLIMITED_INTERVAL_S = 30.0
"""Seconds after which a process without a limit is checked for a new one."""


class MemoryLimit:
    """Maximum memory of each client and of each helper. It may change while they run."""

    def __init__(self) -> None:
        self.bytes_max = 0
        """0: no limit."""

    async def exceeded(self, process: ClientProcess, gone: asyncio.Event) -> str:
        """Wait until a process holds too much memory; returns the reason to end it. Empty: it has ended."""
        while not gone.is_set():
            if self.bytes_max and (used := await self._used(process)) > self.bytes_max:
                most = formatting.size(self.bytes_max)
                return f"it held {formatting.size(used)} of memory; limits.client_bytes_max is {most}"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S if self.bytes_max else UNLIMITED_INTERVAL_S):
                    await gone.wait()
        return ""

    async def _used(self, process: ClientProcess) -> int:
        """Memory of a process, exactly if it may be too much."""
        rough = process.memory_bytes
        return rough if rough <= self.bytes_max else await asyncio.to_thread(lambda: process.exact_memory_bytes)
