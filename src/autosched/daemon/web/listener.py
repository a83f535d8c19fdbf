"""Listens for browsers and Prometheus, and starts the HTTP server at the first connection.

The server needs 17 MB and 0.17 s to import, which a daemon without visitors does not pay. Until it runs, the first
connection waits in the kernel's queue.
"""

import asyncio
import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from autosched.config import Config
from autosched.daemon.access import endpoints, sockets
from autosched.daemon.runtime import spawn
from autosched.daemon.web.web_services import WebServices
from autosched.errors import ConfigError

log = logging.getLogger(__name__)

CLOSE_S = 1.0
NOWHERE = ("127.0.0.1", 0)
"""Never used: a daemon without a page makes no listener."""


class Site(Protocol):
    """The server, once it is imported."""

    async def close(self) -> None:
        """Disconnect everybody."""


class Listener:
    """One listening socket."""

    def __init__(self, config: Config, passed: Sequence[socket.socket] = ()) -> None:
        """Listen on a socket passed by systemd, or on a new one; the caller closes. Raises ConfigError if the port is
        in use, or if the settings require protection that it lacks."""
        self._sock = passed[0] if passed else sockets.bind_tcp("http.listen", *config.http_listen() or NOWHERE)
        self._sock.setblocking(False)
        try:
            self.tls = endpoints.tls_for_others(config, self._sock, "the page")
        except ConfigError:
            self._sock.close()
            raise
        self._site: Site | None = None

    @property
    def url(self) -> str:
        """Address of the page."""
        host, port = self._sock.getsockname()[:2]
        host = f"[{host}]" if ":" in host else host
        return f"{'https' if self.tls is not None else 'http'}://{host}:{port}/"

    def begin(self, shown: WebServices) -> None:
        """Wait for the first connection; call in the running loop."""
        loop = asyncio.get_running_loop()

        def come() -> None:
            loop.remove_reader(self._sock)
            spawn(self._serve(shown), "the page")

        loop.add_reader(self._sock, come)

    async def _serve(self, shown: WebServices) -> None:
        serve = await asyncio.to_thread(_loaded)
        self._site = await serve(self._sock, self.tls, shown)

    def release(self) -> None:
        """Close the socket."""
        self._sock.close()

    async def close(self) -> None:
        """Stop accepting connections, and close all."""
        asyncio.get_running_loop().remove_reader(self._sock)
        if self._site is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CLOSE_S):
                    await self._site.close()


def _loaded() -> Callable[[socket.socket, ssl.SSLContext | None, WebServices], Awaitable[Site]]:
    """Import the server, in a thread because it takes long."""
    from autosched.daemon.web.routes import serve

    return serve
