"""Both ends of a connection on a real socket: calls, order, deadlines, and what a hostile peer cannot do."""

import asyncio
import gc
import socket
import struct
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgpack
import pytest
import uvloop

from autosched.errors import DaemonUnreachable, NotFound, RequestError, WireError
from autosched.protocol import (
    CLIENT_METHODS,
    FRAME_BYTES_BEFORE_HELLO,
    HELLO,
    USER_METHODS,
    AskLoad,
    Chunk,
    Done,
    GetBlob,
    GetJob,
    Heartbeat,
    Hello,
    Info,
    Method,
    Welcome,
)
from autosched.wire import link as link_module
from autosched.wire.link import Link
from deadlines import DEADLINE_S

HI = Hello(protocol=(1, 0), software="test")


class Server:
    """Accepts connections and remembers them."""

    def __init__(self, path: Path) -> None:
        self.address = f"unix:{path}"
        self.links: list[Link] = []
        self.arrived = asyncio.Event()

    def accepted(self, link: Link) -> None:
        self.links.append(link)
        self.arrived.set()


@asynccontextmanager
async def serving(path: Path, handler: Any, serves: Any = USER_METHODS, **words: Any) -> AsyncIterator[Server]:
    server = Server(path)
    loop = asyncio.get_running_loop()
    listener = await loop.create_unix_server(lambda: Link(serves, handler, opened=server.accepted, **words), str(path))
    try:
        yield server
    finally:
        listener.close()
        for link in server.links:
            link.abort("the test is over")
            await link.wait_closed()


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(limited())


async def done(method: Method) -> Done:
    return Done()


def test_a_call_is_answered_with_its_type_or_its_error(tmp_path: Path) -> None:
    async def handler(method: Method) -> Any:
        if isinstance(method, Hello):
            return Welcome((1, 0), method.software, 5)
        raise NotFound("there is no job 9")

    async def work() -> None:
        async with serving(tmp_path / "s", handler, {**HELLO, **USER_METHODS}) as server:
            link = await Link.open(server.address)
            assert await link.call(HI, Welcome) == Welcome((1, 0), "test", 5)
            with pytest.raises(NotFound, match="there is no job 9"):
                await link.call(GetJob(job=9), Done)
            link.close()
            await link.wait_closed()

    run(work)


def test_calls_are_answered_in_any_order_and_both_ends_may_ask(tmp_path: Path) -> None:
    async def work() -> None:
        second_was_asked = asyncio.Event()

        async def handler(method: Method) -> Any:
            if isinstance(method, GetJob) and method.job == 1:
                await second_was_asked.wait()
            elif isinstance(method, GetJob):
                second_was_asked.set()
            return Done()

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address, serves={"ask_load": AskLoad}, handler=done)
            await asyncio.gather(*(link.call(GetJob(job=job), Done) for job in (1, 2)))
            assert await server.links[0].call(AskLoad(), Done) == Done()
            link.close()

    run(work)


def test_handlers_start_in_the_order_of_arrival(tmp_path: Path) -> None:
    async def work() -> None:
        seen: list[int] = []
        all_seen = asyncio.Event()

        async def handler(method: Method) -> Any:
            assert isinstance(method, GetJob)
            seen.append(method.job)
            if len(seen) == 500:
                all_seen.set()
            await asyncio.sleep(0)
            return Done()

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            for job in range(500):
                link.notify(GetJob(job=job))
            await all_seen.wait()
            assert seen == list(range(500))
            link.close()

    run(work)


def test_a_crash_of_a_handler_is_an_answer_and_the_connection_lives(tmp_path: Path) -> None:
    async def handler(method: Method) -> Any:
        if isinstance(method, GetJob):
            raise ZeroDivisionError
        return Done()

    async def work() -> None:
        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            with pytest.raises(RequestError, match="GetJob crashed"):
                await link.call(GetJob(job=1), Done)
            assert await link.call(Info(), Done) == Done()
            link.close()

    run(work)


def test_an_answer_too_long_for_a_frame_is_an_error(tmp_path: Path) -> None:
    async def handler(method: Method) -> Any:
        return Chunk(b"x" * 1_000_000, 1)

    async def work() -> None:
        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            with pytest.raises(Exception, match="does not fit"):
                await link.call(GetBlob(sha256="0" * 64, offset=0), Chunk)
            link.close()

    run(work)


def test_a_call_ends_at_its_deadline_and_its_late_answer_hurts_nobody(tmp_path: Path) -> None:
    async def work() -> None:
        go_on = asyncio.Event()

        async def handler(method: Method) -> Any:
            if isinstance(method, GetJob):
                await go_on.wait()
            return Done()

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            with pytest.raises(DaemonUnreachable, match=r"did not answer GetJob within 0\.05 s"):
                await link.call(GetJob(job=1), Done, timeout_s=0.05)
            go_on.set()
            assert await link.call(Info(), Done) == Done()
            link.close()

    run(work)


