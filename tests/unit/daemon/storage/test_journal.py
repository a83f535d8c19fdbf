"""The database: acknowledged data are there, damage is detected, a full disk loses nothing."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from autosched.core.events import ClientLost, Event, StepEnded
from autosched.daemon.storage import journal as journal_module
from autosched.daemon.storage.journal import LAZY_MAX, Journal
from autosched.errors import ConfigError, Damaged
from autosched.model import Outcome, Step
from deadlines import DEADLINE_S

STEP = Step(id=3, job=1, task=2, stage="build", units=("host/0",), started_at=1.0, deadline_at=9.0)
TABLE = "CREATE TABLE IF NOT EXISTS notes (body TEXT) STRICT"


def event(job: int) -> Event:
    return ClientLost(job, f"reason {job}")


def with_journal(path: Path, work: Callable[[Journal], Awaitable[None]]) -> None:
    async def run() -> None:
        journal = Journal(path, TABLE)
        list(journal.replay())
        journal.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await work(journal)
        finally:
            journal.close()

    asyncio.run(run())


def replayed(path: Path) -> list[tuple[float, Event]]:
    journal = Journal(path, TABLE)
    try:
        return [(now, happened) for now, happened, _ in journal.replay()]
    finally:
        journal.close()


def test_events_come_back_in_order_with_their_times(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        for job in range(5):
            await journal.append(job / 2, event(job))

    with_journal(tmp_path / "db", work)
    with_journal(tmp_path / "db", work)
    assert replayed(tmp_path / "db") == [(job / 2, event(job)) for job in range(5)] * 2


def test_many_writers_share_transactions_and_keep_their_order(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        await asyncio.gather(*(journal.append(0.0, event(job)) for job in range(3_000)))

    with_journal(tmp_path / "db", work)
    assert [happened.job for _, happened in replayed(tmp_path / "db") if isinstance(happened, ClientLost)] == list(
        range(3_000)
    )


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Returns the number of writes in each transaction."""
    sizes: list[int] = []
    commit = Journal._commit

    def counting(self: Journal, batch: list[Any]) -> None:
        sizes.append(len(batch))
        commit(self, batch)

    monkeypatch.setattr(Journal, "_commit", counting)
    return sizes


def test_a_lazy_write_shares_the_transaction_of_the_next_event(
    tmp_path: Path, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "LAZY_S", 3_600.0)

    async def work(journal: Journal) -> None:
        notes = []
        for number in range(3):
            notes.append(journal.write(("INSERT INTO notes VALUES (?)", (str(number),)), lazy=True))
            await asyncio.sleep(0)
        assert not any(note.done() for note in notes)
        await journal.append(1.0, event(1))
        assert all(note.done() for note in notes)
        assert commits == [4]

    with_journal(tmp_path / "db", work)


