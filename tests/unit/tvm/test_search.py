"""Which candidates a search hands out."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_backend_ansor.search import AnsorSearch  # noqa: E402


def made(*generations: list[str], batch: int = 2) -> AnsorSearch:
    """A search whose generations are these names."""
    search = AnsorSearch.__new__(AnsorSearch)
    waiting = list(generations)
    search._context = cast(
        Any, SimpleNamespace(generate_measure_candidates=lambda: waiting.pop(0) if waiting else None)
    )
    seen: set[str] = set()
    own = cast(Any, search)
    own._remember = lambda name: name not in seen and not seen.add(name)  # type: ignore[func-returns-value]
    own._encode = str.encode
    search._spare, search._batch, search._started = [], batch, True
    return search


def test_what_is_left_of_a_generation_comes_first() -> None:
    search = made(["a", "b", "c"], ["d", "e", "f"])
    assert [search.select(2), search.select(2)] == [[b"a", b"b"], [b"c", b"d"]]


def test_the_last_attempt_counts() -> None:
    assert made(["a", "b"], ["a", "b"], ["a", "b"], ["c"]).select(2) == [b"a", b"b"]
    search = made(["a", "b"], ["a", "b"], ["b", "a"], ["a", "c"])
    search.select(2)
    assert search.select(2) == [b"c"], "an empty answer would close the task for ever"


def test_a_search_without_news_ends() -> None:
    assert made().select(2) == []
