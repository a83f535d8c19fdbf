"""The form of the database: its tables, what each version of it changed, and what lets damage be found.

SQLite does not notice flipped bits, so each row carries a checksum over all its values. It does not notice rows that
are gone either, so `header` counts the rows of each table, in the transactions that change them, and the commits.
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
"""Before, only the journal and the content of records had checksums, and rows were not counted."""
JOURNAL = (
    "CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, now REAL, event BLOB, crc INTEGER, started BLOB)"
    " STRICT"
)
HEADER = "CREATE TABLE IF NOT EXISTS header (name TEXT PRIMARY KEY, count INTEGER) STRICT, WITHOUT ROWID"
COMMITS, SHAPE = "commits", "schema"
ORIGIN = "origin"
"""In `header`: a number of 63 bits that names the database wherever its records go."""
NAMING_EVENTS = 8
"""Number of first events whose times name a database of a form without an origin."""
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
            "records",  # one whose old checksum is wrong stays damaged
            "UPDATE records SET crc = CASE WHEN crc = crc32(body)"
            " THEN crc(job, ordinal, task, trial, best_s, failure, body) ELSE -1 END",
        ),
    ),
    3: (),  # identities of records are a table of their own; an earlier program would not know a network's
    4: (),  # tags are a table of their own; an earlier program would not know a record's code and time
    5: (),  # an earlier program would not know records that come from the record store
}
"""From each earlier form to the next: statements, each for a table that must be there."""
_encode = msgspec.msgpack.Encoder().encode


def row_crc(*values: object) -> int:
    """The checksum of a row; in SQL `crc(...)`. Values of a REAL column must be floats."""
    return zlib.crc32(_encode(values))


def checked(*values: object) -> tuple[object, ...]:
    """A row with its checksum."""
    return *values, row_crc(*values)


def journal_crc(seq: int, now: float, event: bytes, started: bytes | None) -> int:
    """The same of a row of the journal."""
    crc = zlib.crc32(event, zlib.crc32(struct.pack(">qd", seq, now)))
    return crc if started is None else zlib.crc32(started, crc)


def add_functions(db: sqlite3.Connection) -> None:
    """Let SQL on this connection reckon checksums."""
    db.create_function("crc", -1, row_crc, deterministic=True)
    db.create_function("crc32", 1, zlib.crc32, deterministic=True)
    db.create_function("journal_crc", 4, journal_crc, deterministic=True)


def version(db: sqlite3.Connection, path: Path) -> int:
    """Schema version of the database; 0: it is new. Raises ConfigError for a later one than this program knows."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    if found > VERSION:
        raise ConfigError(f"{path} was written by a newer autosched (format {found}); install that again")
    return found


def shape(db: sqlite3.Connection) -> int:
    """Checksum of how the database describes itself."""
    return row_crc(*db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"))


def has_crc(db: sqlite3.Connection, table: str) -> bool:
    """Whether its rows carry checksums."""
    return any(column == "crc" for _, column, *_ in db.execute(f"PRAGMA table_info({table})"))


def tables(db: sqlite3.Connection) -> dict[str, list[str]]:
    """The tables that hold rows, and their columns but for the checksum."""
    names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND name <> 'header'"
    return {
        name: [column for _, column, *_ in db.execute(f"PRAGMA table_info({name})") if column != "crc"]
        for (name,) in sorted(db.execute(names))
    }


def origin_name(read: Callable[..., Iterable[tuple[object, ...]]]) -> str:
    """The name of the database, read by a function that runs SQL."""
    ((number,),) = read("SELECT count FROM header WHERE name = ?", ORIGIN)
    return f"{number:016x}"


def _origin(db: sqlite3.Connection) -> int:
    """A name for a database that has none: the same for all copies of an earlier form, else random."""
    times = [now for (now,) in db.execute(f"SELECT now FROM journal ORDER BY seq LIMIT {NAMING_EVENTS}")]
    if len(times) < NAMING_EVENTS:
        return secrets.randbits(63)
    digest = blake2b(struct.pack(f">{NAMING_EVENTS}d", *times), digest_size=8).digest()
    return int.from_bytes(digest) >> 1


def prepare(db: sqlite3.Connection, path: Path, wanted: Iterable[str]) -> None:
    """Make the tables that are missing and bring those of an earlier form up to date, in one transaction."""
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
