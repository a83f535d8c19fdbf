"""Tables of clients' results: networks, records, result files, and spans of steps."""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import NamedTuple, cast

import msgspec

from autosched.backend import Network
from autosched.daemon.storage.batched_statements import Insert, Statement, blob
from autosched.daemon.storage.journal import WAYS_OUT, Journal
from autosched.daemon.storage.schema import checked, row_crc
from autosched.errors import Damaged
from autosched.model import Failure, Identity, IdentityFrom, JobId, Record, StepId, TaskIndex, encode
from autosched.network_status import NOT_MEASURED, NetworkStatus
from autosched.protocol import Artifact, RecordPage, Span
from autosched.records.task_best import Measurement

TABLES = (
    "CREATE TABLE IF NOT EXISTS networks (job INTEGER PRIMARY KEY, trials INTEGER, body BLOB, crc INTEGER) STRICT",
    "CREATE TABLE IF NOT EXISTS network_status (job INTEGER PRIMARY KEY, body BLOB, crc INTEGER) STRICT",
    "CREATE TABLE IF NOT EXISTS records (job INTEGER, ordinal INTEGER, task INTEGER, number INTEGER, crc INTEGER,"
    " body BLOB, PRIMARY KEY (job, ordinal)) STRICT",
    "CREATE TABLE IF NOT EXISTS identities (job INTEGER, number INTEGER, body BLOB, crc INTEGER,"
    " PRIMARY KEY (job, number)) STRICT",
    "CREATE TABLE IF NOT EXISTS disturbances (id INTEGER PRIMARY KEY, job INTEGER, number INTEGER, reason TEXT,"
    " crc INTEGER, UNIQUE (job, number)) STRICT",
    "CREATE TABLE IF NOT EXISTS artifacts (job INTEGER, name TEXT, sha256 TEXT, bytes INTEGER, crc INTEGER,"
    " PRIMARY KEY (job, name)) STRICT",
    "CREATE TABLE IF NOT EXISTS spans (step INTEGER PRIMARY KEY, body BLOB, crc INTEGER) STRICT",
)
# Each row ends with its checksum, computed here where possible: a callback from SQL costs as much as a write.
PUT_NETWORK = (
    "INSERT INTO networks VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET trials = excluded.trials, body = excluded.body, crc = excluded.crc"
)
PUT_STATUS = (
    "INSERT INTO network_status VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body, crc = excluded.crc"
)
PUT_IDENTITY = (
    "INSERT INTO identities VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body, crc = excluded.crc"
)
ADD_RECORD = Insert("records (job, ordinal, task, number, body, crc)", 6)
ADD_DISTURBANCE = (
    "INSERT INTO disturbances (id, job, number, reason, crc) SELECT next, ?1, ?2, ?3, crc(next, ?1, ?2, ?3)"
    " FROM (SELECT coalesce(max(id), 0) + 1 AS next FROM disturbances) WHERE true ON CONFLICT DO NOTHING"
)
"""Disturbances are numbered in the order in which they were found; the record store copies them in this order."""
PUT_ARTIFACT = (
    "INSERT INTO artifacts VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET sha256 = excluded.sha256, bytes = excluded.bytes, crc = excluded.crc"
)
PUT_SPAN = Insert("spans", 3, "ON CONFLICT DO UPDATE SET body = excluded.body, crc = excluded.crc")
PAGE_RECORDS = 1_000
PAGE_BYTES = 256 * 1024
"""Maximum bytes of a page; one more record still fits a frame."""
PAGE_SPANS = 200
"""Maximum number of spans in a page: 1 ms of the event loop."""
STEP_MAX = 2**63 - 1

_NETWORK = msgspec.msgpack.Decoder(Network)
_STATUS = msgspec.msgpack.Decoder(NetworkStatus)
_IDENTITY = msgspec.msgpack.Decoder(Identity)
_RECORD = msgspec.msgpack.Decoder(Record)
_SPAN = msgspec.msgpack.Decoder(Span)


class Planned(NamedTuple):
    """A job's network, as reported by its client."""

    network: Network
    trials: int
    """Number of trials for the whole network."""
    status: NetworkStatus


class Found(msgspec.Struct, frozen=True):
    """The part of a record that progress is computed from."""

    job: JobId
    task: TaskIndex
    measurement: Measurement
    failure: str | None = None

    @classmethod
    def of(cls, job: JobId, record: Record) -> "Found":
        """That part of a record."""
        failure: Failure | None = record.failure
        return cls(job, record.task, Measurement.of(record), failure.value if failure is not None else None)


def decoded(body: bytes, disturbed: object) -> Record:
    """A record as stored, with the reason of a disturbance that was found later; None if there is none. Raises
    msgspec.MsgspecError."""
    record = _RECORD.decode(body)
    return msgspec.structs.replace(record, disturbed=str(disturbed)) if disturbed else record


def received_now(record: Record) -> Record:
    """The record with the present time as the time of its receipt."""
    return msgspec.structs.replace(record, measured_at=datetime.now(UTC).timestamp())


