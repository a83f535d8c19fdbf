"""A TVM RPC server up to its handshake. It serves one session at a time, and returns the bytes that it receives."""

import asyncio
import struct

from autosched.daemon.boards.rpc_handshake import MAGIC, MISMATCH
from autosched.model import RpcServer


class FakeBoard:
    """An RPC server on this machine. An asynchronous context manager."""

    def __init__(self, key: str = "pi4") -> None:
        self.key = key
        self.hellos: list[str] = []
        self.most = 0
        """Maximum number of simultaneous sessions."""
        self.silent = False
        """Whether it accepts connections without answering."""
        self.heard_twice = asyncio.Event()
        self._sessions: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> "FakeBoard":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.die()

    @property
    def device(self) -> RpcServer:
        """Returns the server as a device."""
        return RpcServer(f"127.0.0.1:{self.port}", self.key)

    async def die(self) -> None:
        """Stops accepting connections, and cuts the present ones."""
        self._server.close()
        self.cut()

    def cut(self) -> None:
        """Cuts the sessions."""
        for writer in self._sessions:
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._sessions.append(writer)
        self.most = max(self.most, len(self._sessions))
        try:
            magic, length = struct.unpack("<ii", await reader.readexactly(8))
            assert magic == MAGIC
            self.hellos.append((await reader.readexactly(length)).decode())
            if len(self.hellos) == 2:
                self.heard_twice.set()
            if self.silent:
                await reader.read()
                return
            if self.hellos[-1].split()[0] != f"client:{self.key}":
                writer.write(struct.pack("<i", MISMATCH))
                await writer.drain()
                return
            answer = f"server:{self.key}".encode()
            writer.write(struct.pack("<ii", MAGIC, len(answer)) + answer)
            while piece := await reader.read(65_536):
                writer.write(piece)
                await writer.drain()
        except (OSError, EOFError):
            pass
        finally:
            self._sessions.remove(writer)
            writer.close()
