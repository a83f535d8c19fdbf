"""Damage of the database is detected, reported, and survived; copies are made, checked and restored; older formats
work."""

import asyncio
import contextlib
import re
import sqlite3
from pathlib import Path
from random import Random

import pytest
from bit_flips import fill, flip, killed_copy

from autosched.daemon.recovery import backups, maintenance, repair
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.storage import database, schema
from autosched.daemon.storage.commit_mark import CommitMark
from autosched.daemon.storage.job_store import JobStore
from autosched.daemon.storage.journal import Journal
from autosched.errors import ConfigError, Damaged, NotFound
from autosched.protocol import Artifact
from autosched.version import LAST_UNRELEASED

RECORDS = 12


def filled(folder: Path) -> Path:
    """Returns a state folder with rows in each table."""
    folder.mkdir(exist_ok=True)
    fill(database.database(folder), jobs=2, records=RECORDS)
    return folder


@pytest.mark.parametrize(("job", "there"), [("1", True), ("3", True), ("99", False), ("9" * 40, False), ("last", True)])
def test_the_jobs_of_a_database_are_listed_without_opening_it(tmp_path: Path, job: str, there: bool) -> None:
    assert not database.has_traces(tmp_path / "none", job)
    folder = filled(tmp_path / "state")
    (folder / "jobs/3").mkdir(parents=True)  # failed before it measured anything
    assert database.has_traces(folder, job) == there


def test_an_unreadable_database_may_contain_any_job(tmp_path: Path) -> None:
    database.database(tmp_path).write_bytes(b"no database at all, but long enough to be looked at " * 100)
    assert database.has_traces(tmp_path, "99")


def sql(folder: Path, *statements: str) -> list[tuple[object, ...]]:
    """Runs statements as a user with SQLite could."""
    db = sqlite3.connect(database.database(folder), isolation_level=None)
    schema.add_functions(db)
    try:
        return [db.execute(statement).fetchall() for statement in statements][-1]
    finally:
        db.close()


def started(folder: Path, *, accept_data_loss: bool = False) -> int:
    """Starts as the daemon does; returns the number of replayed events."""

    async def start() -> int:
        repair.see_to(folder, accept_data_loss=accept_data_loss)
        journal = Journal(database.database(folder), *database.TABLES)
        try:
            return recover(journal, database.snapshots(folder)).replayed
        finally:
            journal.close()

    return asyncio.run(start())


def test_an_undamaged_database_passes_the_check(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    found = backups.verify(database.database(folder))
    assert found.rows["records"] == 2 * RECORDS
    assert all(
        found.rows[table] for table in ("journal", "networks", "disturbances", "artifacts", "spans", "stage_times")
    )
    assert started(folder) == found.rows["journal"]
    filled(folder)  # and it continues
    assert backups.verify(database.database(folder)).rows["journal"] > found.rows["journal"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE journal SET now = now + 1 WHERE seq = 5", "the checksum of row 5 of the journal"),
        ("DELETE FROM journal WHERE seq = 5", "row 5 of the journal is missing"),
        ("UPDATE records SET number = 77 WHERE job = 1 AND ordinal = 3", "row of records with job 1, ordinal 3"),
        ("UPDATE records SET body = CAST(body || x'00' AS BLOB) WHERE ordinal = 4", "records with job 1, ordinal 4"),
        ("UPDATE spans SET body = x'00' WHERE step = 1", "the row of spans with step 1"),
        ("UPDATE artifacts SET sha256 = 'f' || substr(sha256, 2)", "the row of artifacts with job 1, name net.so"),
        ("UPDATE networks SET trials = 65 WHERE job = 2", "the row of networks with job 2"),
        ("UPDATE disturbances SET reason = '' WHERE number = 1", "the row of disturbances with id 1"),
        ("UPDATE stage_times SET count = count + 1", "the row of stage_times with workload w"),
        ("UPDATE header SET count = count + 1 WHERE name = 'records'", f"records has {2 * RECORDS} rows, and 25"),
    ],
)
def test_a_changed_row_is_reported_and_stops_the_start(tmp_path: Path, statement: str, message: str) -> None:
    folder = filled(tmp_path)
    sql(folder, statement)
    with pytest.raises(Damaged, match=message) as refused:
        started(folder)
    assert "autosched db restore" in str(refused.value)
    if "journal" in message:
        assert re.search(r"lost: \d+ events from row 5 on, with the submissions of 1 jobs", str(refused.value))
    assert "--accept-data-loss" in str(refused.value)
    assert refused.value.exit_code == 8


