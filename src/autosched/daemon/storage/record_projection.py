"""Copies records to the record store, after they are durable in the daemon's own database.

The rows of the database are the queue: an unreachable store costs no memory, and no step waits for it. One thread of
low duty reads and writes a batch at a time; the store's cursor says where the next batch begins. A batch that was
written twice or in part counts once (`recordstore/store.py`).
"""

import asyncio
import contextlib
import json
import logging
import socket
import sqlite3
import time
from collections.abc import Callable, Set
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec
from msgspec import Struct

from autosched.backend import Network
from autosched.daemon.event_stream.daemon_events import Recorded, RecordsTagged
from autosched.daemon.storage import schema
from autosched.daemon.storage.job_store import decoded
from autosched.daemon.storage.projection_status import ProjectionStatus
from autosched.errors import AutoschedError, StoreUnavailable
from autosched.model import Identity, IdentityFrom, JobId, Purpose, Record, TaskInfo
from autosched.records import identity
from autosched.recordstore.keys import environment, measurement_id
from autosched.recordstore.rows import Cursor, Measurement, Origin, SourceJob, Tag, Workload

if TYPE_CHECKING:  # SQLAlchemy is imported in the thread: the daemon's start does not wait for it
    from autosched.recordstore.store import RecordStore

log = logging.getLogger(__name__)
T = TypeVar("T")

RECORDS = "records.db"
"""Name of the store's file in the state folder, if the settings name no other store."""
BATCH = 1_000
"""Maximum records, and maximum tags, of one transaction."""
GATHER_S = 5.0
"""Seconds that records are gathered before they are copied, unless a caller waits for them. Each job with records in a
batch costs queries of its own."""
LOOK_S = 30.0
"""Seconds between two checks of the database without notifications: a full disk may delay rows."""
RETRY_S, RETRY_MAX_S = 1.0, 30.0
"""Seconds until the next try of a store that failed: the first ones, doubled each time, and the maximum."""
DEADLINE_S = 60.0
"""Seconds after which the connection of a store that does not answer is cut."""
JOBS_KEPT = BATCH
"""Maximum number of jobs whose networks are kept decoded; a batch has at most this number."""

_NETWORK = msgspec.msgpack.Decoder(Network)
_IDENTITY = msgspec.msgpack.Decoder(Identity)
Facts = Callable[[JobId], tuple[SourceJob, str]]
"""Returns a job as named in the store, and the name of its backend."""
RECORDS_AFTER = (
    "SELECT r.rowid, r.crc, r.job, r.body, d.reason FROM records r"
    " LEFT JOIN disturbances d ON d.job = r.job AND d.number = r.number WHERE r.rowid > ? ORDER BY r.rowid LIMIT ?"
)
TAGS_AFTER = "SELECT id, job, number, reason FROM disturbances WHERE id > ? ORDER BY id LIMIT ?"
VERSIONS = (
    "SELECT job, crc, (SELECT count(*) FROM identities i WHERE i.job = n.job) FROM networks n"
    " WHERE job IN (SELECT value FROM json_each(?))"
)
LAST = "SELECT (SELECT coalesce(max(rowid), 0) FROM records), (SELECT coalesce(max(id), 0) FROM disturbances)"


class _Planned(Struct, frozen=True):
    """A job's network as stored."""

    crc: int
    tasks: dict[int, TaskInfo]
    identities: tuple[IdentityFrom, ...]


class _Piece(Struct, frozen=True):
    """Rows of the database after a cursor, and the cursor after them."""

    records: tuple[tuple[JobId, Record], ...]
    planned: dict[JobId, _Planned]
    tags: tuple[Tag, ...]
    after: Cursor
    left: int
    """Number of rows beyond this piece."""


