"""Clients on an agent's machine."""

import asyncio
import signal
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from autosched.agent import client_keeper
from autosched.agent.client_keeper import JOBS, ClientKeeper
from autosched.launch import client_note
from autosched.launch.client_note import Note
from autosched.launch.job_folder import JOB_DIR, LOG
from autosched.launch.local import LocalLauncher
from autosched.process.detached_process import birth
from autosched.protocol import StartHostClient
from deadlines import DEADLINE_S

STAYS, ENDS = ("sh", "-c", "echo begun >&2; sleep 600"), ("sh", "-c", "echo what went wrong >&2; exit 3")
START = StartHostClient(job=1, token="token", cache_bytes_max=0)
Ended = asyncio.Queue[tuple[str, str]]


def run(folder: Path, command: tuple[str, ...], story: Callable[[ClientKeeper, Ended], Awaitable[None]]) -> None:
    """Runs a story with clients that run this command."""

    async def work() -> None:
        ended: Ended = asyncio.Queue()
        keeper = ClientKeeper(folder, "unix:/nowhere", lambda name, how: ended.put_nowait((name, how)))
        keeper.launcher = LocalLauncher(command)
        keeper.adopt()
        async with asyncio.timeout(DEADLINE_S):
            await story(keeper, ended)

    asyncio.run(work())


def test_the_end_of_a_client_is_reported_when_all_its_processes_have_ended(tmp_path: Path) -> None:
    async def story(keeper: ClientKeeper, ended: Ended) -> None:
        keeper.start("one", START)
        name, how = await ended.get()
        assert name == "one"
        assert "exit code 3" in how
        assert "what went wrong" in how
        assert not keeper.names
        assert [path.name for path in (keeper.folder / "one").iterdir()] == [LOG]

    run(tmp_path, ENDS, story)


def test_a_client_is_killed_and_its_memory_is_reported(tmp_path: Path) -> None:
    async def story(keeper: ClientKeeper, ended: Ended) -> None:
        keeper.start("one", START)
        (alive,) = keeper.alive()
        assert alive.name == "one"
        assert alive.memory_bytes > 0
        keeper.kill("one")
        keeper.kill("another, which there is not")
        name, how = await ended.get()
        assert name == "one"
        assert "SIGKILL" in how

    run(tmp_path, STAYS, story)


def test_an_agent_adopts_known_clients_and_ends_unknown_ones(tmp_path: Path) -> None:
    jobs = tmp_path / JOBS
    begun = [
        subprocess.Popen(["sleep", "600"], env={JOB_DIR: str(jobs / name)}, start_new_session=True)
        for name in ("known", "stranger")
    ]
    known, stranger = begun
    client_note.leave(jobs / "known", Note(known.pid, birth(known.pid)))

    async def story(keeper: ClientKeeper, ended: Ended) -> None:
        assert keeper.names == ("known",)
        assert stranger.wait(DEADLINE_S) == -signal.SIGKILL
        keeper.kill("known")
        assert await ended.get() == ("known", "it ended"), "only its parent learns how"

    try:
        run(tmp_path, STAYS, story)
    finally:
        for process in begun:
            process.kill()
            process.wait(DEADLINE_S)


def test_old_logs_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_keeper, "LOGS_KEPT", 2)

    async def story(keeper: ClientKeeper, ended: Ended) -> None:
        for number in range(4):
            keeper.start(f"c{number}", START)
            await ended.get()
        assert sorted(path.name for path in keeper.folder.iterdir()) == ["c2", "c3"]

    run(tmp_path, ENDS, story)
