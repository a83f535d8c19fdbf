"""Clients that lost their connection or their daemon: their pending results count once, and only theirs."""

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.core.events import DeadlineReached
from autosched.daemon.clients import supervisor as clients
from autosched.daemon.recovery import backups
from autosched.errors import AutoschedError, Refused
from autosched.model import Outcome, Step
from autosched.protocol import (
    AddRecord,
    Done,
    DrainUnit,
    ExplainJob,
    Explanation,
    FreeUnit,
    ListDevices,
    ReturnUnit,
    UnitList,
)
from integration.served import PROFILE, Puppet, attached, record, run, serving, spec, until, user


async def state_of(daemon: Daemon, unit: str) -> str:
    units = (await daemon.link.call(ListDevices(), UnitList)).units
    return next(view.state for view in units if view.unit == unit)


async def running(folder: Path, daemon: Daemon) -> tuple[Puppet, str]:
    """Returns a job's client and its token."""
    submitted = await daemon.submit(spec())
    puppet = await Puppet(PROFILE).connect(f"unix:{folder}/api.sock", submitted.job, submitted.token)
    return puppet, submitted.token


async def upgraded(folder: Path, *, ends: bool = False) -> tuple[str, Step]:
    """Stops a daemon for the next one while a step runs, or has ended; returns the step, and its client's token."""
    async with serving(folder) as served:
        daemon = await user(folder)
        puppet, token = await running(folder, daemon)
        step = await puppet.steps.get()
        if ends:
            await puppet.end(step)
        daemon.close()
        served.stop("an upgrade", comes_back=True)
    return token, step


def lives(first: Callable[[], Awaitable[None]], second: Callable[[], Awaitable[None]]) -> None:
    """Runs two daemons on the same cores one after the other; the first one is limited to some of them."""
    run(first)
    run(second)


def test_a_step_continues_while_the_daemon_is_replaced(tmp_path: Path) -> None:
    held: list[tuple[str, Step]] = []

    async def first() -> None:
        async with serving(tmp_path) as served:
            daemon = await user(tmp_path)
            puppet, token = await running(tmp_path, daemon)
            held.append((token, await puppet.steps.get()))
            await puppet.ask(AddRecord(record=record(0)))
            daemon.close()
            served.stop("an upgrade", comes_back=True)
            assert await puppet.goodbyes.get() == "the daemon stops"

    async def second() -> None:
        token, step = held[0]
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, waiting = await attached(daemon, tmp_path, PROFILE)
            await until(daemon, 2, lambda view: view.state == "running")
            assert await state_of(daemon, "cpu0") == "busy"
            puppet = Puppet(PROFILE)
            await puppet.come_back(f"unix:{tmp_path}/api.sock", 1, token, step)
            with pytest.raises(Refused, match="stored already"):
                await puppet.ask(AddRecord(record=record(0)))
            await puppet.ask(AddRecord(record=record(1)))
            assert waiting.steps.empty()
            await puppet.end(step)
            await puppet.end(step)
            assert (await waiting.steps.get()).units == ("cpu0",)
            assert [r.number for r in await daemon.records(1)] == [0, 1]
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "done"), (2, "running")]
            daemon.close()

    lives(first, second)


def test_another_client_takes_the_place_of_one_that_does_not_return(tmp_path: Path) -> None:
    held: list[tuple[str, Step]] = []

    async def first() -> None:
        held.append(await upgraded(tmp_path))

    async def second() -> None:
        token, step = held[0]
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            puppet = await Puppet(PROFILE).connect(f"unix:{tmp_path}/api.sock", 1, token)
            assert (await puppet.steps.get()).id == step.id + 1
            with pytest.raises(Refused, match="stale step"):
                await puppet.end(step)
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "lost"), (2, "running")]
            daemon.close()

    lives(first, second)


def test_a_client_from_before_a_restore_is_refused(tmp_path: Path) -> None:
    """Numbers of jobs and steps are reused after a restore: its results could count for others."""
    held: list[tuple[str, Step]] = []

    async def first() -> None:
        held.append(await upgraded(tmp_path))

    async def second() -> None:
        token, step = held[0]
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            with pytest.raises(Refused, match="the token is not that of the client of job 1"):
                await Puppet(PROFILE).come_back(f"unix:{tmp_path}/api.sock", 1, token, step)
            assert await state_of(daemon, "cpu0") == "busy", "it may go on measuring until its time is over"
            daemon.close()

    run(first)
    backups.restore(tmp_path, backups.make(tmp_path))
    run(second)


def test_an_answer_lost_with_the_daemon_is_resent(tmp_path: Path) -> None:
    held: list[tuple[str, Step]] = []

    async def first() -> None:
        held.append(await upgraded(tmp_path, ends=True))

    async def second() -> None:
        token, step = held[0]
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            puppet = Puppet(PROFILE)
            await puppet.come_back(f"unix:{tmp_path}/api.sock", 1, token, step)
            assert await puppet.revoked.get() == step.id, "it is over, in case that it still runs"
            await puppet.end(step)
            with pytest.raises(Refused, match="stale step"):
                await puppet.end(step, outcome=Outcome.FAILED)
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "done")]
            daemon.close()

    lives(first, second)


