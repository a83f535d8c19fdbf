"""Rows share statements, and statements between them see the earlier rows."""

import sqlite3
from collections.abc import Iterator

import pytest

from autosched.daemon.storage.batched_statements import ROWS_MAX, Insert, execute

NOTE = Insert("notes", 2, "ON CONFLICT DO UPDATE SET body = excluded.body")
COPY = Insert("copies (body, number)", 2)


@pytest.fixture
def db() -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(":memory:", isolation_level=None)
    connection.execute("CREATE TABLE notes (number INTEGER PRIMARY KEY, body TEXT) STRICT")
    connection.execute("CREATE TABLE copies (number INTEGER, body TEXT) STRICT")
    yield connection
    connection.close()


def test_rows_of_two_tables_arrive_in_order_with_few_statements(db: sqlite3.Connection) -> None:
    said: list[str] = []
    db.set_trace_callback(said.append)
    count = 3 * ROWS_MAX + 7
    execute(db, [row for n in range(count) for row in ((NOTE, (n, f"note {n}")), (COPY, (f"copy {n}", n)))])
    assert len(said) == 2 * (3 + 3)  # 7 are 4, 2 and 1
    assert db.execute("SELECT * FROM notes").fetchall() == [(n, f"note {n}") for n in range(count)]
    assert db.execute("SELECT body FROM copies ORDER BY rowid").fetchall() == [(f"copy {n}",) for n in range(count)]


def test_the_last_statement_on_a_row_wins(db: sqlite3.Connection) -> None:
    execute(db, [(NOTE, (1, "first")), (NOTE, (2, "other")), (NOTE, (1, "last"))])
    assert db.execute("SELECT * FROM notes").fetchall() == [(1, "last"), (2, "other")]


def test_other_statements_keep_their_order(db: sqlite3.Connection) -> None:
    forget = ("DELETE FROM notes WHERE number < ?", (2,))
    execute(db, [(NOTE, (0, "goes")), (NOTE, (1, "goes")), forget, (NOTE, (1, "stays")), (COPY, ("c", 1))])
    assert db.execute("SELECT * FROM notes").fetchall() == [(1, "stays")]
    assert db.execute("SELECT * FROM copies").fetchall() == [(1, "c")]


def test_no_statements_need_no_batch(db: sqlite3.Connection) -> None:
    said: list[str] = []
    db.set_trace_callback(said.append)
    execute(db, [])
    assert not said
