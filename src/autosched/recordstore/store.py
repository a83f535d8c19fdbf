"""Writes to a record store: copies measurements of a daemon's database, each once.

A batch is one transaction, which also moves the cursor of the daemon's database. After any kill, the store has no
partial batch, and the next one begins where the last one ended. A store that lost its content has an earlier cursor,
and the daemon starts over.
"""

import time
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import msgspec
from sqlalchemy import Connection, Engine, Row, Table, and_, bindparam, delete, exists, func, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL

from autosched.model import Failure, Program, Purpose, Record
from autosched.recordstore import opening, shapes
from autosched.recordstore.keys import Environment, candidate_digest
from autosched.recordstore.rows import (
    Cursor,
    Measurement,
    Origin,
    Pruned,
    SourceJob,
    StoredRanker,
    Tag,
    Workload,
    judge,
)
from autosched.recordstore.tables import (
    ENVIRONMENTS,
    JOBS,
    MEASUREMENTS,
    ORIGINS,
    PROGRAMS,
    RANKER_KEY,
    RANKERS,
    SCHEDULE_KEY,
    SCHEDULES,
    WORKLOADS,
)

IMPORTED = ", imported"
"""Suffix of an origin's name for imported measurements beside those of the daemon itself."""
KNOWN_MAX = 100_000
"""Maximum row numbers that are cached, of each table."""
YIELD_ROWS = 16
"""Rows after which a thread releases the interpreter lock: an event loop would wait 5 ms for it."""
ROWS_MAX = 64
"""Maximum rows of one statement to SQLite."""
_SAMPLES = msgspec.json.Decoder(tuple[float, ...])
_JUDGED = ("best_s", "own", "standing", "measured_at", "measurement_id", "job_id", "samples_s", "failure", "code")
"""Columns of a schedule that come from its representative measurement."""
_ORDER = ("own", "standing", "measured_at", "measurement_id")
"""Columns that rank two measurements of one schedule: the greater one represents it, in whatever order they come."""


_KEY_OF, _KEY_AND_ORDER = itemgetter(*SCHEDULE_KEY), itemgetter(*SCHEDULE_KEY, *_ORDER)


class CursorMoved(Exception):
    """Another process has copied from the same database meanwhile: start again from the cursor."""


class _Bulk:
    """Inserts many rows through the driver: SQLAlchemy's handling of parameters takes as long as the rows.

    For SQLite, a statement has many rows: each statement releases the interpreter lock and waits to get it back from
    the event loop, which takes longer than a row.
    """

    def __init__(self, statement: Any, table: Table, engine: Engine) -> None:
        columns = [column.name for column in table.columns]
        compiled = statement.compile(dialect=engine.dialect, column_keys=columns)
        self._sql, self._names = str(compiled), compiled.positiontup
        one = f"({', '.join('?' * len(columns))})"
        self._head, _, self._tail = self._sql.partition(one)
        self._one = one

    def execute(self, connection: Connection, rows: Sequence[dict[str, Any]]) -> int:
        """Insert rows with different keys; returns the number of inserted or changed ones."""
        if self._names is None:  # psycopg takes parameters by name, and pipelines them
            return connection.exec_driver_sql(self._sql, list(rows)).rowcount
        row, changed = itemgetter(*self._names), 0
        for begin in range(0, len(rows), ROWS_MAX):
            some = rows[begin : begin + ROWS_MAX]
            values = tuple(chain.from_iterable(map(row, some)))
            sql = f"{self._head}{', '.join([self._one] * len(some))}{self._tail}"
            changed += connection.exec_driver_sql(sql, values).rowcount
        return changed


