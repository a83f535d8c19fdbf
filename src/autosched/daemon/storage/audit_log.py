"""Table of the audit trail: user, command and outcome."""

from autosched.daemon.storage.journal import Journal

TABLES = (
    "CREATE TABLE IF NOT EXISTS audit (id INTEGER PRIMARY KEY, at TEXT, who TEXT, role TEXT, address TEXT,"
    " command TEXT, about TEXT, outcome TEXT, crc INTEGER) STRICT",
)
INSERT = "INSERT INTO audit VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, '', crc(?1, ?2, ?3, ?4, ?5, ?6, ?7, ''))"
END = "UPDATE audit SET outcome = ?1, crc = crc(id, at, who, role, address, command, about, ?1) WHERE id = ?2"
FORGET = (
    "DELETE FROM audit WHERE who = ?1 AND id <="
    " (SELECT id FROM audit WHERE who = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)"
)
"""Deletes the rows of one user except the last ones."""
LATEST = "SELECT id, at, who, role, address, command, about, outcome FROM audit WHERE id < ? ORDER BY id DESC LIMIT ?"


def last(journal: Journal) -> int:
    """The number of the last row; 0 if there is none. Call before `Journal.start`."""
    ((number,),) = journal.rows("SELECT coalesce(max(id), 0) FROM audit")
    assert isinstance(number, int)
    return number
