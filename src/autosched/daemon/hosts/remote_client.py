"""A client process on another host, controlled through that host's agent."""

import asyncio
from collections.abc import Callable

from autosched.model import HostName


class RemoteClient:
    """The process of a client on another host."""

    def __init__(self, host: HostName, name: str, killed: Callable[["RemoteClient"], None]) -> None:
        """`killed`: called when the client is to end."""
        self.host, self.name = host, name
        self.memory_bytes = 0
        self.wanted = True
        self._killed = killed
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def exact_memory_bytes(self) -> int:
        """The memory that its agent reports, which is exact."""
        return self.memory_bytes

    def kill(self) -> None:
        """Let the agent kill the client, now or when it is reached again. After its lease the host does."""
        self.wanted = False
        if not self._ended.done():
            self._killed(self)

    def end(self, how: str) -> None:
        """Report that no process of the client is left."""
        if not self._ended.done():
            self._ended.set_result(how)

    async def wait(self) -> str:
        """Wait for the client's end; returns how it ended."""
        return await asyncio.shield(self._ended)