class JobStore:
    """Writes through the journal's writer, in its order; a future is done when its row is durable."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal

    # At the start, before the journal accepts writes ------------------------------------------------------------------

    def networks(self, of: Iterable[JobId] | None = None) -> Iterator[tuple[JobId, Planned]]:
        """Each job with a network; `of`: of these jobs only."""
        chosen, which = (
            ("WHERE job IN (SELECT value FROM json_each(?))", (_listed(of),)) if of is not None else ("", ())
        )
        sql = f"SELECT job, trials, n.body, s.body FROM networks n LEFT JOIN network_status s USING (job) {chosen}"
        for job, trials, body, status in self._journal.rows(sql, *which):
            assert isinstance(job, int) and isinstance(trials, int) and isinstance(body, bytes)
            try:
                known = _STATUS.decode(status) if isinstance(status, bytes) else NOT_MEASURED
                yield job, Planned(_NETWORK.decode(body), trials, known)
            except msgspec.MsgspecError as error:
                raise Damaged(
                    f"{self._journal.path}: the network of job {job} is damaged ({error}). {WAYS_OUT}"
                ) from None

    def last_record(self) -> int:
        """The position of the last record in its table; 0 if there is none."""
        ((place,),) = self._journal.rows("SELECT coalesce(max(rowid), 0) FROM records")
        assert isinstance(place, int)
        return place

    def checksums(self) -> dict[JobId, tuple[int, int]]:
        """For each job, checksums of its network with the status, and of the disturbances of its records. All of them
        may change after they were counted."""
        sql = (
            "SELECT job, sum(network), sum(disturbance) FROM"
            " (SELECT job, crc AS network, 0 AS disturbance FROM networks"
            " UNION ALL SELECT job, crc, 0 FROM network_status"
            " UNION ALL SELECT job, 0, crc FROM disturbances) GROUP BY job"
        )
        rows = cast("Iterator[tuple[JobId, int, int]]", self._journal.rows(sql))
        return {job: (network, disturbance) for job, network, disturbance in rows}

    def identities(self, of: Iterable[JobId] | None = None) -> Iterator[tuple[JobId, IdentityFrom]]:
        """The identities of each job's records, in ascending order of record numbers; `of`: of these jobs only."""
        chosen, which = (
            ("WHERE job IN (SELECT value FROM json_each(?))", (_listed(of),)) if of is not None else ("", ())
        )
        rows = self._journal.rows(f"SELECT job, number, body FROM identities {chosen} ORDER BY job, number", *which)
        for job, number, body in rows:
            assert isinstance(job, int) and isinstance(number, int) and isinstance(body, bytes)
            try:
                yield job, IdentityFrom(number, _IDENTITY.decode(body))
            except msgspec.MsgspecError as error:
                raise Damaged(
                    f"{self._journal.path}: an identity of job {job} is damaged ({error}). {WAYS_OUT}"
                ) from None

    def found(self, after: int = 0, anew: Iterable[JobId] = ()) -> Iterator[Found]:
        """The records stored after a position, and all records of the jobs in `anew`; each job's in the order of
        measurement."""
        jobs = _listed(anew)
        yield from self._found("r.rowid > ? AND r.job NOT IN (SELECT value FROM json_each(?))", after, jobs)
        if jobs != "[]":
            yield from self._found("r.job IN (SELECT value FROM json_each(?))", jobs)

    def _found(self, chosen: str, *which: object) -> Iterator[Found]:
        sql = (
            "SELECT r.job, d.reason, r.body FROM records r"
            f" LEFT JOIN disturbances d ON d.job = r.job AND d.number = r.number WHERE {chosen} ORDER BY r.rowid"
        )
        for job, disturbed, body in self._journal.rows(sql, *which):
            assert isinstance(job, int) and isinstance(body, bytes)
            try:
                yield Found.of(job, decoded(body, disturbed))
            except msgspec.MsgspecError as error:
                raise Damaged(f"{self._journal.path}: a record of job {job} is damaged ({error}). {WAYS_OUT}") from None

    # Writes -----------------------------------------------------------------------------------------------------------

    def plan(self, job: JobId, planned: Planned, changed: IdentityFrom | None = None) -> asyncio.Future[None]:
        """Store a job's network. `changed`: a new identity for its records from now on."""
        rows: list[Statement] = [
            (PUT_NETWORK, checked(job, planned.trials, encode(planned.network))),
            (PUT_STATUS, checked(job, encode(planned.status))),
        ]
        if changed is not None:
            rows.append((PUT_IDENTITY, checked(job, changed.number, encode(changed.identity))))
        return self._journal.write(*rows)

    def set_status(self, job: JobId, status: NetworkStatus) -> asyncio.Future[None]:
        """Store the new status of a job's network."""
        return self._journal.write((PUT_STATUS, checked(job, encode(status))))

    def add_record(self, job: JobId, ordinal: int, record: Record, *also: Statement) -> asyncio.Future[None]:
        """Store the `ordinal`-th record of a job, counted from 0, and further statements in the same transaction.

        The write is lazy: only the end of the record's step waits for it.
        """
        row = checked(job, ordinal, record.task, record.number, encode(record))
        return self._journal.write((ADD_RECORD, row), *also, lazy=True)

    def tag(self, job: JobId, numbers: Iterable[int], reason: str) -> asyncio.Future[None]:
        """Tag records with the reason of a disturbance. The first reason of each record counts; records do not
        change."""
        return self._journal.write(*((ADD_DISTURBANCE, (job, number, reason)) for number in numbers))

    def add_artifacts(self, job: JobId, artifacts: Iterable[Artifact]) -> asyncio.Future[None]:
        """Store the names of result files in one transaction. A later file replaces one of the same name."""
        rows = [checked(job, artifact.name, artifact.sha256, artifact.bytes) for artifact in artifacts]
        return self._journal.write(*((PUT_ARTIFACT, row) for row in rows))

    def flush(self) -> asyncio.Future[None]:
        """Return a future that is done when everything written so far is durable, and therefore readable."""
        return self._journal.write()

    # Reads ------------------------------------------------------------------------------------------------------------

    async def records(self, job: JobId, after: int) -> RecordPage:
        """A page of a job's records from the `after`-th on."""
        sql = (
            "SELECT r.job, r.ordinal, r.task, r.number, r.body, r.crc, d.reason FROM records r"
            " LEFT JOIN disturbances d ON d.job = r.job AND d.number = r.number"
            " WHERE r.job = ? AND r.ordinal >= ? ORDER BY r.ordinal LIMIT ?"
        )
        # Candidates may be large: few rows at a time bound the memory of a page.
        records: list[Record] = []
        size, more = 0, True
        while more and size < PAGE_BYTES and len(records) < PAGE_RECORDS:
            rows = await self._journal.read(sql, job, min(after + len(records), STEP_MAX), 16)
            more = len(rows) == 16
            for *values, body, crc, disturbed in rows:
                assert isinstance(body, bytes)
                if row_crc(*values, body) != crc:
                    raise Damaged(f"record {values[1]} of job {job} is damaged on the daemon's disk")
                if size + len(body) > PAGE_BYTES and records:
                    return RecordPage(tuple(records), True)
                records.append(decoded(body, disturbed))
                size += len(body)
        return RecordPage(tuple(records), more)

    async def artifacts(self, job: JobId) -> tuple[Artifact, ...]:
        """Result files of a job."""
        rows = await self._journal.read("SELECT name, sha256, bytes FROM artifacts WHERE job = ? ORDER BY name", job)
        return tuple(
            msgspec.convert(dict(zip(("name", "sha256", "bytes"), row, strict=True)), Artifact) for row in rows
        )

    async def span(self, step: StepId) -> Span | None:
        """The span of an ended step; None if there is none."""
        rows = await self._journal.read("SELECT body FROM spans WHERE step = ?", step)
        return next((_SPAN.decode(body) for (body,) in rows if isinstance(body, bytes)), None)

    async def step_before(self, moment: float) -> StepId:
        """The last ended step that started before a moment of the scheduler's clock; ids grow with time."""
        rows = await self._journal.read("SELECT coalesce(max(step), 0) FROM spans")
        low, high = 0, int(str(rows[0][0]))
        while low < high:
            middle = (low + high) // 2
            (body,), *_ = await self._journal.read(
                "SELECT body FROM spans WHERE step > ? ORDER BY step LIMIT 1", middle
            )
            assert isinstance(body, bytes)
            span = _SPAN.decode(body)
            if span.started_at < moment:
                low = span.step
            else:
                high = middle
        return low

    async def spans(self, after: StepId) -> tuple[list[Span], bool]:
        """Ended steps with a greater id, and whether there are more than these."""
        after = max(0, min(after, STEP_MAX))
        rows = await self._journal.read(
            "SELECT body FROM spans WHERE step > ? ORDER BY step LIMIT ?", after, PAGE_SPANS + 1
        )
        bodies = [body for (body,) in rows if isinstance(body, bytes)]
        return [_SPAN.decode(body) for body in bodies[:PAGE_SPANS]], len(bodies) > PAGE_SPANS

    async def spans_since(self, after: StepId, moment: float, longest_s: float) -> tuple[list[Span], bool]:
        """Like `spans`, for steps that ended after a moment of the scheduler's clock. `longest_s`: maximum duration of
        a step in seconds."""
        after = max(after, await self.step_before(moment - longest_s))
        while True:
            spans, more = await self.spans(after)
            found = [span for span in spans if span.ended_at is not None and span.ended_at > moment]
            if found or not more:
                return found, more
            after = spans[-1].step


def _listed(jobs: Iterable[JobId]) -> str:
    return msgspec.json.encode(tuple(jobs)).decode()


def span_rows(spans: Iterable[Span]) -> tuple[Statement, ...]:
    """Statements that store ended steps, to be written together with the event that ended them."""
    return tuple([(PUT_SPAN, checked(span.step, blob(encode(span)))) for span in spans])
