"""Deletes schedules from a store, with all their measurements.

Workloads, jobs and environments stay: running daemons refer to their rows.
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
"""Maximum schedules of one transaction: other writers wait for one batch."""
_KEY = tuple(SCHEDULES.c[name] for name in SCHEDULE_KEY)
_SAME_SCHEDULE = [SCHEDULES.c[name] == bindparam(name) for name in SCHEDULE_KEY]
_OF_SCHEDULE = [MEASUREMENTS.c[name] == bindparam(name) for name in SCHEDULE_KEY]
_THERE = exists().where(*(SCHEDULES.c[name] == MEASUREMENTS.c[name] for name in SCHEDULE_KEY))


class Unwanted(Struct, frozen=True, kw_only=True):
    """Schedules to delete: those that fulfil all of these conditions."""

    before: float = 0.0
    """Unix time in seconds; the schedule's representative measurement is older. 0: any time."""
    imported: bool = False
    """Only imported schedules that no daemon measured."""
    keep: int = 0
    """Number of fastest schedules of each workload and environment to keep."""


def prune(url: str | URL, wanted: Unwanted, *, dry_run: bool = False) -> Pruned:
    """Delete schedules with their measurements; `dry_run` only counts them.

    A running daemon does not bring them back. Raises ConfigError and StoreUnavailable; earlier batches then stay
    deleted.
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
    """Keys of the schedules to delete."""
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
    """Shrink the file of SQLite, unless others use it. Servers do so by themselves."""
    if database.engine.dialect.name == "sqlite":
        with (
            suppress(StoreUnavailable),
            opening.explained(database.url),
            database.engine.connect() as connection,
        ):
            connection.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM"))
