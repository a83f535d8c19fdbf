"""Database schema: the version, and what makes damage detectable.

SQLite does not detect flipped bits: each row carries a checksum over all its values. SQLite does not detect missing
rows either: `header` counts the rows of each table and the commits, in the transactions that change them.
"""

import secrets
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from autosched.errors import ConfigError
from autosched.version import LAST_UNRELEASED

VERSION = 1
"""Schema version, the `user_version` of a database."""
APPLICATION = 0x61757363
"""The `application_id` of a database: version numbers from before the first release do not count."""
MIGRATIONS: dict[int, tuple[str, ...]] = {}
"""Statements from each earlier version to the next; version 1 has none before it."""
JOURNAL = (
    "CREATE TABLE IF NOT EXISTS journal (seq INTEGER PRIMARY KEY, now REAL, event BLOB, crc INTEGER, started BLOB)"
    " STRICT"
)
HEADER = "CREATE TABLE IF NOT EXISTS header (name TEXT PRIMARY KEY, count INTEGER) STRICT, WITHOUT ROWID"
COMMITS, SHAPE = "commits", "schema"
ORIGIN = "origin"
"""Row of `header`: a random number of 63 bits that identifies the database in record stores."""
COUNT_COMMIT = f"UPDATE header SET count = count + 1 WHERE name = '{COMMITS}'"
_encode = msgspec.msgpack.Encoder().encode


def row_crc(*values: object) -> int:
    """Checksum of a row; in SQL `crc(...)`. Values of a REAL column must be floats."""
    return zlib.crc32(_encode(values))


def checked(*values: object) -> tuple[object, ...]:
    """A row with its checksum."""
    return *values, row_crc(*values)


def journal_crc(seq: int, now: float, event: bytes, started: bytes | None) -> int:
    """Checksum of a row of the journal; -1, which no row has, for a damaged one without `started`."""
    return -1 if started is None else zlib.crc32(started, zlib.crc32(event, zlib.crc32(struct.pack(">qd", seq, now))))


def add_functions(db: sqlite3.Connection) -> None:
    """Define the checksum functions in SQL for a connection."""
    db.create_function("crc", -1, row_crc, deterministic=True)
    db.create_function("journal_crc", 4, journal_crc, deterministic=True)


def version(db: sqlite3.Connection, path: Path) -> int:
    """Schema version of the database; 0 if it is new. Raises ConfigError if this program cannot read it."""
    found: int = db.execute("PRAGMA user_version").fetchone()[0]
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if found and application != APPLICATION:
        raise ConfigError(
            f"{path} is from before the first release. Upgrade it with autosched as of commit {LAST_UNRELEASED}:"
            " autosched db upgrade; or name another daemon.state_dir"
        )
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


def prepare(db: sqlite3.Connection, path: Path, wanted: Iterable[str]) -> None:
    """Create missing tables and upgrade an earlier version, in one transaction."""
    found = version(db, path)
    db.execute("BEGIN IMMEDIATE")
    for earlier in range(found or VERSION, VERSION):
        for statement in MIGRATIONS[earlier]:
            db.execute(statement)
    for statement in (JOURNAL, *wanted, HEADER, f"INSERT OR IGNORE INTO header VALUES ('{COMMITS}', 0)"):
        db.execute(statement)
    db.execute("INSERT OR IGNORE INTO header VALUES (?, ?)", (ORIGIN, secrets.randbits(63)))
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
    db.execute(f"PRAGMA application_id = {APPLICATION}")
    db.execute(f"PRAGMA user_version = {VERSION}")
    db.execute("COMMIT")
