"""Takes connections from listening sockets: no more than there is room for, and few from strangers.

A listener takes no more while too many of its connections have not said who they are: a storm of reconnects waits in
the kernel's queue instead of being turned away. Listeners do not wait for each other, so what happens on the network
never keeps local users out.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from autosched.config import loopback
from autosched.daemon.access.login_rate_limit import LoginRateLimit

log = logging.getLogger(__name__)

STRANGERS_MAX = 64
"""Connections of one listener that have not said who they are; more are not accepted yet."""
STRANGERS_OF_HOST_MAX = 8
"""The same from one other machine; more are cut."""
ACCEPT_AGAIN_S = 0.2
BACKLOG = 4_096
"""Connections that wait in the kernel; a restart of the daemon brings all clients at once."""


@dataclass(eq=False, slots=True)
class Connection:
    """One that was accepted."""

    sock: socket.socket
    host: str
    """Address of the peer's machine; empty for this machine, whose users share an address."""
    room: asyncio.Semaphore
    """Places for connections that are not authenticated yet."""
    known: bool = False


class Acceptor:
    """All connections of some listeners."""

    def __init__(self, failures: LoginRateLimit, connections_max: Callable[[], int], setting: str) -> None:
        """`connections_max` may change; `setting` is what it is called."""
        self._failures, self._max, self._setting = failures, connections_max, setting
        self._connections: dict[Connection, None] = {}
        self._strangers: Counter[str] = Counter()  # by host

    def __len__(self) -> int:
        return len(self._connections)

    async def connections(
        self, listener: socket.socket, sorry: Callable[[str], bytes] | None
    ) -> AsyncIterator[Connection]:
        """Yield each connection that is let in, for ever; call `leave` when it closes.

        `sorry`: answer to refused peers of this machine; None: no answer, as to those of other machines.
        """
        loop, room = asyncio.get_running_loop(), asyncio.Semaphore(STRANGERS_MAX)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        while True:
            await room.acquire()
            try:
                sock, where = await loop.sock_accept(listener)
            except OSError as error:  # no file descriptor is left, or the visitor is gone already
                room.release()
                log.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            host = where[0] if isinstance(where, tuple) and not loopback(where[0]) else ""
            connection = Connection(sock, host, room)
            if self.enter(connection, sorry):
                yield connection

    def enter(self, connection: Connection, sorry: Callable[[str], bytes] | None) -> bool:
        """Accept the connection, or close it: no handshake with a peer that may not connect."""
        if not (why := self.turned_away(connection.host)):
            self._connections[connection] = None
            self._strangers[connection.host] += 1
            return True
        if sorry is not None and not connection.host:
            with contextlib.suppress(OSError):
                connection.sock.send(sorry(why))
        connection.sock.close()
        connection.room.release()
        return False

    def turned_away(self, host: str) -> str:
        """Why no connection from there is accepted now; empty when one is."""
        if len(self._connections) >= self._max():
            return f"{len(self._connections)} connections are open, which is {self._setting}; try again later"
        if host:
            if self._failures.banned(host, asyncio.get_running_loop().time()):
                return "too many wrong keys"
            if (strangers := self._strangers[host]) >= STRANGERS_OF_HOST_MAX:
                return f"{strangers} connections of this host have not said who they are"
        return ""

    def know(self, connection: Connection) -> None:
        """He has said who he is."""
        if not connection.known:
            connection.known = True
            self._no_stranger(connection)

    def leave(self, connection: Connection) -> None:
        """His connection has ended."""
        del self._connections[connection]
        if not connection.known:
            self._no_stranger(connection)

    def _no_stranger(self, connection: Connection) -> None:
        connection.room.release()
        self._strangers[connection.host] -= 1
        if not self._strangers[connection.host]:
            del self._strangers[connection.host]
