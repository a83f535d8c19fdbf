"""The database: events in order, what was decided on each, and in the same transactions whatever must be as durable.

One thread writes. Everything that arrives while it commits goes into its next transaction, so the rate of writes does
not depend on how slow the disk flushes. A write is acknowledged after its commit (WAL, synchronous=FULL).

A row is an event and the steps that were started on it, so that a replay repeats decisions and takes none: another
version of a policy, or a policy that is not installed any more, cannot make it diverge.

SQLite does not notice flipped bits, so each row carries a CRC over its number, time and content, and numbers have
no gaps; both are checked when the journal is replayed.
"""

import asyncio
import logging
import queue
import sqlite3
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from autosched.core.events import Event
from autosched.errors import AutoschedError, ConfigError, Refused
from autosched.model import Step

log = logging.getLogger(__name__)

Statement = tuple[str, tuple[object, ...]]
T = TypeVar("T")

SCHEMA_VERSION = 2
SCHEMA = (
    "CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, now REAL, event BLOB, crc INTEGER, started BLOB)"
    " STRICT"
)
MIGRATIONS = {1: "ALTER TABLE journal ADD COLUMN started BLOB"}
"""From each earlier format to the next one."""
RETRY_S = 0.5
BATCH_MAX = 1_000
LAZY_S = 0.01
"""What nobody waits for lets so much time pass, in case that an event comes which would have to wait for its commit."""
LAZY_MAX = 32
"""So much of it waits for nothing: a connection takes no more while so many of its messages are under way."""
TRANSIENT = {
    sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
}  # fmt: skip
"""Errors that may pass: the disk is full or does not answer."""
FAULTS = (sqlite3.Error, OverflowError, TypeError, ValueError)
"""What a statement can raise: the last three for values that SQLite cannot hold."""

_EVENT: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)
_STEPS = msgspec.msgpack.Decoder(tuple[Step, ...])

Decided = tuple[Step, ...]
Row = tuple[float, bytes, bytes]
"""When, the event, and the steps that were started on it, encoded."""


class JournalDamaged(AutoschedError):
    """The journal on disk is not what was written."""


@dataclass(slots=True, eq=False)
class _Entry:
    statements: tuple[Statement, ...]
    row: Row | None
    droppable: bool
    lazy: bool
    done: asyncio.Future[None]


