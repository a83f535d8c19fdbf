"""Sessions of steps with boards: their owners, boards, and durations."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autosched.core.state import Slot
from autosched.daemon.boards import board_sessions
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.boards.rpc_handshake import BadHandshake, Hello, read_answer
from autosched.daemon.event_stream.daemon_events import DeviceUnreachable, StepEnded
from autosched.device_probe import Unwell
from autosched.errors import Refused
from autosched.model import RpcServer, Unit
from autosched.protocol import BoardAccess
from deadlines import DEADLINE_S
from fake_board import FakeBoard

worlds: list["World"] = []
"""Worlds of the current test."""


class World:
    """A daemon as sessions see it: step 1 holds the board "b", step 2 a lane."""

    def __init__(self, server: RpcServer, lease_s: float = DEADLINE_S) -> None:
        self.loop = asyncio.get_running_loop()
        units = {"b": Unit("b", accelerator=server), "host/0": Unit("host/0", (0,))}
        slots = {name: Slot(unit) for name, unit in units.items()}
        until = self.loop.time() + lease_s
        self.steps = {
            1: SimpleNamespace(units=("b",), deadline_at=until),
            2: SimpleNamespace(units=("host/0",), deadline_at=until),
        }
        state = SimpleNamespace(steps=self.steps, slots=slots, boards={})
        stream = SimpleNamespace(attach=self._attach, publish=self._note)
        self.sick: list[tuple[str, str]] = []
        runtime = SimpleNamespace(state=state, clock=self.loop.time, stream=stream)
        self.unit = units["b"]
        worlds.append(self)
        registry = BoardRegistry(cast(Any, runtime), (), {})
        self.sessions = BoardSessions(cast(Any, runtime), registry)

    def _note(self, what: DeviceUnreachable) -> None:
        self.sick.append((what.unit, what.reason))

    def _attach(self, take: Callable[[Any], None], *kinds: type) -> None:
        assert kinds == (StepEnded,)
        self._take = take

    async def trouble(self) -> str:
        """Returns the reason for the end of the last session."""
        async with self.sessions._state("b").turn:
            return (await self.sessions.access(1)).trouble

    def end(self, step: int) -> None:
        """Ends a step."""
        units = self.steps.pop(step).units
        what = StepEnded(step, 1, 1, "profile", units, "done", 0.0, 0.0)
        self._take(SimpleNamespace(what=what))


@asynccontextmanager
async def session(access: BoardAccess, timeout_s: float | None = None) -> AsyncIterator[tuple[Any, Any]]:
    """Opens a session as a program does. Raises BadHandshake and EOFError where there is none."""
    reader, writer = await asyncio.open_connection(access.host, access.port)
    try:
        writer.write(Hello(access.key, timeout_s).encoded())
        assert (await read_answer(reader)).endswith(b"server:pi4")
        yield reader, writer
    finally:
        writer.close()


def played(story: Callable[[FakeBoard], Awaitable[None]]) -> None:
    """Plays a story with a board, within the tests' deadline."""

    async def play() -> None:
        async with asyncio.timeout(DEADLINE_S), FakeBoard() as board:
            try:
                await story(board)
            finally:
                for world in worlds:
                    await world.sessions.close()
                worlds.clear()

    asyncio.run(play())


def test_a_step_that_holds_a_board_gets_a_session_of_its_time() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device, lease_s=DEADLINE_S)
        access = await world.sessions.access(1)
        assert access == await world.sessions.access(1), "one key for a step"
        async with session(access) as (reader, writer):
            large = b"x" * 1_000_000
            writer.write(large)
            assert await reader.readexactly(len(large)) == large
        (hello,) = board.hellos
        assert hello.startswith("client:pi4 -timeout=")
        assert 0 < float(hello.rpartition("=")[2]) <= DEADLINE_S
        assert not world.sick

    played(story)


