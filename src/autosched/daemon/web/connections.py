"""Accepts connections of browsers, within limits, and adds the deadlines that aiohttp lacks.

aiohttp closes a connection on which no whole request arrives in time. This module also breaks a connection whose peer
does not authenticate within some seconds, or leaves an answer unread.
"""

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from typing import cast

from aiohttp.web_protocol import RequestHandler

from autosched.daemon.access.acceptor import Acceptor, Connection, Places
from autosched.daemon.access.authenticator import HELLO_S
from autosched.daemon.access.login_rate_limit import LoginRateLimit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.runtime import spawn

PLACES = Places(256, 64, "the page", "as many as one gets at the page")
STRANGER_S = 10.0
"""Seconds within which a peer must authenticate; health checks take less."""
REQUEST_S = 15.0
"""Seconds within which a request must arrive, and that a connection may be idle."""
UNREAD_S = 30.0
"""Seconds that an answer may be unread."""
SORRY = b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"


class WebConnection(asyncio.Protocol):
    """One connection: passes everything to aiohttp's protocol, and enforces deadlines."""

    def __init__(self, inner: RequestHandler) -> None:
        self._inner = inner
        self._loop = asyncio.get_running_loop()
        self._alarms: dict[str, asyncio.TimerHandle] = {}
        self.over = self._loop.create_future()

    def _allow(self, what: str, seconds: float) -> None:
        """Break the connection unless it makes the named progress within some seconds."""
        self._alarms[what] = self._loop.call_later(seconds, self._transport.abort)

    def _done(self, what: str) -> None:
        if (alarm := self._alarms.pop(what, None)) is not None:
            alarm.cancel()

    def known(self) -> None:
        """Note that the peer has authenticated."""
        self._done("who")

    # asyncio.Protocol -------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is established."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop has its own, unrelated class
        self._transport.set_write_buffer_limits(0)  # notice any unread data, a last answer's included
        self._allow("who", STRANGER_S)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Called when data arrived."""
        self._inner.data_received(data)

    def eof_received(self) -> None:
        """Called when the browser sends no more."""
        self._inner.eof_received()

    def pause_writing(self) -> None:
        """Called when data is left unread."""
        self._allow("read", UNREAD_S)
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        """Called when the data was read."""
        self._done("read")
        self._inner.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is closed."""
        for alarm in self._alarms.values():
            alarm.cancel()
        if not self.over.done():  # not if the attending task was cancelled
            self.over.set_result(None)
        self._inner.connection_lost(exc)


class Connections:
    """All connections of the page's listener."""

    def __init__(self, failures: LoginRateLimit, made: Callable[[], RequestHandler]) -> None:
        """`made` makes aiohttp's protocol object of a connection."""
        self._made = made
        self.acceptor = Acceptor(failures, lambda: PLACES)
        self._there: dict[RequestHandler, tuple[WebConnection, Connection]] = {}
        self._accepting: asyncio.Task[None] | None = None

    def open(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Accept connections from a socket until `shut`."""
        self._accepting = spawn(self._accept(listener, tls), "accepting browsers")

    def shut(self) -> None:
        """Stop accepting connections."""
        if self._accepting is not None:
            self._accepting.cancel()

    def know(self, handler: RequestHandler, who: Principal) -> None:
        """Note that the peer of a connection has authenticated. Raises Busy if there is no place for it."""
        if (there := self._there.get(handler)) is not None:
            visit, connection = there
            if connection.holder is None:
                self.acceptor.check(who)
            visit.known()
            self.acceptor.know(connection, who)

    async def _accept(self, listener: socket.socket, tls: ssl.SSLContext | None) -> None:
        async for connection in self.acceptor.connections(listener, (lambda why: SORRY) if tls is None else None):
            spawn(self._attend(connection, tls), "a browser")

    async def _attend(self, connection: Connection, tls: ssl.SSLContext | None) -> None:
        """Serve one connection until its end."""
        inner = self._made()
        visit = WebConnection(inner)
        self._there[inner] = visit, connection
        try:
            with contextlib.suppress(OSError):  # the TLS handshake fails
                await asyncio.get_running_loop().connect_accepted_socket(
                    lambda: visit, connection.sock, ssl=tls, ssl_handshake_timeout=HELLO_S if tls is not None else None
                )
                await visit.over
        finally:
            del self._there[inner]
            self.acceptor.leave(connection)
