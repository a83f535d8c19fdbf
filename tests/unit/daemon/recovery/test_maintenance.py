"""Snapshots and backups are made on time, by a separate process; failures are reported."""

import asyncio
import os
from pathlib import Path

import pytest
from bit_flips import fill

from autosched.config import BackupConfig
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.recovery import backups, maintenance
from autosched.daemon.recovery.maintenance import Keeper
from autosched.daemon.storage import database
from autosched.daemon.storage.job_store import JobStore
from autosched.daemon.storage.journal import Journal
from autosched.protocol import Artifact
from deadlines import DEADLINE_S


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    fill(database.database(tmp_path), jobs=1, records=4)
    return tmp_path


async def writing(journal: Journal) -> None:
    list(journal.replay())
    journal.start()
    await JobStore(journal).add_artifacts(1, [Artifact("net.so", "a" * 64, 1)])


def kept(folder: Path, settings: BackupConfig, until: str, *, replayed: int = 0, besides: Path | None = None) -> str:
    """Lets the keeper work until the file exists; returns its warning."""

    def there(journal: Journal) -> bool:
        return bool(journal.worry if until == "worry" else set(folder.glob(until)) - {besides})

    async def run() -> str:
        journal = Journal(database.database(folder), *database.TABLES)
        await writing(journal)
        work = asyncio.ensure_future(Keeper(journal, Stream(lambda: 0.0), folder, settings, replayed).run())
        async with asyncio.timeout(DEADLINE_S):
            while True:
                if there(journal):
                    break
                await asyncio.sleep(0.02)
        work.cancel()
        await asyncio.wait([work])
        journal.close()
        return journal.worry

    return asyncio.run(run())


@pytest.fixture(autouse=True)
def in_a_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "LOOK_S", 0.01)
    monkeypatch.setattr(maintenance, "NICE", 0)


def test_a_snapshot_is_made_after_many_events(folder: Path) -> None:
    assert kept(folder, BackupConfig(interval_s=0), "snapshots/*.snapshot", replayed=maintenance.SNAPSHOT_EVERY) == ""
    assert not database.backups(folder).exists()


def test_a_snapshot_has_low_priority_unless_it_is_waited_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(maintenance, "NICE", 7)
    asked: list[int] = []
    monkeypatch.setattr(os, "setpriority", lambda which, pid, nice: asked.append(nice))

    async def snapshot(*, hurried: bool) -> bool:
        journal = Journal(database.database(folder), *database.TABLES)
        try:
            return await Keeper(journal, Stream(lambda: 0.0), folder, BackupConfig(), 0).snapshot(hurried=hurried)
        finally:
            journal.close()

    assert asyncio.run(snapshot(hurried=True))
    assert asked == []
    assert asyncio.run(snapshot(hurried=False))
    assert asked == [7]


def test_a_backup_is_made_when_the_last_one_is_old(folder: Path) -> None:
    first = backups.make(folder)
    os.utime(first, (0, 0))
    assert kept(folder, BackupConfig(keep=2), "backups/*.db", besides=first) == ""
    assert len(backups.all_of(folder)) == 2


def due(folder: Path, settings: BackupConfig, uptime_s: float, *, written: bool = False) -> bool:
    async def ask() -> bool:
        journal = Journal(database.database(folder), *database.TABLES)
        if written:
            await writing(journal)
        told = Keeper(journal, Stream(lambda: 0.0), folder, settings, 0)._backup_is_due(uptime_s)
        journal.close()
        return told

    return asyncio.run(ask())


def test_the_time_of_the_next_backup_follows_the_last(folder: Path) -> None:
    hourly = BackupConfig()
    assert not due(folder, hourly, 10.0), "there is hardly anything in it"
    assert due(folder, hourly, 3_601.0)
    assert not due(folder, BackupConfig(interval_s=0), 3_601.0)
    made = backups.make(folder)
    assert not due(folder, hourly, 3_601.0, written=True), "the last one is young"
    backups.make(folder, keep=1)
    assert not made.exists()
    newest = backups.newest(folder)
    assert newest is not None
    os.utime(newest, (0, 0))
    assert due(folder, hourly, 10.0, written=True)
    backups.make(folder)
    os.utime(backups.newest(folder) or newest, (0, 0))
    assert not due(folder, hourly, 3_601.0), "nothing was written since"


def test_backups_continue_after_the_clock_was_set_back(folder: Path) -> None:
    future = backups.make(folder).rename(database.backups(folder) / "autosched-20991231T235959.000000Z.db")
    os.utime(future, (4_102_444_799, 4_102_444_799))
    assert due(folder, BackupConfig(), 10.0, written=True)
    made = backups.make(folder, keep=1)
    assert backups.all_of(folder) == [made], "it is the newest, and the other one went"
    assert not due(folder, BackupConfig(), 10.0, written=True), "it is young"


def test_a_foreign_file_beside_the_backups_does_not_stop_them(folder: Path) -> None:
    backups.make(folder).rename(database.backups(folder) / "autosched-mine.db")
    assert backups.make(folder).exists()


def test_failures_are_reported_and_retried_later(folder: Path) -> None:
    database.snapshots(folder).write_text("in its way")
    worry = kept(folder, BackupConfig(interval_s=0), "worry", replayed=maintenance.SNAPSHOT_EVERY)
    assert "no snapshot could be made" in worry
