"""Client processes without a scheduler: the order of starts, and reports of losses."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from autosched.core.events import ClientLost, ClientPlaced, Event
from autosched.daemon.clients import start_queue, supervisor
from autosched.daemon.clients.client_state import Client
from autosched.daemon.clients.helper_registry import HelperRegistry
from autosched.daemon.clients.supervisor import ClientSupervisor
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.hosts.host_registry import HostRegistry
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.storage.moved_files import MovedFiles
from autosched.launch.local import LocalLauncher
from autosched.model import OWN_HOST, HostName, JobId, JobState
from autosched.wire.link import Link
from deadlines import DEADLINE_S

CORES = len(os.sched_getaffinity(0))
JOBS = list(range(1, 3 * CORES + 3))
STAYS, ENDS, HINDERED = ("sh", "-c", "sleep 600"), ("true",), ("sh", "-c", "exit 75")


class Watched(ClientSupervisor):
    """Reports the processes that it has started."""

    def __init__(self, **parts: Any) -> None:
        super().__init__(**parts)
        self.started: asyncio.Queue[JobId] = asyncio.Queue()

    def launch(self, job: JobId, host: HostName) -> None:
        super().launch(job, host)
        self.started.put_nowait(job)


class Stage:
    """Clients with a scheduler that starts them on this host, and listens."""

    def __init__(self, folder: Path, command: tuple[str, ...]) -> None:
        self.lost: asyncio.Queue[ClientLost] = asyncio.Queue()
        job = SimpleNamespace(state=JobState.DONE, spec=SimpleNamespace(external=False), owner="uid 0", steps=[1])
        state = SimpleNamespace(jobs=dict.fromkeys(JOBS, job), hosts={})
        runtime = SimpleNamespace(state=state, tell=self._hear, stream=Stream(lambda: 0.0))
        hosts = HostRegistry(runtime, 60.0)
        moved = MovedFiles(folder / "moved", 0)
        parts = SimpleNamespace(runtime=runtime, progress=ProgressRegistry(), history=None, monitor=None, moved=moved)
        apart = SimpleNamespace(applies_to=lambda owner: False, runs_apart=lambda owner: False, required=False)
        self.clients = Watched(
            parts=parts, hosts=hosts, folder=folder, address="", separation=apart, launcher=LocalLauncher(command)
        )
        for job_id in JOBS:
            self.clients.start(job_id)

    def _hear(self, prepare: Callable[[], Event | None]) -> None:
        match prepare():
            case ClientPlaced(job=job, host=None):
                self.clients.launch(job, OWN_HOST)
            case ClientLost() as lost:
                self.lost.put_nowait(lost)

    async def started(self, count: int) -> list[JobId]:
        """Returns the next jobs that start."""
        async with asyncio.timeout(DEADLINE_S):
            return [await self.clients.started.get() for _ in range(count)]

    async def next_lost(self) -> ClientLost:
        async with asyncio.timeout(DEADLINE_S):
            return await self.lost.get()


Story = Callable[[Stage], Coroutine[Any, Any, None]]
Play = Callable[[Story, tuple[str, ...]], None]


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def run(story: Story, command: tuple[str, ...]) -> None:
        async def begin_to_end() -> None:
            stage = Stage(tmp_path, command)
            try:
                await story(stage)
            finally:
                await stage.clients.close()

        asyncio.run(begin_to_end())

    return run


def test_one_client_starts_for_each_core_and_the_next_when_one_is_gone(play: Play) -> None:
    async def story(stage: Stage) -> None:
        assert await stage.started(CORES) == JOBS[:CORES]
        assert stage.clients.started.empty()
        stage.clients.stop(1, "enough")
        assert (await stage.next_lost()).job == 1
        assert await stage.started(1) == [CORES + 1]
        assert stage.clients.started.empty()

    play(story, STAYS)


def test_a_slow_start_delays_other_clients_for_a_limited_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(start_queue, "TURN_S", 0.01)

    async def story(stage: Stage) -> None:
        assert await stage.started(len(JOBS)) == JOBS

    play(story, STAYS)


def test_each_client_is_started_and_reported_lost_once(play: Play) -> None:
    async def story(stage: Stage) -> None:
        lost = [await stage.next_lost() for _ in JOBS]
        assert sorted(event.job for event in lost) == JOBS
        assert stage.lost.empty()

    play(story, ENDS)


def test_a_client_that_its_machine_could_not_run_is_lost_without_blame_and_follows_after_a_pause(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "HINDERED_PAUSE_S", 1e6)
    monkeypatch.setattr(supervisor, "HINDERED_PAUSE_MAX_S", 1e6)

    async def story(stage: Stage) -> None:
        lost = [await stage.next_lost() for _ in JOBS]
        assert all(event.hindered for event in lost)
        job = lost[0].job
        stage.clients.start(job)
        stage.clients.stop(job, "its client did not connect in time")
        assert await stage.next_lost() == ClientLost(job, "its client did not connect in time", hindered=True)

    play(story, HINDERED)


def test_a_client_with_helpers_that_its_machine_could_not_run_is_lost_without_blame(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HelperRegistry, "of", lambda helpers, job: ["helper"])

    async def story(stage: Stage) -> None:
        assert (await stage.next_lost()).hindered

    play(story, HINDERED)


def test_a_client_that_is_stopped_before_its_turn_never_starts(play: Play) -> None:
    async def story(stage: Stage) -> None:
        last = JOBS[-1]
        stage.clients.stop(last, "its user cancelled it")
        assert await stage.next_lost() == ClientLost(last, "its user cancelled it", progressed=False)
        others = [job for job in JOBS if job != last]
        begun = await stage.started(CORES)
        for job in others:
            stage.clients.stop(job, "it is late")
        assert {(await stage.next_lost()).job for _ in others} == set(others)
        assert stage.clients.started.empty()
        assert last not in begun

    play(story, STAYS)


@pytest.mark.parametrize("came_back", [False, True])
def test_a_client_that_reconnects_without_reporting_its_steps_is_disconnected(
    came_back: bool, play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "ORDER_S", 0.0)

    async def story(stage: Stage) -> None:
        why: list[str] = []
        link = cast(Link, SimpleNamespace(abort=why.append))
        client = cast(Client, SimpleNamespace(returning=None if came_back else link))
        await stage.clients._await_return(client, link)
        assert why == ([] if came_back else ["it did not say Return within 0 s"])

    play(story, STAYS)