class RecordProjection:
    """Keeps the record store up to date with one daemon's database."""

    KINDS: ClassVar = (Recorded, RecordsTagged)

    def __init__(self, database: Path, url: str | Path, facts: Facts, status: ProjectionStatus) -> None:
        """`url`: URL of the store, or its file; raises ConfigError for an unusable one. `facts` is called in the event
        loop."""
        self._database, self._facts, self._status = database, facts, status
        self._url = url
        self._news = asyncio.Event()
        self._taken, self._repeated = 0, -1
        """Numbers of events: of the last one, and of the last one whose records are in the store."""
        self._progress = asyncio.Event()
        self._wanted = asyncio.Event()
        """Set while a caller waits for the present records."""
        self._thread = ThreadPoolExecutor(1, "record store")
        self._store: RecordStore | None = None
        self._reading: sqlite3.Connection | None = None
        self._planned: dict[JobId, _Planned] = {}
        self._cursor: Cursor | None = None
        """Position up to which the store has this database's rows; None if unknown."""
        self._reached = Cursor()
        """The last known cursor."""
        self._origin: Origin | None = None
        self._batch = BATCH
        status.url = str(url)
        if isinstance(url, str):
            from autosched.recordstore import opening

            status.url = opening.shown(opening.read_url(url))

    def take(self, *_: object) -> None:
        """Note that records or tags were stored."""
        self._taken += 1
        self._news.set()

    async def caught_up(self, timeout_s: float) -> None:
        """Wait until the store has all present records, for `timeout_s` seconds at most."""
        wanted = self._taken
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._repeated < wanted:
                    self._wanted.set()
                    self._news.set()  # rows of an earlier daemon bring no notification
                    await self._progress.wait()

    async def run(self) -> None:
        """Copy rows as they come, until cancelled."""
        retry_s = RETRY_S
        try:
            while True:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(LOOK_S):
                        await self._news.wait()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(GATHER_S):
                        await self._wanted.wait()
                self._wanted.clear()
                self._news.clear()
                taken = self._taken
                try:
                    await self._catch_up()
                except AutoschedError as error:
                    self._fail(error)
                    await asyncio.sleep(retry_s)
                    retry_s = min(RETRY_MAX_S, 2 * retry_s)
                    self._news.set()
                    continue
                if self._status.trouble:
                    log.warning("the record store works again")
                self._status.trouble, retry_s = "", RETRY_S
                self._repeated = taken
                self._progress.set()
                self._progress = asyncio.Event()
        finally:
            if self._store is not None:
                self._store.interrupt()
            self._thread.submit(self._end)
            self._thread.shutdown(wait=False)

    def _fail(self, error: AutoschedError) -> None:
        if not self._status.trouble:
            log.warning("%s; jobs go on, and it catches up later", error)
        waiting = f"; {self._status.behind} measurements wait for it in the daemon's own database"
        self._status.trouble = f"{error}{waiting if self._status.behind else ''}"

    async def _catch_up(self) -> None:
        """Copy all rows that are in the database now. Raises AutoschedError."""
        left = 1
        while left:
            began_at = time.monotonic()
            piece = await self._in_thread(self._read)
            facts = {job: self._facts(job) for job in piece.planned}
            stored = await self._in_thread(partial(self._write, piece, facts))
            if stored:
                left = piece.left
                self._status.behind = left
                self._status.stored += len(piece.records) + len(piece.tags)
            if left:  # work half of the time at most, so that a long backlog does not slow the daemon down
                await asyncio.sleep(time.monotonic() - began_at)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run work in the thread. Raises StoreUnavailable if the store does not answer for too long."""
        done = asyncio.get_running_loop().run_in_executor(self._thread, work)
        while not (await asyncio.wait({done}, timeout=DEADLINE_S))[0]:
            log.warning("the record store does not answer for %.0f s; the connection is cut", DEADLINE_S)
            if self._store is not None:
                self._store.interrupt()
        return await done

    # In the thread ----------------------------------------------------------------------------------------------------

    def _read(self) -> _Piece:
        try:
            db = self._open()
            last_record, last_tag = db.execute(LAST).fetchone()
            known = self._reached  # the last known position, if the store does not answer now
            self._status.behind = max(0, last_record - known.record) + max(0, last_tag - known.tag)
            self._connect(db)  # before the transaction: the store may take long to answer
            db.execute("BEGIN")  # one transaction: all tables as of the same moment
            try:
                last_record, last_tag = db.execute(LAST).fetchone()
                cursor = self._begin(db, last_record, last_tag)
                rows = db.execute(RECORDS_AFTER, (cursor.record, self._batch)).fetchall()
                tags = db.execute(TAGS_AFTER, (cursor.tag, self._batch)).fetchall()
                planned = self._plans(db, {row[2] for row in rows})
            finally:
                db.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._close()
            raise StoreUnavailable(f"{self._database} cannot be read for the record store ({error})") from None
        after = Cursor(
            rows[-1][0] if rows else cursor.record,
            rows[-1][1] if rows else cursor.record_crc,
            tags[-1][0] if tags else cursor.tag,
        )
        records = [(job, _record(body, disturbed)) for _, _, job, body, disturbed in rows]
        return _Piece(
            tuple((job, record) for job, record in records if record is not None),
            planned,
            tuple(Tag(job, number, reason) for _, job, number, reason in tags),
            after,
            (last_record - after.record) + (last_tag - after.tag),
        )

    def _connect(self, db: sqlite3.Connection) -> None:
        """Connect to the store and read its cursor. Raises StoreUnavailable."""
        from autosched.recordstore.store import RecordStore

        if self._store is None:
            from autosched.recordstore import opening

            url = self._url
            self._store = RecordStore(opening.file_url(url) if isinstance(url, Path) else url)
        if self._origin is None:
            name = schema.origin_name(lambda sql, *values: db.execute(sql, values))
            self._origin = Origin(name, detail=socket.gethostname())
        if self._cursor is None:
            self._cursor = self._store.cursor(self._origin)
        self._reached = self._cursor

    def _begin(self, db: sqlite3.Connection, last_record: int, last_tag: int) -> Cursor:
        """The cursor to go on from: the store's, or the start if the database has another row there."""
        cursor = self._reached
        row = db.execute("SELECT crc FROM records WHERE rowid = ?", (cursor.record,)).fetchone()
        gone = cursor.record > last_record or cursor.tag > last_tag
        if gone or (row is not None and row[0] != cursor.record_crc):  # a missing row was pruned
            log.warning("the database is not the one whose records are stored (a backup of it?); it begins anew")
            return Cursor()
        return cursor

    def _write(self, piece: _Piece, facts: dict[JobId, tuple[SourceJob, str]]) -> bool:
        """Write a piece; returns whether it was written. If not, the caller retries from the store's cursor."""
        from autosched.recordstore.opening import Unstorable
        from autosched.recordstore.store import YIELD_ROWS, CursorMoved

        store, origin, before = self._store, self._origin, self._cursor
        assert store is not None and origin is not None and before is not None
        measurements: list[Measurement] = []
        for number, (job, record) in enumerate(piece.records):
            if number % YIELD_ROWS == 0:
                time.sleep(0)
            one = _measurement(origin.name, *facts[job], piece.planned[job], record)
            if one is not None:
                measurements.append(one)
        self._cursor = None  # unknown if this fails
        try:
            store.write(origin, measurements, piece.tags, before, piece.after)
        except CursorMoved:
            log.warning("another process repeats the same database in the record store")
            return False
        except Unstorable as error:
            if self._batch > 1:
                self._batch = max(1, self._batch // 4)  # smaller batches find the row that cannot be stored
                return False
            left_out = [f"record {one.record.number} of job {one.job.number}" for one in measurements]
            left_out += [f"the tag of record {tag.number} of job {tag.job}" for tag in piece.tags]
            log.error("left out of the record store: %s (%s)", " and ".join(left_out), error)
            store.write(origin, (), (), before, piece.after)
        self._cursor = self._reached = piece.after
        self._batch = BATCH
        return True

    def _open(self) -> sqlite3.Connection:
        if self._reading is None:
            uri = f"{self._database.absolute().as_uri()}?mode=ro"
            self._reading = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=10.0)
        return self._reading

    def _end(self) -> None:
        self._close()
        if self._store is not None:
            self._store.close()

    def _close(self) -> None:
        if self._reading is not None:
            self._reading.close()
            self._reading = None

    def _plans(self, db: sqlite3.Connection, jobs: Set[JobId]) -> dict[JobId, _Planned]:
        """Networks of the jobs, each decoded once until it changes."""
        for job, crc, count in db.execute(VERSIONS, (json.dumps([*jobs]),)).fetchall():
            known = self._planned.get(job)
            if known is None or known.crc != crc or len(known.identities) != count:
                self._planned[job] = self._plan(db, job, crc)
        found = {job: self._planned.get(job, _Planned(0, {}, ())) for job in jobs}
        if len(self._planned) > JOBS_KEPT:
            self._planned.clear()
        return found

    def _plan(self, db: sqlite3.Connection, job: JobId, crc: int) -> _Planned:
        (body,) = db.execute("SELECT body FROM networks WHERE job = ?", (job,)).fetchone()
        told = db.execute("SELECT number, body FROM identities WHERE job = ? ORDER BY number", (job,))
        identities = tuple(IdentityFrom(number, _IDENTITY.decode(one)) for number, one in told)
        return _Planned(crc, {info.task: info for info in _NETWORK.decode(body).tasks}, identities)


def _record(body: bytes, disturbed: str | None) -> Record | None:
    """Decode a row of `records`; None for a damaged one, which `autosched db check` names."""
    try:
        return decoded(body, disturbed)
    except msgspec.MsgspecError as error:
        log.error("a damaged record is left out of the record store: %s", error)
        return None


def _measurement(origin: str, job: SourceJob, backend: str, planned: _Planned, record: Record) -> Measurement | None:
    """A record as the store has it; None if its workload is unknown, or if it comes from a store."""
    if (info := planned.tasks.get(record.task)) is None or record.purpose is Purpose.KNOWN:
        return None
    told = identity.of_record(planned.identities, record.number)
    return Measurement(
        measurement_id(origin, job.number, info.workload, record),
        job,
        Workload(info.workload, info.name, info.shape, info.flops),
        environment(told, backend, info.template),
        record,
    )
