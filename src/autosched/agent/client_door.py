"""The socket of an agent's machine for clients that run apart: it passes their bytes on to the daemon.

Such a client has no network. TLS goes from the client to the daemon, so that what passes here is encrypted, and the
client proves itself by its token: it needs no key of the agent.
"""

import asyncio
import contextlib
import logging
from pathlib import Path

from autosched.errors import ConfigError
from autosched.wire import address as addresses
from autosched.wire import unix_sockets

log = logging.getLogger(__name__)

FOLDER, SOCKET = "door", "daemon.sock"
PIECE_BYTES = 64 * 1024
CONNECT_S = 10.0
CONNECTIONS_MAX = 256


class ClientDoor:
    """One listening socket."""

    def __init__(self, folder: Path, daemon: str) -> None:
        """`daemon`: its address, over TCP or TLS: at a unix socket clients would be taken for this process's user."""
        self._path = folder / FOLDER / SOCKET
        self._daemon = daemon
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], None] = {}

    @property
    def address(self) -> str:
        """The daemon's address for clients that run apart; empty if it has none."""
        if self._daemon.startswith(addresses.UNIX):
            return ""
        tls = self._daemon.startswith(addresses.TLS)
        return f"{addresses.TLS_UNIX if tls else addresses.UNIX}{self._path}"

    async def open(self) -> None:
        """Accept clients until `close`. Raises ConfigError."""
        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)  # of an earlier agent in this folder, which has ended
            with unix_sockets.short(self._path) as name:
                self._server = await asyncio.start_unix_server(self._accept, name)
            self._path.chmod(0o600)
        except OSError as error:
            raise ConfigError(
                f"the socket {self._path} cannot be made ({error.strerror}): choose another --state-dir"
            ) from None

    async def close(self) -> None:
        """End all connections, and accept no more."""
        if self._server is not None:
            self._server.close()
            self._path.unlink(missing_ok=True)
        for one in self._connections:
            one.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= CONNECTIONS_MAX:
            return writer.transport.abort()
        task = asyncio.get_running_loop().create_task(self._attend(reader, writer))
        self._connections[task] = None
        task.add_done_callback(lambda done: self._connections.pop(done, None))

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._pass_on(reader, writer)
        except (OSError, TimeoutError) as error:
            log.info("a client's connection to the daemon ended: %s", error or "no answer")
        finally:
            writer.close()
            await _abort(writer)

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(CONNECT_S):
            from_daemon, to_daemon = await asyncio.open_connection(*addresses.tcp(self._daemon))
        addresses.notice_silence(to_daemon.get_extra_info("socket"))
        both = [
            asyncio.ensure_future(_copy(reader, to_daemon)),
            asyncio.ensure_future(_copy(from_daemon, writer)),
        ]
        try:
            done, _ = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for one in done:
                one.result()
        finally:
            to_daemon.close()
            for one in both:
                one.cancel()
            await asyncio.gather(*both, return_exceptions=True)
            await _abort(to_daemon)


async def _abort(writer: asyncio.StreamWriter) -> None:
    writer.transport.abort()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while piece := await reader.read(PIECE_BYTES):
        writer.write(piece)
        await writer.drain()
