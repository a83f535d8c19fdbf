"""Limits of a hostile peer."""

import asyncio
import socket
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest

from autosched.protocol import (
    CLIENT_METHODS,
    FRAME_BYTES_BEFORE_HELLO,
    HELLO,
    Chunk,
    Done,
    GetJob,
    Hello,
    Method,
)
from autosched.wire import link as link_module
from autosched.wire.link import Link
from unit.wire.links import done, run, serving


async def exchange(path: Path, sent: bytes) -> Any:
    """Sends bytes; returns the last message before the other end closes the connection."""
    reader, writer = await asyncio.open_unix_connection(str(path))
    writer.write(sent)
    data = await reader.read()
    writer.close()
    unpacker = msgpack.Unpacker()
    message = None
    while data:
        length = struct.unpack(">I", data[:4])[0]
        unpacker.feed(data[4 : 4 + length])
        message, data = unpacker.unpack(), data[4 + length :]
    return message


@pytest.mark.parametrize(
    "sent",
    [
        struct.pack(">I", FRAME_BYTES_BEFORE_HELLO + 1),
        struct.pack(">I", 2**32 - 1) + b"x" * 100_000,
        struct.pack(">I", 0),
        struct.pack(">I", 4_000) + b"\x91" * 4_000,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_broken_frame_gets_one_error_and_the_end(tmp_path: Path, sent: bytes) -> None:
    async def work() -> None:
        async with serving(tmp_path / "s", done, HELLO, frame_bytes=FRAME_BYTES_BEFORE_HELLO) as server:
            kind, id, (code, message), result = await exchange(tmp_path / "s", sent)
            assert (kind, id, code, result) == (1, 0, "wire", None)
            assert message
            assert await server.links[0].wait_closed() == message

    run(work)


def test_a_frame_that_never_ends_holds_nothing_but_its_bytes(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "s", done, HELLO, frame_bytes=FRAME_BYTES_BEFORE_HELLO) as server:
            _, writer = await asyncio.open_unix_connection(str(tmp_path / "s"))
            writer.write(struct.pack(">I", 4_000) + b"x" * 3_999)
            await server.arrived.wait()
            writer.close()
            await server.links[0].wait_closed()
            assert server.links[0].peer.pending_bytes <= 4_003

    run(work)


def test_no_more_is_read_while_too_much_is_under_way(tmp_path: Path) -> None:
    async def work() -> None:
        running = 0
        most = 0
        answer = asyncio.Event()
        full = asyncio.Event()

        async def handler(method: Method) -> Any:
            nonlocal running, most
            running += 1
            most = max(most, running)
            if running == 3:
                full.set()
            await answer.wait()
            running -= 1
            return Done()

        async with serving(tmp_path / "s", handler, in_progress_max=3) as server:
            link = await Link.open(server.address)
            calls = [asyncio.ensure_future(link.call(GetJob(job=job), Done)) for job in range(50)]
            await full.wait()
            assert not server.links[0].reading
            answer.set()
            await asyncio.gather(*calls)
            assert most == 3
            assert server.links[0].reading
            link.close()

    run(work)


def silent_reader(path: Path) -> socket.socket:
    """A peer that sends and never reads."""
    peer = socket.socket(socket.AF_UNIX)
    peer.connect(str(path))
    return peer


def test_a_peer_that_does_not_read_what_it_asked_for_is_not_served_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "UNREAD_S_MAX", 0.2)

    async def work() -> None:
        served = 0

        async def handler(method: Method) -> Any:
            nonlocal served
            served += 1
            return Chunk(b"x" * 100_000, 1)

        async with serving(tmp_path / "s", handler) as server:
            body = msgpack.packb([0, 1, "get_blob", {"sha256": "0" * 64, "offset": 0}])
            with silent_reader(tmp_path / "s") as peer:
                peer.sendall((struct.pack(">I", len(body)) + body) * 1_000)
                await server.arrived.wait()
                why = await server.links[0].wait_closed()
            assert "bytes of answers unread" in why
            assert served < 100

    run(work)


def test_a_peer_that_does_not_read_what_it_is_told_is_disconnected_at_a_mebibyte(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "s", done, CLIENT_METHODS) as server:
            with silent_reader(tmp_path / "s"):
                await server.arrived.wait()
                (link,) = server.links
                for _ in range(1_000):
                    if link.closed:
                        break
                    link.notify(Hello(protocol=(1, 0), software="x" * 10_000))
                assert link.closed
                assert "bytes unread" in await link.wait_closed()

    run(work)
