"""A task's budget goes to the method with gains."""

import json
from collections.abc import Callable, Sequence

import pytest

from autosched_backend_auto.portfolio import Portfolio, PortfolioSearch, sign, signer, unsign
from autosched_tvm.tuning.search_method import Unsupported
from unit.autosched_tvm.methods import FakeMethod, FakeSearch, candidate, site

BATCH = 4


def portfolio(**searches: FakeSearch) -> Portfolio:
    return Portfolio({name: FakeMethod(search) for name, search in searches.items()}, BATCH)


def play(search: PortfolioSearch, rounds: int, latency_s: Callable[[str, int], float]) -> list[str]:
    """Returns the backend of each round; `latency_s`: latency of a backend's n-th trial."""
    turns = []
    for _ in range(rounds):
        if not (chosen := search.select(BATCH)):
            break
        (by,) = {signer(one) for one in chosen}
        turns.append(by)
        search.update([(one, [latency_s(by, number_of(one, by))]) for one in chosen])
    return turns


def number_of(one: bytes, by: str) -> int:
    return int(json.loads(one)[0][0].removeprefix(by))


def test_each_method_has_a_turn_and_then_the_best_has_most() -> None:
    search = portfolio(a=FakeSearch("a"), b=FakeSearch("b")).search(site())
    turns = play(search, 12, lambda by, _: 1.0 if by == "b" else 3.0)
    assert set(turns[:2]) == {"a", "b"}
    assert turns.count("b") >= 10


def test_a_repeated_selection_is_the_same() -> None:
    """A step may be lost, and be repeated by a client that knows the measurements only."""
    fixed = [candidate("a0"), candidate("b0")]
    searches = {name: FakeSearch(name) for name in "ab"}
    for search, one in zip(searches.values(), fixed, strict=True):
        search.select = lambda _, one=one: [one]  # type: ignore[method-assign, misc]
    whole = portfolio(**searches).search(site())
    assert whole.select(1) == whole.select(1) == [sign(fixed[0], "a")]
    whole.update([(whole.select(1)[0], [1.0])])
    assert [arm.trials for arm in whole.arms] == [1, 0]
    assert whole.select(1) == whole.select(1) == [sign(fixed[1], "b")]


def test_a_method_that_still_improves_overtakes_one_that_does_not() -> None:
    search = portfolio(still=FakeSearch("still"), slow=FakeSearch("slow")).search(site())
    turns = play(search, 16, lambda by, n: 1.0 if by == "still" else 1.4 * 0.9 ** (n / BATCH))
    assert turns[-3:] == ["slow"] * 3


def test_a_method_that_lost_on_other_tasks_is_tried_later() -> None:
    whole = portfolio(good=FakeSearch("good"), bad=FakeSearch("bad"))

    def latency_s(by: str, _: int) -> float:
        return 1.0 if by == "good" else 2.0

    for number in range(3):
        assert "bad" in play(whole.search(site(f"op{number}")), 2, latency_s)
    assert "bad" not in play(whole.search(site("last")), 4, latency_s)


def test_each_method_learns_from_its_own_candidates_in_their_encoding() -> None:
    first, second = FakeSearch("a", template="t"), FakeSearch("b")
    search = portfolio(a=first, b=second).search(site())
    play(search, 2, lambda by, _: 1.0)
    assert [one for one, _ in first.told] == [candidate(f"a{n}", template="t") for n in range(BATCH)]
    assert [one for one, _ in second.told] == [candidate(f"b{n}") for n in range(BATCH)]


def test_records_of_an_earlier_client_reach_the_method_that_selected_them() -> None:
    search = portfolio(a=FakeSearch("a", template="t"), b=FakeSearch("b")).search(site())
    measured: list[tuple[bytes, Sequence[float]]] = []
    for _ in range(5):
        chosen = search.select(BATCH)
        measured += (fresh := [(one, [1.0 if signer(one) == "a" else 2.0]) for one in chosen])
        search.update(fresh)
    first, second = FakeSearch("a"), FakeSearch("b")
    again = portfolio(a=first, b=second).search(site())
    again.update(measured)
    assert [(arm.trials, arm.best_s) for arm in again.arms] == [(arm.trials, arm.best_s) for arm in search.arms]
    assert [json.loads(one)[2] for one, _ in first.told] == [{"template": "t"}] * len(first.told)
    assert all(len(json.loads(one)) == 2 for one, _ in second.told)


def test_all_methods_learn_from_unsigned_candidates() -> None:
    first, second = FakeSearch("a"), FakeSearch("b")
    portfolio(a=first, b=second).search(site()).update([(candidate("other"), [1.0]), (b"no json", [])])
    assert [one for one, _ in first.told] == [one for one, _ in second.told] == [candidate("other"), b"no json"]


def test_an_exhausted_method_is_skipped() -> None:
    search = portfolio(a=FakeSearch("a", left=BATCH), b=FakeSearch("b", left=2 * BATCH)).search(site())
    turns = play(search, 9, lambda by, _: 1.0 if by == "a" else 5.0)
    assert sorted(turns) == ["a", "b", "b"]
    assert search.select(BATCH) == []


def test_a_method_that_only_fails_is_replaced_by_the_others() -> None:
    search = portfolio(bad=FakeSearch("bad"), good=FakeSearch("good")).search(site())
    turns = []
    for _ in range(6):
        chosen = search.select(BATCH)
        turns.append(signer(chosen[0]))
        search.update([(one, [1.0] if turns[-1] == "good" else []) for one in chosen])
    assert turns.count("bad") == 1


def test_methods_that_cannot_tune_a_task_take_no_part() -> None:
    methods = {"a": FakeMethod(FakeSearch("a"), ["conv"]), "b": FakeMethod(FakeSearch("b"))}
    whole = Portfolio(methods, BATCH)
    assert [arm.name for arm in whole.search(site("softmax")).arms] == ["b"]
    assert [arm.name for arm in whole.search(site("conv")).arms] == ["a", "b"]
    with pytest.raises(Unsupported, match="a: no template for softmax"):
        Portfolio({"a": methods["a"]}, BATCH).search(site("softmax"))


def test_the_best_method_is_reported() -> None:
    whole = portfolio(a=FakeSearch("a"), b=FakeSearch("b"))
    assert list(whole.notes) == []
    for number in range(3):
        play(whole.search(site(f"op{number}")), 3, lambda by, _: 1.0 if by == "b" else 2.0)
    assert list(whole.notes) == ["best schedules found by: b 3"]


def test_a_signature_is_removed_again() -> None:
    for one in (candidate("x"), candidate("x", template="t")):
        assert signer(sign(one, "a")) == "a"
        assert unsign(sign(one, "a")) == one
    assert unsign(candidate("x")) == candidate("x")
    assert signer(b"\xff") == signer(b"[1]") == signer(b"[1,2,3]") == ""
