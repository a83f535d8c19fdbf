"""The port at which boards register: messages of servers, and arbitrary bytes."""

import asyncio
import struct
from contextlib import suppress
from random import Random

import pytest

from autosched.core.events import BoardGone, BoardJoined
from autosched.daemon.boards import board_registry, tracker_port
from autosched.daemon.boards.tracker_port import TrackerPort
from autosched.device_probe import Unwell
from autosched.errors import NotFound, Refused
from autosched.model import RpcServer, Unit
from deadlines import DEADLINE_S
from tracked_boards import MAGIC, PEER, World, connected, hostile, played

# Boards ---------------------------------------------------------------------------------------------------------------


def test_a_server_that_registers_itself_is_a_device_while_it_is_connected() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register()
            assert world.events == [
                BoardJoined(
                    Unit(f"pi4-{PEER}", accelerator=RpcServer(f"{PEER}:9090", "pi4", "llvm -mcpu=cortex-a72")),
                    "device:pi4",
                )
            ]
            assert world.hooks == {f"pi4-{PEER}": ("reboot-it",)}
            assert await server.ask(7) == ["pi4:0.5"]
        await world.until(lambda: not world.there)
        assert world.events[1:] == [BoardGone(f"pi4-{PEER}", "its server has hung up")]
        assert world.sick == [f"pi4-{PEER}"], "it has a reboot hook"
        async with connected(world) as server:
            await server.register(port=9093)
            assert world.there == [f"pi4-{PEER}"], "it is the same device, at another port"

    played(story)


def test_two_servers_of_one_machine_keep_their_names_when_they_come_back_in_another_order() -> None:
    async def story(world: World) -> None:
        async with connected(world) as one, connected(world) as other:
            await one.register(port=9090)
            await other.register(port=9091)
            assert world.there == [f"pi4-{PEER}", f"pi4-{PEER}-2"]
        await world.until(lambda: not world.there)
        async with connected(world) as other:
            await other.register(port=9091)
            assert world.there == [f"pi4-{PEER}-2"]

    played(story)


def test_the_address_that_a_server_reports_is_used() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register(host="192.168.7.11")
            assert world.there == ["pi4-192.168.7.11"]
            assert await world.registry.claim("pi4-192.168.7.11", 0.0) == RpcServer("192.168.7.11:9090", "pi4:0.5")

    played(story, "192.168.7.0/24")


@pytest.mark.parametrize("host", ["192.168.8.1", "10.0.0.1", "board7.lab", "localhost.evil.example", "0.0.0.0", "::"])
def test_a_server_elsewhere_than_the_networks_is_not_registered(host: str) -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            with suppress(EOFError, ConnectionError):
                await server.register(host=host)
        assert not world.there
        assert not world.events

    played(story, "192.168.7.0/24")


def test_a_registration_is_not_taken_over_while_its_server_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_registry, "TAKEN_LOOK_S", 0.001)

    async def story(world: World) -> None:
        async with connected(world) as first, connected(world) as second:
            await first.register()
            stealing = asyncio.ensure_future(second.register(matchkey="evil"))
            await asyncio.sleep(0.01)
            assert await first.ask(7) == ["pi4:0.5"]
            with pytest.raises((EOFError, ConnectionError)):
                await stealing
            assert (await world.registry.claim(f"pi4-{PEER}", 0.0)).key == "pi4:0.5"

    played(story)


def test_a_board_whose_earlier_connection_is_dead_registers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_registry, "TAKEN_LOOK_S", 0.001)

    async def story(world: World) -> None:
        async with connected(world) as first, connected(world) as second:
            await first.register()
            again = asyncio.ensure_future(second.register(matchkey="pi4:0.7"))
            await asyncio.sleep(0.01)
            assert not again.done()
            world.registry.lose(world.registry.servers[0], "it says nothing")
            await again
            assert world.there == [f"pi4-{PEER}"]
            assert (await world.registry.claim(f"pi4-{PEER}", 0.0)).key == "pi4:0.7"

    played(story)


