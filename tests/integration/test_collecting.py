"""Collected tasks are tuned for some time, or while the daemon is idle, here with invented measurements."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from autosched.api import tvm_programs
from autosched.api.connection import Daemon
from autosched.collecting import filler
from autosched.collecting.collector import Importer
from autosched.collecting.filler import LABELS, PRIORITY, Filler
from autosched.daemon.storage.record_projection import RECORDS
from autosched.errors import NotFound, RequestError
from autosched.model import JobState, Program
from autosched.protocol import JobList, JobView, ListJobs
from autosched.recordstore import opening
from autosched.recordstore.collected import Collected, Collection, Collector, Scope
from autosched.recordstore.rows import Workload
from deadlines import DEADLINE_S
from integration.lab import Lab

T = TypeVar("T")
SCOPE = Scope("auto", "keep")
MOCK = Importer("auto", "mock", SCOPE, "importer 1")
TASKS = [Workload(f"mock-{n}", f"op{n}", f"made up {n}", 1e6 * n) for n in (1, 2, 3)]
"""Tasks of the mock backend, for any model."""


def collected(path: Path) -> str:
    """Returns the URL of a store with a network of these tasks."""
    url = str(opening.file_url(path))
    with contextlib.closing(Collector(url)) as collector:
        uses = dict.fromkeys(TASKS, 1)
        programs = {one: Program("mock 1", b"any") for one in TASKS}
        collector.add_network(Collected("ab", "net.onnx", "", SCOPE, "importer 1", (), 1.7e9, uses), programs)
    return url


async def jobs_of_fillers(daemon: Daemon, state: str = "") -> list[JobView]:
    return list((await daemon.link.call(ListJobs(limit=500, labels=LABELS, state=state), JobList)).jobs)


async def trainings(daemon: Daemon) -> list[JobView]:
    """Returns the running jobs that train models."""
    return [job for job in await jobs_of_fillers(daemon, "running") if job.name == "train-models"]


async def _true(value: list[str]) -> list[str]:
    return value


async def until(found: Callable[[], Awaitable[list[T]]], some: bool = True) -> list[T]:
    """Polls until there are some, or none; returns them."""
    while bool(there := await found()) is not some:  # noqa: ASYNC110 (nothing tells)
        await asyncio.sleep(0.01)
    return there


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shortens budgets and pauses."""
    monkeypatch.setattr(filler, "LEFT_LEAST_S", 0.5)
    monkeypatch.setattr(filler, "LOOK_S", 0.05)


def test_useful_tasks_are_tuned_and_known(there: Lab, tmp_path: Path) -> None:
    url = collected(tmp_path / RECORDS)
    told: list[str] = []
    with Collection(url) as before:
        assert before.known(SCOPE, "mock", 1) == {}

    async def work() -> JobView:
        async with there.connected() as daemon, asyncio.timeout(DEADLINE_S):
            made = Filler(MOCK, url, "cpu", told.append)
            work = asyncio.ensure_future(made.fill(daemon, DEADLINE_S))
            await until(lambda: _true(told))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert made.filled.jobs >= 1
            assert made.filled.trials >= 3 * filler.TRIALS
            return await daemon.job((await jobs_of_fillers(daemon))[0].job)

    job = asyncio.run(work())
    assert (job.state, job.priority, job.trials) == ("done", PRIORITY, 3 * filler.TRIALS)
    assert told[0].startswith(f"job {job.job}: 3 tasks, {job.trials} trials in ")
    assert "as fast as untuned" not in told[0], "the mock backend has no candidate without a schedule"
    with Collection(url) as after:
        assert {hashed: one.best_s is not None for hashed, one in after.known(SCOPE, "mock", 1).items()} == {
            one.hash: True for one in TASKS
        }


def test_a_budget_ends_the_job_under_way(there: Lab, tmp_path: Path) -> None:
    url = collected(tmp_path / RECORDS)

    async def work() -> None:
        async with there.connected() as daemon, asyncio.timeout(DEADLINE_S):
            made = Filler(MOCK, url, "cpu")
            await made.fill(daemon, 1.0)
            jobs = await jobs_of_fillers(daemon)
            assert jobs
            assert made.filled.jobs == len(jobs)
            assert all(JobState(job.state).ended for job in jobs)

    asyncio.run(work())


def test_collecting_pauses_while_other_jobs_wait(there: Lab, tmp_path: Path) -> None:
    url = collected(tmp_path / RECORDS)
    told: list[str] = []

    async def work() -> None:
        async with there.connected() as daemon, asyncio.timeout(DEADLINE_S):
            work = asyncio.ensure_future(Filler(MOCK, url, "cpu", told.append).fill_while_idle(daemon))
            await until(lambda: jobs_of_fillers(daemon, "active"))
            other = await asyncio.to_thread(there.submit, trials=4, build_s=0.5)
            await until(lambda: jobs_of_fillers(daemon, "active"), False)  # it is cancelled, or had just ended
            async for view in daemon.follow(other):
                if not JobState(view.state).ended:
                    assert not await jobs_of_fillers(daemon, "active")
            assert view.state == "done"
            back = await until(lambda: jobs_of_fillers(daemon, "active"))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work
            assert JobState((await daemon.job(back[-1].job)).state).ended, "it cancels what is under way"

    asyncio.run(work())


