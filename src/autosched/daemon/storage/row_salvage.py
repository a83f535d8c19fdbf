"""Copies the sound rows of a damaged database to a new one.

Events are copied up to the first that is damaged, missing or impossible, because later events depend on it. Rows of
other tables are copied one by one, except those of jobs or steps that are not in the copied events.
"""

import contextlib
import logging
import sqlite3
from pathlib import Path
from typing import Protocol

from autosched.core.events import Event
from autosched.daemon.storage import database, schema
from autosched.daemon.storage.integrity_check import check
from autosched.daemon.storage.journal import EVENT, STEPS, UNREADABLE, Decided, open_beside
from autosched.model import JobId, StepId

log = logging.getLogger(__name__)

ORDER = {"stage_times": "workload, target, stage"}
"""Order of tables without row numbers."""


class Past(Protocol):
    """The state after the copied events."""

    def handle(self, now: float, event: Event, steps: Decided) -> None:
        """Apply an event. Raises any exception for an impossible event."""

    @property
    def last_job(self) -> JobId:
        """The number of the last job."""

    @property
    def last_step(self) -> StepId:
        """The number of the last step."""


def take_over(damaged: Path | None, new: Path, past: Past) -> tuple[int, int, dict[str, int]]:
    """Create a database from the sound rows of a damaged one; `damaged` None: from nothing.

    Returns the number of events, the number of the last event, and the number of lost rows of each table, events
    included.
    """
    lost: dict[str, int] = {}
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as to:
        schema.add_functions(to)
        schema.prepare(to, new, database.TABLES)
        if damaged is not None and (source := _source(damaged)) is not None:
            with contextlib.closing(source):
                lost = _take_over(source, to, past)
        events, last = to.execute("SELECT count(*), coalesce(max(seq), 0) FROM journal").fetchone()
        assert not check(to, None).damage, "what was taken over is damaged"
    return events, last, lost


def _source(damaged: Path) -> sqlite3.Connection | None:
    """Open the damaged database, upgraded to the present version; None if nothing can be read."""
    try:
        if _format(damaged) < schema.VERSION:
            with contextlib.closing(sqlite3.connect(damaged, isolation_level=None)) as db:
                schema.add_functions(db)
                schema.prepare(db, damaged, database.TABLES)
        return open_beside(damaged)
    except UNREADABLE as error:
        log.error("nothing of %s can be read: %s", damaged, error)
        return None


def _format(path: Path) -> int:
    with contextlib.closing(open_beside(path)) as db:
        return schema.version(db, path)


def _take_over(source: sqlite3.Connection, to: sqlite3.Connection, past: Past) -> dict[str, int]:
    """Copy all tables; returns the number of rows of each table that were left behind."""
    to.execute("BEGIN")
    # without the origin, the record store takes all records for those of another daemon
    with contextlib.suppress(*UNREADABLE):
        for row in source.execute("SELECT name, count FROM header WHERE name = ?", (schema.ORIGIN,)):
            to.execute("INSERT OR REPLACE INTO header VALUES (?, ?)", row)
    taken = _events(source, to, past)
    lost = {"journal": max(0, _number(source, "SELECT max(seq) FROM journal") - taken)}
    there = schema.tables(source)
    for table, columns in schema.tables(to).items():
        if table != "journal" and table in there:
            took = _others(source, to, table, columns, past)
            lost[table] = max(0, _number(source, f"SELECT count(*) FROM {table}") - took)
    to.execute("COMMIT")
    return lost


def _events(source: sqlite3.Connection, to: sqlite3.Connection, past: Past) -> int:
    """Copy events up to the first unusable one; returns the number of the last copied event."""
    taken = 0
    with contextlib.suppress(*UNREADABLE):
        for row in source.execute("SELECT seq, now, event, crc, started FROM journal ORDER BY seq"):
            seq, now, event, crc, started = row
            if seq != taken + 1 or crc != schema.journal_crc(seq, now, event, started):
                break
            try:
                past.handle(now, EVENT.decode(event), STEPS.decode(started))
            except Exception as error:  # any exception: the daemon could not start from this event
                log.error("event %d cannot be replayed: %r", seq, error)
                break
            to.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row)
            taken = seq
    return taken


def _others(source: sqlite3.Connection, to: sqlite3.Connection, table: str, columns: list[str], past: Past) -> int:
    """Copy the sound rows of another table, from both ends if its middle cannot be read."""
    checked = schema.has_crc(to, table)
    names = ", ".join([*columns, "crc"] if checked else columns)
    insert = f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({', '.join('?' * (names.count(',') + 1))})"
    next_ordinal: dict[JobId, int] = {}
    took = 0
    for order in ("ASC", "DESC"):
        try:
            rows = source.execute(
                f"SELECT {names} FROM {table} NOT INDEXED ORDER BY {ORDER.get(table, 'rowid')} {order}"
            )
            for row in rows:
                of = dict(zip(columns, row, strict=False))
                known = of.get("job", 0) <= past.last_job and of.get("step", 0) <= past.last_step
                sound = not checked or schema.row_crc(*row[:-1]) == row[-1]
                if table == "records":  # records of a job depend on earlier ones
                    sound = sound and of["ordinal"] == next_ordinal.get(of["job"], 0)
                if known and sound:
                    took += to.execute(insert, row).rowcount
                    if table == "records":
                        next_ordinal[of["job"]] = of["ordinal"] + 1
            break
        except UNREADABLE as error:
            log.error("%s cannot be read as a whole: %s", table, error)
    return took


def _number(source: sqlite3.Connection, sql: str) -> int:
    try:
        return int(source.execute(sql).fetchone()[0] or 0)
    except UNREADABLE:
        return 0
