"""How statements reach the database: rows of one table together.

Each call of SQLite gives the interpreter away and has to get it back from the loop, which takes longer than the row
itself. So all rows that wait for the same commit go in with a few statements.
"""

import sqlite3
from collections.abc import Iterable
from functools import cache

ROWS_MAX = 128
"""In one statement."""


class Insert:
    """Puts a row into a table."""

    def __init__(self, table: str, columns: int, conflict: str = "") -> None:
        """`conflict`: what to do instead when the row is there, beginning with ON CONFLICT."""
        self.columns = columns
        self._head, self._row, self._tail = f"INSERT INTO {table} VALUES ", f"({', '.join('?' * columns)})", conflict
        self.sql = cache(self._sql)
        """The statement for a number of rows."""

    def _sql(self, rows: int) -> str:
        return f"{self._head}{', '.join([self._row] * rows)} {self._tail}"


def blob(content: bytes) -> bytearray:
    """As the module for SQLite takes it at once: it asks all types but a few whether they adapt themselves, bytes
    included, which takes longer than the copy."""
    return bytearray(content)


Statement = tuple[str | Insert, tuple[object, ...]]


def execute(db: sqlite3.Connection, statements: Iterable[Statement]) -> None:
    """Carry them out. Rows wait for each other, each table's in their order; any other statement finds all that came
    before it, and nothing that comes after it."""
    waiting: dict[Insert, list[object]] = {}
    for what, values in statements:
        if isinstance(what, Insert):
            waiting.setdefault(what, []).extend(values)
        else:
            _insert(db, waiting)
            db.execute(what, values)
    _insert(db, waiting)


def _insert(db: sqlite3.Connection, waiting: dict[Insert, list[object]]) -> None:
    """In powers of two, so that SQLite has seen the statement before."""
    for insert, values in waiting.items():
        while values:
            rows = min(ROWS_MAX, 1 << (len(values) // insert.columns).bit_length() - 1)
            size = rows * insert.columns
            db.execute(insert.sql(rows), values[:size])
            del values[:size]
    waiting.clear()
