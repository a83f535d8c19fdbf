"""The journal: events in order, the decisions on each, and in the same transactions all data that must be as durable.

One thread writes. Everything that arrives during a commit goes into the next transaction: the write rate does not
depend on the disk's flush time, and the thread wakes up once for each transaction. A write is acknowledged after its
commit (WAL, synchronous=FULL).

A row is an event with the steps that were started on it. A replay repeats these decisions and takes none: a changed or
missing policy cannot make it diverge.

Rows carry checksums and the numbers of events have no gaps (`schema.py`). The number of acknowledged commits is also
kept beside the database (`commit_mark.py`), since a damaged write-ahead log loses commits without a trace.
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from autosched.core.events import Event
from autosched.daemon.event_stream.counters import QUICK_BOUNDS_S, Histogram
from autosched.daemon.storage import batched_statements, disk_reserve, schema
from autosched.daemon.storage.batched_statements import Insert, Statement
from autosched.daemon.storage.commit_mark import CommitMark, Mark
from autosched.errors import AutoschedError, ConfigError, Damaged, DiskFull
from autosched.model import Step

log = logging.getLogger(__name__)

T = TypeVar("T")

RETRY_S = 0.5
BATCH_MAX = 1_000
LAZY_S = 0.01
"""Seconds that a lazy write waits for an event that needs a commit anyway."""
LAZY_MAX = 32
"""Maximum number of waiting lazy writes. A connection reads no more while this number of its messages is unfinished."""
TRANSIENT = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
}  # fmt: skip
"""SQLite error codes that may pass: the disk is full or does not answer."""
UNREADABLE = (sqlite3.Error, UnicodeDecodeError)
"""Exceptions from reading a damaged file."""
FAULTS = (sqlite3.Error, OverflowError, TypeError, ValueError)
"""Exceptions from a statement; the last three are for values that SQLite cannot hold."""

EVENT: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
STEPS = msgspec.msgpack.Decoder(tuple[Step, ...])

EVENT_ROW = Insert("journal", 5)
WAYS_OUT = (
    "Nothing was changed. Put back a backup: autosched db restore; or go on without what is damaged, of which a copy is"
    " kept: autosched serve --accept-data-loss"
)

Decided = tuple[Step, ...]
Row = tuple[float, bytes, bytes]
"""Time, encoded event, and encoded steps that were started on it."""


class _Entry(Struct, eq=False):
    statements: tuple[Statement, ...]
    row: Row | None
    done: asyncio.Future[None]


class Journal:
    """The open database. All methods except those of the writer thread are called from the event loop."""

    def __init__(self, path: Path, *tables: str, beside: bool = False) -> None:
        """Open or create the file; `tables`: further statements of its schema. `beside`: read the present state while
        another process writes. Raises Damaged or ConfigError."""
        self.path = path
        self.stalled = ""
        """Why nothing can be written now; empty if all is well."""
        self.stalls = asyncio.Event()
        """Set while nothing can be written."""
        self.worry = ""
        """A warning about the journal: nothing is lost, but something is not as expected."""
        self.reserve: Callable[[], bool] = lambda: False
        """Frees space that was kept for the journal; returns whether it did. Called in the writer thread."""
        self.seq = 0
        """Number of the last durable event."""
        self.written = 0
        """Number of writes since the start."""
        self.turns = 0
        """Number of the writer's rounds, successful or not; grows while the thread is alive."""
        self.commit_s = Histogram(QUICK_BOUNDS_S)
        """Durations of commits; counted in the writer thread."""
        try:
            self._db = open_beside(path) if beside else _connect(path, tables)
            self.commits = commits_of(self._db)
        except UNREADABLE as error:
            raise unreadable(path, error) from None
        self._acknowledged = CommitMark(path)
        self._unwritten: list[_Entry] = []
        """Entries that the writer thread has not taken yet."""
        self._urgent = False
        """Whether a caller waits for one of them."""
        self._patience: asyncio.TimerHandle | None = None
        self._unsettled = 0
        """Number of writes that the writer thread has."""
        self._queue: queue.SimpleQueue[list[_Entry] | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._torn: Exception | None = None
        """Why an event could not be written. Later events depend on it and cannot be written either."""
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader = ThreadPoolExecutor(1, "reader")
        self._reading: sqlite3.Connection | None = None

    # Reading ----------------------------------------------------------------------------------------------------------

    @property
    def db(self) -> sqlite3.Connection:
        """The connection, to be used before `start`."""
        assert self._thread is None, "the connection is the writer's"
        return self._db

    def replay(self, after: int = 0) -> Iterator[tuple[float, Event, Decided]]:
        """Yield the events after number `after` in order, each checked, with the steps started on it.

        Raises Damaged. Must be exhausted before `start`.
        """
        self.seq = after
        try:
            sql = "SELECT seq, now, event, crc, started FROM journal WHERE seq > ? ORDER BY seq"
            rows = self._db.execute(sql, (after,))
            for seq, now, event, crc, started in rows:
                self.seq += 1
                if seq != self.seq:
                    raise self._damaged(f"row {self.seq} is missing")
                if crc != schema.journal_crc(seq, now, event, started):
                    raise self._damaged(f"the checksum of row {seq} does not match")
                try:
                    decoded, steps = EVENT.decode(event), STEPS.decode(started)
                except msgspec.MsgspecError as error:
                    raise self._damaged(f"row {seq} is no event of this version: {error}") from None
                yield now, decoded, steps
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    def _damaged(self, what: str) -> Damaged:
        return Damaged(f"{self.path} is damaged: {what}. {WAYS_OUT}")

    def crc_of(self, seq: int) -> int | None:
        """The checksum of an event's row; None if there is no such row. To be used before `start`."""
        found = [crc for (crc,) in self.rows("SELECT crc FROM journal WHERE seq = ?", seq)]
        return found[0] if found and isinstance(found[0], int) else None

    async def events(self, after: int, limit: int) -> list[tuple[int, Event, Decided]]:
        """Up to `limit` events after a number, each with its number and the steps started on it, as in `replay`."""
        sql = "SELECT seq, event, started FROM journal WHERE seq > ? ORDER BY seq"
        found: list[tuple[int, Event, Decided]] = []
        for seq, event, started in await self.read(sql, after, limit=limit):
            assert isinstance(seq, int) and isinstance(event, bytes) and isinstance(started, bytes)
            found.append((seq, EVENT.decode(event), STEPS.decode(started)))
        return found

    def rows(self, sql: str, *params: object) -> Iterator[tuple[object, ...]]:
        """Query the database before `start`, in the calling thread."""
        try:
            yield from self._db.execute(sql, params)
        except UNREADABLE as error:
            raise unreadable(self.path, error) from None

    async def read(self, sql: str, *params: object, limit: int = -1) -> list[tuple[object, ...]]:
        """Up to `limit` rows of committed data, read in a separate thread."""

        def fetch() -> list[tuple[object, ...]]:
            if self._reading is None:
                self._reading = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10.0)
            cursor = self._reading.execute(sql, params)
            return cursor.fetchall() if limit < 0 else cursor.fetchmany(limit)

        return await asyncio.get_running_loop().run_in_executor(self._reader, fetch)

    # Writing ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Accept writes from now on; call in the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def append(
        self,
        now: float,
        event: Event,
        started: Decided = (),
        also: tuple[Statement, ...] = (),
    ) -> asyncio.Future[None]:
        """Write an event, the steps started on it, and further statements; done when durable. While the disk is full,
        the write waits. If an event cannot be written for another reason, all later events fail, too."""
        return self._put(also, (now, msgspec.msgpack.encode(event), msgspec.msgpack.encode(started)))

    def write(self, *statements: Statement, lazy: bool = False) -> asyncio.Future[None]:
        """Write in one transaction; done when durable. Without statements: done when everything before is durable.

        A lazy write may wait to become durable together with the next event.
        """
        return self._put(statements, None, lazy)

    def _put(self, statements: tuple[Statement, ...], row: Row | None, lazy: bool = False) -> asyncio.Future[None]:
        assert self._loop is not None, "the journal is not started"
        done = self._loop.create_future()
        self._unwritten.append(_Entry(statements, row, done))
        if not lazy or len(self._unwritten) >= LAZY_MAX:
            self._hurry()
        elif self._patience is None:
            self._patience = self._loop.call_later(LAZY_S, self._hurry)
        return done

    def _hurry(self) -> None:
        if not self._urgent:
            self._urgent = True
            if not self._unsettled:
                assert self._loop is not None
                self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        """Give all waiting entries to the writer, which is idle."""
        batch, self._unwritten = self._unwritten[:BATCH_MAX], self._unwritten[BATCH_MAX:]
        self._unsettled, self._urgent = len(batch), bool(self._unwritten)
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        self._queue.put(batch)

    def close(self) -> None:
        """Write what is outstanding, unless the disk is full, and close. Blocks briefly."""
        if self._thread is not None:
            self._closing.set()
            self._queue.put(self._unwritten)
            self._queue.put(None)
            self._thread.join(timeout=2.0)
        self._reader.submit(self._close_reading)
        self._reader.shutdown()
        if self._thread is None or not self._thread.is_alive():
            self._db.close()
            self._acknowledged.close()

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()

    # In the writer thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        while (batch := self._queue.get()) is not None:
            while batch:
                self.turns += 1
                began_at, last_try = time.monotonic(), self._closing.is_set()
                try:
                    self._commit(batch)
                except FAULTS as error:
                    batch = self._after_error(batch, error)
                    if batch and last_try:
                        return
                    if batch:
                        self._closing.wait(RETRY_S)
                else:
                    self.commit_s.add(time.monotonic() - began_at)
                    self._settle([(entry, None) for entry in batch], "")
                    batch = []

    def _commit(self, batch: list[_Entry]) -> None:
        db, commits = self._db, self.commits
        if not any(entry.row or entry.statements for entry in batch):
            return
        try:
            db.execute("BEGIN IMMEDIATE")
            batched_statements.execute(db, self._statements(batch))
            db.execute(schema.COUNT_COMMIT)
            db.execute("COMMIT")
        except FAULTS:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self.seq += sum(entry.row is not None for entry in batch)
        self.commits, self.written = commits + 1, self.written + len(batch)
        self._acknowledged.write(Mark(self.commits, self.seq))

    def _statements(self, batch: list[_Entry]) -> Iterator[Statement]:
        seq = self.seq
        for entry in batch:
            if entry.row is not None:
                if self._torn is not None:
                    raise self._torn
                seq += 1
                now, event, started = entry.row
                crc = schema.journal_crc(seq, now, event, started)
                yield EVENT_ROW, (seq, now, batched_statements.blob(event), crc, batched_statements.blob(started))
            yield from entry.statements

    def _after_error(self, batch: list[_Entry], error: Exception) -> list[_Entry]:
        """Handle a failed batch; returns the entries to be tried again."""
        if may_pass(error) and self.reserve():
            log.error("%s: %s", self.path, disk_reserve.FULL_WORDS)
            self.worry = disk_reserve.FULL_WORDS
            return batch
        if may_pass(error):
            self._settle([], f"{self.path} cannot be written ({error}); free some space on its disk")
            return batch
        for number, entry in enumerate(batch):  # one at a time, to find the entry that fails
            try:
                self._commit([entry])
            except FAULTS as its_own:
                if may_pass(its_own):
                    return batch[number:]
                if entry.row is not None:
                    self._torn = its_own
                self._settle([(entry, its_own)], "")
            else:
                self._settle([(entry, None)], "")
        return []

    def _settle(self, entries: list[tuple[_Entry, Exception | None]], stalled: str) -> None:
        assert self._loop is not None
        if entries or stalled != self.stalled:
            self._loop.call_soon_threadsafe(self._resolve, entries, stalled)

    # Back in the loop -------------------------------------------------------------------------------------------------

    def _resolve(self, entries: list[tuple[_Entry, Exception | None]], stalled: str) -> None:
        if stalled != self.stalled:
            log.log(logging.ERROR if stalled else logging.WARNING, "%s", stalled or "storing works again")
            self.stalled = stalled
            if stalled:
                self.stalls.set()
            else:
                self.stalls.clear()
        for entry, error in entries:
            if entry.done.done():
                continue
            if error is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(error)
        self._unsettled -= len(entries)
        if entries and self._urgent and not self._unsettled:
            self._hand_over()


