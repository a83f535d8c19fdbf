"""Both ends of a connection on a real socket: calls, order, deadlines, silence."""

import asyncio
import gc
import socket
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from autosched.errors import DaemonUnreachable, NotFound, RequestError, WireError
from autosched.protocol import (
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
from autosched.wire import link as wire_link
from autosched.wire.link import TURN_S, Link
from unit.wire.links import HI, done, run, serving


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


def test_a_peer_with_much_to_say_is_heard_in_turns_with_others(tmp_path: Path) -> None:
    """Even if each of its messages is cheap."""

    async def work() -> None:
        loop, turns, heard_in = asyncio.get_running_loop(), 0, []
        answered = loop.create_future()
        answered.set_result(None)

        def next_turn() -> None:
            nonlocal turns
            turns += 1
            loop.call_soon(next_turn)

        def handler(method: Method) -> Any:
            until = time.perf_counter() + TURN_S
            heard_in.append(turns)
            while time.perf_counter() < until:
                pass
            return answered

        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            next_turn()
            await asyncio.gather(*(link.call(GetJob(job=job), Done) for job in range(20)))
            assert len(set(heard_in)) == 20
            link.close()

    run(work)


@pytest.mark.parametrize("paused", [True, False], ids=["not read meanwhile", "read all the time"])
def test_a_peer_that_says_more_than_can_be_handled_gets_one_turn_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, paused: bool
) -> None:
    monkeypatch.setattr(wire_link, "TURN_S", 20e-6)
    monkeypatch.setattr(wire_link, "BEHIND_BYTES", 10_000 if paused else 10**9)
    turns, most_turns, most_waiting = 0, 0, 0
    turn = Link._turn

    def counted(one: Link) -> None:
        nonlocal turns, most_waiting
        if one.peer.serves is not HELLO and one.handler is handler:
            turns += 1
            most_waiting = max(most_waiting, one.peer.pending_bytes)
        turn(one)

    async def handler(method: Method) -> Any:
        return Done()

    monkeypatch.setattr(Link, "_turn", counted)

    async def work() -> None:
        nonlocal most_turns
        async with serving(tmp_path / "s", handler) as server:
            link = await Link.open(server.address)
            beat = link.peer.notify(Heartbeat())
            assert link._transport is not None
            for _ in range(300):
                link._transport.write(beat * 300)
                before = turns
                await asyncio.sleep(0)
                most_turns = max(most_turns, turns - before)
            while link._transport.get_write_buffer_size():  # noqa: ASYNC110
                await asyncio.sleep(0)
            assert await link.call(Heartbeat(), Done) == Done()
            assert turns >= 300, "the peer was not behind"
            while wire_link._SHARED.busy:  # noqa: ASYNC110 - until the turn after the last one
                await asyncio.sleep(0)
            link.close()

    run(work)
    assert most_turns <= 8
    if paused:
        assert most_waiting <= 10_000 + 2 * wire_link.ARRIVED_BYTES


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


def test_a_call_ends_at_its_deadline_and_its_late_answer_is_ignored(tmp_path: Path) -> None:
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
def test_a_missing_daemon_is_told_with_what_to_do(address: str) -> None:
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


# Silence ------------------------------------------------------------------------------------------------------------


def test_a_peer_that_says_nothing_any_more_is_given_up(tmp_path: Path) -> None:
    """As with a cut cable: the connection stays open, and nothing arrives."""

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
    """An earlier daemon does not know the request, and answers with an error."""

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
    """Keepalive for the waiting end, a limit on unacknowledged data for the sending end: 25 s at most for both."""

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
