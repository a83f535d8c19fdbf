"""A client that runs on another host, as that host's agent tells of it."""

import asyncio
from collections.abc import Callable

from autosched.model import HostName


class RemoteClient:
    """The process of a client on another host."""

    def __init__(self, host: HostName, name: str, killed: Callable[["RemoteClient"], None]) -> None:
        """`killed`: called when it is not wanted any more."""
        self.host, self.name = host, name
        self.memory_bytes = 0
        self.wanted = True
        self._killed = killed
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    def kill(self) -> None:
        """Let its agent kill it, now or when it can be reached again; should that take too long, the host does."""
        self.wanted = False
        if not self._ended.done():
            self._killed(self)

    def end(self, how: str) -> None:
        """Nothing of it is left."""
        if not self._ended.done():
            self._ended.set_result(how)

    async def wait(self) -> str:
        """Wait for its end; returns how it ended."""
        return await asyncio.shield(self._ended)