def open_beside(path: Path) -> sqlite3.Connection:
    """Open a database for reading, all tables as of the same moment, while a daemon may be writing. Raises one of
    UNREADABLE."""
    uri = path.absolute().as_uri()
    db = sqlite3.connect(f"{uri}?mode=ro", uri=True, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        schema.add_functions(db)
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()
    except BaseException:
        db.close()
        raise
    return db


def commits_of(db: sqlite3.Connection) -> int:
    """Number of commits in a database; 0 for a schema version that did not count them."""
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'header'").fetchone() is None:
        return 0
    row = db.execute("SELECT count FROM header WHERE name = ?", (schema.COMMITS,)).fetchone()
    return int(row[0]) if row is not None else 0


def _connect(path: Path, tables: tuple[str, ...]) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        schema.version(db, path)
        schema.add_functions(db)
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        schema.prepare(db, path, tables)
    except BaseException:
        db.close()
        raise
    return db


def may_pass(error: Exception) -> bool:
    """Whether an error is caused by missing space or rights, and not by the content of the file."""
    code: int = getattr(error, "sqlite_errorcode", 0)  # errors of the sqlite3 module itself have no code
    return code & 0xFF in TRANSIENT


def unreadable(path: Path, error: Exception) -> AutoschedError:
    """The exception for an error of SQLite at the start."""
    if may_pass(error) and disk_reserve.is_full(path.parent):
        return DiskFull(f"{path} cannot be opened, since its disk is full. Free some space, or: autosched db prune")
    if may_pass(error):
        return ConfigError(f"{path} cannot be opened ({error}); check the disk and the rights of daemon.state_dir")
    return Damaged(f"{path} is not a usable database ({error}). {WAYS_OUT}")