def test_invented_boards_of_one_machine_push_out_each_other_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_registry, "BOARDS_OF_PEER_MAX", 5)

    async def story(world: World) -> None:
        for number in range(40):
            async with connected(world) as server:
                await server.register(port=9_000 + number)
            await world.until(lambda: not world.there)
        assert len(world.state.boards) <= 5 + 1
        async with connected(world) as real:
            await real.register(port=9_999)
            assert len(world.there) == 1
        assert len(world.state.boards) <= 5 + 1

    played(story)


def test_a_machine_with_many_boards_that_are_there_gets_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_registry, "BOARDS_OF_PEER_MAX", 2)

    async def story(world: World) -> None:
        async with connected(world) as one, connected(world) as two, connected(world) as three:
            await one.register(port=9_001)
            await two.register(port=9_002)
            with pytest.raises((EOFError, ConnectionError)):
                await three.register(port=9_003)
            assert len(world.there) == 2

    played(story)


def test_a_board_that_is_gone_can_be_forgotten() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register()
            with pytest.raises(Refused, match="it is there"):
                await world.registry.forget(f"pi4-{PEER}")
        await world.until(lambda: not world.there)
        with pytest.raises(NotFound, match=f"there are: pi4-{PEER}"):
            await world.registry.forget("pi4-other")
        await world.registry.forget(f"pi4-{PEER}")
        assert (world.state.boards, "device:pi4" in world.state.queues) == ({}, False)
        async with connected(world) as server:
            await server.register()
            assert world.there == [f"pi4-{PEER}"]

    played(story)


def test_a_server_that_registers_twice_is_one_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_registry, "SILENT_S", 0.05)
    monkeypatch.setattr(tracker_port, "LOOK_S", 0.01)

    async def story(world: World) -> None:
        async with connected(world) as first, connected(world) as second:
            await first.register()
            await second.register(matchkey="pi4:0.7")
            assert world.there == [f"pi4-{PEER}"]
            assert (await world.registry.claim(f"pi4-{PEER}", 0.0)).key == "pi4:0.7"
            assert len(world.registry.servers) == 1

    played(story)


def test_a_registered_server_of_a_listed_board_is_that_board() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register("listed", 9999, "listed:0.3")
            assert not world.events
            assert (await world.registry.claim("board9", 0.0)).key == "listed:0.3"

    played(story)


@pytest.mark.parametrize(("key", "kind"), [("cpu", "cpu.board"), ("RK3399", "rk3399"), ("a/b", "a-b"), ("__", "board")])
def test_a_key_becomes_a_separate_kind_of_device(key: str, kind: str) -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register(key)
            assert world.there == [f"{kind}-{PEER}"]
            assert f"device:{kind}" in world.state.queues

    played(story)


def test_a_key_is_given_to_one_session_and_the_next_one_waits_for_the_next_key() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register()
            unit = world.there[0]
            assert (await world.registry.claim(unit, 0.0)).key == "pi4:0.5"
            assert await server.ask(7) == [], "it is taken"
            with pytest.raises(Unwell, match="does not wait for a session"):
                await world.registry.claim(unit, 0.01)
            waiting = asyncio.ensure_future(world.registry.claim(unit, DEADLINE_S))
            await asyncio.sleep(0)
            await server.ask(3, "pi4", [9090, "pi4:0.6"], None)
            assert (await waiting).key == "pi4:0.6"
            waiting = asyncio.ensure_future(world.registry.claim(unit, DEADLINE_S))
            await asyncio.sleep(0)
            server.die()
            with pytest.raises(Unwell, match="is gone"):
                await waiting

    played(story)


