"""Rankers of the record store on their way to a client."""

import asyncio
from typing import Any, cast

import pytest

from autosched.client import ranker_fetch
from autosched.client.daemon_session import DaemonSession
from autosched.protocol import GetRanker, GetRankers, Method, RankerPart, Rankers

PART = 4


class Line:
    """A daemon whose rankers come in parts of four bytes."""

    def __init__(self, rankers: dict[str, list[bytes]]) -> None:
        """`rankers`: the content of each at its first, second, ... request; the last one stays."""
        self._rankers, self.asked = rankers, 0

    async def ask(self, method: Method, kind: type[Any]) -> Any:
        self.asked += 1
        if isinstance(method, GetRankers):
            return Rankers(tuple(self._rankers))
        assert isinstance(method, GetRanker)
        versions = self._rankers[method.family]
        content = versions.pop(0) if len(versions) > 1 else versions[0]
        return RankerPart(content[method.after : method.after + PART], len(content))


def fetched(line: Line) -> dict[str, bytes]:
    return asyncio.run(ranker_fetch.fetch(cast(DaemonSession, line), "a device"))


def test_all_parts_of_all_rankers_are_fetched() -> None:
    assert fetched(Line({"conv2d": [b"0123456789"], "dense": [b"abcd"], "pool": [b""]})) == {
        "conv2d": b"0123456789", "dense": b"abcd",
    }  # fmt: skip


def test_a_ranker_that_is_replaced_meanwhile_is_not_used() -> None:
    assert fetched(Line({"conv2d": [b"0123456789", b"another one"], "dense": [b"abcdef"]})) == {"dense": b"abcdef"}
    assert fetched(Line({"conv2d": [b"0123456789", b""]})) == {}


def test_a_ranker_that_is_too_large_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranker_fetch, "RANKER_BYTES_MAX", 9)
    line = Line({"conv2d": [b"0123456789"]})
    assert (fetched(line), line.asked) == ({}, 2)