class RecordStore:
    """An open store, for one thread at a time: see `opening.Database`."""

    def __init__(self, url: str | URL) -> None:
        """Raises ConfigError for a URL that names no store."""
        self._database = opening.Database(url)
        engine = self._database.engine
        self._insert: Any = {"sqlite": sqlite.insert, "postgresql": postgresql.insert}[engine.dialect.name]
        add: Any = self._insert(MEASUREMENTS)
        self._add_measurements = _Bulk(add.on_conflict_do_nothing(), MEASUREMENTS, engine)
        self._put_schedules = _Bulk(self._upsert_schedules(), SCHEDULES, engine)
        self._origins: dict[str, int] = {}
        self._jobs: dict[tuple[str, int], int] = {}
        self._workloads: dict[str, int] = {}
        self._environments: dict[Environment, int] = {}
        self._database.known = (self._origins, self._jobs, self._workloads, self._environments)

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        self._database.close()

    def interrupt(self) -> None:
        """Make the thread that waits for the database fail with StoreUnavailable; called from another thread."""
        self._database.interrupt()

    def cursor(self, origin: Origin) -> Cursor:
        """The cursor of a database. Raises StoreUnavailable."""
        with self._database.transaction() as connection:
            self._origin_id(connection, origin)
            columns = ORIGINS.c.records, ORIGINS.c.records_crc, ORIGINS.c.tags
            return Cursor(*connection.execute(select(*columns).where(ORIGINS.c.name == origin.name)).one())

    def write(
        self, origin: Origin, measurements: Sequence[Measurement], tags: Sequence[Tag], before: Cursor, after: Cursor
    ) -> None:
        """Copy a piece of a daemon's database, from one cursor to the next, in one transaction.

        Existing rows stay as they are. Raises CursorMoved, and StoreUnavailable; then nothing was written.
        """
        with self._database.transaction() as connection:
            moved = connection.execute(
                _MOVE,
                {
                    "origin": origin.name, "was_record": before.record, "was_crc": before.record_crc,
                    "was_tag": before.tag, "records": after.record, "records_crc": after.record_crc,
                    "tags": after.tag,
                },
            )  # fmt: skip
            if moved.rowcount != 1:
                raise CursorMoved
            self._add(connection, origin, measurements)
            for tag in tags:
                self._tag(connection, origin, tag)

    def add(self, origin: Origin, measurements: Sequence[Measurement], tags: Sequence[Tag] = ()) -> int:
        """Add measurements that are no piece of a daemon's database; returns the number of new ones.

        Imported measurements are never mixed with those of a daemon that writes to this store: they get another name of
        origin. Raises StoreUnavailable; then none was added.
        """
        with self._database.transaction() as connection:
            if origin.imported and self._is_written_here(connection, origin.name):
                measurements = self._without_known(connection, origin.name, measurements)
                origin = Origin(f"{origin.name}{IMPORTED}", True, origin.detail)
            new = self._add(connection, origin, measurements)
            for tag in tags:
                self._tag(connection, origin, tag)
        return new

    def add_programs(self, programs: Mapping[Workload, Program]) -> None:
        """Store the programs of workloads; existing ones stay. Raises StoreUnavailable."""
        if not programs:
            return
        with self._database.transaction() as connection:
            self._know_workloads(connection, programs)
            rows = [
                {"workload_id": self._workloads[workload.hash], "form": one.form, "content": one.content}
                for workload, one in programs.items()
            ]
            rows.sort(key=itemgetter("workload_id"))
            connection.execute(self._insert(PROGRAMS).on_conflict_do_nothing(), rows)

    def put_ranker(self, ranker: StoredRanker) -> None:
        """Store a ranker; replaces that of the same family and device. Raises StoreUnavailable."""
        values = msgspec.structs.asdict(ranker) | {"quality": msgspec.json.encode(ranker.quality).decode()}
        put = self._insert(RANKERS)
        kept = {name: put.excluded[name] for name in values if name not in RANKER_KEY}
        with self._database.transaction() as connection:
            connection.execute(put.on_conflict_do_update(index_elements=RANKER_KEY, set_=kept), values)

    def origins_of(self, job: int) -> list[Origin]:
        """The databases of daemons with measurements of a job of this number. Raises StoreUnavailable."""
        wanted = select(ORIGINS.c.name, ORIGINS.c.imported, ORIGINS.c.detail).join(JOBS).where(JOBS.c.number == job)
        measured = exists().where(MEASUREMENTS.c.job_id == JOBS.c.id)
        with self._database.transaction() as connection:
            rows = connection.execute(wanted.where(measured).order_by(ORIGINS.c.name))
            return [Origin(name, bool(imported), detail) for name, imported, detail in rows]

    def forget(self, origin: str, job: int, *, dry_run: bool = False) -> Pruned:
        """Delete all measurements of one job, and the schedules that no other job has measured; `dry_run` only counts.

        Raises StoreUnavailable; then nothing was deleted.
        """
        its = MEASUREMENTS.c.job_id.in_(
            select(JOBS.c.id).join(ORIGINS).where(ORIGINS.c.name == origin, JOBS.c.number == job)
        )
        with self._database.transaction() as connection:
            keys = connection.execute(select(*(MEASUREMENTS.c[name] for name in SCHEDULE_KEY)).where(its).distinct())
            affected = keys.all()
            if dry_run:
                measurements = connection.execute(select(func.count()).where(its)).scalar_one()
                return Pruned(len(affected), measurements)
            gone = connection.execute(delete(MEASUREMENTS).where(its)).rowcount
            schedules = sum(not self._judge_again(connection, key) for key in affected)
        return Pruned(schedules, gone)

    def count(self) -> int:
        """Number of measurements. Raises StoreUnavailable."""
        with self._database.transaction() as connection:
            return connection.execute(select(func.count()).select_from(MEASUREMENTS)).scalar_one()

    def _upsert_schedules(self) -> Any:
        """Statement that inserts a schedule, or updates it if the new measurement ranks higher."""
        put = self._insert(SCHEDULES)
        new, old = put.excluded, SCHEDULES.c
        return put.on_conflict_do_update(
            index_elements=SCHEDULE_KEY,
            set_={name: new[name] for name in _JUDGED},
            where=tuple_(*(new[name] for name in _ORDER)) > tuple_(*(old[name] for name in _ORDER)),
        )

    # Rows -------------------------------------------------------------------------------------------------------------

    def _add(self, connection: Connection, origin: Origin, measurements: Sequence[Measurement]) -> int:
        """Insert measurements; returns the number of new ones."""
        if not measurements:
            return 0
        self._learn(connection, origin, measurements)
        measured: list[dict[str, Any]] = []
        schedules: list[dict[str, Any]] = []
        for number, one in enumerate(measurements):
            if number % YIELD_ROWS == 0:
                time.sleep(0)
            record = one.record
            stand, best_s = judge(record)
            samples_s, failure = msgspec.json.encode(record.latency_s).decode(), record.failure
            key: dict[str, Any] = {
                "workload_id": self._workloads[one.workload.hash],
                "environment_id": self._environments[one.environment],
                "digest": candidate_digest(record.candidate),
            }
            told = {
                "job_id": self._jobs[origin.name, one.job.number],
                "samples_s": samples_s,
                "failure": "" if failure is None else failure.value,
                "code": record.code,
                "measured_at": record.measured_at,
            }
            measured.append(
                {
                    **key, **told, "id": one.id, "record": record.number, "purpose": record.purpose.value,
                    "detail": _storable(record.detail), "disturbed": _storable(record.disturbed), "unit": record.unit,
                    "build_s": record.build_s, "profile_s": record.profile_s,
                }
            )  # fmt: skip
            schedules.append(
                {
                    **key, **told, "best_s": best_s, "own": int(not origin.imported), "standing": int(stand),
                    "measurement_id": one.id,
                    "candidate": record.candidate,
                }
            )  # fmt: skip
        # In a fixed order, so that two daemons cannot deadlock on each other's rows.
        measured.sort(key=itemgetter("job_id", "record", "id"))
        schedules.sort(key=_KEY_AND_ORDER)
        schedules = [last for _, (*_, last) in groupby(schedules, _KEY_OF)]
        new = self._add_measurements.execute(connection, measured)
        self._put_schedules.execute(connection, schedules)
        return new

    def _tag(self, connection: Connection, origin: Origin, tag: Tag) -> None:
        """Tag a measurement, and update its schedule if another measurement ranks higher now."""
        where = and_(
            MEASUREMENTS.c.record == tag.number,
            MEASUREMENTS.c.disturbed == "",
            MEASUREMENTS.c.job_id.in_(
                select(JOBS.c.id).join(ORIGINS).where(ORIGINS.c.name == origin.name, JOBS.c.number == tag.job)
            ),
        )
        keys = connection.execute(select(*(MEASUREMENTS.c[name] for name in SCHEDULE_KEY)).where(where)).all()
        if not keys:
            return
        connection.execute(update(MEASUREMENTS).where(where).values(disturbed=_storable(tag.reason)))
        for key in keys:
            self._judge_again(connection, key)

    def _judge_again(self, connection: Connection, key: Sequence[Any]) -> bool:
        """Choose the representative measurement of a schedule anew; returns False if the schedule has none any more,
        and is deleted."""
        of_key = and_(*(MEASUREMENTS.c[name] == value for name, value in zip(SCHEDULE_KEY, key, strict=True)))
        same = and_(*(SCHEDULES.c[name] == value for name, value in zip(SCHEDULE_KEY, key, strict=True)))
        rows = select(MEASUREMENTS, ORIGINS.c.imported).select_from(MEASUREMENTS).join(JOBS).join(ORIGINS).where(of_key)
        told = [_judged(row) for row in connection.execute(rows)]
        if told:
            best = max(told, key=lambda values: [values[name] for name in _ORDER])
            connection.execute(update(SCHEDULES).where(same).values(best))
        else:
            connection.execute(delete(SCHEDULES).where(same))
        return bool(told)

    # Numbers of rows that many others refer to ------------------------------------------------------------------------

    @staticmethod
    def _is_written_here(connection: Connection, name: str) -> bool:
        """Whether the daemon of this origin writes to this store."""
        found = select(ORIGINS.c.id).where(ORIGINS.c.name == name, ORIGINS.c.imported == 0)
        return connection.execute(found).scalar() is not None

    @staticmethod
    def _without_known(connection: Connection, name: str, measurements: Sequence[Measurement]) -> Sequence[Measurement]:
        """The measurements that are not stored under their own origin."""
        jobs = select(JOBS.c.id).join(ORIGINS)
        jobs = jobs.where(ORIGINS.c.name == name, JOBS.c.number.in_({one.job.number for one in measurements}))
        there = select(MEASUREMENTS.c.id).where(
            MEASUREMENTS.c.job_id.in_(jobs), MEASUREMENTS.c.id.in_([one.id for one in measurements])
        )
        known = set(connection.execute(there).scalars())
        return [one for one in measurements if one.id not in known]

    def _origin_id(self, connection: Connection, origin: Origin) -> int:
        if not origin.imported and origin.name not in self._origins:  # an import may have added some of them before
            claimed = update(ORIGINS).where(ORIGINS.c.name == origin.name, ORIGINS.c.imported != 0)
            connection.execute(claimed.values(name=f"{origin.name}{IMPORTED}"))
        row = {"name": origin.name, "imported": int(origin.imported), "detail": origin.detail}
        self._number(connection, ORIGINS, self._origins, {origin.name: row}, ("name",))
        return self._origins[origin.name]

    def _learn(self, connection: Connection, origin: Origin, measurements: Iterable[Measurement]) -> None:
        """Load the numbers of all rows that these refer to; missing rows are inserted."""
        origin_id = self._origin_id(connection, origin)
        jobs = {(origin.name, one.job.number): one.job for one in measurements}
        environments = {one.environment: one.environment for one in measurements}
        job_rows = {key: _job_row(origin_id, job) for key, job in jobs.items()}
        self._number(connection, JOBS, self._jobs, job_rows, ("origin_id", "number"))
        self._know_workloads(connection, (one.workload for one in measurements))
        environment_rows = {key: _environment_row(one) for key, one in environments.items()}
        self._number(connection, ENVIRONMENTS, self._environments, environment_rows, ("strict_key", "device"))

    def _know_workloads(self, connection: Connection, workloads: Iterable[Workload]) -> None:
        rows = {hashed: _workload_row(one) for hashed, one in {one.hash: one for one in workloads}.items()}
        self._number(connection, WORKLOADS, self._workloads, rows, ("hash",))

    def _number(
        self,
        connection: Connection,
        table: Table,
        known: dict[Any, int],
        wanted: Mapping[Any, dict[str, Any]],
        unique: Sequence[str],
    ) -> None:
        new = {key: row for key, row in wanted.items() if key not in known}
        if not new:
            return
        if len(known) + len(new) > KNOWN_MAX:
            known.clear()
            new = dict(wanted)
        new = {key: {name: _storable(value) for name, value in row.items()} for key, row in new.items()}
        rows = sorted(new.values(), key=lambda row: [row[name] for name in unique])
        connection.execute(self._insert(table).on_conflict_do_nothing(), rows)
        for key, row in new.items():
            same = and_(*(table.c[name] == row[name] for name in unique))
            known[key] = connection.execute(select(table.c.id).where(same)).scalar_one()