class Journal:
    """The open database. Everything but the writer thread's own part is called from the event loop."""

    def __init__(self, path: Path, *tables: str) -> None:
        """Open or create the file; `tables` are further statements that make its schema. Raises JournalDamaged."""
        self.path = path
        self.stalled = ""
        """Why nothing can be written now; empty when all is well."""
        self.seq = 0
        """Number of the last durable event."""
        try:
            self._db = _connect(path, (SCHEMA, *tables))
        except sqlite3.Error as error:
            raise _unreadable(path, error) from None
        self._queue: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader = ThreadPoolExecutor(1, "reader")
        self._reading: sqlite3.Connection | None = None

    # Reading ----------------------------------------------------------------------------------------------------------

    def replay(self) -> Iterator[tuple[float, Event, Decided | None]]:
        """All events in order, each checked, with the steps started on it; None: the row is older than that column.

        Raises JournalDamaged. To be exhausted before `start`.
        """
        try:
            rows = self._db.execute("SELECT seq, now, event, crc, started FROM journal ORDER BY seq")
            for seq, now, event, crc, started in rows:
                self.seq += 1
                if seq != self.seq:
                    raise self._damaged(f"row {self.seq} is missing")
                if crc != _crc(seq, now, event, started):
                    raise self._damaged(f"the checksum of row {seq} does not match")
                try:
                    decoded = _EVENT.decode(event)
                    steps = None if started is None else _STEPS.decode(started)
                except msgspec.MsgspecError as error:
                    raise self._damaged(f"row {seq} is no event of this version: {error}") from None
                yield now, decoded, steps
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from None

    def _damaged(self, what: str) -> JournalDamaged:
        return JournalDamaged(
            f"{self.path} is damaged: {what}. Nothing was changed. Restore a backup of the state folder, or move the"
            " folder away to start with an empty one"
        )

    def rows(self, sql: str, *params: object) -> Iterator[tuple[object, ...]]:
        """Read before `start`, at once."""
        try:
            yield from self._db.execute(sql, params)
        except sqlite3.Error as error:
            raise _unreadable(self.path, error) from None

    async def read(self, sql: str, *params: object, limit: int = -1) -> list[tuple[object, ...]]:
        """Up to `limit` rows of what is committed, read in a thread of its own."""

        def fetch() -> list[tuple[object, ...]]:
            if self._reading is None:
                self._reading = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10.0)
            cursor = self._reading.execute(sql, params)
            return cursor.fetchall() if limit < 0 else cursor.fetchmany(limit)

        return await asyncio.get_running_loop().run_in_executor(self._reader, fetch)

    # Writing ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to accept writes; inside the running loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._work, name="journal", daemon=True)
        self._thread.start()

    def append(
        self,
        now: float,
        event: Event,
        started: Decided = (),
        also: tuple[Statement, ...] = (),
        *,
        droppable: bool = False,
    ) -> asyncio.Future[None]:
        """Write an event, the steps started on it and what belongs to them; done when durable. A droppable one is
        Refused when the disk is full, any other waits until it is not."""
        return self._put(also, (now, msgspec.msgpack.encode(event), msgspec.msgpack.encode(started)), droppable)

    def write(self, *statements: Statement, lazy: bool = False) -> asyncio.Future[None]:
        """Write in one transaction; done when durable. Without statements: when everything before is durable.

        A lazy write is for what only has to be durable together with the next event.
        """
        return self._put(statements, None, False, lazy)

    def _put(
        self, statements: tuple[Statement, ...], row: Row | None, droppable: bool, lazy: bool = False
    ) -> asyncio.Future[None]:
        assert self._loop is not None, "the journal is not started"
        done = self._loop.create_future()
        self._queue.put(_Entry(statements, row, droppable, lazy, done))
        return done

    def close(self) -> None:
        """Write what is outstanding, unless the disk is full, and close. Blocks for a moment."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join(timeout=2.0)
        self._reader.submit(self._close_reading)
        self._reader.shutdown()
        if self._thread is None or not self._thread.is_alive():
            self._db.close()

    def _close_reading(self) -> None:
        if self._reading is not None:
            self._reading.close()

    # In the writer thread ---------------------------------------------------------------------------------------------

    def _work(self) -> None:
        batch: list[_Entry] = []
        open_ = True
        while open_ or batch:
            batch, open_ = self._gather(batch, open_)
            try:
                self._commit(batch)
            except FAULTS as error:
                batch = self._after_error(batch, error)
                if not open_:
                    return
            else:
                self._settle([(entry, None) for entry in batch], "")
                batch = []

    def _gather(self, batch: list[_Entry], open_: bool) -> tuple[list[_Entry], bool]:
        """Add what has arrived; wait for something to arrive, or after a failure for a moment."""
        retrying = bool(batch)
        timeout_s = RETRY_S if retrying else None
        lazy = not retrying
        until = 0.0
        while open_ and (retrying or len(batch) < BATCH_MAX):
            try:
                entry = self._queue.get(timeout=timeout_s)
            except queue.Empty:
                break
            if entry is None:
                open_ = False
            else:
                batch.append(entry)
                lazy = lazy and entry.lazy and len(batch) < LAZY_MAX
            until = until or time.monotonic() + LAZY_S
            timeout_s = max(0.0, until - time.monotonic()) if lazy else 0.0
        return batch, open_

    def _commit(self, batch: list[_Entry]) -> None:
        db, seq = self._db, self.seq
        try:
            db.execute("BEGIN IMMEDIATE")
            for entry in batch:
                if entry.row is not None:
                    seq += 1
                    now, event, started = entry.row
                    crc = _crc(seq, now, event, started)
                    db.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", (seq, now, event, crc, started))
                for sql, params in entry.statements:
                    db.execute(sql, params)
            db.execute("COMMIT")
        except FAULTS:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise
        self.seq = seq

    def _after_error(self, batch: list[_Entry], error: Exception) -> list[_Entry]:
        """Returns what is to be tried again."""
        if _code(error) in TRANSIENT:
            why = f"{self.path} cannot be written ({error}); free some space on its disk"
            refused = Refused(f"the daemon cannot store anything now: {why}, then try again")
            self._settle([(entry, refused) for entry in batch if entry.droppable], why)
            return [entry for entry in batch if not entry.droppable]
        if len(batch) > 1:  # find out whose fault it is
            for entry in batch:
                try:
                    self._commit([entry])
                except FAULTS as its_own:
                    self._settle([(entry, its_own)], "")
                else:
                    self._settle([(entry, None)], "")
        else:
            self._settle([(batch[0], error)], "")
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
        for entry, error in entries:
            if entry.done.done():
                continue
            if error is None:
                entry.done.set_result(None)
            else:
                entry.done.set_exception(error)


def _connect(path: Path, schema: tuple[str, ...]) -> sqlite3.Connection:
    db = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10.0)
    try:
        version = db.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise ConfigError(f"{path} was written by a newer autosched (format {version}); install that again")
        db.execute("PRAGMA journal_mode = WAL")
        db.execute("PRAGMA synchronous = FULL")
        migrations = [MIGRATIONS[earlier] for earlier in range(version or SCHEMA_VERSION, SCHEMA_VERSION)]
        set_version = f"PRAGMA user_version = {SCHEMA_VERSION}"
        for statement in ("BEGIN IMMEDIATE", *migrations, *schema, set_version, "COMMIT"):
            db.execute(statement)
    except BaseException:
        db.close()
        raise
    return db


def _crc(seq: int, now: float, event: bytes, started: bytes | None) -> int:
    crc = zlib.crc32(event, zlib.crc32(struct.pack(">qd", seq, now)))
    return crc if started is None else zlib.crc32(started, crc)


def _code(error: Exception) -> int:
    code: int = getattr(error, "sqlite_errorcode", 0)  # errors of Python's own layer have none
    return code & 0xFF


def _unreadable(path: Path, error: sqlite3.Error) -> AutoschedError:
    if _code(error) in TRANSIENT:
        return ConfigError(f"{path} cannot be opened ({error}); check the disk and the rights of daemon.state_dir")
    return JournalDamaged(
        f"{path} is not a usable database ({error}). Nothing was changed. Restore a backup of the state folder, or"
        " move the folder away to start with an empty one"
    )
