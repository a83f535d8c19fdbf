"""Deletes schedules from a store, with all that was measured of them.

Workloads, jobs and circumstances stay: daemons that are running refer to their rows.
"""

from contextlib import suppress
from typing import Any

from msgspec import Struct
from sqlalchemy import ColumnElement, Connection, Select, and_, bindparam, delete, exists, func, select, text, true
from sqlalchemy.engine import URL

from autosched.errors import StoreUnavailable
from autosched.recordstore import opening
from autosched.recordstore.rows import Pruned
from autosched.recordstore.tables import MEASUREMENTS, SCHEDULE_KEY, SCHEDULES

BATCH = 500
"""Schedules of one transaction: others who write wait for one batch."""
_KEY = tuple(SCHEDULES.c[name] for name in SCHEDULE_KEY)
_SAME_SCHEDULE = [SCHEDULES.c[name] == bindparam(name) for name in SCHEDULE_KEY]
_OF_SCHEDULE = [MEASUREMENTS.c[name] == bindparam(name) for name in SCHEDULE_KEY]
_THERE = exists().where(*(SCHEDULES.c[name] == MEASUREMENTS.c[name] for name in SCHEDULE_KEY))


class Unwanted(Struct, frozen=True, kw_only=True):
    """Which schedules go: those that all of this holds for."""

    before: float = 0.0
    """Unix time in seconds of the measurement that represents a schedule; 0: whatever its time."""
    imported: bool = False
    """Only what files brought, and no daemon measured."""
    keep: int = 0
    """Fastest schedules of each workload, under the same circumstances, that stay."""


def prune(url: str | URL, wanted: Unwanted, *, dry_run: bool = False) -> Pruned:
    """Delete schedules with their measurements; `dry_run` only counts them.

    A daemon that is running does not bring them back. Raises ConfigError and StoreUnavailable; then what was deleted
    before stays deleted.
    """
    database = opening.Database(url)
    try:
        unwanted = _unwanted(wanted)
        if dry_run:
            with database.transaction() as connection:
                return _count(connection, unwanted)
        with database.transaction() as connection:
            keys = [dict(zip(SCHEDULE_KEY, row, strict=True)) for row in connection.execute(unwanted)]
        schedules = measurements = 0
        for begin in range(0, len(keys), BATCH):
            some = keys[begin : begin + BATCH]
            with database.transaction() as connection:  # some may have been measured again meanwhile
                kept = connection.execute(delete(SCHEDULES).where(*_SAME_SCHEDULE, *_old(wanted)), some)
                gone = connection.execute(delete(MEASUREMENTS).where(*_OF_SCHEDULE, ~_THERE), some)
            schedules, measurements = schedules + kept.rowcount, measurements + gone.rowcount
        if schedules:
            _give_space_back(database)
        return Pruned(schedules, measurements)
    finally:
        database.close()


def _old(wanted: Unwanted) -> list[ColumnElement[bool]]:
    """Conditions on one schedule."""
    found = []
    if wanted.before:
        found.append(SCHEDULES.c.measured_at < wanted.before)
    if wanted.imported:
        found.append(SCHEDULES.c.own == 0)
    return found


def _unwanted(wanted: Unwanted) -> Select[Any]:
    """Keys of the schedules that go."""
    place = (
        func.row_number()
        .over(
            partition_by=(SCHEDULES.c.workload_id, SCHEDULES.c.environment_id),
            order_by=(SCHEDULES.c.best_s.is_(None), SCHEDULES.c.best_s, SCHEDULES.c.digest),
        )
        .label("place")
    )
    ordered = select(*_KEY, SCHEDULES.c.best_s, and_(true(), *_old(wanted)).label("goes"), place).subquery()
    stays = and_(ordered.c.place <= wanted.keep, ordered.c.best_s.is_not(None))
    return select(*(ordered.c[name] for name in SCHEDULE_KEY)).where(ordered.c.goes, ~stays)


def _count(connection: Connection, unwanted: Select[Any]) -> Pruned:
    keys = unwanted.subquery()
    same = and_(*(keys.c[name] == MEASUREMENTS.c[name] for name in SCHEDULE_KEY))
    schedules = connection.execute(select(func.count()).select_from(keys)).scalar_one()
    measured = select(func.count()).select_from(MEASUREMENTS).join(keys, same)
    return Pruned(schedules, connection.execute(measured).scalar_one())


def _give_space_back(database: opening.Database) -> None:
    """Make the file of SQLite smaller, unless others are busy with it. A server does so by itself."""
    if database.engine.dialect.name == "sqlite":
        with (
            suppress(StoreUnavailable),
            opening.explained(database.url),
            database.engine.connect() as connection,
        ):
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
