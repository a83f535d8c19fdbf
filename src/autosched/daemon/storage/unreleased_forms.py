"""Upgrades databases from before the first release to its schema. Only this commit does: the next one removes it."""

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from autosched.errors import ConfigError

LAST = 6
"""Last schema version before the first release."""
FIRST = 3
"""First one that is upgraded: earlier ones had no checksums in all tables."""
NEW_NAMES = {"trial": "number", "device": "unit", "poisoned": "blocked"}
"""Names of fields of records and cases."""
STATUS = ("comparison", "measured", "recalled", "movable", "divisible")
"""Fields of a network that are in a table of their own now."""


def upgrade(db: sqlite3.Connection, path: Path, form: int, tables: Sequence[str]) -> None:
    """Upgrade from schema version `form`, inside a transaction. `tables`: the present ones. Raises ConfigError."""
    there = {name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if form < FIRST or db.execute("SELECT 1 FROM journal WHERE started IS NULL").fetchone():
        raise ConfigError(
            f"{path} was begun by a first trial version of autosched, and cannot be upgraded; move it away"
        )
    if "marks" in there:
        _disturbances_of(db, there, tables)
    db.create_function("renamed", 1, _renamed, deterministic=True)
    if "records" in there:
        db.execute(
            "UPDATE records SET body = renamed(body), crc = CASE WHEN"
            " crc = crc(job, ordinal, task, trial, best_s, failure, body)"
            " THEN crc(job, ordinal, task, trial, renamed(body)) ELSE -1 END"
        )
        for column in ("best_s", "failure"):
            db.execute(f"ALTER TABLE records DROP COLUMN {column}")
        db.execute("ALTER TABLE records RENAME COLUMN trial TO number")
    if "identities" in there:
        db.execute("ALTER TABLE identities RENAME COLUMN trial TO number")
    if "cases" in there:
        db.execute(
            "UPDATE cases SET body = renamed(body), crc = CASE WHEN crc = crc(number, body)"
            " THEN crc(number, renamed(body)) ELSE -1 END"
        )
    for statement in tables:
        db.execute(statement)
    for job, trials, body, crc, right in db.execute("SELECT *, crc(job, trials, body) FROM networks").fetchall():
        _split(db, job, trials, body, sound=crc == right)


def _renamed(body: bytes) -> bytes:
    """A record, or a case of failure attribution, with the present names of its fields. A damaged one stays as it
    is."""
    try:
        old = msgspec.msgpack.decode(body)
        return msgspec.msgpack.encode(_with_new_names(old))
    except (msgspec.MsgspecError, AttributeError, TypeError, UnicodeDecodeError):
        return body


def _with_new_names(old: dict[str, Any]) -> dict[str, Any]:
    if "mishaps" in old:
        old["mishaps"] = [_with_new_names(one) for one in old["mishaps"]]
    elif old.get("failure") == "poisoned":
        old["failure"] = "blocked"
    return {NEW_NAMES.get(name, name): value for name, value in old.items()}


def _disturbances_of(db: sqlite3.Connection, there: set[str], tables: Sequence[str]) -> None:
    """Join the marks of records, and the log of them that a record store reads, in one table."""
    (create,) = [statement for statement in tables if " disturbances " in statement]
    db.execute(create)
    found = []
    if "tags" in there:
        sql = "SELECT job, trial, reason, crc IS crc(id, job, trial, reason) FROM tags ORDER BY id"
        found += db.execute(sql).fetchall()
    sql = "SELECT job, trial, disturbed, crc IS crc(job, trial, purpose, disturbed) FROM marks WHERE disturbed <> ''"
    found += db.execute(sql).fetchall()
    for job, trial, reason, sound in found:
        db.execute(
            "INSERT INTO disturbances SELECT next, ?1, ?2, ?3, CASE WHEN ?4 THEN crc(next, ?1, ?2, ?3) ELSE -1 END"
            " FROM (SELECT coalesce(max(id), 0) + 1 AS next FROM disturbances) WHERE true ON CONFLICT DO NOTHING",
            (job, trial, reason, sound),
        )
    for table in ("marks", "tags"):
        db.execute(f"DROP TABLE IF EXISTS {table}")
        db.execute("DELETE FROM header WHERE name = ?", (table,))


def _split(db: sqlite3.Connection, job: int, trials: int, body: bytes, *, sound: bool) -> None:
    """Store the status of a network in a row of its own. A damaged row stays marked as damaged."""
    try:
        network = msgspec.msgpack.decode(body)
        status = msgspec.msgpack.encode({field: network.pop(field) for field in STATUS if field in network})
        body = msgspec.msgpack.encode(network)
    except (msgspec.MsgspecError, AttributeError, TypeError):
        status, sound = b"\x80", False
    db.execute(
        "UPDATE networks SET body = ?2, crc = CASE WHEN ?4 THEN crc(job, trials, ?2) ELSE -1 END WHERE job = ?1"
        " AND trials = ?3",
        (job, body, trials, sound),
    )
    db.execute("INSERT INTO network_status VALUES (?1, ?2, crc(?1, ?2))", (job, status))
