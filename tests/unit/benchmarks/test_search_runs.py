"""A run of a search against a table."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from search_quality import Remembering, Run  # noqa: E402
from search_table import Entry  # noqa: E402


class Counting:
    """Proposes numbers; ends after `last`."""

    def __init__(self, last: int = 1_000) -> None:
        self.next, self.last, self.told = 0, last, list[Any]()

    def select(self, count: int) -> list[bytes]:
        found = [str(number).encode() for number in range(self.next, min(self.last, self.next + count))]
        self.next += len(found)
        return found

    def update(self, measured: Any) -> None:
        self.told += measured


def run_of(search: Counting, latencies: dict[int, float | None], trials: int) -> Run:
    table = {str(n).encode(): Entry(s, 0.25, 0.5, None if s is None else 2 * s) for n, s in latencies.items()}
    layer = SimpleNamespace(name="conv", family="f", flops=1e9)
    stand, site = SimpleNamespace(layer=layer, table=table), SimpleNamespace(seed=1)
    run = Run(stand, search, site, "m", trials, 8)  # type: ignore[arg-type]
    while run.ask():
        run.answer()
    return run


def test_a_run_is_told_what_the_table_says_and_what_it_cost() -> None:
    search = Counting()
    told = run_of(search, {0: None, 1: 3.0, 2: 4.0, 3: 2.0, 4: 2.5}, 5).ended()
    assert search.told == [(b"0", ()), (b"1", (3.0,)), (b"2", (4.0,)), (b"3", (2.0,)), (b"4", (2.5,))]
    assert (told["measured"], told["failed"]) == (5, 1)
    assert [(trials, best) for trials, _, best in told["curve"]] == [(2, 3.0), (4, 2.0)]
    assert (told["stages_s"]["build"], told["stages_s"]["profile"]) == (1.25, 2.5)
    assert told["again_s"] == {"5": 4.0}
    assert told["latencies_s"] == [None, 3.0, 4.0, 2.0, 2.5]


def test_checkpoints_have_the_best_of_their_time() -> None:
    latencies: dict[int, float | None] = {number: 100.0 - number for number in range(80)}
    whole, short = (run_of(Counting(last), latencies, 80).ended()["again_s"] for last in (1_000, 40))
    assert whole == {"32": 2 * (100.0 - 31), "64": 2 * (100.0 - 63), "80": 2 * (100.0 - 79)}
    assert short == {"32": 2 * (100.0 - 31), "64": 2 * 61.0, "80": 2 * 61.0}


def test_a_run_ends_with_its_search() -> None:
    told = run_of(Counting(last=3), {0: 1.0, 1: 2.0, 2: 3.0}, 64).ended()
    assert (told["measured"], told["trials"]) == (3, 64)


def test_a_configuration_is_applied_once_for_all_searches() -> None:
    applied: list[Any] = []

    class Maker:
        def make(self, config: Any) -> tuple[bytes, str] | None:
            applied.append(config)
            return None if config["a"] else (b"candidate", "hash")

    known: dict[str, tuple[bytes, str] | None] = {}
    for _ in range(2):
        maker = Remembering(Maker(), known)
        assert maker.make({"a": 0}) == (b"candidate", "hash")
        assert maker.make({"a": 1}) is None
    assert len(applied) == 2
