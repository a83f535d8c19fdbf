"""Groups statements for SQLite: rows of one table are inserted together.

Each call of SQLite releases Python's interpreter lock and waits to get it back from the event loop, which takes longer
than an insert. All rows of one commit are therefore inserted by a few statements.
"""

import sqlite3
from collections.abc import Iterable
from functools import cache

ROWS_MAX = 128
"""Maximum number of rows of one statement."""


class Insert:
    """An INSERT of rows into a table."""

    def __init__(self, table: str, columns: int, conflict: str = "") -> None:
        """`conflict`: the clause for a row that exists, beginning with ON CONFLICT."""
        self.columns = columns
        self._head, self._row, self._tail = f"INSERT INTO {table} VALUES ", f"({', '.join('?' * columns)})", conflict
        self.sql = cache(self._sql)
        """The statement for a number of rows."""

    def _sql(self, rows: int) -> str:
        return f"{self._head}{', '.join([self._row] * rows)} {self._tail}"


def blob(content: bytes) -> bytearray:
    """Convert bytes to a type that sqlite3 accepts at once. For other types, bytes included, sqlite3 looks for an
    adapter, which takes longer than the copy."""
    return bytearray(content)


Statement = tuple[str | Insert, tuple[object, ...]]


def execute(db: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Run statements. Consecutive inserts are grouped by table and keep their order within a table; any other statement
    sees all statements before it and none after it."""
    waiting: dict[Insert, list[object]] = {}
    for what, values in statements:
        if isinstance(what, Insert):
            waiting.setdefault(what, []).extend(values)
        else:
            _insert(db, waiting)
            db.execute(what, values)
    _insert(db, waiting)


def _insert(db: sqlite3.Connection, waiting: dict[Insert, list[object]]) -> None:
    """Insert in powers of two, so that SQLite finds the prepared statement."""
    for insert, values in waiting.items():
        while values:
            rows = min(ROWS_MAX, 1 << (len(values) // insert.columns).bit_length() - 1)
            size = rows * insert.columns
            db.execute(insert.sql(rows), values[:size])
            del values[:size]
    waiting.clear()
