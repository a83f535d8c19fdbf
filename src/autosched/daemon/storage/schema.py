"""Database schema: tables, upgrades from each earlier version, and what makes damage detectable.

SQLite does not detect flipped bits: each row carries a checksum over all its values. SQLite does not detect missing
rows either: `header` counts the rows of each table and the commits, in the transactions that change them.
"""

import secrets
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

from autosched.errors import ConfigError

VERSION = 6
COUNTED_SINCE = 3
"""First version with counted rows and checksums in all tables; earlier ones had checksums in the journal and in the
content of records only."""
JOURNAL = (
    "CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, now REAL, event BLOB, crc INTEGER, started BLOB)"
    " STRICT"
)
HEADER = "CREATE TABLE IF NOT EXISTS header (name TEXT PRIMARY KEY, count INTEGER) STRICT, WITHOUT ROWID"
COMMITS, SHAPE = "commits", "schema"
ORIGIN = "origin"
"""Row of `header`: a random number of 63 bits that identifies the database in record stores."""
NAMING_EVENTS = 8
"""Number of first events whose times identify a database of a version without an origin."""
COUNT_COMMIT = f"UPDATE header SET count = count + 1 WHERE name = '{COMMITS}'"
MIGRATIONS: dict[int, tuple[tuple[str, str], ...]] = {
    1: (("journal", "ALTER TABLE journal ADD COLUMN started BLOB"),),
    2: (
        *(
            (table, statement)
            for table, values in (
                ("networks", "job, trials, body"),
                ("marks", "job, trial, purpose, disturbed"),
                ("artifacts", "job, name, sha256, bytes"),
                ("spans", "step, body"),
                ("stage_times", "workload, target, stage, count, sum_s"),
            )
            for statement in (f"ALTER TABLE {table} ADD COLUMN crc INTEGER", f"UPDATE {table} SET crc = crc({values})")
        ),
        (
            "records",  # a row with a wrong old checksum stays marked as damaged
            "UPDATE records SET crc = CASE WHEN crc = crc32(body)"
            " THEN crc(job, ordinal, task, trial, best_s, failure, body) ELSE -1 END",
        ),
    ),
    3: (),  # adds the table of identities; an earlier program would not know a network's identity
    4: (),  # adds the table of tags; an earlier program would not know a record's code and time
    5: (),  # an earlier program would not know records that come from the record store
}
"""From each earlier version to the next: statements, each for a table that must exist."""
_encode = msgspec.msgpack.Encoder().encode


def row_crc(*values: object) -> int:
    """Checksum of a row; in SQL `crc(...)`. Values of a REAL column must be floats."""
    return zlib.crc32(_encode(values))


def checked(*values: object) -> tuple[object, ...]:
    """A row with its checksum."""
    return *values, row_crc(*values)


def journal_crc(seq: int, now: float, event: bytes, started: bytes | None) -> int:
    """Checksum of a row of the journal."""
    crc = zlib.crc32(event, zlib.crc32(struct.pack(">qd", seq, now)))
    return crc if started is None else zlib.crc32(started, crc)


def add_functions(db: sqlite3.Connection) -> None:
    """Define the checksum functions in SQL for a connection."""
    db.create_function("crc", -1, row_crc, deterministic=True)
    db.create_function("crc32", 1, zlib.crc32, deterministic=True)
    db.create_function("journal_crc", 4, journal_crc, deterministic=True)


def version(db: sqlite3.Connection, path: Path) -> int:
    """Schema version of the database; 0 if it is new. Raises ConfigError if it is newer than this program."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise ConfigError(f"{path} was written by a newer autosched (format {found}); install that again")
    return found


def shape(db: sqlite3.Connection) -> int:
    """Checksum of the database's own description."""
    return row_crc(*db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"))


def has_crc(db: sqlite3.Connection, table: str) -> bool:
    """Whether the rows of a table carry checksums."""
    return any(column == "crc" for _, column, *_ in db.execute(f"PRAGMA table_info({table})"))


def tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """Tables with rows, and their columns without the checksum."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'header'"
    return {
        name: [column for _, column, *_ in db.execute(f"PRAGMA table_info({name})") if column != "crc"]
        for (name,) in sorted(db.execute(names))
    }


def origin_name(read: Callable[..., Iterable[tuple[object, ...]]]) -> str:
    """Name of the database in record stores. `read` runs SQL."""
    ((number,),) = read("SELECT count FROM header WHERE name = ?", ORIGIN)
    return f"{number:016x}"


def _origin(db: sqlite3.Connection) -> int:
    """Number that identifies a database without an origin: the same for all copies of an earlier version, otherwise
    random."""
    times = [now for (now,) in db.execute(f"SELECT now FROM journal ORDER BY seq LIMIT {NAMING_EVENTS}")]
    if len(times) < NAMING_EVENTS:
        return secrets.randbits(63)
    digest = blake2b(struct.pack(f">{NAMING_EVENTS}d", *times), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def prepare(db: sqlite3.Connection, path: Path, wanted: Iterable[str]) -> None:
    """Create missing tables and upgrade an earlier version, in one transaction."""
    found = version(db, path)
    db.execute("BEGIN IMMEDIATE")
    there = tables(db)
    for earlier in range(found or VERSION, VERSION):
        for table, statement in MIGRATIONS[earlier]:
            if table in there:
                db.execute(statement)
    for statement in (JOURNAL, *wanted, HEADER, f"INSERT OR IGNORE INTO header VALUES ('{COMMITS}', 0)"):
        db.execute(statement)
    db.execute("INSERT OR IGNORE INTO header VALUES (?, ?)", (ORIGIN, _origin(db)))
    counted = {name for (name,) in db.execute("SELECT name FROM header")}
    for table in tables(db):
        for change, by in (("INSERT", "+ 1"), ("DELETE", "- 1")):
            db.execute(
                f"CREATE TRIGGER IF NOT EXISTS {change.lower()}_{table} AFTER {change} ON {table}"
                f" BEGIN UPDATE header SET count = count {by} WHERE name = '{table}'; END"
            )
        if table not in counted:
            db.execute(f"INSERT INTO header SELECT '{table}', count(*) FROM {table}")
    db.execute(f"INSERT OR REPLACE INTO header VALUES ('{SHAPE}', {shape(db)})")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