@pytest.mark.parametrize(("own_s", "given_s"), [(3.0, 3.0), (10 * DEADLINE_S, DEADLINE_S)])
def test_a_program_may_ask_for_less_time_and_not_for_more(own_s: float, given_s: float) -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        async with session(await world.sessions.access(1), own_s):
            pass
        assert given_s - 2 <= float(board.hellos[0].rpartition("=")[2]) <= given_s

    played(story)


def test_a_session_ends_with_its_time_even_if_board_and_program_go_on() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device, lease_s=0.05)
        async with session(await world.sessions.access(1)) as (reader, _):
            assert await ended(reader)
        assert await world.trouble() == "its time was over"

    played(story)


def test_a_session_ends_with_its_step_and_its_key_becomes_invalid() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        access = await world.sessions.access(1)
        async with session(access) as (reader, _):
            world.end(1)
            assert await ended(reader)
        with pytest.raises(BadHandshake, match="another key"):
            async with session(access):
                pass
        with pytest.raises(Refused, match="step 1 holds no board"):
            await world.sessions.access(1)

    played(story)


async def ended(reader: asyncio.StreamReader) -> bool:
    """Returns whether the session was closed without another byte."""
    with suppress(ConnectionError):
        return not await reader.read()
    return True


def test_only_steps_that_hold_a_board_get_a_session() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        for step in (2, 77):
            with pytest.raises(Refused, match=f"step {step} holds no board"):
                await world.sessions.access(step)
        access = await world.sessions.access(1)
        for key in ("", "pi4", "step-1", access.key[:-1]):
            with pytest.raises(BadHandshake):
                async with session(BoardAccess(access.host, access.port, key)):
                    pass
        assert not board.hellos, "the board hears nothing of those"

    played(story)


def test_a_program_that_connects_again_takes_its_session_over() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        access = await world.sessions.access(1)
        async with session(access) as (first, _), session(access) as (second, writer):
            assert await ended(first)
            writer.write(b"here")
            assert await second.readexactly(4) == b"here"
        assert board.most <= 2  # the board may learn of the first one's end after the second one's begin

    played(story)


def test_the_next_step_waits_for_the_end_of_the_last_ones_session() -> None:
    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        async with session(await world.sessions.access(1)) as (first, _):
            world.steps[3] = SimpleNamespace(units=("b",), deadline_at=world.steps[1].deadline_at)
            async with session(await world.sessions.access(3)) as (_, writer):
                assert await ended(first)
                writer.write(b"x")

    played(story)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("dead", "cannot be reached"),
        ("silent", "does not answer"),
        ("key", "waits for another key"),
    ],
)
def test_a_board_that_refuses_sessions_is_faulty(fault: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_sessions, "REACH_S", 0.1)

    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        if fault == "dead":
            await board.die()
        board.silent = fault == "silent"
        board.key = "other" if fault == "key" else board.key
        access = await world.sessions.access(1)
        with pytest.raises((EOFError, ConnectionError)):
            async with session(access):
                pass
        (found,) = world.sick
        assert found[0] == "b"
        assert said in found[1]
        assert said in (await world.sessions.access(1)).trouble
        with pytest.raises(Unwell, match=said):
            await world.sessions.probe(world.unit, 0.0)

    played(story)


def test_a_board_that_ends_a_session_is_not_faulty() -> None:
    """A crashed kernel ends the session, too."""

    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        access = await world.sessions.access(1)
        async with session(access) as (reader, writer):
            writer.write(b"x")
            await reader.readexactly(1)
            board.cut()
            assert await ended(reader)
        assert await world.trouble() == "it ended the session"
        async with session(access) as (reader, writer):
            writer.write(b"y")
            assert await reader.readexactly(1) == b"y"
        assert not world.sick

    played(story)


def test_a_probe_waits_for_a_board_that_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(board_sessions, "PROBE_EVERY_S", 0.01)

    async def story(board: FakeBoard) -> None:
        world = World(board.device)
        board.silent = True
        monkeypatch.setattr(board_sessions, "REACH_S", 0.05)
        probe = asyncio.ensure_future(world.sessions.probe(world.unit, DEADLINE_S))
        await board.heard_twice.wait()
        board.silent = False
        await probe

    played(story)