def _storable(value: Any) -> Any:
    """Text without NUL characters, which PostgreSQL does not accept."""
    return value.replace("\0", "") if isinstance(value, str) else value


def _job_row(origin_id: int, job: SourceJob) -> dict[str, Any]:
    return {"origin_id": origin_id, **msgspec.structs.asdict(job)}


def _workload_row(workload: Workload) -> dict[str, Any]:
    return {**msgspec.structs.asdict(workload), "operator": shapes.parse(workload.shape).operator}


def _environment_row(environment: Environment) -> dict[str, Any]:
    told = msgspec.structs.asdict(environment)
    return {**told, "strict_key": environment.strict, "loose_key": environment.loose}


def _judged(row: Row[Any]) -> dict[str, Any]:
    """The columns of a schedule for this row of `measurements`."""
    record = Record(
        task=0,
        number=row.record,
        candidate=b"",
        latency_s=_SAMPLES.decode(row.samples_s),
        failure=Failure(row.failure) if row.failure else None,
        purpose=Purpose(row.purpose),
        disturbed=row.disturbed,
    )
    stand, best_s = judge(record)
    told = {name: getattr(row, name) for name in ("measured_at", "job_id", "samples_s", "failure", "code")}
    return {
        **told, "best_s": best_s, "own": int(not row.imported), "standing": int(stand), "measurement_id": row.id,
    }  # fmt: skip


_MOVE = (
    update(ORIGINS)
    .where(
        ORIGINS.c.name == bindparam("origin"),
        ORIGINS.c.records == bindparam("was_record"),
        ORIGINS.c.records_crc == bindparam("was_crc"),
        ORIGINS.c.tags == bindparam("was_tag"),
    )
    .values(records=bindparam("records"), records_crc=bindparam("records_crc"), tags=bindparam("tags"))
)