def test_models_are_trained_on_a_host_lane_until_other_jobs_come(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = collected(tmp_path / RECORDS)
    there.wait(there.submit(tasks=2, trials=16, build_s=0.01))
    told: list[str] = []
    asked: list[Sequence[str]] = []
    goes_on = asyncio.Event()

    async def ask(program: str, words: Sequence[str], **_: object) -> dict[str, object]:
        asked.append(words)
        await goes_on.wait()
        return {"ok": True, "trained": [{"family": "f", "refused": ""}, {"family": "g", "refused": "few networks"}]}

    monkeypatch.setattr(tvm_programs, "ask", ask)
    monkeypatch.setattr(filler, "SCHEDULES_MIN", 16)

    async def work() -> None:
        async with there.connected() as daemon, asyncio.timeout(DEADLINE_S):
            work = asyncio.ensure_future(Filler(MOCK, url, "cpu", told.append).fill_while_idle(daemon))
            await until(lambda: _true(list(map(str, asked))))
            (training,) = await jobs_of_fillers(daemon, "active")
            assert training.name == "train-models"
            other = await asyncio.to_thread(there.submit, trials=4, build_s=0.01)
            assert (await asyncio.to_thread(there.wait, other)).state == "done", "the lane was given up"
            await until(lambda: _true([str(words) for words in asked[1:]]))
            goes_on.set()
            await until(lambda: _true([text for text in told if text.startswith("trained 1 model on ")]))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(work())
    assert [words[:3] for words in asked] == 2 * [["--backend", "mock", "--cores"]]


def test_a_cancelled_training_does_not_end_collecting(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = collected(tmp_path / RECORDS)
    told: list[str] = []

    async def ask(*_: object, **__: object) -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    monkeypatch.setattr(tvm_programs, "ask", ask)
    monkeypatch.setattr(filler, "SCHEDULES_MIN", 16)
    there.wait(there.submit(tasks=2, trials=16, build_s=0.01))

    async def work() -> None:
        async with there.connected() as daemon, asyncio.timeout(DEADLINE_S):
            work = asyncio.ensure_future(Filler(MOCK, url, "cpu", told.append).fill_while_idle(daemon))
            (training,) = await until(lambda: trainings(daemon))  # it tunes until the store has the schedules
            await daemon.cancel(training.job)
            await until(lambda: _true([text for text in told if text.startswith("models are not trained")]))
            before = len(told)
            await until(lambda: _true(told[before:]))
            work.cancel()
            with pytest.raises(asyncio.CancelledError):
                await work

    asyncio.run(work())
    assert told[-1].startswith(("job ", "no task"))


def test_a_daemon_with_another_store_is_noticed(there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filler, "KNOWN_S", 0.5)
    url = collected(tmp_path / "other.db")

    async def work() -> None:
        async with there.connected() as daemon:
            with pytest.raises(RequestError, match=r"not in the record store .*other\.db.*--store"):
                await Filler(MOCK, url, "cpu").fill(daemon, 60.0)

    asyncio.run(work())


def test_collecting_without_tasks_or_devices_is_refused(there: Lab, tmp_path: Path) -> None:
    url = collected(tmp_path / RECORDS)

    async def work() -> None:
        async with there.connected() as daemon:
            with pytest.raises(NotFound, match="no device of kind 'pi4'"):
                await Filler(MOCK, url, "pi4").fill(daemon, 60.0)
            elsewhere = Importer("llvm", "mock", Scope("llvm", "keep"), "importer 1")
            with pytest.raises(NotFound, match="no tasks are collected"):
                await Filler(elsewhere, url, "cpu").fill(daemon, 60.0)
            assert await jobs_of_fillers(daemon) == []

    asyncio.run(work())


def test_consecutive_failed_jobs_end_collecting(there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = collected(tmp_path / RECORDS)
    monkeypatch.setattr(filler, "TASKS", 1)  # so that there are more jobs than may fail
    told: list[str] = []

    async def work() -> None:
        async with there.connected() as daemon:
            wrong = Importer("auto", "gcc", SCOPE, "importer 1")
            with pytest.raises(
                RequestError, match=r"3 jobs failed one after the other; job 3 failed: .*autosched job 3"
            ):
                await Filler(wrong, url, "cpu", told.append).fill(daemon, 60.0)

    asyncio.run(work())
    assert len(told) == 2


def test_a_job_of_tasks_alone_is_done_without_a_network(there: Lab) -> None:
    job = there.submit(trials=8, tasks=2, tasks_only=True)
    view = there.wait(job)
    assert (view.state, view.trials) == ("done", 8)
    assert view.failure is None
    assert {record.purpose for record in there.records(job)} >= {"trial", "final"}
