"""Selection of the records that count."""

from autosched.model import Failure, Purpose, Record
from autosched.records import record_selection


def record(trial: int, candidate: str, *latency_s: float, disturbed: bool = False, **words: object) -> Record:
    words.setdefault("failure", None if latency_s else Failure.RUN_ERROR)
    return Record(
        task=words.pop("task", 1), number=trial, candidate=candidate.encode(), latency_s=latency_s,  # type: ignore[arg-type]
        disturbed="load" if disturbed else "", **words,  # type: ignore[arg-type]
    )  # fmt: skip


def final(trial: int, candidate: str, *latency_s: float, **words: object) -> Record:
    purpose = Purpose.FINAL if candidate else Purpose.DEFAULT
    return record(trial, candidate, *latency_s, purpose=purpose, **words)  # type: ignore[arg-type]


def trials(records: list[Record]) -> list[int]:
    return [one.number for one in records]


def test_an_undisturbed_record_replaces_the_disturbed_ones_of_its_candidate() -> None:
    records = [record(0, "a", 1.0, disturbed=True), record(1, "b", 2.0), record(2, "a", 3.0, purpose=Purpose.AGAIN)]
    assert trials(record_selection.latest_undisturbed(records)) == [2, 1]
    best = record_selection.best(records)
    assert best is not None
    assert best.candidate == b"b"


def test_a_disturbed_record_counts_until_there_is_a_better_one() -> None:
    assert trials(record_selection.latest_undisturbed([record(0, "a", 1.0), record(1, "a", 5.0, disturbed=True)])) == [
        0
    ]
    assert trials(record_selection.latest_undisturbed([record(0, "a", 1.0, disturbed=True)])) == [0]


def test_of_a_disturbed_record_the_fastest_repeat_counts() -> None:
    assert record(0, "a", 3.0, 1.0, 2.0).best_s == 2.0
    assert record(0, "a", 3.0, 1.0, 2.0, disturbed=True).best_s == 1.0


def test_a_failure_is_never_best() -> None:
    assert record_selection.best([record(0, "a")]) is None
    assert record_selection.best([]) is None


def test_finals_alone_decide() -> None:
    records = [record(0, "a", 1.0), record(1, "b", 1.05), final(2, "a", 1.2), final(3, "b", 1.1), final(4, "", 9.0)]
    best = record_selection.best(records)
    assert best is not None
    assert (best.candidate, best.best_s) == (b"b", 1.1)
    assert trials(record_selection.effective(records)) == [2, 3, 4]
    assert record_selection.is_final(records)


def test_the_default_can_win() -> None:
    best = record_selection.best([record(0, "a", 1.0), final(1, "a", 1.2), final(2, "", 1.1)])
    assert best is not None
    assert best.purpose is Purpose.DEFAULT


def test_finals_without_the_default_are_not_over() -> None:
    records = [record(0, "a", 1.0), final(1, "a", 1.2)]
    assert not record_selection.is_final(records)
    assert record_selection.best(records) == records[1]  # the last undisturbed one of its candidate


def test_finals_are_stale_when_something_was_tried_after_them() -> None:
    records = [record(0, "a", 1.0), final(1, "a", 1.2), final(2, "", 1.1), record(3, "b", 0.5)]
    assert not record_selection.is_final(records)
    assert record_selection.finals(records) == []


def test_disturbed_finals_count_but_are_held_again_and_the_last_ones_count() -> None:
    first = [record(0, "a", 1.0), final(1, "a", 1.2, disturbed=True), final(2, "", 1.1, disturbed=True)]
    assert not record_selection.is_final(first)
    best = record_selection.best(first)
    assert best is not None
    assert best.number == 2
    second = [*first, final(3, "a", 0.9), final(4, "", 1.1)]
    assert record_selection.is_final(second)
    assert trials(record_selection.finals(second)) == [3, 4]
    half = [*first, final(3, "a", 0.9)]
    assert trials(record_selection.finals(half)) == [1, 2]


def test_finalists_are_close_to_the_best_and_few() -> None:
    close = [record(i, f"c{i}", 1.0 + i / 100) for i in range(6)]
    assert record_selection.finalists([record(9, "far", 1.2), record(8, "none"), *close]) == [b"c0", b"c1", b"c2"]
    assert record_selection.finalists([record(0, "a", 1.0), record(1, "b", 1.11)]) == [b"a"]
    assert record_selection.finalists([record(0, "a")]) == []


def test_the_default_is_no_finalist_of_the_next_finals() -> None:
    assert record_selection.finalists([record(0, "a", 1.0), final(1, "", 0.5, disturbed=True)]) == [b"a"]


def test_suspects_have_nothing_but_disturbed_measurements() -> None:
    records = [
        record(0, "slow", 3.0, disturbed=True),
        record(1, "fast", 1.0, disturbed=True),
        record(2, "fine", 2.0),
        record(3, "again", 2.0, disturbed=True),
        record(4, "again", 2.0, purpose=Purpose.AGAIN),
        record(5, "broken", disturbed=True),
        record(6, "late", disturbed=True, failure=Failure.RUN_TIMEOUT),
    ]
    assert record_selection.suspects(records) == [b"fast", b"slow", b"late"]


def test_a_search_is_told_one_record_of_each_candidate_and_nothing_of_finals() -> None:
    records = [
        record(0, "a", 9.0, disturbed=True),
        record(1, "b", 2.0, task=2),
        record(2, "c", 2.0),
        record(3, "a", 1.0, purpose=Purpose.AGAIN),
        final(4, "c", 2.0),
        final(5, "", 3.0),
    ]
    assert trials(record_selection.tried(records)) == [3, 2, 1]


def test_a_candidate_that_was_wrong_in_the_network_counts_no_more() -> None:
    trials = [
        Record(task=1, number=0, candidate=b"wrong", latency_s=(1.0,)),
        Record(task=1, number=1, candidate=b"next", latency_s=(2.0,)),
        Record(task=1, number=2, candidate=b"wrong", latency_s=(1.0,), purpose=Purpose.FINAL),
        Record(task=1, number=3, candidate=b"default", latency_s=(3.0,), purpose=Purpose.DEFAULT),
    ]
    verdict = Record(task=1, number=4, candidate=b"wrong", failure=Failure.WRONG_RESULT, purpose=Purpose.NETWORK)
    again = Record(task=1, number=5, candidate=b"wrong", latency_s=(1.0,), purpose=Purpose.AGAIN)
    best = record_selection.best([*trials, verdict, again])
    assert best is not None
    assert best.candidate == b"next"
    assert record_selection.finalists([*trials, verdict]) == [b"next"]
    assert [record.candidate for record in record_selection.tried([*trials, verdict])] == [b"wrong", b"next"]
    assert record_selection.tried([*trials, verdict])[0].best_s is None
    assert record_selection.is_final([*trials, verdict])