def test_a_silent_server_is_gone_unless_it_serves_a_session(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(board_registry, "SILENT_S", 0.05)
    monkeypatch.setattr(tracker_port, "LOOK_S", 0.01)

    async def story(world: World) -> None:
        async with connected(world) as server, connected(world) as busy:
            await busy.register(port=9091)
            await world.registry.claim(world.there[0], 0.0)
            await server.register()
            await world.until(lambda: len(world.events) == 3)
            assert world.events[2] == BoardGone(
                f"pi4-{PEER}-2", "its server has said nothing for a while, although it should"
            )
            assert world.there == [f"pi4-{PEER}"]
            world.registry.released(f"pi4-{PEER}")
            await world.until(lambda: not world.there)

    played(story)


def test_a_tracker_answers_requests_for_its_summary() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server, connected(world) as asker:
            await server.register()
            assert await asker.ask(1) == 0
            assert await asker.ask(2, "tracker:0.5") == -1, "a peer cannot stop it"
            assert await asker.ask(6) == [
                0,
                {
                    "queue_info": {"pi4": {"free": 1, "pending": 0}},
                    "server_info": [{"key": "server:pi4", "addr": [PEER, 9090]}],
                },
            ]

    played(story)


# Who may come, and what may be said -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("networks", "peer", "admitted"),
    [
        ((), "127.0.0.1", True), ((), "::1", True), ((), "::ffff:127.0.0.1", True), ((), "192.168.7.9", False),
        (("192.168.7.0/24",), "192.168.7.9", True), (("192.168.7.0/24",), "::ffff:192.168.7.9", True),
        (("192.168.7.0/24",), "192.168.8.9", False), (("192.168.7.0/24",), "fe80::1%eth0", False),
        (("fd00::/8",), "fd00::7", True), (("0.0.0.0/0",), "nonsense", False), (("0.0.0.0/0",), "", False),
    ],
)  # fmt: skip
def test_peers_of_other_networks_are_refused(networks: tuple[str, ...], peer: str, admitted: bool) -> None:
    async def story(world: World) -> None:
        assert world.port.admits(peer) is admitted

    played(story, *networks)


def test_a_refused_peer_gets_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: World) -> None:
        monkeypatch.setattr(TrackerPort, "admits", lambda port, peer: False)
        monkeypatch.setattr(TrackerPort, "_serve", None)  # would raise when it is called
        host, _, port = world.port.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(MAGIC)
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()

    played(story)


def test_connections_of_one_address_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_port, "CONNECTIONS_OF_PEER_MAX", 2)

    async def story(world: World) -> None:
        async with connected(world), connected(world):
            with pytest.raises((ConnectionError, EOFError)):
                async with connected(world):
                    pass
        await world.left()
        async with connected(world) as peer:
            assert await peer.ask(1) == 0

    played(story)


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01", b"\x00" * 64, MAGIC + b"\xff\xff\xff\x7f",
        MAGIC + b"\xff\xff\xff\xff", MAGIC + struct.pack("<i", 3) + b"[9]",
        MAGIC + struct.pack("<i", 4) + b"\xff\xfe\xfd\xfc",
        struct.pack("<ii", 0xFF271, -5), struct.pack("<ii", 0xFF271, 12) + b"client:nobod",
    ],
)  # fmt: skip
def test_malformed_bytes_end_only_their_connection(said: bytes) -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register()
            host, _, port = world.port.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            writer.write(said)
            with suppress(ConnectionError):
                await reader.read()
            writer.close()
            assert world.there == [f"pi4-{PEER}"]
            assert await server.ask(1) == 0

    played(story)


def test_a_silent_peer_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tracker_port, "HELLO_S", 0.02)
    monkeypatch.setattr(tracker_port, "IDLE_S", 0.02)

    async def story(world: World) -> None:
        host, _, port = world.port.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        with suppress(ConnectionError):
            assert await reader.read() == b""
        writer.close()
        async with connected(world) as idle:
            with suppress(ConnectionError):
                assert await idle.reader.read() == b""

    played(story)


def test_a_server_that_changes_its_identity_is_refused() -> None:
    async def story(world: World) -> None:
        async with connected(world) as server:
            await server.register()
            with pytest.raises((ConnectionError, EOFError)):
                await server.ask(3, "other", [9090, "other:0.1"], None)
        await world.until(lambda: not world.there)

    played(story)


def test_ten_thousand_hostile_frames_leave_nothing_behind() -> None:
    """`make fuzz-boards` sends a million."""

    async def story(world: World) -> None:
        draw = Random(7)
        async with connected(world) as good:
            await good.register("good", 9_999)
            for _ in range(100):
                with suppress(ConnectionError, EOFError, AssertionError):
                    async with connected(world) as peer:
                        for _ in range(100):
                            peer.writer.write(hostile(draw))
                        await peer.writer.drain()
            assert await good.ask(1) == 0
        await world.left()
        assert not world.there
        assert not world.registry.servers
        assert len(world.state.boards) <= board_registry.BOARDS_MAX

    played(story)
