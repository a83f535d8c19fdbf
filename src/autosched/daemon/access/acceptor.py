"""Accepts connections from listening sockets, and gives their peers places once they have authenticated.

A listener has room for some connections of strangers, who have not authenticated. While it is full, further connections
wait in the kernel's queue, so that a storm of reconnects is served in turn and refused nothing. If no stranger becomes
known for a while, those of the machine or user with the most of them are disconnected: silent sockets close no
listener. Listeners do not wait for each other.

A user, and a key, may have some connections at a time. Operators have places of their own beside those of users;
clients of jobs and agents take none of either.
"""

import asyncio
import contextlib
import logging
import math
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from autosched.config import loopback
from autosched.daemon.access import peer_identity
from autosched.daemon.access.login_rate_limit import LoginRateLimit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.access.sockets import BACKLOG
from autosched.errors import Busy
from autosched.protocol.roles import Role

log = logging.getLogger(__name__)

STRANGERS_MAX = 256
"""Maximum unauthenticated connections of a listener; further ones wait in the kernel."""
STRANGERS_PART = 8
"""All open files of this process by those that the strangers of one listener may take."""
STRANGERS_OF_HOST_MAX = 8
"""Maximum unauthenticated connections from one other machine; further ones are closed."""
PATIENCE_MAX_S, PATIENCE_MIN_S = 0.2, 0.05
"""Seconds in which one stranger of a full listener must authenticate, or some are disconnected: the first time, and the
minimum, to which they fall by half each time."""
CALM_S = 5.0
"""Seconds without that after which the first time is meant again."""
CONNECTIONS_OF_JOB_MAX = 64
"""Maximum connections of one job's client and its helpers."""
OPERATORS_PART = 8
"""All places of a listener by those that only operators take."""
RETRY_S = 2.0
"""Seconds after which a refused peer may try again."""
ACCEPT_AGAIN_S = 0.2

Farewell = Callable[[str], bytes]
"""Bytes for a peer that is refused for a reason."""


class Places(Struct, frozen=True):
    """Places for authenticated peers."""

    total: int
    of_one: int
    """Places of one user, and of one key, who is no operator."""
    total_name: str
    """The setting or listener that gives the total, for messages."""
    of_one_name: str

    @property
    def of_users(self) -> int:
        """Places of all who are no operators."""
        return self.total - self.total // OPERATORS_PART


class Room:
    """The strangers of one listener."""

    def __init__(self, size: int, farewell: Farewell | None) -> None:
        """`farewell`: what refused peers of this machine are sent; None: nothing."""
        self.farewell = farewell
        self._free = asyncio.Semaphore(size)
        self._strangers: dict[Connection, None] = {}
        self._patience_s, self._emptied_at = PATIENCE_MAX_S, -math.inf

    async def wait(self) -> None:
        """Wait until there is room for one more stranger, and keep it."""
        while True:
            try:
                async with asyncio.timeout(self._patience_s):
                    await self._free.acquire()
                    return
            except TimeoutError:
                self._empty()

    def enter(self, connection: "Connection") -> None:
        """Use the room that was kept."""
        self._strangers[connection] = None

    def leave(self, connection: "Connection | None") -> None:
        """Give the room of a stranger back, or the one that was kept for nothing."""
        if connection is not None:
            self._strangers.pop(connection, None)
        self._free.release()

    def _empty(self) -> None:
        """Disconnect the strangers of the machine or user that has most of them."""
        sources = Counter(connection.source for connection in self._strangers)
        if not sources:
            return
        now = asyncio.get_running_loop().time()
        calm, self._emptied_at = now - self._emptied_at > CALM_S, now
        (crowd, count), *_ = sources.most_common(1)
        if calm:
            log.warning(
                "%d connections%s have not said who they are; they are closed for others",
                count,
                f" of {crowd}" if crowd else "",
            )
        self._patience_s = PATIENCE_MAX_S if calm else max(PATIENCE_MIN_S, self._patience_s / 2)
        for connection in [one for one in self._strangers if one.source == crowd]:
            connection.refuse("too many connections have not said who they are; try again")


class Connection:
    """One accepted connection."""

    def __init__(self, sock: socket.socket, host: str, room: Room) -> None:
        """`host`: address of the peer's machine; empty for this machine, whose users share an address."""
        self.sock, self.host, self.room = sock, host, room
        self.holder: Principal | None = None
        """The authenticated peer that has its place."""

    @property
    def source(self) -> str:
        """The machine of the peer, or its user as far as the kernel tells it."""
        if self.host or self.sock.family != socket.AF_UNIX:
            return self.host
        with contextlib.suppress(OSError):
            return f"{peer_identity.OF_USER}{peer_identity.peer_uid(self.sock)}"
        return ""

    def refuse(self, why: str) -> None:
        """Say why the connection is refused, as far as it can be said in plain text, and shut it down. Its server sees
        its end."""
        with contextlib.suppress(OSError):
            if self.room.farewell is not None and not self.host:
                self.sock.send(self.room.farewell(why))
            self.sock.shutdown(socket.SHUT_RDWR)


