"""Programs with TVM that request boards: their jobs in the scheduler, and their sessions."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from autosched.core.events import (
    ClientAttached,
    DeadlineReached,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    StepEnded,
)
from autosched.daemon.boards import program_jobs
from autosched.daemon.boards.rpc_handshake import BadHandshake, Hello, read_answer
from autosched.model import JobLoad, JobSpec, JobState, Outcome, TaskLoad
from deadlines import DEADLINE_S
from fake_board import FakeBoard
from tracked_boards import OWN, PEER, Peer, World, connected, played

KEY = "pi4:0.5"
UNIT = f"pi4-{PEER}"


@asynccontextmanager
async def a_board(world: World) -> AsyncIterator[tuple[FakeBoard, Peer]]:
    """A registered board and its connection; it reports the same key for each session."""
    async with FakeBoard(KEY) as board, connected(world) as server:
        await server.register(port=board.port, matchkey=KEY)
        yield board, server


async def again(server: Peer, board: FakeBoard) -> None:
    """Its server waits for the next session."""
    assert await server.ask(3, "pi4", [board.port, KEY], None) == 0


@asynccontextmanager
async def session(granted: Any, timeout_s: float | None = None) -> AsyncIterator[tuple[Any, Any]]:
    """Yields the session that a program was given. Raises BadHandshake and EOFError where there is none."""
    code, (host, port, key) = granted
    assert code == 0
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(Hello(key, timeout_s).encoded())
        assert (await read_answer(reader)).endswith(f"server:{KEY}".encode())
        yield reader, writer
    finally:
        writer.close()


async def cut(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        return not await reader.read()
    return True


def names(world: World) -> list[str]:
    return [type(event).__name__ for event in world.events]


def test_a_program_with_a_board_is_a_job_with_a_running_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_jobs, "LINGER_S", 0.01)

    async def story(world: World) -> None:
        async with a_board(world) as (board, _), connected(world) as program:
            granted = await program.ask(4, "pi4", "", 3)
            host, _, port = world.port.address.rpartition(":")
            assert granted[1][:2] == [host, int(port)], "the way goes through the daemon"
            async with session(granted, 60.0) as (reader, writer):
                (step,) = world.state.steps.values()
                job = world.state.jobs[step.job]
                assert (step.units, step.stage) == ((UNIT,), "session")
                assert (job.spec.priority, job.spec.device, job.owner) == (3, "pi4", f"tvm@{PEER}")
                writer.write(b"hello")
                assert await reader.readexactly(5) == b"hello"
                assert board.hellos == [f"client:{KEY} -timeout=60.000"]
            await world.until(lambda: bool(world.ended))
            assert world.ended[0].state is JobState.DONE
            assert names(world)[1:] == ["JobSubmitted", "ClientAttached", "StepEnded", "ClientAttached"]
            assert world.events[3].outcome is Outcome.DONE  # type: ignore[union-attr]
            assert not world.programs.has(1)

    played(story)


def test_requests_are_served_by_priority_and_those_of_one_machine_are_one_job() -> None:
    async def story(world: World) -> None:
        async with (
            a_board(world) as (board, server),
            connected(world) as a,
            connected(world) as b,
            connected(world) as c,
        ):
            first = await a.ask(4, "pi4", "", 1)
            low = asyncio.ensure_future(b.ask(4, "pi4", "", 1))
            await world.until(lambda: world.state.queues["device:pi4"].waiting == 1)
            high = asyncio.ensure_future(c.ask(4, "pi4", "", 7))
            await world.until(lambda: world.state.queues["device:pi4"].waiting == 2)
            assert (await server.ask(6))[1]["queue_info"]["pi4"]["pending"] == 2
            async with session(first):
                pass
            await again(server, board)
            async with session(await high):
                assert not low.done()
            await again(server, board)
            async with session(await low):
                pass
            assert [world.state.jobs[step.job].spec.priority for step in world.started] == [1, 7, 1]
            assert [step.job for step in world.started] == [1, 2, 1]

    played(story)


def test_a_program_never_has_a_board_beside_a_step_of_another_job() -> None:
    async def story(world: World) -> None:
        async with a_board(world), connected(world) as program:
            load = JobLoad(tasks=(TaskLoad(task=1, resources_next=("device:pi4",), stage_next="profile"),))
            world.tell(lambda: JobSubmitted(1, JobSpec(name="net", model="0" * 64, external=True, device="pi4")))
            world.tell(lambda: ClientAttached(1, load))
            granted = asyncio.ensure_future(program.ask(4, "pi4", "", 99))
            await world.until(lambda: world.state.queues["device:pi4"].waiting == 1)
            assert world.state.slots[UNIT].holder == 1
            assert not granted.done()
            world.tell(lambda: StepEnded(1, Outcome.DONE, JobLoad(tasks=(TaskLoad(task=1),))))
            async with session(await granted):
                assert world.state.slots[UNIT].holder == 2

    played(story)


def test_a_program_that_disconnects_while_waiting_leaves_the_queue() -> None:
    async def story(world: World) -> None:
        async with a_board(world) as (board, server), connected(world) as a, connected(world) as c:
            first = await a.ask(4, "pi4", "", 1)
            async with connected(world) as b:
                waiting = asyncio.ensure_future(b.ask(4, "pi4", "", 1))
                await world.until(lambda: world.state.queues["device:pi4"].waiting == 1)
                b.die()
                with suppress(ConnectionError, EOFError):
                    await waiting
            await world.until(lambda: world.state.queues["device:pi4"].waiting == 0)
            async with session(first):
                pass
            await again(server, board)
            async with session(await c.ask(4, "pi4", "", 1)):
                pass
            assert len(world.started) == 2

    played(story)


def test_a_session_that_is_not_used_is_given_to_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_jobs, "CLAIM_S", 0.02)

    async def story(world: World) -> None:
        async with a_board(world), connected(world) as a, connected(world) as b:
            unused = await a.ask(4, "pi4", "", 1)
            granted = await b.ask(4, "pi4", "", 1)
            with pytest.raises((BadHandshake, EOFError, ConnectionError)):
                async with session(unused):
                    pass
            async with session(granted):
                pass
            ended = next(event for event in world.events if isinstance(event, StepEnded))
            assert ended.outcome is Outcome.FAILED
            assert "its program has not used it within" in ended.error

    played(story)


def test_a_session_ends_at_the_deadline_of_its_step_whatever_its_program_asked_for() -> None:
    async def story(world: World) -> None:
        world.limits = 100, 0.2
        async with a_board(world) as (board, _), connected(world) as program:
            async with session(await program.ask(4, "pi4", "", 1), 10 * DEADLINE_S) as (reader, _):
                (step,) = world.started
                step = world.state.steps[step.id]
                assert step.started_at + float(board.hellos[0].rpartition("=")[2]) <= step.deadline_at
                world.tell(lambda: DeadlineReached())
                assert world.sessions.end(step.id, "its time is over")
                assert await cut(reader)
            await world.until(lambda: not world.state.steps)

    played(story)


def test_cancelling_a_job_ends_its_session_and_its_waiting_requests() -> None:
    async def story(world: World) -> None:
        async with a_board(world) as (board, server), connected(world) as a, connected(world) as b:
            async with session(await a.ask(4, "pi4", "", 1)) as (reader, _):
                waiting = asyncio.ensure_future(b.ask(4, "pi4", "", 1))
                await world.until(lambda: world.state.queues["device:pi4"].waiting == 1)
                world.tell(lambda: JobCancelRequested(1, "ada"))
                assert await cut(reader)
                code, why = await waiting
                assert code == -1
                assert "job 1 has ended" in why
            await world.until(lambda: not world.state.steps)
            assert not world.programs.has(1)
            await again(server, board)
            async with session(await a.ask(4, "pi4", "", 1)):
                assert world.started[-1].job == 2, "it goes on as another job"

    played(story)


def test_a_board_that_refuses_sessions_fails_the_step_and_is_quarantined() -> None:
    async def story(world: World) -> None:
        async with a_board(world) as (board, _), connected(world) as program:
            board.key = "pi4:0.9"  # it waits for another one
            granted = await program.ask(4, "pi4", "", 1)
            with pytest.raises((EOFError, ConnectionError)):
                async with session(granted):
                    pass
            await world.until(lambda: any(isinstance(event, StepEnded) for event in world.events))
            assert world.sick == [UNIT]
            ended = next(event for event in world.events if isinstance(event, StepEnded))
            assert ended.outcome is Outcome.FAILED
            assert "waits for another key" in ended.error

    played(story)


def test_requests_wait_a_limited_time_for_the_first_board_of_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_jobs, "LOOK_S", 0.001)

    async def story(world: World) -> None:
        async with connected(world) as program:
            waiting = asyncio.ensure_future(program.ask(4, "pi4", "", 1))
            async with a_board(world), session(await waiting):
                pass
            monkeypatch.setattr(program_jobs, "KIND_S", 0.01)
            code, why = await program.ask(4, "rk3399", "", 1)
            assert code == -1
            assert "no board is of the kind 'rk3399'" in why
            code, why = await program.ask(4, "cpu", "", 1)
            assert code == -1, "the cores of this machine are no board"

    played(story)


def test_jobs_of_programs_are_limited() -> None:
    async def story(world: World) -> None:
        world.limits = 0, 600.0
        async with a_board(world), connected(world) as program:
            assert await program.ask(4, "pi4", "", 1) == [-1, "0 jobs are active, which is limits.jobs_active_max"]

    played(story)


def test_a_daemon_that_starts_again_ends_the_jobs_of_programs() -> None:
    async def story(world: World) -> None:
        async with a_board(world), connected(world) as program, session(await program.ask(4, "pi4", "", 1)):
            world.tell(lambda: ResourcesDeclared(OWN, 600.0, 60.0))
            world.programs.resume()
            assert world.state.jobs[1].state is JobState.FAILED
            assert "the daemon was started again" in world.state.jobs[1].failure.message  # type: ignore[union-attr]
            assert not world.state.steps

    played(story)
