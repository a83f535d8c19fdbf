"""Clients of an earlier daemon that may reconnect."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from autosched.core.events import ClientAttached, JobCancelRequested, JobSubmitted, ResourcesDeclared
from autosched.core.scheduler import Scheduler
from autosched.daemon.clients.adoption import clear, disown, find, secret
from autosched.launch import ClientOrder, Launched, client_note
from autosched.launch.client_note import NOTE, Note, note_of
from autosched.model import JobLoad, JobSpec, Pool, TaskLoad, Unit
from autosched.process.detached_process import Process
from deadlines import DEADLINE_S

POOLS = (Pool("host", (Unit("host/0", (0,)),)), Pool("device:cpu", (Unit("cpu0", (1,)),)))
OTHER_CORE = (POOLS[0], Pool("device:cpu", (Unit("cpu0", (2,)),)))
PROFILE = JobLoad(tasks=(TaskLoad(task=1, resources_next=("device:cpu",), stage_next="profile"),))


class Past:
    """One job, whose client may have reported its abilities, and the files in its folder."""

    def __init__(self, folder: Path, *, external: bool = False, attached: bool = True) -> None:
        self.folder, self.core = folder, Scheduler()
        self.core.handle(0.0, ResourcesDeclared(POOLS, 600.0, 60.0))
        self.core.handle(0.0, JobSubmitted(1, JobSpec(name="net", model="0" * 64, external=external)))
        if attached:
            self.core.handle(0.0, ClientAttached(1, PROFILE))

    def found(self, pools: tuple[Pool, ...] = POOLS) -> list[int]:
        """Returns the jobs whose clients may reconnect."""
        found = find(self.core.state, self.folder, pools)
        for survivor in found:
            if survivor.process is not None:
                assert survivor.note.token == "secret"
                survivor.process.forget()
        return [survivor.job for survivor in found]


def run(work: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(work(), DEADLINE_S))


def note(process: Process, temporary: str) -> Note:
    order = ClientOrder(1, "unix:/nowhere", "secret", Path("job"), Path("cache"), 0)
    return note_of(Launched(process, temporary), order)


@pytest.fixture
def living(tmp_path: Path) -> Iterator[int]:
    """A process with a note in the folder of job 1."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:

        async def leave() -> None:
            process = Process(child.pid, tmp_path / "log", None)
            client_note.leave(tmp_path / "1", note(process, ""))
            process.forget()

        run(leave)
        yield child.pid


def test_a_living_client_that_has_reported_is_adopted(tmp_path: Path, living: int) -> None:
    async def work() -> None:
        assert Past(tmp_path).found() == [1]
        assert (tmp_path / "1" / NOTE).stat().st_mode & 0o077 == 0, "its token is secret"

    run(work)


def test_a_client_that_has_not_reported_is_not_adopted(tmp_path: Path, living: int) -> None:
    async def work() -> None:
        assert Past(tmp_path, attached=False).found() == []

    run(work)


def test_a_client_whose_step_has_lost_its_unit_is_not_adopted(tmp_path: Path, living: int) -> None:
    async def work() -> None:
        past = Past(tmp_path)
        assert past.found(POOLS[:1]) == past.found(OTHER_CORE) == []
        assert past.found() == [1]

    run(work)


def test_a_client_of_an_ended_job_is_not_adopted(tmp_path: Path, living: int) -> None:
    async def work() -> None:
        past = Past(tmp_path)
        past.core.handle(1.0, JobCancelRequested(1, "ada"))
        assert past.found() == []

    run(work)


def test_a_dead_client_is_not_adopted_even_if_its_process_id_is_reused(tmp_path: Path) -> None:
    async def work() -> None:
        past = Past(tmp_path)
        assert past.found() == []
        (tmp_path / "1").mkdir()
        for pid in (2**22 + 1, os.getpid()):
            (tmp_path / "1" / NOTE).write_text(f'{{"pid": {pid}, "born": "another", "token": "secret"}}')
            assert past.found() == []
        (tmp_path / "1" / NOTE).write_text("not a note")
        assert past.found() == []

    run(work)


def test_an_external_client_is_awaited_until_it_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        past = Past(tmp_path, external=True)
        assert past.found() == []
        client_note.leave(tmp_path / "1", Note())
        assert past.found() == [1]
        past.core.handle(1.0, JobCancelRequested(1, "ada"))
        assert past.found() == [1], "it may still hold its device"
        client_note.tear(tmp_path / "1")
        assert past.found() == []
        assert os.listdir(tmp_path) == []

    run(work)


def test_after_a_restore_only_external_clients_are_awaited(tmp_path: Path, living: int) -> None:
    """Only their users can end those, so their units stay leased; they are not admitted."""
    client_note.leave(tmp_path / "2", Note())
    before = secret(tmp_path)
    disown(tmp_path)
    assert secret(tmp_path) != before
    assert not (tmp_path / "1" / NOTE).exists()
    assert (tmp_path / "2" / NOTE).exists()


def test_temporary_files_of_dead_clients_are_deleted(tmp_path: Path, living: int) -> None:
    async def work() -> None:
        process = Process(living, tmp_path / "log", None)
        for job in ("1", "2"):
            (tmp_path / "scratch" / job).mkdir(parents=True)
            client_note.leave(tmp_path / job, note(process, str(tmp_path / "scratch" / job)))
        client_note.leave(tmp_path / "3", Note())
        process.forget()
        found = find(Past(tmp_path).core.state, tmp_path, POOLS)
        clear(tmp_path, found)
        for survivor in found:
            assert survivor.process is not None
            survivor.process.forget()

    run(work)
    assert [path.name for path in (tmp_path / "scratch").iterdir()] == ["1"]
    assert sorted(path.parent.name for path in tmp_path.glob(f"*/{NOTE}")) == ["1", "3"], "3 is an external one's"
