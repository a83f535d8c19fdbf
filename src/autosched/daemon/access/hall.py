"""Takes connections from listening sockets: no more than there is room for, and few of people nobody knows.

A listener takes no more while too many of its guests have not said who they are: a storm of reconnects waits in the
kernel's queue instead of being turned away. Listeners do not wait for each other, so what happens on the network never
keeps local users out.
"""

import asyncio
import contextlib
import logging
import socket
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from autosched.config import loopback
from autosched.daemon.access.failures import Failures

log = logging.getLogger(__name__)

STRANGERS_MAX = 64
"""Connections of one listener that have not said who they are; more are not accepted yet."""
STRANGERS_OF_HOST_MAX = 8
"""The same from one other machine; more are cut."""
ACCEPT_AGAIN_S = 0.2
BACKLOG = 4_096
"""Connections that wait in the kernel; a restart of the daemon brings all clients at once."""


@dataclass(eq=False, slots=True)
class Guest:
    """One connection, from its first byte to its last."""

    sock: socket.socket
    host: str
    """Of another machine; empty for this one, whose users share an address."""
    room: asyncio.Semaphore
    """Of those who have not said who they are."""
    known: bool = False


class Hall:
    """All connections of some listeners."""

    def __init__(self, failures: Failures, connections_max: Callable[[], int], setting: str) -> None:
        """`connections_max` may change; `setting` is what it is called."""
        self._failures, self._max, self._setting = failures, connections_max, setting
        self._guests: dict[Guest, None] = {}
        self._strangers: Counter[str] = Counter()  # by host

    def __len__(self) -> int:
        return len(self._guests)

    async def guests(self, listener: socket.socket, sorry: Callable[[str], bytes] | None) -> AsyncIterator[Guest]:
        """Whoever comes and may come in, for ever; `leave` when he goes. `sorry`: what the others of this machine are
        sent; None: nothing, as to those of other machines."""
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
            guest = Guest(sock, host, room)
            if self.enter(guest, sorry):
                yield guest

    def enter(self, guest: Guest, sorry: Callable[[str], bytes] | None) -> bool:
        """Let him in, or send him away: no handshake for somebody who may not come in."""
        if not (why := self.turned_away(guest.host)):
            self._guests[guest] = None
            self._strangers[guest.host] += 1
            return True
        if sorry is not None and not guest.host:
            with contextlib.suppress(OSError):
                guest.sock.send(sorry(why))
        guest.sock.close()
        guest.room.release()
        return False

    def turned_away(self, host: str) -> str:
        """Why nobody may come in from there now; empty when he may."""
        if len(self._guests) >= self._max():
            return f"{len(self._guests)} connections are open, which is {self._setting}; try again later"
        if host:
            if self._failures.banned(host, asyncio.get_running_loop().time()):
                return "too many wrong keys"
            if (strangers := self._strangers[host]) >= STRANGERS_OF_HOST_MAX:
                return f"{strangers} connections of this host have not said who they are"
        return ""

    def know(self, guest: Guest) -> None:
        """He has said who he is."""
        if not guest.known:
            guest.known = True
            self._no_stranger(guest)

    def leave(self, guest: Guest) -> None:
        """His connection has ended."""
        del self._guests[guest]
        if not guest.known:
            self._no_stranger(guest)

    def _no_stranger(self, guest: Guest) -> None:
        guest.room.release()
        self._strangers[guest.host] -= 1
        if not self._strangers[guest.host]:
            del self._strangers[guest.host]
