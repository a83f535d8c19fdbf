"""Choice of the best schedule: a table of cases."""

from itertools import permutations

import pytest

from autosched.model import Record, code_name
from autosched.records.winner import are_tied, code_bytes, in_order, order, ranked


def record(name: str, *latency_s: float, size: int = 100, code: str = "", disturbed: str = "", task: int = 1) -> Record:
    """Returns a record whose object code has a size and, by default, its own name."""
    named = code_name((code or name).encode(), size)
    return Record(
        task=task, number=len(name), candidate=name.encode(), latency_s=latency_s, code=named, disturbed=disturbed
    )


def around(median: float, spread: float = 0.0) -> tuple[float, ...]:
    """Returns six samples, alternating below and above."""
    return tuple(median * (1 + spread * sign) for sign in (-1, 1, -1, 1, -1, 1))


SLOW = record("slow", *around(2.0))
CASES = {
    "the fastest, where it is clear": ([record("a", *around(1.0)), record("b", *around(1.1)), SLOW], "a b slow"),
    "least code, of those that cannot be told apart": (
        [record("a", *around(1.0, 0.02), size=300), record("b", *around(1.01), size=200), SLOW], "b a slow",
    ),
    "pairs tell apart what intervals do not": (
        [record("a", 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, size=300), record("b", 1.01, 1.11, 1.21, 1.31, 1.41, 1.51)], "a b",
    ),
    "wide intervals are no reason to take a slow one": (
        [record("a", *around(1.0, 0.2), size=300), record("b", *around(1.1, 0.2), size=100)], "a b",
    ),
    "few samples are noise: the fastest": ([record("a", 1.0, 1.04), record("b", 1.03, 1.05, size=1)], "a b"),
    "a disturbed one ties with nothing": (
        [record("a", *around(1.0, 0.02), size=300), record("b", *around(1.01), disturbed="load"), SLOW], "a b slow",
    ),
    "other numbers of samples: the intervals decide": (
        [record("a", *around(1.0, 0.02), size=300), record("b", *around(1.01), 1.01, size=200)], "b a",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_the_winner_by_rule(case: str) -> None:
    records, wanted = CASES[case]
    found = {" ".join(one.candidate.decode() for one in ranked(some)) for some in permutations(records)}
    assert len(found) == 1, "whatever the order of the records"
    assert found == {wanted}


def test_equal_code_is_a_tie_however_few_the_samples() -> None:
    twins = [record("a", 1.0, code="same"), record("b", 1.5, code="same")]
    assert are_tied(*twins)
    assert ranked([*twins, SLOW]) == ranked([SLOW, *twins[::-1]])
    assert ranked([*twins, SLOW])[-1] is SLOW


def test_the_best_on_other_devices_comes_before_the_least_code() -> None:
    tie = [record("a", *around(1.0, 0.02), size=300), record("b", *around(1.01), size=200), SLOW]
    assert [one.candidate for one in ranked(tie, {b"a": 1.1, b"b": 1.2})] == [b"a", b"b", b"slow"]
    assert ranked(tie, {b"a": 1.1})[0].candidate == b"a", "what is known comes before what is not"
    assert [one.candidate for one in ranked(tie, {b"slow": 1.0})] == [b"b", b"a", b"slow"], "who is slow here, is slow"


def test_the_digest_decides_at_last() -> None:
    tie = [record(name, *around(1.0)) for name in "abcdef"]
    first = ranked(tie)
    assert all(ranked(list(some)) == first for some in (tie[::-1], tie[3:] + tie[:3]))


def test_code_without_a_name_is_larger_than_any() -> None:
    unnamed = Record(task=1, number=0, candidate=b"u", latency_s=around(1.0))
    assert code_bytes(unnamed) > code_bytes(record("a", size=2**40))
    assert [one.candidate for one in ranked([unnamed, record("z", *around(1.0), size=9)])] == [b"z", b"u"]
    assert not are_tied(unnamed, Record(task=1, number=1, candidate=b"v", latency_s=(1.0,)))


def test_all_tasks_are_ordered_and_failures_left_out() -> None:
    mixed = [record("b", 2.0, task=2), record("x", task=1), record("a", 1.0, task=2), record("c", 3.0, task=1)]
    assert [one.candidate for one in order(mixed)] == [b"c", b"a", b"b"]
    assert order([]) == []


def test_an_order_is_kept_where_its_first_may_win() -> None:
    a, b = record("a", *around(1.0, 0.02), size=300), record("b", *around(1.01), size=200)
    assert in_order([a, b, SLOW]) == [a, b, SLOW]
    assert in_order([b, a, SLOW]) == [b, a, SLOW]
    assert in_order([SLOW, a, b]) == [b, a, SLOW], "they were not ranked"
    assert in_order([record("x")]) == []