class Acceptor:
    """Connections of several listeners."""

    def __init__(self, failures: LoginRateLimit, places: Callable[[], Places]) -> None:
        """`places`: those of now."""
        self._failures, self._places = failures, places
        self._connections: dict[Connection, None] = {}
        self._held: Counter[str] = Counter()
        """Number of places by the name of who has them."""
        self._taken = 0
        """Number of places of users and operators."""
        self._strangers: Counter[str] = Counter()
        """Number of unauthenticated connections by machine."""

    def __len__(self) -> int:
        return len(self._connections)

    async def connections(self, listener: socket.socket, farewell: Farewell | None) -> AsyncIterator[Connection]:
        """Yield each accepted connection, without end. Call `leave` when it closes.

        `farewell`: what refused peers of this machine are sent; None: nothing, as those of other machines.
        """
        loop, room = asyncio.get_running_loop(), Room(strangers_max(), farewell)
        listener.setblocking(False)
        listener.listen(BACKLOG)
        while True:
            await room.wait()
            try:
                sock, where = await loop.sock_accept(listener)
            except OSError as error:  # no file descriptor is left, or the peer has hung up
                room.leave(None)
                log.warning("a connection cannot be accepted: %s", error)
                await asyncio.sleep(ACCEPT_AGAIN_S)
                continue
            host = where[0] if isinstance(where, tuple) and not loopback(where[0]) else ""
            connection = Connection(sock, host, room)
            if self.enter(connection):
                yield connection

    def enter(self, connection: Connection) -> bool:
        """Accept a connection, or close it before any handshake; returns whether it was accepted."""
        if why := self.turned_away(connection.host):
            log.debug("%s is turned away: %s", connection.host, why)
            connection.sock.close()
            connection.room.leave(None)
            return False
        self._connections[connection] = None
        connection.room.enter(connection)
        self._strangers[connection.host] += 1
        return True

    def turned_away(self, host: str) -> str:
        """Why a connection from another machine is refused now; empty if it is not."""
        if host:
            if self._failures.banned(host, asyncio.get_running_loop().time()):
                return "too many wrong keys"
            if (strangers := self._strangers[host]) >= STRANGERS_OF_HOST_MAX:
                return f"{strangers} connections of this host have not said who they are"
        return ""

    def check(self, who: Principal) -> None:
        """Raises Busy if there is no place for one more connection of an authenticated peer."""
        if who.role is Role.AGENT:
            return
        places, have = self._places(), self._held[who.name]
        if who.role is Role.CLIENT:
            most, why = CONNECTIONS_OF_JOB_MAX, "as many as a job may have"
        elif who.role in (Role.VIEWER, Role.USER):
            most, why = places.of_one, places.of_one_name
        else:
            most, why = places.total, places.total_name
        if have >= most:
            raise Busy(
                f"this daemon refuses: {have} connections of {who.name} are open, which is {why}; close some of them",
                RETRY_S,
            )
        ours = places.total if who.role is Role.OPERATOR else places.of_users
        if _takes_place(who) and self._taken >= ours:
            raise Busy(
                f"this daemon refuses: {self._taken} connections are open, and {places.total_name} has room for {ours}"
                f" of {who.role.value}s; try again later",
                RETRY_S,
            )

    def know(self, connection: Connection, who: Principal) -> None:
        """Note that the peer of a connection has authenticated, after `check`. A connection keeps its first place."""
        if connection.holder is None:
            connection.holder = who
            self._held[who.name] += 1
            self._taken += _takes_place(who)
            self._no_stranger(connection)

    def leave(self, connection: Connection) -> None:
        """Remove a closed connection."""
        del self._connections[connection]
        if (who := connection.holder) is None:
            return self._no_stranger(connection)
        self._taken -= _takes_place(who)
        _less(self._held, who.name)

    def _no_stranger(self, connection: Connection) -> None:
        connection.room.leave(connection)
        _less(self._strangers, connection.host)


def strangers_max() -> int:
    """Maximum unauthenticated connections of a listener of this process."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return STRANGERS_MAX if files == resource.RLIM_INFINITY else max(1, min(STRANGERS_MAX, files // STRANGERS_PART))


def _takes_place(who: Principal) -> bool:
    return who.role not in (Role.CLIENT, Role.AGENT)


def _less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
