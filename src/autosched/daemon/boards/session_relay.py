"""Relays one session between a program and a board, in both directions, until either hangs up or its time is over."""

import asyncio
import socket
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from autosched.daemon.runtime import spawn
from autosched.wire.address import notice_silence

PIECE_BYTES = 64 * 1024
FLUSH_S = 1.0
"""Seconds within which a side receives the remaining bytes after the other one has hung up."""
SILENT_S = 5
"""Seconds within which the loss of a peer's machine is detected; less than a measurement may take, so that no candidate
is blamed for it."""
OVERTIME_S = 0.8
"""Seconds after a session's time limit within which a server ends it by itself, before it is cut."""


class Connections:
    """Connections of a port, each served by its own task."""

    def __init__(self, name: str) -> None:
        """`name`: name of the tasks in the log."""
        self._name = name
        self.tasks: set[asyncio.Task[None]] = set()

    def add(self, serving: Coroutine[Any, Any, None]) -> None:
        """Serve another connection."""
        task = spawn(serving, self._name)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def close(self, grace_s: float = 0.0) -> None:
        """Cancel all tasks after `grace_s`."""
        tasks = tuple(self.tasks)
        if tasks and grace_s:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Line:
    """One of the two connections of a session."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent_s: int = SILENT_S) -> None:
        self.reader, self.writer = reader, writer
        self._socket: socket.socket = writer.get_extra_info("socket")
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        notice_silence(self._socket, silent_s)

    def acknowledge_at_once(self) -> None:
        """Acknowledge the next bytes without delay: TVM sends a length and a body in two writes, and the second write
        waits for the acknowledgement of the first. The kernel resets this with each read."""
        with suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)

    async def read(self) -> bytes:
        """The next bytes; empty when the peer has hung up."""
        self.acknowledge_at_once()
        return await self.reader.read(PIECE_BYTES)

    async def close(self) -> None:
        """Hang up after the written bytes are sent."""
        self.writer.close()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(FLUSH_S):
                await self.writer.wait_closed()
        self.abort()

    async def finish(self, seconds: float) -> None:
        """Send the end of the stream, and read until the peer hangs up, for at most `seconds`."""
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(max(0.0, seconds)):
                if self.writer.can_write_eof():
                    self.writer.write_eof()
                while await self.read():
                    pass

    def abort(self) -> None:
        """Hang up at once."""
        self.writer.transport.abort()


class Session:
    """A running session.

    TVM's server does not survive a session whose connection is cut while it sends: the thread that waits for sessions
    ends, and its process lives on. Therefore the relay sends a board the end of the stream, and reads until the board
    hangs up.
    """

    def __init__(self, program: Line, board: Line) -> None:
        self._program, self._board = program, board
        self._unwanted = asyncio.Event()
        self.ended_by_board = False
        """Whether the board hung up first."""
        self.why = ""
        """Why the daemon ended the session; empty if it did not."""

    def end(self, why: str) -> None:
        """End the session."""
        self.why = self.why or why
        self._program.abort()
        self._unwanted.set()

    async def run(self, seconds: float) -> None:
        """Relay until either side hangs up, for at most `seconds`. Returns when the board is free."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        to_board = asyncio.ensure_future(self._pass_on(self._program, self._board))
        to_program = asyncio.ensure_future(self._pass_on(self._board, self._program))
        unwanted = asyncio.ensure_future(self._unwanted.wait())
        try:
            ways = {to_board, to_program, unwanted}
            done, _ = await asyncio.wait(ways, timeout=max(0.0, seconds), return_when=asyncio.FIRST_COMPLETED)
            if not done:
                self.end("its time was over")
            self.ended_by_board = to_program in done and to_board not in done and not self.why
            to_board.cancel()
            if to_program in done:
                await self._program.close()
            else:
                to_program.cancel()
                self._program.abort()
                await asyncio.wait({to_program})
                await self._board.finish(until + OVERTIME_S - clock())
        finally:
            for way in (to_board, to_program, unwanted):
                way.cancel()
            self._program.abort()
            self._board.abort()

    @staticmethod
    async def _pass_on(source: Line, sink: Line) -> None:
        with suppress(OSError):
            while piece := await source.read():
                sink.writer.write(piece)
                await sink.writer.drain()
