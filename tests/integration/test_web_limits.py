"""No peer can block the page's port: raw sockets that send nothing, too little, or do not read."""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

import aiohttp
import pytest

from autosched.daemon.access import acceptor, keyring
from autosched.daemon.access.acceptor import Places
from autosched.daemon.compose import Daemon as Served
from autosched.daemon.web import connections, routes
from autosched.daemon.web.routes import Site
from autosched.protocol.roles import Role
from deadlines import DEADLINE_S
from integration.served import run, serving, signed_in

TLS_FILES = Path(__file__).parents[1] / "tls"
TLS = f'tls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'
HOST = b"Host: localhost\r\n"
SOON_S = 0.3
"""Short deadline for tests, in seconds."""

T = TypeVar("T")
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def port(served: Served) -> int:
    assert served._page is not None
    return int(served._page.url.rstrip("/").rpartition(":")[2])


@asynccontextmanager
async def connected(served: Served, said: bytes = b"") -> AsyncIterator[Connection]:
    """Opens a connection and sends this."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port(served))
    writer.write(said)
    yield reader, writer
    writer.close()


def opened(served: Served) -> int:
    assert served._page is not None
    site = served._page._site
    return len(site.connections.acceptor) if isinstance(site, Site) and site.connections is not None else 0


async def answered(served: Served, path: str = "/healthz") -> int:
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port(served)}{path}") as answer:
        return answer.status


@pytest.mark.parametrize(
    "said",
    [b"", b"GET / HTTP/1.1\r\nHo", b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"],
    ids=["nothing", "half a request", "only health"],
)
def test_a_connection_that_sends_no_request_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(connections, "STRANGER_S", SOON_S)

    async def work() -> None:
        async with serving(tmp_path) as served, connected(served, said) as (reader, _):
            heard = await _until_cut(reader)
            assert heard == b"" or heard.startswith(b"HTTP/1.1 200")

    run(work)


def test_a_valid_viewer_stays_connected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "STRANGER_S", SOON_S)
    monkeypatch.setattr(acceptor, "STRANGERS_MAX", 2)

    async def work() -> None:
        async with serving(tmp_path) as served, AsyncExitStack() as stack:
            session = f"Authorization: Bearer {await signed_in(served)}\r\n".encode()
            ask = b"GET /api/past HTTP/1.1\r\n" + HOST + session + b"\r\n"

            async def looks() -> Connection:
                reader, writer = await stack.enter_async_context(connected(served, ask))
                await reader.readuntil(b"}")
                return reader, writer

            reader, writer = await _in_time(looks)
            async with connected(served) as (silent, _), connected(served), connected(served):
                assert await _in_time(lambda: answered(served)) == 200  # as soon as the silent connections are closed
                heard = await _until_cut(silent)
                assert heard == b"" or heard.startswith(b"HTTP/1.1 503")
            writer.write(ask)
            assert b"200 OK" in await reader.readuntil(b"}")

    run(work)


def test_connections_above_the_limit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PLACES", Places(8, 2, "the page", "two"))

    async def work() -> None:
        async with serving(tmp_path) as served, AsyncExitStack() as stack:
            key, _ = keyring.make(tmp_path / "keys", Role.VIEWER, "alice")
            ask = b"GET /api/past HTTP/1.1\r\n" + HOST + f"Authorization: Bearer {key.line()}\r\n\r\n".encode()
            served._authenticator.look_at_keys()
            peers = [await stack.enter_async_context(connected(served, ask)) for _ in range(2)]
            for reader, _ in peers:
                assert b"200 OK" in await reader.readuntil(b"\r\n\r\n")
            async with connected(served, ask) as (third, _):
                heard = await third.read()
            assert heard.startswith(b"HTTP/1.1 503")
            assert b"refuses: 2 connections of key alice are open, which is two" in heard
            assert await answered(served) == 200
            session = f"Authorization: Bearer {await signed_in(served)}\r\n".encode()
            async with connected(served, b"GET /api/past HTTP/1.1\r\n" + HOST + session + b"\r\n") as (owner, _):
                assert b"200 OK" in await owner.readuntil(b"\r\n")
            peers[0][1].close()
            while opened(served) > 1:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            async with connected(served, ask) as (third, _):
                assert b"200 OK" in await third.readuntil(b"\r\n")

    run(work)


def test_a_request_that_is_sent_too_slowly_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "ANSWER_S", SOON_S)
    post = b"POST /login HTTP/1.1\r\nContent-Length: 99\r\nContent-Type: application/json\r\n"

    async def work() -> None:
        async with serving(tmp_path) as served, connected(served, post + HOST + b"\r\n{") as (reader, _):
            assert b"503 Service Unavailable" in await reader.readuntil(b"\r\n")

    run(work)


def test_an_answer_that_is_not_read_ends_the_connection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "UNREAD_S", SOON_S)
    left, leave = asyncio.Event(), acceptor.Acceptor.leave
    monkeypatch.setattr(acceptor.Acceptor, "leave", lambda *words: (leave(*words), left.set()))
    ask = b"GET /static/vendor/uPlot.iife.min.js HTTP/1.1\r\n" + HOST + b"\r\n"

    async def work() -> None:
        async with serving(tmp_path) as served:
            stuck = socket.socket()
            stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
            stuck.connect(("127.0.0.1", port(served)))
            stuck.sendall(ask * 100)  # answered with 5 MB, more than the kernel buffers
            await left.wait()
            stuck.close()

    run(work)


def test_a_slow_tls_handshake_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HELLO_S", SOON_S)
    key, _ = keyring.make(tmp_path / "keys", Role.VIEWER)
    trusted = ssl.create_default_context(cafile=str(TLS_FILES / "tls.crt"))
    trusted.check_hostname = False

    async def work() -> None:
        async with serving(tmp_path, f'{TLS}[http]\nlisten = "0.0.0.0:0"\n') as served:
            async with connected(served) as (silent, _):
                assert await _until_cut(silent) == b""
            monkeypatch.setattr(connections, "HELLO_S", DEADLINE_S)
            headers = {"Authorization": f"Bearer {key.line()}"}
            async with (
                aiohttp.ClientSession(headers=headers) as session,
                session.get(f"https://127.0.0.1:{port(served)}/metrics", ssl=trusted) as answer,
            ):
                assert "autosched_uptime_seconds" in await answer.text()

    run(work)


async def _in_time(act: Callable[[], Awaitable[T]]) -> T:
    """Returns the result of an attempt that was not cut off: a busy machine may exceed the short deadline."""
    while True:
        with suppress(asyncio.IncompleteReadError, ConnectionError, aiohttp.ClientError):
            return await act()


async def _until_cut(reader: asyncio.StreamReader) -> bytes:
    heard = b""
    try:
        while chunk := await reader.read(4_096):
            heard += chunk
    except ConnectionError:
        pass
    return heard
