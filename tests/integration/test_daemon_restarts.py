"""Restarts of the daemon: start, end, the state of the next one, and a full disk."""

import asyncio
import os
import signal
import sqlite3
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.errors import ConfigError, DaemonUnreachable, Damaged, Refused
from autosched.model import JobLoad, Outcome
from autosched.protocol import (
    Done,
    EndStep,
    ExplainJob,
    Explanation,
    GetOrder,
    JobOrder,
    PlanNetwork,
    Shutdown,
)
from integration.served import (
    BUILD,
    NETWORK,
    PROFILE,
    TCP,
    Puppet,
    attached,
    made,
    record,
    run,
    serving,
    spec,
    undated,
    user,
)


def test_a_restart_loses_no_record_and_asks_for_clients_again(tmp_path: Path) -> None:
    tokens: list[str] = []

    async def first() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            submitted = await daemon.submit(spec())
            tokens.append(submitted.token)
            puppet = await Puppet(BUILD).connect(f"unix:{tmp_path}/api.sock", 1, submitted.token)
            step = await puppet.steps.get()
            await puppet.ask(PlanNetwork(network=NETWORK, trials=50))
            for trial in range(20):
                puppet.measure(trial)
            await puppet.end(step, BUILD)
            await puppet.steps.get()
            daemon.close()

    async def second() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            view = await daemon.job(1)
            assert (view.state, view.trials, view.trials_total) == ("starting", 20, 50)
            assert view.estimate_s == pytest.approx(0.002)
            puppet = await Puppet(BUILD).connect(f"unix:{tmp_path}/api.sock", 1, tokens[0])
            order = await puppet.ask(GetOrder(), JobOrder)
            assert isinstance(order, JobOrder)
            assert (order.network, order.records) == (NETWORK, 20)
            assert (await puppet.steps.get()).id == 3
            assert [(s.step, s.outcome) for s in await daemon.spans()] == [(1, "done"), (2, "lost"), (3, "running")]
            with pytest.raises(Refused, match="stale step"):
                await puppet.ask(EndStep(step=2, outcome=Outcome.DONE, load=BUILD))
            assert undated(await daemon.records(1)) == [record(trial) for trial in range(20)]
            daemon.close()

    run(first)
    run(second)


def test_a_damaged_journal_is_not_served(tmp_path: Path) -> None:
    async def write() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            await daemon.submit(spec())
            daemon.close()

    async def refuse() -> None:
        async with serving(tmp_path):
            pass

    run(write)
    database = sqlite3.connect(tmp_path / "autosched.db", isolation_level=None)
    database.execute("UPDATE journal SET crc = crc + 1 WHERE seq = 2")
    database.close()
    with pytest.raises(Damaged, match="checksum of row 2"):
        run(refuse)
    assert not (tmp_path / "api.sock").exists()


def test_a_policy_is_part_of_the_history(tmp_path: Path) -> None:
    """A journal written under one policy is replayed under it, whatever the present settings."""

    async def life(settings: str, policy: str) -> None:
        async with serving(tmp_path, settings):
            daemon = await user(tmp_path)
            assert (await daemon.info()).policy == policy
            for _ in range(2):
                _, puppet = await attached(daemon, tmp_path, PROFILE)
            del puppet
            daemon.close()

    for settings, policy in (("[scheduler]\npolicy = 'sequential'\n", "sequential"), ("", "predictive")) * 2:
        run(lambda settings=settings, policy=policy: life(settings, policy))  # type: ignore[misc]


def test_a_stop_closes_connections_and_leaves_no_files_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(serving(tmp_path))
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            await daemon.link.call(Shutdown(), Done)
            assert "the daemon stops" in await puppet.stopped.get()
            await daemon.link.wait_closed()
        assert not (tmp_path / "api.sock").exists()
        assert not (tmp_path / "daemon.json").exists()

    run(work)


def test_a_daemon_on_demand_ends_when_it_is_idle(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path, "idle_exit_s = 0.1\n", on_demand=True) as served:
            daemon = await user(tmp_path)
            _, puppet = await attached(daemon, tmp_path)
            served._stop_if_idle()
            assert not served._stop.is_set(), "a user is connected"
            daemon.close()
            await daemon.link.wait_closed()
            step = await puppet.steps.get()
            served._stop_if_idle()
            assert not served._stop.is_set(), "a job is active"
            await puppet.end(step, JobLoad(complete=True))
            await served._stop.wait()
            assert served._why == "idle for 0.1 s"

    run(work)


def test_sigterm_ends_the_daemon(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            os.kill(os.getpid(), signal.SIGTERM)
            await daemon.link.wait_closed()

    run(work)


def test_a_port_that_is_taken_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path / "first", TCP) as served:
            address = served._addresses[1].removeprefix("tcp://")
            text = f'[daemon]\nstate_dir = "{tmp_path}/second"\nlisten = "{address}"'
            with pytest.raises(ConfigError, match=rf"daemon\.listen: {address} cannot be used"):
                await made(text).serve()
            assert not (tmp_path / "second" / "api.sock").exists()
            with pytest.raises(DaemonUnreachable):
                await Daemon.connect(f"unix:{tmp_path}/second/api.sock")

    run(work)


# A full disk ---------------------------------------------------------------------------------------------------------


async def submit_for_ever(daemon: Daemon) -> None:
    while True:
        await daemon.submit(spec(name="n" * 200))


def test_a_full_disk_refuses_submissions_only_until_there_is_space(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            daemon = await user(tmp_path)
            before = (await daemon.info()).warnings
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            database = served._runtime.journal._db
            database.execute("PRAGMA max_page_count = 1")
            for trial in range(200):
                puppet.measure(trial)
            ending = asyncio.ensure_future(puppet.end(step, BUILD))
            with pytest.raises(Refused, match="free some space"):
                await submit_for_ever(daemon)
            assert not ending.done()
            assert "free some space" in (await daemon.info()).warnings[-1]
            assert "free some space" in (await daemon.link.call(ExplainJob(job=job), Explanation)).lines[0]
            database.execute("PRAGMA max_page_count = 1000000")
            await ending
            assert len(await daemon.records(job)) == 200
            assert (await daemon.info()).warnings == before
            await daemon.submit(spec())
            daemon.close()

    run(work)
