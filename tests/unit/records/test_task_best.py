"""The best of a task, record by record, equals that by the rules for all records together."""

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from autosched.model import Failure, Purpose, Record, encode
from autosched.records import record_selection
from autosched.records.task_best import Measurement, TaskBest


def records_of(rows: list[tuple[str, list[float], bool, Purpose]]) -> list[Record]:
    return [
        Record(
            task=1, number=trial, candidate=candidate.encode(), latency_s=tuple(latencies_s), purpose=purpose,
            failure=None if latencies_s else Failure.RUN_ERROR, disturbed="load" if disturbed else "",
        )
        for trial, (candidate, latencies_s, disturbed, purpose) in enumerate(rows)
    ]  # fmt: skip


def best_of(records: list[Record]) -> TaskBest:
    best = TaskBest()
    for record in records:
        best.add(Measurement.of(record))
    return best


LATENCIES = st.lists(st.sampled_from([1.0, 1.1, 1.2, 2.0, 3.0]), max_size=3)
PURPOSES = st.sampled_from([Purpose.TRIAL, Purpose.TRIAL, *Purpose])
ROWS = st.lists(st.tuples(st.sampled_from("abc"), LATENCIES, st.booleans(), PURPOSES), max_size=14)


@given(ROWS)
@settings(max_examples=500, deadline=None)
def test_after_each_record_the_best_is_that_of_all_records(rows: list[tuple[str, list[float], bool, Purpose]]) -> None:
    records, best = records_of(rows), TaskBest()
    for number, record in enumerate(records, 1):
        best.add(Measurement.of(record))
        expected, finals = record_selection.best(records[:number]), record_selection.finals(records[:number])
        assert (best.best.number if best.best else None) == (expected.number if expected else None)
        assert best.best_s == (expected.best_s if expected else None)
        assert best.default_s == (finals[-1].best_s if finals else None)


@given(ROWS, st.sets(st.integers(0, 13)))
@settings(max_examples=300, deadline=None)
def test_tags_count_as_if_they_had_been_known_at_once(
    rows: list[tuple[str, list[float], bool, Purpose]], tagged: set[int]
) -> None:
    best = best_of(records_of(rows))
    best.tag(tagged)
    known = [(*row[:2], row[2] or trial in tagged, row[3]) for trial, row in enumerate(rows)]
    assert best == best_of(records_of(known))


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_a_copy_from_a_snapshot_goes_on_alike(rows: list[tuple[str, list[float], bool, Purpose]]) -> None:
    records = records_of(rows)
    whole, half = best_of(records), best_of(records[: len(records) // 2])
    copied = msgspec.msgpack.decode(encode(half), type=TaskBest)
    for record in records[len(records) // 2 :]:
        copied.add(Measurement.of(record))
    assert copied == whole


@given(ROWS)
@settings(max_examples=100, deadline=None)
def test_after_the_end_of_a_job_best_and_default_stay(rows: list[tuple[str, list[float], bool, Purpose]]) -> None:
    best = best_of(records_of(rows))
    before = best.best, best.default
    best.close()
    assert (best.best, best.default) == before
    best.tag({99})
    assert (best.best, best.default) == before


def test_a_disturbed_latency_is_replaced_by_a_remeasurement() -> None:
    best = best_of(records_of([("a", [1.1], True, Purpose.TRIAL), ("a", [1.2], False, Purpose.AGAIN)]))
    assert best.best_s == 1.2