def test_deleted_rows_are_detected(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    sql(folder, "DROP TRIGGER delete_spans", "DELETE FROM spans WHERE step = 1")
    with pytest.raises(Damaged, match=r"spans has \d+ rows, and \d+ were written"):
        started(folder)


def test_commits_deleted_from_the_log_are_detected(tmp_path: Path) -> None:
    """A flipped bit in the write-ahead log: SQLite drops all that follows and reports no error."""
    folder = filled(tmp_path / "one")
    copy = tmp_path / "copy"
    log = killed_copy(database.database(folder), copy, also=10)
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 16
    log.write_bytes(content)
    db = sqlite3.connect(f"file:{database.database(copy)}?mode=ro", uri=True)
    assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    db.close()
    with pytest.raises(Damaged, match=r"commits that were acknowledged are gone, with the events \d+ to \d+"):
        started(copy)
    kept = started(copy, accept_data_loss=True)
    assert 0 < kept < CommitMark(database.database(folder)).read().seq + 10  # type: ignore[union-attr]
    assert started(copy) == kept


def test_a_deleted_database_is_detected(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    database.database(folder).unlink()
    with pytest.raises(Damaged, match="is gone"):
        started(folder)
    assert started(folder, accept_data_loss=True) == 0
    assert started(folder) == 0


def test_flipped_bits_are_detected(tmp_path: Path) -> None:
    """A few of the many that `benchmarks/bit_flips.py` tries."""
    folder = filled(tmp_path / "state")
    log = killed_copy(database.database(folder), tmp_path / "killed", also=10)
    for file in (database.database(folder), log):
        told = flip(file, flips=25, rng=Random(4))
        assert told.found + told.harmless == 25, "some were missed"
        assert told.found > 5


# Going on -------------------------------------------------------------------------------------------------------------


def test_data_loss_is_accepted_up_to_the_first_damaged_event(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    events = backups.verify(database.database(folder)).rows["journal"]
    second = sql(folder, "SELECT seq FROM journal WHERE instr(event, CAST('JobSubmitted' AS BLOB)) ORDER BY seq")[1][0]
    assert isinstance(second, int)
    sql(folder, f"UPDATE journal SET now = now + 1 WHERE seq = {second}")
    (folder / "jobs").mkdir()
    (folder / "jobs" / "secret").write_bytes(b"x" * 32)
    assert started(folder, accept_data_loss=True) == second - 1 < events
    found = backups.verify(database.database(folder))
    assert found.rows["journal"] == second - 1
    assert found.rows["records"] == RECORDS, "those of a job that is not known any more would be taken for another's"
    assert not (folder / "jobs" / "secret").exists(), (
        "numbers of steps and jobs come again: no client from before is admitted"
    )
    (copy,) = folder.glob("damaged-*/autosched.db")
    assert backups.look(copy).damage
    assert started(folder) == second - 1


@pytest.mark.parametrize("statement", ["UPDATE records SET number = number + 1 WHERE job = 1 AND ordinal = 5"])
def test_records_after_a_damaged_one_are_dropped_too(tmp_path: Path, statement: str) -> None:
    folder = filled(tmp_path)
    events = backups.verify(database.database(folder)).rows["journal"]
    sql(folder, statement)
    assert started(folder, accept_data_loss=True) == events
    ordinals = sql(folder, "SELECT job, count(*) FROM records GROUP BY job ORDER BY job")
    assert ordinals == [(1, 5), (2, RECORDS)]


def test_an_unreadable_database_is_replaced_and_kept_aside(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    database.database(folder).write_bytes(b"not a database" * 1_000)
    with pytest.raises(Damaged, match="not a usable database"):
        started(folder)
    assert started(folder, accept_data_loss=True) == 0
    (copy,) = folder.glob("damaged-*/autosched.db")
    assert copy.read_bytes().startswith(b"not a database")


def test_recovery_ends_before_an_event_that_breaks_the_scheduler(tmp_path: Path) -> None:
    folder = filled(tmp_path)
    last = backups.verify(database.database(folder)).rows["journal"]
    body = sql(folder, f"SELECT event FROM journal WHERE seq = {last}")
    sql(
        folder,
        f"INSERT INTO journal SELECT {last + 1}, 0.0, event, journal_crc({last + 1}, 0.0, event, x'90'), x'90'"
        f" FROM journal WHERE seq = {last}",  # time goes back
    )
    assert body
    with pytest.raises(Damaged, match="breaks the scheduler"):
        started(folder)
    assert started(folder, accept_data_loss=True) == last


# Copies ---------------------------------------------------------------------------------------------------------------


def test_a_backup_of_a_database_in_use_is_complete_and_restores(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    before = backups.verify(database.database(folder)).rows

    async def beside() -> Path:
        journal = Journal(database.database(folder), *database.TABLES)
        list(journal.replay())
        journal.start()
        made = backups.make(folder)
        await JobStore(journal).add_artifacts(2, [Artifact("later.so", "c" * 64, 1)])
        journal.close()
        return made

    made = asyncio.run(beside())
    assert backups.verify(made).rows == before
    assert backups.newest(folder) == made
    maintenance.make_snapshot(folder)
    sql(folder, "UPDATE journal SET now = 0 WHERE seq = 2")
    former = backups.restore(folder, made)
    assert former is not None
    assert backups.look(former).damage
    assert started(folder) == before["journal"]
    assert not list(database.snapshots(folder).glob("*.snapshot"))


def test_files_beside_a_database_are_restored_with_it(tmp_path: Path) -> None:
    folder, killed = filled(tmp_path / "state"), tmp_path / "killed"
    log = killed_copy(database.database(filled(tmp_path / "other")), killed, also=10)
    assert log.stat().st_size > 0
    rows = backups.verify(database.database(killed)).rows
    backups.restore(folder, database.database(killed))
    assert backups.verify(database.database(folder)).rows == rows


@pytest.mark.parametrize("foreign", [False, True])
def test_a_file_that_is_no_database_of_autosched_is_not_restored(tmp_path: Path, foreign: bool) -> None:
    folder = filled(tmp_path / "state")
    other = tmp_path / "other.db"
    other.touch()
    if foreign:
        with contextlib.closing(sqlite3.connect(other)) as db:
            db.execute("CREATE TABLE photos (name TEXT)")
    with pytest.raises(Damaged, match=r"holds no database of autosched|not a usable database"):
        backups.restore(folder, other)
    assert sql(folder, "SELECT count(*) FROM journal") > [(0,)]


def test_a_damaged_backup_is_not_restored(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    made = backups.make(folder, tmp_path / "copy.db")
    with pytest.raises(ConfigError, match="exists"):
        backups.make(folder, made)
    db = sqlite3.connect(made, isolation_level=None)
    db.execute("UPDATE spans SET body = x'01'")
    db.close()
    content = database.database(folder).read_bytes()
    with pytest.raises(Damaged, match="spans"):
        backups.restore(folder, made)
    with pytest.raises(NotFound, match="no backup"):
        backups.restore(folder, tmp_path / "nowhere")
    assert database.database(folder).read_bytes() == content


def test_a_damaged_database_is_not_backed_up_and_replaces_no_good_copy(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    first, second = backups.make(folder, keep=2), backups.make(folder, keep=2)
    sql(folder, "UPDATE spans SET body = x'01'")
    with pytest.raises(Damaged):
        backups.make(folder, keep=1)
    assert backups.all_of(folder) == [second, first]
    assert len(list(database.backups(folder).iterdir())) == 2


def test_old_backups_are_deleted(tmp_path: Path) -> None:
    folder = filled(tmp_path / "state")
    made = [backups.make(folder, keep=2) for _ in range(3)]
    assert backups.all_of(folder) == made[:0:-1]


# Earlier forms --------------------------------------------------------------------------------------------------------


def come_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on, the program is a later version, which empties a table when it upgrades."""
    monkeypatch.setattr(schema, "MIGRATIONS", {schema.VERSION: ("DELETE FROM audit",)})
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)


def test_a_database_of_an_earlier_version_is_upgraded_and_kept_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = filled(tmp_path)
    rows = backups.verify(database.database(folder)).rows
    come_later(monkeypatch)
    assert started(folder) == rows["journal"]
    found = backups.verify(database.database(folder))
    assert (found.format, found.rows) == (schema.VERSION, rows | {"audit": 0})
    (kept,) = backups.all_of(folder)
    old = backups.look(kept)
    assert (old.format, old.rows) == (schema.VERSION - 1, rows)
    filled(folder)
    backups.verify(database.database(folder))


@pytest.mark.parametrize("accept", [False, True])
def test_an_upgrade_does_not_hide_damaged_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, accept: bool) -> None:
    folder = filled(tmp_path)
    sql(folder, "UPDATE records SET body = x'00' WHERE job = 2 AND ordinal = 7")
    come_later(monkeypatch)
    if not accept:
        with pytest.raises(Damaged, match="records with job 2, ordinal 7"):
            started(folder)
        assert backups.look(database.database(folder)).format == schema.VERSION - 1
    else:
        started(folder, accept_data_loss=True)
        found = backups.verify(database.database(folder))
        assert (found.format, found.rows["records"]) == (schema.VERSION, RECORDS + 7)


@pytest.mark.parametrize("accept", [False, True])
def test_a_database_from_before_the_first_release_is_refused_with_the_way_to_upgrade_it(
    tmp_path: Path, accept: bool
) -> None:
    folder = filled(tmp_path)
    sql(folder, "PRAGMA application_id = 0", "PRAGMA user_version = 6")
    with pytest.raises(ConfigError, match=rf"as of commit {LAST_UNRELEASED}: autosched db upgrade"):
        started(folder, accept_data_loss=accept)
    (count,) = sql(folder, "SELECT count(*) FROM records")[0]
    assert count == 2 * RECORDS