def test_an_undelivered_step_is_started_again_and_an_unknown_one_is_revoked(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            puppet, token = await running(tmp_path, daemon)
            step = await puppet.steps.get()
            await puppet.come_back(f"unix:{tmp_path}/api.sock", 1, token, load=PROFILE)
            again = await puppet.steps.get()
            assert again.id == step.id + 1
            await puppet.come_back(f"unix:{tmp_path}/api.sock", 1, token, step, again)
            assert await puppet.revoked.get() == step.id
            with pytest.raises(Refused, match="stale step"):
                await puppet.end(step)
            await puppet.end(again)
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "lost"), (2, "done")]
            daemon.close()

    run(work)


def test_a_client_that_broke_the_protocol_may_reconnect(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            puppet, token = await running(tmp_path, daemon)
            step = await puppet.steps.get()
            assert puppet.link is not None
            puppet.link._write(b"\xff" * 8)
            assert "4294967295 bytes" in await puppet.link.wait_closed()
            assert await state_of(daemon, "cpu0") == "busy", "it may be at its step still"
            await puppet.come_back(f"unix:{tmp_path}/api.sock", 1, token, step)
            await puppet.end(step)
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "done")]
            daemon.close()

    run(work)


def test_a_disconnected_client_gets_no_step_before_it_reconnects(tmp_path: Path) -> None:
    """It is first in the queue, and others overtake it."""

    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, busy = await attached(daemon, tmp_path, PROFILE)
            step = await busy.steps.get()
            submitted = await daemon.submit(spec())
            puppet = await Puppet(PROFILE).connect(f"unix:{tmp_path}/api.sock", submitted.job, submitted.token)
            await until(daemon, submitted.job, lambda view: view.reason.startswith("waits for device:cpu"))
            assert puppet.link is not None
            puppet.link._write(b"\xff" * 8)
            view = await until(daemon, submitted.job, lambda view: view.reason.startswith("its client is cut off"))
            assert view.state == "running"
            _, later = await attached(daemon, tmp_path, PROFILE)
            await until(daemon, 3, lambda view: view.reason.startswith("waits for device:cpu"))
            await busy.end(step)
            passing = await later.steps.get()
            await puppet.come_back(f"unix:{tmp_path}/api.sock", submitted.job, submitted.token, load=PROFILE)
            await until(daemon, submitted.job, lambda view: view.reason.startswith("waits for device:cpu"))
            await later.end(passing)
            assert (await puppet.steps.get()).units == ("cpu0",)
            daemon.close()

    run(work)


def test_only_the_last_connection_counts(tmp_path: Path) -> None:
    address = f"unix:{tmp_path}/api.sock"

    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            puppet, token = await running(tmp_path, daemon)
            step, early = await puppet.steps.get(), Puppet(PROFILE)
            await early.connect(address, 1, token, returns=True)
            with pytest.raises(Refused, match="stale step"):
                await early.end(step)  # it has not reported that it holds the step
            with pytest.raises(Refused, match="was given up"):
                await early.ask(AddRecord(record=record(0)))
            await puppet.come_back(address, 1, token, step)
            with pytest.raises((Refused, AutoschedError)):
                await early.end(step)
            await puppet.end(step)
            daemon.close()

    run(work)


def test_a_silent_client_keeps_its_device_until_its_end_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that a user started: the daemon knows only its connection."""
    monkeypatch.setattr(clients, "SILENCE_S", 0.0)
    monkeypatch.setattr(clients, "RETURN_S", 0.0)

    async def work() -> None:
        async with serving(tmp_path) as served:
            daemon = await user(tmp_path)
            puppet, _ = await running(tmp_path, daemon)
            await puppet.steps.get()
            assert puppet.link is not None
            assert "said nothing" in await puppet.link.wait_closed() or puppet.link.lost
            monkeypatch.setattr(clients, "SILENCE_S", 60.0)
            await served._runtime.post(DeadlineReached)
            assert (await state_of(daemon, "cpu0"), (await daemon.job(1)).state) == ("busy", "running")
            await daemon.cancel(1)
            assert (await state_of(daemon, "cpu0"), (await daemon.job(1)).state) == ("stopping", "cancelled")
            _, waiting = await attached(daemon, tmp_path, PROFILE)
            await daemon.link.call(FreeUnit(unit="cpu0"), Done)
            assert (await waiting.steps.get()).units == ("cpu0",)
            daemon.close()

    run(work)


def test_a_drained_device_gets_no_steps_and_stays_drained(tmp_path: Path) -> None:
    async def first() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path, PROFILE)
            step = await puppet.steps.get()
            await daemon.link.call(DrainUnit(unit="cpu0", reason="the fan is broken"), Done)
            assert await state_of(daemon, "cpu0") == "busy"
            await puppet.end(step, PROFILE)
            assert await state_of(daemon, "cpu0") == "drained"
            daemon.close()

    async def second() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            (view,) = (v for v in (await daemon.units()) if v.unit == "cpu0")
            assert view.drained.startswith("the fan is broken (")
            job, puppet = await attached(daemon, tmp_path, PROFILE)
            await until(daemon, job, lambda view: view.state == "running")
            explained = (await daemon.link.call(ExplainJob(job=job), Explanation)).lines
            assert any("cpu0 is drained and gets no steps: the fan is broken" in line for line in explained)
            await daemon.link.call(ReturnUnit(unit="cpu0"), Done)
            assert (await puppet.steps.get()).units == ("cpu0",)
            with pytest.raises(Refused, match="cpu0 is not drained"):
                await daemon.link.call(ReturnUnit(unit="cpu0"), Done)
            daemon.close()

    lives(first, second)
