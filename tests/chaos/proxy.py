"""A cable between a client and its daemon that can be cut without either end being told."""

import asyncio
import json
from pathlib import Path

from autosched.wire.address import TCP, tcp


class Cable:
    """Passes bytes on until it swallows them. New connections work."""

    def __init__(self, folder: Path) -> None:
        self._whereabouts = folder / "daemon.json"
        self._server: asyncio.Server | None = None
        self._passing: set[asyncio.Task[None]] = set()
        self._whole = asyncio.Event()
        self._another = asyncio.Event()

    async def open(self) -> str:
        """Returns the address at this end."""
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        return f"{TCP}127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def swallow(self) -> None:
        """Drops all further bytes of the present connections without closing them."""
        self._whole.clear()
        self._whole, self._another = asyncio.Event(), asyncio.Event()

    async def another(self) -> None:
        """Waits for the next connection after that."""
        await self._another.wait()

    def close(self) -> None:
        """Closes all connections."""
        for task in self._passing:
            task.cancel()
        if self._server is not None:
            self._server.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        addresses = json.loads(self._whereabouts.read_bytes())["addresses"]
        host, port = tcp(next(address for address in addresses if address.startswith(TCP)))
        theirs, to_them = await asyncio.open_connection(host, port)
        self._another.set()
        whole = self._whole
        whole.set()
        for source, target in ((reader, to_them), (theirs, writer)):
            task = asyncio.get_running_loop().create_task(self._pass(source, target, whole))
            self._passing.add(task)
            task.add_done_callback(self._passing.discard)

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, whole: asyncio.Event) -> None:
        try:
            while data := await source.read(65_536):
                if whole.is_set():
                    target.write(data)
                    await target.drain()
        except OSError:
            pass  # one end is closed, and so is the other
        finally:
            if whole.is_set():
                target.close()
