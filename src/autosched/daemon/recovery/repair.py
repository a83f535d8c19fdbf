"""A new database from what is sound in a damaged one, when its operator accepts that the rest is lost.

Events are taken over up to the first that is damaged, missing or impossible: a later one builds on it. Everything else
is taken over row by row, unless it belongs to a job or step that is not known any more.
"""

import contextlib
import logging
import sqlite3
from pathlib import Path

from msgspec import Struct

from autosched import policy_registry
from autosched.core.scheduler import Scheduler
from autosched.daemon.recovery import backups
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.storage import database, schema
from autosched.daemon.storage.commit_mark import CommitMark
from autosched.daemon.storage.integrity_check import check
from autosched.daemon.storage.journal import EVENT, STEPS, UNREADABLE, WAYS_OUT, Journal, open_beside
from autosched.errors import ConfigError, Damaged
from autosched.model import JobId

log = logging.getLogger(__name__)

ORDER = {"stage_times": "workload, target, stage"}
"""Tables that have no row numbers."""


class Salvaged(Struct, frozen=True):
    """Result of repairing a damaged database."""

    copy: Path | None
    """Where it is kept."""
    events: int
    events_lost: int
    """Number of acknowledged events that are lost."""
    rows_lost: dict[str, int]
    """Lost rows of other tables, as far as they could be counted."""

    def words(self) -> str:
        """For people."""
        lost = [f"{self.events_lost} events after event {self.events}"] if self.events_lost else []
        lost += [f"{count} rows of {table}" for table, count in self.rows_lost.items()]
        return f"lost: {', '.join(lost) or 'nothing'}; the damaged database is kept at {self.copy}"


def see_to(state_dir: Path, *, accept_data_loss: bool) -> None:
    """Check the database before anything is done to it, and bring it to the present form, of which a backup is made
    first. Raises Damaged, unless that is accepted, and ConfigError; in the running loop."""
    path = database.database(state_dir)
    try:
        if not path.exists():
            if (acknowledged := CommitMark(path).read()) is not None:
                raise Damaged(f"{path} is gone, with {acknowledged.seq} events. {WAYS_OUT}")
            return
        done = backups.upgrade(state_dir)
        if done.backup:
            log.warning("the database had format %d; as it was it is at %s", done.before, done.backup)
        if accept_data_loss:  # events may be sound, and yet be such as the scheduler cannot live through
            with contextlib.closing(Journal(path, beside=True)) as journal:
                recover(journal, database.snapshots(state_dir))
    except Damaged as error:
        if not accept_data_loss:
            raise
        log.error("%s", error)
        try:
            log.warning("this was accepted; %s", salvage(state_dir).words())
        except OSError as failed:
            raise ConfigError(f"{path} cannot be replaced ({failed.strerror}); free some space there") from None


def salvage(state_dir: Path) -> Salvaged:
    """Set the damaged database aside and put a sound one in its place; only while no daemon runs. Raises OSError."""
    path = database.database(state_dir)
    acknowledged = CommitMark(path).read()
    copy = backups.set_aside(state_dir, "damaged")
    new = path.with_name(f"{path.name}.new")
    for side in backups.SIDES:
        Path(f"{new}{side}").unlink(missing_ok=True)
    lost: dict[str, int] = {}
    with contextlib.closing(sqlite3.connect(new, isolation_level=None)) as to:
        schema.add_functions(to)
        schema.prepare(to, new, database.TABLES)
        if (source := _source(copy)) is not None:
            with contextlib.closing(source):
                lost = _take_over(source, to)
        events, last = to.execute("SELECT count(*), coalesce(max(seq), 0) FROM journal").fetchone()
        assert not check(to, None).damage, "what was taken over is damaged"
    backups.flush(new)
    new.rename(path)
    backups.flush(path.parent)
    were = max(acknowledged.seq if acknowledged is not None else 0, last + lost.pop("journal", 0))
    return Salvaged(copy, events, were - last, {table: count for table, count in lost.items() if count})


def _source(copy: Path | None) -> sqlite3.Connection | None:
    """The damaged database, brought to the present form if it is of an earlier one; None: nothing of it is left."""
    if copy is None:
        return None
    try:
        if _format(copy) < schema.VERSION:
            with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as db:
                schema.add_functions(db)
                schema.prepare(db, copy, database.TABLES)
        return open_beside(copy)
    except UNREADABLE as error:
        log.error("nothing of %s can be read: %s", copy, error)
        return None


def _format(path: Path) -> int:
    with contextlib.closing(open_beside(path)) as db:
        return schema.version(db, path)


def _take_over(source: sqlite3.Connection, to: sqlite3.Connection) -> dict[str, int]:
    """Returns how many rows of each table are left behind."""
    to.execute("BEGIN")
    with contextlib.suppress(*UNREADABLE):  # without it the record store takes all records for those of another daemon
        for row in source.execute("SELECT name, count FROM header WHERE name = ?", (schema.ORIGIN,)):
            to.execute("INSERT OR REPLACE INTO header VALUES (?, ?)", row)
    core = Scheduler(policies=policy_registry.Installed())
    taken = _events(source, to, core)
    lost = {"journal": max(0, _number(source, "SELECT max(seq) FROM journal") - taken)}
    there = schema.tables(source)
    for table, columns in schema.tables(to).items():
        if table != "journal" and table in there:
            took = _others(source, to, table, columns, core)
            lost[table] = max(0, _number(source, f"SELECT count(*) FROM {table}") - took)
    to.execute("COMMIT")
    return lost


def _events(source: sqlite3.Connection, to: sqlite3.Connection, core: Scheduler) -> int:
    """Take over the events that the scheduler can live through; returns the last one."""
    taken = 0
    with contextlib.suppress(*UNREADABLE):
        for row in source.execute("SELECT seq, now, event, crc, started FROM journal ORDER BY seq"):
            seq, now, event, crc, started = row
            if seq != taken + 1 or crc != schema.journal_crc(seq, now, event, started):
                break
            try:
                steps = None if started is None else STEPS.decode(started)
                core.handle(now, EVENT.decode(event), steps)
            except Exception as error:  # whatever it is: the daemon could not start on it
                log.error("event %d cannot be lived through: %r", seq, error)
                break
            to.execute("INSERT INTO journal VALUES (?, ?, ?, ?, ?)", row)
            taken = seq
    return taken


def _others(source: sqlite3.Connection, to: sqlite3.Connection, table: str, columns: list[str], core: Scheduler) -> int:
    """Take over the sound rows of another table, from both ends where it cannot be read in the middle."""
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
                known = of.get("job", 0) <= core.state.last_job and of.get("step", 0) <= core.state.last_step
                sound = not checked or schema.row_crc(*row[:-1]) == row[-1]
                if table == "records":  # a job's records build on one another
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
