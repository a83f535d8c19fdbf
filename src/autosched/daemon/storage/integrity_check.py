"""Checks a database: checksums of all rows, counts of rows, indices, and the numbers of events.

It detects damage by disks, memory or users. A crash of the daemon or the machine leaves none.
"""

import sqlite3
from pathlib import Path

from msgspec import Struct

from autosched.daemon.storage import schema
from autosched.daemon.storage.commit_mark import Mark
from autosched.daemon.storage.journal import UNREADABLE, WAYS_OUT, commits_of
from autosched.errors import Damaged

SHOWN = 5
"""Maximum number of damaged rows of a table that are named."""


class Damage(Struct, frozen=True):
    """One damaged part of a database."""

    table: str
    what: str
    row: str = ""
    """Key of the damaged row, if the damage is of one row."""
    loss: str = ""
    """Data that would be lost without the damaged part and everything that depends on it."""


class Findings(Struct, frozen=True):
    """Result of a check."""

    format: int
    rows: dict[str, int]
    """Number of rows by table."""
    damage: tuple[Damage, ...]

    def error(self, path: Path) -> Damaged:
        """The findings as an exception."""
        first, *others = self.damage
        more = f", and {len(others)} more: see autosched db check" if others else ""
        loss = f" Without it these are lost: {first.loss}." if first.loss else ""
        return Damaged(f"{path} is damaged: {first.what}{more}.{loss} {WAYS_OUT}")


def check(db: sqlite3.Connection, acknowledged: Mark | None) -> Findings:
    """Check everything. O(rows). Raises one of UNREADABLE if the file is no database."""
    form: int = db.execute("PRAGMA user_version").fetchone()[0]
    rows: dict[str, int] = {}
    damage: list[Damage] = []
    there = schema.tables(db)
    counted = dict(db.execute("SELECT name, count FROM header")) if form else {}
    for table, columns in there.items():
        try:
            rows[table], found = _rows(db, table, columns)
            damage += found
            if table in counted and counted[table] != rows[table]:
                damage.append(Damage(table, f"{table} has {rows[table]} rows, and {counted[table]} were written"))
            damage += _indices(db, table)
        except UNREADABLE as error:
            damage.append(Damage(table, f"{table} cannot be read ({error})"))
    if schema.SHAPE in counted and counted[schema.SHAPE] != schema.shape(db):
        damage.append(Damage("header", "the description of the tables is not as it was written"))
    if "journal" in rows:
        damage += _numbers(db, rows["journal"])
    if acknowledged is not None and acknowledged.commits > (commits := commits_of(db)):
        damage.append(_forgotten(db, commits, acknowledged))
    return Findings(form, rows, tuple(damage))


def missing(db: sqlite3.Connection, folder: Path) -> list[Damage]:
    """Results of jobs whose files are missing or incomplete."""
    damage = []
    if "artifacts" in schema.tables(db):
        for job, name, sha256, size in db.execute("SELECT job, name, sha256, bytes FROM artifacts ORDER BY job, name"):
            path = folder / sha256
            if not path.is_file() or path.stat().st_size != size:
                damage.append(Damage("artifacts", f"the file {name} of job {job} is not whole: {path}", f"job {job}"))
    return damage


def _rows(db: sqlite3.Connection, table: str, columns: list[str]) -> tuple[int, list[Damage]]:
    """The number of rows of a table, and the damaged ones."""
    names = ", ".join(columns)
    if table == "journal":
        reckoned = "journal_crc(seq, now, event, started)"
    elif schema.has_crc(db, table):
        reckoned = f"crc({names})"
    else:
        return db.execute(f"SELECT count(*) FROM {table} NOT INDEXED").fetchone()[0], []
    wrong = f"crc IS NOT {reckoned}"
    count, bad = db.execute(f"SELECT count(*), coalesce(sum({wrong}), 0) FROM {table} NOT INDEXED").fetchone()
    if not bad:
        return count, []
    keys = [column for _, column, *_, key in db.execute(f"PRAGMA table_info({table})") if key]
    found = db.execute(f"SELECT {', '.join(keys)} FROM {table} NOT INDEXED WHERE {wrong} LIMIT {SHOWN}").fetchall()
    return count, [_wrong(db, table, keys, key) for key in found]


def _wrong(db: sqlite3.Connection, table: str, keys: list[str], key: tuple[object, ...]) -> Damage:
    row = ", ".join(f"{name} {value}" for name, value in zip(keys, key, strict=True))
    what, loss = f"the row of {table} with {row}", ""
    if table == "journal":
        what, loss = f"row {key[0]} of the journal", _events_from(db, key[0])
    elif table == "records":
        (count,) = db.execute("SELECT count(*) FROM records WHERE job = ? AND ordinal >= ?", key).fetchone()
        loss = f"{count} records of job {key[0]}"
    return Damage(table, f"the checksum of {what} does not match", row, loss)


def _events_from(db: sqlite3.Connection, seq: object) -> str:
    """Describe the events from a row on: each event depends on those before it."""
    submitted = "coalesce(sum(instr(event, CAST('JobSubmitted' AS BLOB)) > 0), 0)"
    count, jobs = db.execute(f"SELECT count(*), {submitted} FROM journal WHERE seq >= ?", (seq,)).fetchone()
    return f"{count} events from row {seq} on, with the submissions of {jobs} jobs"


def _indices(db: sqlite3.Connection, table: str) -> list[Damage]:
    """Check that each index contains the rows of its table."""
    damage = []
    kinds = {column: kind for _, column, kind, *_ in db.execute(f"PRAGMA table_info({table})")}
    if db.execute("SELECT 1 FROM sqlite_master WHERE name = ? AND sql LIKE '%WITHOUT ROWID%'", (table,)).fetchone():
        return []  # the index is the table
    for _, index, *_ in db.execute(f"PRAGMA index_list({table})").fetchall():
        columns = [column for *_, column in db.execute(f"PRAGMA index_info({index})")]
        if all(kinds[column] == "INTEGER" for column in columns):
            terms = " + ".join(f"{column} % 1000003 * {1009 + place}" for place, column in enumerate(columns))
            sum_ = f"sum((rowid * 31 + {terms}) % 1000003)"
        else:
            sum_ = f"sum(crc(rowid, {', '.join(columns)}))"
        told, there = (
            db.execute(f"SELECT count(*), {sum_} FROM {table} {how}").fetchone()
            for how in (f"INDEXED BY {index}", "NOT INDEXED")
        )
        if told != there:
            damage.append(Damage(table, f"an index of {table} does not lead to its rows"))
    return damage


def _numbers(db: sqlite3.Connection, count: int) -> list[Damage]:
    """Check that events are numbered from 1 without a gap."""
    first, last = db.execute("SELECT coalesce(min(seq), 1), coalesce(max(seq), 0) FROM journal").fetchone()
    if first == 1 and last == count:
        return []
    missing = 1
    for (seq,) in db.execute("SELECT seq FROM journal ORDER BY seq"):
        if seq != missing:
            break
        missing += 1
    what = f"row {missing} of the journal is missing"
    return [Damage("journal", what, f"seq {missing}", _events_from(db, missing))]


def _forgotten(db: sqlite3.Connection, commits: int, acknowledged: Mark) -> Damage:
    (last,) = db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()
    return Damage(
        "journal",
        f"{acknowledged.commits - commits} commits that were acknowledged are gone, with the events {last + 1} to"
        f" {acknowledged.seq}: its write-ahead log was damaged or removed, or it is an older copy",
        f"seq {last + 1}",
    )
