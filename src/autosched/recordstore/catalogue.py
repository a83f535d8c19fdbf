"""Searches a record store by words of an operator, a network or a device, or by an identifier.

The latest workloads come first, so that an answer reads few rows of a store of any size.
"""

from collections.abc import Collection, Iterator
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, and_, case, func, or_, select

from autosched.errors import NotFound, RequestError
from autosched.model import Purpose
from autosched.recordstore import table_files
from autosched.recordstore.keys import DIGEST_BYTES, ID_DIGITS
from autosched.recordstore.queries import MEASURED, SHOWN, Lookup
from autosched.recordstore.rows import KnownWorkload, Measurement, Schedule, Workload
from autosched.recordstore.tables import ENVIRONMENTS, JOBS, MEASUREMENTS, SCHEDULE_KEY, SCHEDULES, WORKLOADS

ID_DIGITS_MIN = 4
"""Minimum characters of an identifier of a schedule or a workload."""
AMBIGUOUS_SHOWN = 8
"""Maximum workloads that an error about an ambiguous text names."""


_CIRCUMSTANCES = ("device", "target", "backend")
"""Filters that are columns of `environments`."""
_WORKLOAD = tuple(WORKLOADS.c[name] for name in Workload.__struct_fields__)


class Filter(Struct, frozen=True, kw_only=True):
    """Texts that must occur, ignoring case. An empty text matches everything."""

    operator: str = ""
    """Text in the name or the description of the operator, or the beginning of its hash."""
    network: str = ""
    """Text in the name of a network or of a job that measured the workload."""
    device: str = ""
    """Text in the model of the device."""
    target: str = ""
    """Text in the target."""
    backend: str = ""
    """Text in the name and version of the backend."""

    def admits(self, one: Measurement) -> bool:
        """Whether a measurement matches all texts. `network` is that of its own job."""
        where, workload = one.environment, one.workload
        operator = self.operator.lower()
        told = (workload.name, workload.shape)
        return (
            (any(operator in text.lower() for text in told) or workload.hash.startswith(self.operator))
            and self.network.lower() in f"{one.job.network} {one.job.name}".lower()
            and all(getattr(self, name).lower() in getattr(where, name).lower() for name in _CIRCUMSTANCES)
        )


ANYTHING = Filter()


class MeasuredJob(Struct, frozen=True):
    """Work of one job with one backend. Times in seconds."""

    model: str
    """Content hash of the model's file."""
    backend: str
    trials: int
    build_s: float
    profile_s: float
    lasted_s: float
    """Seconds from its first measurement to the last one."""