def test_lazy_writes_do_not_wait_for_an_event_that_does_not_come(
    tmp_path: Path, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(journal: Journal) -> None:
        await journal.write(("INSERT INTO notes VALUES ('alone')", ()), lazy=True)
        monkeypatch.setattr(journal_module, "LAZY_S", 3_600.0)
        many = [journal.write(("INSERT INTO notes VALUES ('of many')", ()), lazy=True) for _ in range(LAZY_MAX)]
        await asyncio.gather(*many)
        assert commits == [1, LAZY_MAX]
        last = journal.write(("INSERT INTO notes VALUES ('last')", ()), lazy=True)
        await journal.write()
        assert last.done()

    with_journal(tmp_path / "db", work)


def test_decisions_come_back_with_their_events(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        await journal.append(0.0, event(1), (STEP, STEP))
        await journal.append(1.0, event(2))

    with_journal(tmp_path / "db", work)
    journal = Journal(tmp_path / "db", TABLE)
    assert list(journal.replay()) == [(0.0, event(1), (STEP, STEP)), (1.0, event(2), ())]
    journal.close()


def test_what_belongs_to_an_event_is_written_with_it_or_not_at_all(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        note = ("INSERT INTO notes VALUES (?)", ("kept",))
        await journal.append(1.0, event(1), (), (note,))
        with pytest.raises(sqlite3.Error):
            await journal.append(2.0, event(2), (), (note, ("INSERT INTO nowhere VALUES (1)", ())))
        assert await journal.read("SELECT body FROM notes") == [("kept",)]

    with_journal(tmp_path / "db", work)
    assert [now for now, _ in replayed(tmp_path / "db")] == [1.0]


def test_an_event_that_cannot_be_written_takes_all_later_ones_with_it_and_nothing_else(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        before = journal.append(1.0, event(1))
        torn = journal.append(2.0, event(2), (), (("INSERT INTO nowhere VALUES (1)", ()),))
        after = [journal.append(3.0, event(3)), journal.append(4.0, event(4))]
        beside = journal.write(("INSERT INTO notes VALUES (?)", ("kept",)))
        for lost in (torn, *after):
            with pytest.raises(sqlite3.Error, match="no such table"):
                await lost
        with pytest.raises(sqlite3.Error, match="no such table"):
            await journal.append(5.0, event(5))
        await asyncio.gather(before, beside)

    with_journal(tmp_path / "db", work)
    assert [now for now, _ in replayed(tmp_path / "db")] == [1.0]


def test_a_faulty_write_hurts_only_itself(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        good = [journal.append(0.0, event(job)) for job in range(20)]
        bad = journal.write(("INSERT INTO nowhere VALUES (1)", ()))
        more = [journal.append(0.0, event(job)) for job in range(20, 40)]
        await asyncio.gather(*good, *more)
        with pytest.raises(sqlite3.OperationalError, match="no such table"):
            await bad

    with_journal(tmp_path / "db", work)
    assert len(replayed(tmp_path / "db")) == 40


def test_a_value_that_the_database_cannot_hold_hurts_only_its_write(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        with pytest.raises(OverflowError):
            await journal.write(("INSERT INTO notes VALUES (?)", (2**70,)))
        with pytest.raises(sqlite3.Error):
            await journal.write(("INSERT INTO notes VALUES (?)", (object(),)))
        await journal.append(1.0, event(1))

    with_journal(tmp_path / "db", work)
    assert len(replayed(tmp_path / "db")) == 1


def test_what_was_written_can_be_read_at_once(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        for number in range(3):
            await journal.write(("INSERT INTO notes VALUES (?)", (f"note {number}",)))
            assert len(await journal.read("SELECT * FROM notes")) == number + 1
        assert len(await journal.read("SELECT * FROM notes", limit=2)) == 2

    with_journal(tmp_path / "db", work)


# Damage --------------------------------------------------------------------------------------------------------------


def written(path: Path, count: int = 6) -> None:
    async def work(journal: Journal) -> None:
        for job in range(count):
            await journal.append(float(job), StepEnded(job, Outcome.DONE, None, "an error text of some length"))

    with_journal(path, work)


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE journal SET event = CAST(event || x'00' AS BLOB) WHERE seq = 3",
            "the checksum of row 3 does not match",
        ),
        (
            "UPDATE journal SET started = CAST(started || x'00' AS BLOB) WHERE seq = 3",
            "the checksum of row 3 does not match",
        ),
        ("UPDATE journal SET started = NULL WHERE seq = 3", "the checksum of row 3 does not match"),
        ("UPDATE journal SET now = 9.0 WHERE seq = 3", "the checksum of row 3 does not match"),
        ("DELETE FROM journal WHERE seq = 3", "row 3 is missing"),
        ("DELETE FROM journal WHERE seq = 1", "row 1 is missing"),
        ("UPDATE journal SET seq = 7 WHERE seq = 6", "row 6 is missing"),
    ],
)
def test_a_damaged_row_is_found_and_named(tmp_path: Path, statement: str, message: str) -> None:
    written(tmp_path / "db")
    database = sqlite3.connect(tmp_path / "db", isolation_level=None)
    database.execute(statement)
    database.close()
    with pytest.raises(Damaged, match=message):
        replayed(tmp_path / "db")


def test_a_flipped_bit_in_the_file_is_found(tmp_path: Path) -> None:
    """SQLite's own integrity check does not detect it."""
    written(tmp_path / "db")
    content = bytearray((tmp_path / "db").read_bytes())
    content[content.index(b"an error text") + 3] ^= 4
    (tmp_path / "db").write_bytes(content)
    database = sqlite3.connect(tmp_path / "db")
    assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    database.close()
    with pytest.raises(Damaged, match="checksum of row"):
        replayed(tmp_path / "db")


@pytest.mark.parametrize(
    "content", [b"not a database, but long enough to look like one" * 50, b"SQLite format 3\0" * 99]
)
def test_what_is_no_database_is_refused_and_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "db").write_bytes(content)
    with pytest.raises(Damaged, match="not a usable database"):
        replayed(tmp_path / "db")
    assert (tmp_path / "db").read_bytes() == content


def test_a_newer_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "db")
    database = sqlite3.connect(tmp_path / "db")
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(ConfigError, match="newer autosched"):
        replayed(tmp_path / "db")


def test_a_folder_that_is_not_there_is_the_operators_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be opened"):
        Journal(tmp_path / "nowhere" / "db")


# A full disk -------------------------------------------------------------------------------------------------------


def fill(journal: Journal) -> None:
    journal._db.execute("PRAGMA max_page_count = 1")  # SQLite takes the present size when that is larger


def free(journal: Journal) -> None:
    journal._db.execute("PRAGMA max_page_count = 1000000")


BIG: Event = ClientLost(1, "x" * 100_000)


def test_a_full_disk_delays_and_loses_nothing(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        await journal.append(0.0, event(0))
        fill(journal)
        waiting = [journal.append(1.0, BIG), journal.append(2.0, event(2))]
        await journal.stalls.wait()
        assert "free some space" in journal.stalled
        assert not any(write.done() for write in waiting)
        assert await journal.read("SELECT count(*) FROM journal") == [(1,)]
        free(journal)
        await asyncio.gather(*waiting)
        assert journal.stalled == ""
        assert not journal.stalls.is_set()
        await journal.append(4.0, event(4))

    with_journal(tmp_path / "db", work)
    assert [now for now, _ in replayed(tmp_path / "db")] == [0.0, 1.0, 2.0, 4.0]


def test_a_full_disk_does_not_keep_the_daemon_from_ending(tmp_path: Path) -> None:
    async def work(journal: Journal) -> None:
        fill(journal)
        outstanding = journal.append(1.0, BIG)
        await journal.stalls.wait()
        assert not outstanding.done()

    with_journal(tmp_path / "db", work)
    assert replayed(tmp_path / "db") == []


def test_the_real_error_of_a_limited_file_is_taken_for_a_full_disk(tmp_path: Path) -> None:
    """The kernel limits the file, in a separate process, since the limit cannot be raised again."""
    program = """
import asyncio, resource, sys
from pathlib import Path
from autosched.core.events import ClientLost
from autosched.daemon.storage.journal import Journal
async def main():
    journal = Journal(Path(sys.argv[1]))
    list(journal.replay())
    journal.start()
    await journal.append(0.0, ClientLost(1, "small"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
    waits = journal.append(1.0, ClientLost(1, "x" * 1_000_000))
    await journal.stalls.wait()
    print(journal.stalled)
    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    await waits
    journal.close()
asyncio.run(main())
"""
    answer = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "db")], capture_output=True, text=True, timeout=DEADLINE_S
    )
    assert answer.returncode == 0, answer.stderr
    assert "free some space" in answer.stdout
    assert [now for now, _ in replayed(tmp_path / "db")] == [0.0, 1.0]


# Sudden death --------------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    program = """
import asyncio, sys
from pathlib import Path
from autosched.core.events import ClientLost
from autosched.daemon.storage.journal import Journal
async def main():
    journal = Journal(Path(sys.argv[1]))
    list(journal.replay())
    journal.start()
    for job in range(10**9):
        await journal.append(float(job), ClientLost(job, "x" * 100))
        print(job, flush=True)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", program, str(tmp_path / "db")], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            acknowledged = -1
            while acknowledged < 200:
                acknowledged = int(child.stdout.readline())
        finally:
            child.kill()
        rest = child.stdout.read().split(b"\n")
    acknowledged = max([acknowledged, *(int(line) for line in rest[:-1] if line)])
    found = [now for now, _ in replayed(tmp_path / "db")]
    assert found == [float(job) for job in range(len(found))]
    assert acknowledged < len(found) <= acknowledged + 2
