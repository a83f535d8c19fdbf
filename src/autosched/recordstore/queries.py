"""Queries of a record store: the best schedules of a workload, all of them, those on other devices, and similar
workloads.

Each query reads few rows by an index; rows of small tables with many references are kept in memory.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice
from typing import Any, Self

import msgspec
from sqlalchemy import Connection, Row, and_, bindparam, func, or_, select, tuple_
from sqlalchemy.engine import URL

from autosched.model import Failure, Program, Purpose, Record
from autosched.recordstore import opening, shapes
from autosched.recordstore.keys import Environment, candidate_digest
from autosched.recordstore.rows import (
    Holding,
    Measurement,
    Neighbour,
    Origin,
    Schedule,
    SourceJob,
    Standing,
    Stats,
    StoredRanker,
    Workload,
)
from autosched.recordstore.store import KNOWN_MAX
from autosched.recordstore.tables import (
    ENVIRONMENTS,
    JOBS,
    MEASUREMENTS,
    ORIGINS,
    PROGRAMS,
    RANKERS,
    SCHEDULES,
    WORKLOADS,
)

EVERYTHING_PAGE = 500
"""Measurements of one read."""
PAGE = 100
"""Schedules of one page of `Lookup.all`."""
STANDINGS = tuple(Standing)
_SAMPLES = msgspec.json.Decoder(tuple[float, ...])

SHOWN = (
    SCHEDULES.c.environment_id, SCHEDULES.c.candidate, SCHEDULES.c.best_s, SCHEDULES.c.standing,
    SCHEDULES.c.samples_s, SCHEDULES.c.failure, SCHEDULES.c.code, SCHEDULES.c.measured_at, SCHEDULES.c.job_id,
    SCHEDULES.c.digest,
)  # fmt: skip
"""Columns of a schedule, as `Lookup._schedules` reads them."""
_OF_WORKLOAD = SCHEDULES.c.workload_id == bindparam("workload")
_BEST = (
    select(*SHOWN)
    .where(_OF_WORKLOAD, SCHEDULES.c.environment_id == bindparam("environment"), SCHEDULES.c.best_s.is_not(None))
    .order_by(SCHEDULES.c.best_s)
    .limit(bindparam("k"))
)
_ALL = (
    select(*SHOWN)
    .where(
        _OF_WORKLOAD,
        (SCHEDULES.c.environment_id > bindparam("environment"))
        | ((SCHEDULES.c.environment_id == bindparam("environment")) & (SCHEDULES.c.digest > bindparam("digest"))),
    )
    .order_by(SCHEDULES.c.environment_id, SCHEDULES.c.digest)
    .limit(bindparam("limit"))
)
_LEAST = (
    select(SCHEDULES.c.environment_id, func.min(SCHEDULES.c.best_s).label("least_s"))
    .where(_OF_WORKLOAD, SCHEDULES.c.best_s.is_not(None))
    .group_by(SCHEDULES.c.environment_id)
)
_ENVIRONMENTS = {
    key: select(ENVIRONMENTS.c.id).where(ENVIRONMENTS.c[key] == bindparam("key")) for key in ("strict_key", "loose_key")
}
_WORKLOAD = select(WORKLOADS.c.id).where(WORKLOADS.c.hash == bindparam("hash"))
_MEASURED = (
    select(1).join(WORKLOADS).where(WORKLOADS.c.hash == bindparam("hash"), SCHEDULES.c.best_s.is_not(None)).limit(1)
)
_VERSIONED = func.substr(ENVIRONMENTS.c.backend, 1, func.length(bindparam("versions")))
_TRIED = (
    select(func.count())
    .select_from(SCHEDULES)
    .join(WORKLOADS, WORKLOADS.c.id == SCHEDULES.c.workload_id)
    .join(ENVIRONMENTS, ENVIRONMENTS.c.id == SCHEDULES.c.environment_id)
    .where(
        WORKLOADS.c.hash == bindparam("hash"),
        ENVIRONMENTS.c.loose_key == bindparam("key"),
        ENVIRONMENTS.c.device == bindparam("device"),
        or_(ENVIRONMENTS.c.backend == bindparam("backend"), bindparam("versions") == _VERSIONED),
    )
)
MEASURED = (
    select(
        *(MEASUREMENTS.c[name] for name in (
            "job_id", "record", "id", "environment_id", "purpose", "samples_s", "failure", "detail", "disturbed",
            "code", "unit", "build_s", "profile_s", "measured_at",
        )),
        SCHEDULES.c.candidate, WORKLOADS.c.hash, WORKLOADS.c.name, WORKLOADS.c.shape, WORKLOADS.c.flops,
    )
    .join(WORKLOADS, WORKLOADS.c.id == MEASUREMENTS.c.workload_id)
    .join(
        SCHEDULES,
        and_(*(SCHEDULES.c[name] == MEASUREMENTS.c[name] for name in ("workload_id", "environment_id", "digest"))),
    )
    .order_by(MEASUREMENTS.c.job_id, MEASUREMENTS.c.record, MEASUREMENTS.c.id)
)  # fmt: skip
"""Measurements with their schedules, as `Lookup._measurements` reads them, in the order in which jobs came."""
_EVERYTHING = MEASURED.where(
    tuple_(MEASUREMENTS.c.job_id, MEASUREMENTS.c.record, MEASUREMENTS.c.id)
    > tuple_(bindparam("job"), bindparam("record"), bindparam("id"))
).limit(EVERYTHING_PAGE)
_IMPORTED = select(func.count()).select_from(MEASUREMENTS).join(JOBS).join(ORIGINS).where(ORIGINS.c.imported != 0)
_KINDS = ENVIRONMENTS.c.backend, ENVIRONMENTS.c.device, ENVIRONMENTS.c.compiler
_SCHEDULES, _WORKLOADS = func.count(), func.count(SCHEDULES.c.workload_id.distinct())
_HOLDINGS = (
    select(*_KINDS, _SCHEDULES, _WORKLOADS)
    .select_from(SCHEDULES)
    .join(ENVIRONMENTS, ENVIRONMENTS.c.id == SCHEDULES.c.environment_id)
    .group_by(*_KINDS)
    .order_by(_SCHEDULES.desc(), *_KINDS)
)
_AMONG = WORKLOADS.c.hash.in_(bindparam("hashes", expanding=True))
_PROGRAMS = (
    select(WORKLOADS.c.hash, PROGRAMS.c.form, PROGRAMS.c.content)
    .join(WORKLOADS, WORKLOADS.c.id == PROGRAMS.c.workload_id)
    .where(_AMONG)
)
_WITH_PROGRAM = select(WORKLOADS.c.hash).join(PROGRAMS).where(_AMONG)
_FAILED = (
    select(SCHEDULES.c.digest, JOBS.c.owner, ORIGINS.c.name)
    .join(WORKLOADS, WORKLOADS.c.id == SCHEDULES.c.workload_id)
    .join(ENVIRONMENTS, ENVIRONMENTS.c.id == SCHEDULES.c.environment_id)
    .join(JOBS, JOBS.c.id == SCHEDULES.c.job_id)
    .join(ORIGINS, ORIGINS.c.id == JOBS.c.origin_id)
    .where(
        WORKLOADS.c.hash == bindparam("hash"),
        ENVIRONMENTS.c.strict_key == bindparam("key"),
        SCHEDULES.c.best_s.is_(None),
        SCHEDULES.c.standing != Standing.UNKNOWN.value,
    )
)
_OF_CODE = (
    select(*SHOWN, SCHEDULES.c.workload_id, WORKLOADS.c.hash)
    .join(WORKLOADS, WORKLOADS.c.id == SCHEDULES.c.workload_id)
    .join(ENVIRONMENTS, ENVIRONMENTS.c.id == SCHEDULES.c.environment_id)
    .where(
        SCHEDULES.c.code.in_(bindparam("codes", expanding=True)),
        SCHEDULES.c.code != "",
        SCHEDULES.c.best_s.is_not(None),
        ENVIRONMENTS.c.device == bindparam("device"),
        ENVIRONMENTS.c.measurement == bindparam("measurement"),
        ENVIRONMENTS.c.threads == bindparam("threads"),
    )
)
_JOBS = (
    select(
        JOBS.c.id, *(JOBS.c[name] for name in SourceJob.__struct_fields__),
        ORIGINS.c.name, ORIGINS.c.imported, ORIGINS.c.detail,
    )
    .join_from(JOBS, ORIGINS)
    .where(JOBS.c.id.in_(bindparam("numbers", expanding=True)))
)  # fmt: skip
_RANKERS = select(*(one for one in RANKERS.c if one.name != "content")).order_by(RANKERS.c.family, RANKERS.c.device)
_RANKER = select(RANKERS).where(RANKERS.c.family == bindparam("family"), RANKERS.c.device == bindparam("device"))
_OF_OPERATOR = WORKLOADS.c.operator == bindparam("operator")
_COUNT = select(func.count()).select_from(WORKLOADS).where(_OF_OPERATOR)
_ALIKE = select(WORKLOADS.c.hash, WORKLOADS.c.name, WORKLOADS.c.shape, WORKLOADS.c.flops).where(_OF_OPERATOR)


class Lookup:
    """Queries to an open store, for one thread at a time. All methods raise StoreUnavailable."""

    def __init__(self, url: str | URL) -> None:
        """Raises ConfigError for a URL that names no store."""
        self._database = opening.Database(url, reads_only=True)
        self._workloads: dict[str, int] = {}
        self._environments: dict[int, Environment] = {}
        self._jobs: dict[int, tuple[SourceJob, Origin]] = {}
        self._measured: dict[str, bool] = {}
        """Workloads that have a valid schedule."""
        self._indices: dict[str, shapes.ShapeIndex[Workload]] = {}
        self._database.known = (self._workloads, self._environments, self._jobs, self._measured, self._indices)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection. The next use opens another one."""
        self._database.close()

    def best(self, workload: str, environment: Environment, k: int = 1) -> list[Schedule]:
        """The k fastest schedules of a workload whose latency may replace a new measurement: same strict key."""
        return self._best(workload, "strict_key", environment.strict, k)

    def hints(self, workload: str, environment: Environment, k: int = 1) -> list[Schedule]:
        """The k fastest applicable schedules, measured in any environment: same loose key."""
        return self._best(workload, "loose_key", environment.loose, k)

    def tried(self, workload: str, environment: Environment) -> int:
        """Number of schedules of a workload that the same backend tried on the same device model, failures included,
        with any versions of compiler and backend."""
        told = {
            "key": environment.loose, "device": environment.device, "hash": workload,
            "backend": environment.backend_name, "versions": f"{environment.backend_name} ",
        }  # fmt: skip
        with self._database.transaction() as connection:
            found: int = connection.execute(_TRIED, told).scalar_one()
        return found

    def failed(self, workload: str, environment: Environment) -> list[tuple[bytes, str, str]]:
        """Schedules that failed in this environment: they cannot be applied any more, are wrong, or crash. Of each: its
        digest (`keys.candidate_digest`), and the owner and the origin of the job that reported the failure."""
        told = {"key": environment.strict, "hash": workload}
        with self._database.transaction() as connection:
            return [(bytes(digest), owner, origin) for digest, owner, origin in connection.execute(_FAILED, told)]

    def of_code(self, codes: Sequence[str], environment: Environment) -> list[Schedule]:
        """Schedules whose object code has one of these digests, with latencies measured by the same method on the same
        device model with the same number of threads, of any workload, compiler and backend."""
        told = {
            "codes": sorted(set(codes)), "device": environment.device, "measurement": environment.measurement,
            "threads": environment.threads,
        }  # fmt: skip
        with self._database.transaction() as connection:
            rows = connection.execute(_OF_CODE, told).all()
            hashes = {row.workload_id: row.hash for row in rows}
            found = []
            for workload_id, workload in hashes.items():
                own = [row for row in rows if row.workload_id == workload_id]
                found += self._schedules(connection, workload, own)
        return found

    def programs(self, workloads: Collection[str]) -> dict[str, Program]:
        """The known programs of these workloads."""
        found: dict[str, Program] = {}
        for some in _batches(sorted(workloads)):
            with self._database.transaction() as connection:
                rows = connection.execute(_PROGRAMS, {"hashes": some}).all()
            found |= {row.hash: Program(row.form, row.content) for row in rows}
        return found

    def without_program(self, workloads: Collection[str]) -> set[str]:
        """The workloads without a known program."""
        known = set[str]()
        for some in _batches(sorted(workloads)):
            with self._database.transaction() as connection:
                known.update(connection.execute(_WITH_PROGRAM, {"hashes": some}).scalars())
        return set(workloads) - known

    def rankers(self) -> list[StoredRanker]:
        """All rankers without their content, by family and device."""
        with self._database.transaction() as connection:
            rows = connection.execute(_RANKERS).all()
        return [_ranker(row) for row in rows]

    def ranker(self, family: str, device: str) -> StoredRanker | None:
        """The ranker of an operator family on a device model."""
        with self._database.transaction() as connection:
            row = connection.execute(_RANKER, {"family": family, "device": device}).one_or_none()
        return None if row is None else _ranker(row)

    def everything(self) -> Iterator[tuple[Origin, Measurement]]:
        """All measurements, each with its schedule, in the order of their jobs' arrival."""
        last = (-1, -1, b"")
        while True:
            told = dict(zip(("job", "record", "id"), last, strict=True))
            with self._database.transaction() as connection:
                rows = connection.execute(_EVERYTHING, told).all()
                found = self._measurements(connection, rows)
            yield from found
            if len(rows) < EVERYTHING_PAGE:
                return
            last = (rows[-1].job_id, rows[-1].record, rows[-1].id)

    def schedule_count(self) -> int:
        """Number of schedules, failures included."""
        with self._database.transaction() as connection:
            found: int = connection.execute(select(func.count()).select_from(SCHEDULES)).scalar_one()
        return found

    def stats(self) -> Stats:
        """Counts of the store's content; reads all of it."""
        with self._database.transaction() as connection:
            counts = [
                connection.execute(select(func.count()).select_from(table)).scalar_one()
                for table in (MEASUREMENTS, SCHEDULES, WORKLOADS, JOBS, ORIGINS)
            ]
            imported: int = connection.execute(_IMPORTED).scalar_one()
            holdings = tuple(Holding(*row) for row in connection.execute(_HOLDINGS))
        measurements, schedules, workloads, jobs, origins = counts
        return Stats(measurements, schedules, workloads, jobs, origins, imported, holdings)

    def interrupt(self) -> None:
        """Make the thread that waits for the database fail with StoreUnavailable; called from another thread."""
        self._database.interrupt()

    def all(self, workload: str, after: Schedule | None = None, limit: int = PAGE) -> list[Schedule]:
        """A page of a workload's schedules, failures included, in a fixed order. `after`: last schedule of the previous
        page; None for the first page."""
        with self._database.transaction() as connection:
            if (number := self._workload_id(connection, workload)) is None:
                return []
            begin, digest = (-1, b"") if after is None else self._place(connection, after)
            told = {"workload": number, "environment": begin, "digest": digest, "limit": limit}
            return self._schedules(connection, workload, connection.execute(_ALL, told).all())

    def other_devices(self, workload: str) -> list[Schedule]:
        """The fastest schedule of a workload on each device model and target, the fastest first."""
        with self._database.transaction() as connection:
            if (number := self._workload_id(connection, workload)) is None:
                return []
            least: dict[tuple[str, str, int], tuple[float, int]] = {}
            for environment_id, least_s in connection.execute(_LEAST, {"workload": number}):
                known = self._environment(connection, environment_id)
                place = known.device, known.target, known.threads
                least[place] = min((least_s, environment_id), least.get(place, (least_s, environment_id)))
            rows = [
                self._fastest(connection, number, environment_id, 1)[0] for _, environment_id in sorted(least.values())
            ]
            return self._schedules(connection, workload, rows)

    def nearest(self, workload: Workload, k: int = 5) -> list[Neighbour]:
        """The k other measured workloads of the same operator with the nearest sizes, the nearest first."""
        wanted = shapes.parse(workload.shape)
        with self._database.transaction() as connection:
            index = self._index(connection, wanted.operator)

            def counts(known: Workload) -> bool:
                if known.hash not in self._measured and connection.execute(_MEASURED, {"hash": known.hash}).scalar():
                    _keep(self._measured, known.hash, True)
                return known.hash != workload.hash and known.hash in self._measured

            return [Neighbour(known, away) for away, known in index.nearest(wanted, k, counts)]

    # ------------------------------------------------------------------------------------------------------------------

    def _best(self, workload: str, key: str, value: bytes, k: int) -> list[Schedule]:
        with self._database.transaction() as connection:
            if (number := self._workload_id(connection, workload)) is None:
                return []
            found = [
                self._fastest(connection, number, environment_id, k)
                for environment_id in connection.execute(_ENVIRONMENTS[key], {"key": value}).scalars().all()
            ]
            rows = list(islice(merge(*found, key=lambda row: row.best_s), k))
            return self._schedules(connection, workload, rows)

    def _index(self, connection: Connection, operator: str) -> shapes.ShapeIndex[Workload]:
        """All workloads of an operator; read again when their number has grown."""
        count = connection.execute(_COUNT, {"operator": operator}).scalar_one()
        index = self._indices.get(operator)
        if index is None or len(index) != count:
            rows = connection.execute(_ALIKE, {"operator": operator})
            known = [Workload(*row) for row in rows]
            index = shapes.ShapeIndex((shapes.parse(one.shape), one) for one in known)
            if sum(map(len, self._indices.values())) + len(index) > KNOWN_MAX:
                self._indices.clear()
            self._indices[operator] = index
        return index

    def _workload_id(self, connection: Connection, workload: str) -> int | None:
        if (number := self._workloads.get(workload)) is None:
            number = connection.execute(_WORKLOAD, {"hash": workload}).scalar()
            if number is not None:
                _keep(self._workloads, workload, number)
        return number

    def _environment(self, connection: Connection, number: int) -> Environment:
        if (found := self._environments.get(number)) is None:
            columns = (ENVIRONMENTS.c[name] for name in Environment.__struct_fields__)
            row = connection.execute(select(*columns).where(ENVIRONMENTS.c.id == number)).one()
            found = Environment(*row)
            _keep(self._environments, number, found)
        return found

    def _know_jobs(self, connection: Connection, numbers: set[int]) -> None:
        """Load these jobs into memory."""
        if len(self._jobs) + len(numbers) > KNOWN_MAX:
            self._jobs.clear()
        if missing := numbers - self._jobs.keys():
            for number, *job, origin, imported, detail in connection.execute(_JOBS, {"numbers": sorted(missing)}):
                self._jobs[number] = SourceJob(*job), Origin(origin, bool(imported), detail)

    def _place(self, connection: Connection, after: Schedule) -> tuple[int, bytes]:
        known = after.environment
        same = ENVIRONMENTS.c.strict_key == known.strict, ENVIRONMENTS.c.device == known.device
        number = connection.execute(select(ENVIRONMENTS.c.id).where(*same)).scalar_one()
        return number, candidate_digest(after.candidate)

    def _measurements(
        self, connection: Connection, rows: Sequence[Row[*tuple[Any, ...]]]
    ) -> list[tuple[Origin, Measurement]]:
        self._know_jobs(connection, {row.job_id for row in rows})
        made = []
        for row in rows:
            job, origin = self._jobs[row.job_id]
            workload = Workload(row.hash, row.name, row.shape, row.flops)
            environment = self._environment(connection, row.environment_id)
            made.append((origin, Measurement(row.id, job, workload, environment, _record(row))))
        return made

    def _fastest(
        self, connection: Connection, workload_id: int, environment_id: int, k: int
    ) -> Sequence[Row[*tuple[Any, ...]]]:
        """The k fastest valid schedules of a workload in one environment."""
        told = {"workload": workload_id, "environment": environment_id, "k": k}
        return connection.execute(_BEST, told).all()

    def _schedules(
        self, connection: Connection, workload: str, rows: Iterable[Row[*tuple[Any, ...]]]
    ) -> list[Schedule]:
        made, decode, rows = [], _SAMPLES.decode, list(rows)
        self._know_jobs(connection, {row.job_id for row in rows})
        for environment_id, candidate, best_s, standing, samples_s, failure, code, measured_at, job_id, *_ in rows:
            environment = self._environments.get(environment_id) or self._environment(connection, environment_id)
            job, origin = self._jobs[job_id]
            made.append(
                Schedule(
                    workload, environment, candidate, best_s, STANDINGS[standing], decode(samples_s), failure, code,
                    measured_at, job, origin,
                )
            )  # fmt: skip
        return made


def _record(row: Row[*tuple[Any, ...]]) -> Record:
    return Record(
        task=0, number=row.record, candidate=row.candidate, latency_s=_SAMPLES.decode(row.samples_s),
        failure=Failure(row.failure) if row.failure else None, detail=row.detail, unit=row.unit, build_s=row.build_s,
        profile_s=row.profile_s, purpose=Purpose(row.purpose), disturbed=row.disturbed, code=row.code,
        measured_at=row.measured_at,
    )  # fmt: skip


def _ranker(row: Row[*tuple[Any, ...]]) -> StoredRanker:
    return StoredRanker(**{**row._mapping, "quality": msgspec.json.decode(row.quality)})


def _batches(hashes: Sequence[str]) -> Iterator[Sequence[str]]:
    for begin in range(0, len(hashes), EVERYTHING_PAGE):
        yield hashes[begin : begin + EVERYTHING_PAGE]


def _keep(known: dict[Any, Any], key: object, value: object) -> None:
    """Add to a cache; when it is full, drop its other content."""
    if len(known) >= KNOWN_MAX:
        known.clear()
    known[key] = value