class Catalogue(Lookup):
    """Searches an open store, for one thread at a time. All methods raise StoreUnavailable."""

    def workloads(self, wanted: Filter = ANYTHING, limit: int | None = None) -> list[KnownWorkload]:
        """Return a row for each workload and environment, the latest workloads first.

        limit: maximum number of workloads.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(
                select(WORKLOADS.c.id, *_WORKLOAD)
                .where(*_conditions(wanted))
                .order_by(WORKLOADS.c.id.desc())
                .limit(limit)
            ).all()
            return [one for row in rows for one in self._known(connection, row.id, Workload(*row[1:]), wanted)]

    def workload(self, text: str) -> Workload:
        """The workload whose hash begins with the text, or whose description equals or contains it.

        Raises NotFound, and RequestError if there are several.
        """
        hashed = WORKLOADS.c.hash.startswith(text, autoescape=True)
        told = or_(WORKLOADS.c.name == text, WORKLOADS.c.shape == text)
        for condition in (hashed, told, _about(text)):
            with self._database.transaction() as connection:
                found = connection.execute(
                    select(*_WORKLOAD).where(condition).order_by(WORKLOADS.c.id).limit(AMBIGUOUS_SHOWN + 1)
                ).all()
            if len(found) == 1:
                return Workload(*found[0])
            if found:
                some = "; ".join(f"{row.shape or row.name} ({row.hash[:ID_DIGITS]})" for row in found[:AMBIGUOUS_SHOWN])
                more = "; and more" if len(found) > AMBIGUOUS_SHOWN else ""
                raise RequestError(f"{text!r} may be several workloads: {some}{more}. Name one by its identifier")
        raise NotFound(f"there is no workload {text!r}. See what there is:  autosched records list")

    def fastest(self, workload: str, wanted: Filter = ANYTHING, k: int = 10) -> list[Schedule]:
        """The k fastest schedules of a workload in any environment (device and backend as wanted)."""
        return self._valid(workload, SCHEDULES.c.best_s, k, *_circumstances(wanted))

    def history(self, workload: str, limit: int) -> list[Schedule]:
        """Valid schedules of a workload, the latest measurement first; at most `limit`."""
        return self._valid(workload, SCHEDULES.c.measured_at.desc(), limit)

    def _valid(
        self, workload: str, order: ColumnElement[Any], limit: int, *conditions: ColumnElement[bool]
    ) -> list[Schedule]:
        """Valid schedules of a workload in an order; at most `limit`."""
        with self._database.transaction() as connection:
            rows = connection.execute(
                select(*SHOWN)
                .join(WORKLOADS)
                .join(ENVIRONMENTS)
                .where(WORKLOADS.c.hash == workload, SCHEDULES.c.best_s.is_not(None), *conditions)
                .order_by(order, SCHEDULES.c.digest)
                .limit(limit)
            )
            return self._schedules(connection, workload, rows.all())

    def schedule(self, identifier: str) -> list[Schedule]:
        """Return a row for each workload and environment of a schedule, the fastest first.

        identifier: first hexadecimal digits of its digest. Raises NotFound, and RequestError if there are several.
        """
        if len(identifier) < ID_DIGITS_MIN or not identifier.isascii():
            raise NotFound(f"{identifier!r} names no schedule: it takes {ID_DIGITS_MIN} hexadecimal digits or more")
        try:
            least = bytes.fromhex(identifier + "0" * (len(identifier) % 2))
            most = bytes.fromhex(identifier + "f" * (len(identifier) % 2))
        except ValueError:
            raise NotFound(f"{identifier!r} names no schedule: it takes hexadecimal digits alone") from None
        with self._database.transaction() as connection:
            keys = connection.execute(
                select(*(MEASUREMENTS.c[name] for name in SCHEDULE_KEY), WORKLOADS.c.hash)
                .distinct()
                .join(WORKLOADS)
                .where(MEASUREMENTS.c.digest >= least, MEASUREMENTS.c.digest < most + b"\xff" * DIGEST_BYTES)
            ).all()
            if len({key.digest for key in keys}) > 1:
                some = ", ".join(sorted({key.digest.hex()[: len(identifier) + 4] for key in keys})[:AMBIGUOUS_SHOWN])
                raise RequestError(f"{identifier!r} may be several schedules: {some}. Write more digits")
            found: list[Schedule] = []
            for key in keys:
                same = and_(*(SCHEDULES.c[name] == getattr(key, name) for name in SCHEDULE_KEY))
                found += self._schedules(connection, key.hash, connection.execute(select(*SHOWN).where(same)).all())
        if not found:
            raise NotFound(f"there is no schedule {identifier!r}. See what there is:  autosched records list")
        return sorted(found, key=lambda one: (one.best_s is None, one.best_s or 0.0))

    def measurements(self, schedule: Schedule) -> list[Measurement]:
        """All measurements of a schedule of one workload in one environment, in order of time."""
        with self._database.transaction() as connection:
            environment, digest = self._place(connection, schedule)
            rows = connection.execute(
                MEASURED.where(
                    WORKLOADS.c.hash == schedule.workload,
                    MEASUREMENTS.c.environment_id == environment,
                    MEASUREMENTS.c.digest == digest,
                )
            ).all()
            return [one for _, one in self._measurements(connection, rows)]

    def jobs(self, models: Collection[str], limit: int) -> list[MeasuredJob]:
        """Work of the latest jobs of these models, as far as their measurements show it; the latest first.

        models: content hashes of files. limit: maximum number of jobs.
        """
        searched = func.sum(case((MEASUREMENTS.c.purpose == Purpose.TRIAL.value, 1), else_=0))
        with self._database.transaction() as connection:
            latest = connection.execute(
                select(JOBS.c.id, JOBS.c.model).where(JOBS.c.model.in_(models)).order_by(JOBS.c.id.desc()).limit(limit)
            ).all()
            model_of: dict[int, str] = {row.id: row.model for row in latest}
            rows = connection.execute(
                select(
                    MEASUREMENTS.c.job_id,
                    ENVIRONMENTS.c.backend,
                    searched,
                    func.sum(MEASUREMENTS.c.build_s),
                    func.sum(MEASUREMENTS.c.profile_s),
                    func.max(MEASUREMENTS.c.measured_at) - func.min(MEASUREMENTS.c.measured_at),
                )
                .join(ENVIRONMENTS)
                .where(MEASUREMENTS.c.job_id.in_(list(model_of)))
                .group_by(MEASUREMENTS.c.job_id, ENVIRONMENTS.c.backend)
                .order_by(MEASUREMENTS.c.job_id.desc())
            ).all()
        return [
            MeasuredJob(model_of[job], backend.partition(" ")[0], int(trials), build_s, profile_s, lasted_s)
            for job, backend, trials, build_s, profile_s, lasted_s in rows
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """All measurements as flat rows, for a table: see `table_files.COLUMNS`."""
        for origin, one in self.everything():
            yield table_files.row(origin, one)

    def _known(
        self, connection: Connection, number: int, workload: Workload, wanted: Filter
    ) -> Iterator[KnownWorkload]:
        tried, valid = func.count(), func.count(SCHEDULES.c.best_s)
        groups = connection.execute(
            select(SCHEDULES.c.environment_id, tried, valid, func.max(SCHEDULES.c.measured_at))
            .join(ENVIRONMENTS)
            .where(SCHEDULES.c.workload_id == number, *_circumstances(wanted))
            .group_by(SCHEDULES.c.environment_id)
            .order_by(SCHEDULES.c.environment_id)
        ).all()
        for environment_id, all_of, right, measured_at in groups:
            rows = self._fastest(connection, number, environment_id, 1)
            best = next(iter(self._schedules(connection, workload.hash, rows)), None)
            environment = self._environment(connection, environment_id)
            yield KnownWorkload(workload, environment, all_of, all_of - right, measured_at, best)


def _about(text: str) -> ColumnElement[bool]:
    """Condition that an operator's name or description contains a text."""
    return or_(WORKLOADS.c.name.icontains(text, autoescape=True), WORKLOADS.c.shape.icontains(text, autoescape=True))


def _circumstances(wanted: Filter) -> list[ColumnElement[bool]]:
    """Conditions on environments."""
    return [
        ENVIRONMENTS.c[name].icontains(text, autoescape=True)
        for name in _CIRCUMSTANCES
        if (text := getattr(wanted, name))
    ]


def _conditions(wanted: Filter) -> list[ColumnElement[bool]]:
    """Conditions on workloads."""
    found: list[ColumnElement[bool]] = []
    if wanted.operator:
        found.append(or_(_about(wanted.operator), WORKLOADS.c.hash.startswith(wanted.operator, autoescape=True)))
    if wanted.network:
        named = (JOBS.c[name].icontains(wanted.network, autoescape=True) for name in ("network", "name"))
        jobs = select(JOBS.c.id).where(or_(*named))
        found.append(WORKLOADS.c.id.in_(select(MEASUREMENTS.c.workload_id).where(MEASUREMENTS.c.job_id.in_(jobs))))
    if circumstances := _circumstances(wanted):
        known = select(SCHEDULES.c.workload_id).join(ENVIRONMENTS)
        found.append(WORKLOADS.c.id.in_(known.where(SCHEDULES.c.workload_id == WORKLOADS.c.id, *circumstances)))
    return found
