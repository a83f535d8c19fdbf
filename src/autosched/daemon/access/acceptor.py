"""Accepts connections from listening sockets, within limits for all and for unauthenticated ones.

A listener pauses while too many of its connections are unauthenticated, so that a storm of reconnects waits in the
kernel's queue instead of being refused. Listeners do not wait for each other: load on the network never keeps local
users out.
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
from autosched.daemon.access.sockets import BACKLOG

log = logging.getLogger(__name__)

STRANGERS_MAX = 64
"""Maximum unauthenticated connections of a listener; further ones wait in the kernel."""
STRANGERS_OF_HOST_MAX = 8
"""Maximum unauthenticated connections from one other machine; further ones are closed."""
ACCEPT_AGAIN_S = 0.2


@dataclass(eq=False, slots=True)
class Connection:
    """One accepted connection."""

    sock: socket.socket
    host: str
    """Address of the peer's machine; empty for this machine, whose users share an address."""
    room: asyncio.Semaphore
    """Bounds the unauthenticated connections of the listener."""
    known: bool = False
    limited: bool = True
    """Whether it counts for the limit of connections."""


class Acceptor:
    """Connections of several listeners."""

    def __init__(self, failures: LoginRateLimit, connections_max: Callable[[], int], setting: str) -> None:
        """`connections_max`: the current limit; `setting`: its name in messages."""
        self._failures, self._max, self._setting = failures, connections_max, setting
        self._connections: dict[Connection, None] = {}
        self._counted = 0
        """Number of connections that count for the limit."""
        self._strangers: Counter[str] = Counter()  # by host

    def __len__(self) -> int:
        return len(self._connections)

    async def connections(
        self, listener: socket.socket, sorry: Callable[[str], bytes] | None, *, limited: bool = True
    ) -> AsyncIterator[Connection]:
        """Yield each accepted connection, without end. Call `leave` when it closes.

        `sorry`: answer to refused peers of this machine; None: no answer, as to those of other machines. `limited`:
        whether its connections count for the limit; those that only clients of jobs make do not.
        """
        loop, room = asyncio.get_running_loop(), asyncio.Semaphore(STRANGERS_MAX)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        while True:
            await room.acquire()
            try:
                sock, where = await loop.sock_accept(listener)
            except OSError as error:  # no file descriptor is left, or the peer has hung up
                room.release()
                log.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            host = where[0] if isinstance(where, tuple) and not loopback(where[0]) else ""
            connection = Connection(sock, host, room, limited=limited)
            if self.enter(connection, sorry):
                yield connection

    def enter(self, connection: Connection, sorry: Callable[[str], bytes] | None) -> bool:
        """Accept a connection, or close it before any handshake; returns whether it was accepted."""
        if not (why := self.turned_away(connection.host, limited=connection.limited)):
            self._connections[connection] = None
            self._counted += connection.limited
            self._strangers[connection.host] += 1
            return True
        if sorry is not None and not connection.host:
            with contextlib.suppress(OSError):
                connection.sock.send(sorry(why))
        connection.sock.close()
        connection.room.release()
        return False

    def turned_away(self, host: str, *, limited: bool = True) -> str:
        """Why a connection from a host is refused now; empty if it is not."""
        if limited and self._counted >= self._max():
            return f"{self._counted} connections are open, which is {self._setting}; try again later"
        if host:
            if self._failures.banned(host, asyncio.get_running_loop().time()):
                return "too many wrong keys"
            if (strangers := self._strangers[host]) >= STRANGERS_OF_HOST_MAX:
                return f"{strangers} connections of this host have not said who they are"
        return ""

    def know(self, connection: Connection) -> None:
        """Note that the peer of a connection has authenticated."""
        if not connection.known:
            connection.known = True
            self._no_stranger(connection)

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        del self._connections[connection]
        self._counted -= connection.limited
        if not connection.known:
            self._no_stranger(connection)

    def _no_stranger(self, connection: Connection) -> None:
        connection.room.release()
        self._strangers[connection.host] -= 1
        if not self._strangers[connection.host]:
            del self._strangers[connection.host]