def test_calls_end_when_the_connection_does(tmp_path: Path) -> None:
    async def work() -> None:
        asked = asyncio.Event()

        async def handler(method: Method) -> Any:
            asked.set()
            await asyncio.Event().wait()

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            call = asyncio.ensure_future(link.call(GetJob(job=1), Done))
            await asked.wait()
            server.links[0].abort("enough")
            with pytest.raises(DaemonUnreachable, match="was lost"):
                await call
            with pytest.raises(DaemonUnreachable, match="is gone"):
                link.notify(Heartbeat())

    run(work)


@pytest.mark.parametrize("address", ["unix:/nowhere/api.sock", "tcp://127.0.0.1:1"])
def test_nobody_there_is_said_with_what_to_do(address: str) -> None:
    async def work() -> None:
        with pytest.raises(DaemonUnreachable, match="autosched serve"):
            await Link.open(address)

    run(work)


def test_loops_in_two_threads_do_not_share_where_bytes_arrive() -> None:
    async def arrived() -> memoryview:
        return Link({}).get_buffer(1)

    def both() -> tuple[memoryview, memoryview]:
        with asyncio.Runner() as runner:
            return runner.run(arrived()), runner.run(arrived())

    with ThreadPoolExecutor(1) as other:
        here, there = both(), other.submit(both).result()
    assert here[0] is here[1]
    assert here[0] is not there[0]


def test_nothing_of_a_connection_that_is_over_waits_for_the_collector(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "s", done) as server:
            link = await Link.open(server.address)

            async def knows_it(method: Method, link: Link = link) -> Done:
                return Done()

            link.handler = knows_it
            gone = weakref.ref(link)
            link.close()
            await link.wait_closed()
            del link, knows_it
            assert gone() is None

    gc.disable()
    try:
        run(work)
    finally:
        gc.enable()


# Hostile peers -------------------------------------------------------------------------------------------------------


async def exchange(path: Path, sent: bytes) -> Any:
    """Send bytes; returns the last message that comes back before the other end closes."""
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


# Silence ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_says_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    """As when the cable is cut: the connection stands, and nothing comes."""

    async def work() -> None:
        listener = await asyncio.get_running_loop().create_unix_server(asyncio.Protocol, str(tmp_path / "s"))
        async with listener:
            link = await Link.open(f"unix:{tmp_path / 's'}")
            beat = asyncio.ensure_future(link.keep_alive(Heartbeat(), 0.05, 1.0))
            assert await link.wait_closed() == "it said nothing for 1 s"
            await beat

    run(work)


def test_a_heartbeat_is_answered_whatever_else_is_under_way(tmp_path: Path) -> None:
    async def work() -> None:
        asked, go_on = asyncio.Event(), asyncio.Event()

        async def handler(method: Method) -> Any:
            assert isinstance(method, GetJob)
            asked.set()
            await go_on.wait()
            return Done()

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            call = asyncio.ensure_future(link.call(GetJob(job=1), Done))
            await asked.wait()
            assert await link.call(Heartbeat(), Done) == Done()
            go_on.set()
            assert await call == Done()
            link.close()

    run(work)


def test_any_answer_shows_that_the_peer_is_there(tmp_path: Path) -> None:
    """An earlier daemon does not know what is asked, and says so."""

    async def work() -> None:
        async with serving(tmp_path / "s", done, HELLO) as server:
            link = await Link.open(server.address)
            heard_at = link.last_heard_at
            beat = asyncio.ensure_future(link.keep_alive(Heartbeat(), 0.01, 10.0))
            while link.last_heard_at == heard_at:  # the loop's clock is coarse
                with pytest.raises(WireError, match="no method is named 'heartbeat' here"):
                    await link.call(Heartbeat(), Done)
            assert not link.closed
            link.close()
            await beat

    run(work)


def test_both_ends_of_tcp_let_the_kernel_notice_a_cut_cable(tmp_path: Path) -> None:
    """Keepalive for who waits, a limit on unacknowledged data for who sends: 25 s at most, whichever it is."""

    async def work() -> None:
        links: list[Link] = []
        loop = asyncio.get_running_loop()
        server = await loop.create_server(lambda: Link(USER_METHODS, done, opened=links.append), "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        link = await Link.open(f"tcp://127.0.0.1:{port}")
        await link.call(Info(), Done)
        for one in (link, links[0]):
            assert one._transport is not None
            opened = one._transport.get_extra_info("socket")
            assert opened.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
            idle, interval, count, unread_ms = (
                opened.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
                for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT", "TCP_USER_TIMEOUT")
            )
            assert idle + interval * count <= 25
            assert 0 < unread_ms <= 20_000
        link.close()
        server.close()
        await links[0].wait_closed()

    run(work)
