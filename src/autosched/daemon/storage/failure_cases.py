"""Table of the cases of failure attribution."""

from collections.abc import Iterator

import msgspec

from autosched.daemon.storage.journal import WAYS_OUT, Journal
from autosched.errors import Damaged
from autosched.records.failure_attribution import Case

_CASE = msgspec.msgpack.Decoder(Case)

TABLES = ("CREATE TABLE IF NOT EXISTS cases (number INTEGER PRIMARY KEY, body BLOB, crc INTEGER) STRICT",)
PUT = "INSERT INTO cases VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET body = excluded.body, crc = excluded.crc"
FORGET = "DELETE FROM cases WHERE number = ?"


def cases(journal: Journal) -> Iterator[Case]:
    """All cases in ascending order of their numbers. Call before `Journal.start`. Raises Damaged."""
    for number, body in journal.rows("SELECT number, body FROM cases ORDER BY number"):
        assert isinstance(body, bytes)
        try:
            yield _CASE.decode(body)
        except msgspec.MsgspecError as error:
            raise Damaged(f"{journal.path}: case {number} is damaged ({error}). {WAYS_OUT}") from None
