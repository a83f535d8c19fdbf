"""Quotas: how much a user who is no operator may change, submit and upload."""

import asyncio
import hashlib
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.daemon.access import fair_shares, keyring
from autosched.errors import AutoschedError, Busy, Refused
from autosched.protocol import BlobState, JobList, ListJobs, PreviousSettings, PutBlob, SetJob, Submit, Submitted
from autosched.protocol.roles import Role
from autosched.wire import keys
from hostile.test_reports import hostile
from integration.served import TCP, run, serving, spec, user

RATE = 5
LIMITS = f"""{TCP}[limits]
user_changes_per_s = {RATE}
user_jobs_active_max = 10
user_upload_bytes_max = 1000000
"""


@asynccontextmanager
async def known(address: str, monkeypatch: pytest.MonkeyPatch, key: keys.Key) -> AsyncIterator[Daemon]:
    """A connection in the name of a key."""
    monkeypatch.setenv(keys.VARIABLE, key.line())
    daemon = await Daemon.connect(address)
    monkeypatch.delenv(keys.VARIABLE)
    try:
        yield daemon
    finally:
        daemon.close()
        await daemon.link.wait_closed()


async def outcomes(count: int, work: Callable[[int], Awaitable[object]]) -> Counter[str]:
    """Does this work many times; returns how often it was done, and how often it was refused, by the kind of error."""
    told: Counter[str] = Counter()
    for number in range(count):
        try:
            await work(number)
            told["done"] += 1
        except AutoschedError as error:
            told[type(error).__name__] += 1
    return told


def test_changes_of_a_user_are_bounded_and_those_of_an_operator_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, LIMITS) as served:
            owner = await user(tmp_path)
            async with known(served._addresses[1], monkeypatch, eve) as daemon:
                job = (await daemon.submit(spec())).job

                def alter(of: Daemon) -> Callable[[int], Awaitable[object]]:
                    return lambda number: of.link.call(SetJob(job=job, priority=number % 90), PreviousSettings)

                began_at = time.monotonic()
                told = await outcomes(2_000, alter(daemon))
                most = RATE * (fair_shares.BURST_S + time.monotonic() - began_at)
                assert 0.8 * RATE * fair_shares.BURST_S <= told["done"] <= most
                assert told["Busy"] == 2_000 - told["done"]
                entries = await served._services.audit.latest(5_000, None)
                assert sum(entry.who == "key eve" for entry in entries) <= most + 1
                with pytest.raises(Busy, match=r"key eve changes more than 5 things a second"):
                    await asyncio.gather(*map(alter(daemon), range(200)))  # some seconds may have passed
                await daemon.cancel(job)  # waits as long as the daemon asks
            job = (await owner.submit(spec())).job
            assert await outcomes(300, alter(owner)) == {"done": 300}
            owner.close()

    run(work)


def test_refused_calls_count_as_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, LIMITS) as served, known(served._addresses[1], monkeypatch, eve) as daemon:
            told = await outcomes(500, lambda number: daemon.link.call(SetJob(job=99, priority=1), PreviousSettings))
            assert told["Busy"] >= 300

    run(work)


def test_active_jobs_of_a_user_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")
    trusted, _ = keyring.make(tmp_path / "keys", Role.USER, "trusted", 20)

    async def work() -> None:
        async with serving(tmp_path, LIMITS) as served:
            owner = await user(tmp_path)
            for key, most in ((eve, 10), (trusted, 20)):
                async with known(served._addresses[1], monkeypatch, key) as daemon:

                    def submit(number: int, of: Daemon = daemon) -> Awaitable[object]:
                        return of.link.call(Submit(spec=spec()), Submitted)

                    assert await outcomes(25, submit) == {"done": most, "Refused": 25 - most}
                    if key is eve:
                        with pytest.raises(Refused, match=r"10 jobs of key eve .*limits\.user_jobs_active_max"):
                            await submit(0)
            assert await outcomes(40, lambda number: owner.submit(spec())) == {"done": 40}
            owner.close()

    run(work)


def test_uploads_that_no_job_uses_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, LIMITS) as served:

            def piece(of: Daemon, number: int, whole: bool) -> Awaitable[BlobState]:
                data = b"%d" % number + b"x" * 100_000
                total = len(data) if whole else 10**9
                name = hashlib.sha256(data).hexdigest()
                return of.link.call(PutBlob(sha256=name, total=total, offset=0, data=data), BlobState)

            async with known(served._addresses[1], monkeypatch, eve) as daemon:
                told = await outcomes(40, lambda number: piece(daemon, number, number % 2 == 0))
                assert told == {"done": 9, "Refused": 31}
                stored = sum(path.stat().st_size for path in (tmp_path / "blobs").iterdir())
                assert stored <= 1_000_000
                model = hashlib.sha256(b"0" + b"x" * 100_000).hexdigest()
                await daemon.submit(spec(model=model))
                await piece(daemon, 100, whole=True)
            owner = await user(tmp_path)
            assert await outcomes(20, lambda number: piece(owner, 200 + number, whole=True)) == {"done": 20}
            owner.close()

    run(work)


def test_uploads_of_a_jobs_client_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    eve, _ = keyring.make(tmp_path / "keys", Role.USER, "eve")

    async def work() -> None:
        async with serving(tmp_path, LIMITS) as served:
            (await user(tmp_path)).close()
            puppet = await hostile(served._addresses[1], tmp_path, monkeypatch, eve)

            def piece(number: int) -> Awaitable[object]:
                name = hashlib.sha256(b"%d" % number).hexdigest()
                return puppet.ask(PutBlob(sha256=name, total=10**9, offset=0, data=b"x" * 200_000), BlobState)

            assert await outcomes(20, piece) == {"done": 5, "Refused": 15}

    run(work)


def test_questions_that_wait_for_the_disk_keep_no_other_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            owner, never = await user(tmp_path), asyncio.Event()
            monkeypatch.setattr(served._runtime, "durable", never.wait)
            waiting = [asyncio.ensure_future(owner.link.call(ListJobs(), JobList)) for _ in range(20)]
            assert (await owner.info()).pid == os.getpid()
            assert not any(one.done() for one in waiting)
            never.set()
            await asyncio.gather(*waiting)
            owner.close()

    run(work)
