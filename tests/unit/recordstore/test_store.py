"""A written measurement is in the store once, across faults."""

import itertools
import random

import msgspec
import pytest

from autosched.errors import ConfigError, StoreUnavailable
from autosched.model import Purpose
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Cursor, Origin, SourceJob, Standing, StoredRanker, Tag
from autosched.recordstore.store import CursorMoved, RecordStore
from samples_of_store import CONV, HERE, JOB, LAB, measured

pytestmark = pytest.mark.slow

Schedules = list[tuple[bytes, float | None, Standing]]


def known(lookup: Lookup) -> Schedules:
    return sorted((one.candidate, one.best_s, one.standing) for one in lookup.all(CONV.hash))


def test_new_store_knows_nothing(store: RecordStore, lookup: Lookup) -> None:
    assert store.cursor(LAB) == Cursor()
    assert lookup.all(CONV.hash) == []
    assert lookup.best(CONV.hash, HERE) == []


def test_stored_measurement_comes_back_whole(store: RecordStore, lookup: Lookup) -> None:
    one = measured(3, 2e-3)
    store.add(LAB, [one])
    (found,) = lookup.best(CONV.hash, HERE)
    assert (found.workload, found.environment, found.candidate) == (CONV.hash, HERE, one.record.candidate)
    assert (found.best_s, found.samples_s) == (one.record.best_s, one.record.latency_s)
    assert found.interval_s == (2e-3, 2.4e-3)
    assert (found.code, found.measured_at, found.failure) == (one.record.code, one.record.measured_at, "")
    assert (found.job, found.origin, found.standing) == (JOB, LAB, Standing.SEARCHED)


def test_same_batch_twice_is_stored_once(store: RecordStore, lookup: Lookup) -> None:
    batch = [measured(trial, 1e-3 * (trial + 1)) for trial in range(5)]
    store.add(LAB, batch)
    before = known(lookup)
    store.add(LAB, batch)
    assert known(lookup) == before
    assert len(before) == 5


def test_batch_moves_the_cursor_with_it(store: RecordStore) -> None:
    start, end = store.cursor(LAB), Cursor(1, 99, 0)
    store.write(LAB, [measured(0, 1e-3)], (), start, end)
    assert store.cursor(LAB) == end
    assert store.cursor(Origin("another lab")) == Cursor()


def test_batch_from_an_old_cursor_writes_nothing(store: RecordStore, lookup: Lookup) -> None:
    start = store.cursor(LAB)
    store.write(LAB, [measured(0, 1e-3)], (), start, Cursor(1, 99, 0))
    with pytest.raises(CursorMoved):
        store.write(LAB, [measured(1, 1e-3)], (), start, Cursor(1, 98, 0))
    assert [candidate for candidate, _, _ in known(lookup)] == [b"schedule 0"]
    assert store.cursor(LAB) == Cursor(1, 99, 0)


def test_unstorable_batch_leaves_cursor_and_rows(store: RecordStore, lookup: Lookup) -> None:
    start = store.cursor(LAB)
    bad = measured(1, 1e-3, job=SourceJob(2**63))
    with pytest.raises(StoreUnavailable):
        store.write(LAB, [measured(0, 1e-3), bad], (), start, Cursor(2, 99, 0))
    assert store.cursor(LAB) == start
    assert known(lookup) == []
    store.write(LAB, [measured(0, 1e-3)], (), start, Cursor(1, 99, 0))
    assert len(known(lookup)) == 1


def test_two_origins_with_equal_jobs_are_kept_apart(store: RecordStore, lookup: Lookup) -> None:
    other = Origin("other", detail="another host")
    store.add(LAB, [measured(0, 2e-3, candidate="a")])
    store.add(other, [measured(0, 1e-3, candidate="b", origin=other)])
    assert [one.origin for one in lookup.best(CONV.hash, HERE, 2)] == [other, LAB]


# Which measurement represents a schedule ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("latencies", "expected"),
    [
        ([(Purpose.TRIAL, 1e-3, ""), (Purpose.FINAL, 2e-3, "")], (2.2e-3, Standing.COMPARED)),
        ([(Purpose.FINAL, 2e-3, ""), (Purpose.TRIAL, 1e-3, "")], (2.2e-3, Standing.COMPARED)),
        ([(Purpose.TRIAL, 1e-3, "load"), (Purpose.AGAIN, 2e-3, "")], (2.2e-3, Standing.SEARCHED)),
        ([(Purpose.TRIAL, 1e-3, "load")], (1e-3, Standing.BOUND)),  # the fastest sample: an upper bound
        ([(Purpose.TRIAL, 1e-3, ""), (Purpose.AGAIN, 3e-3, "")], (3.3e-3, Standing.SEARCHED)),  # the later one
        ([(Purpose.FINAL, 1e-3, ""), (Purpose.NETWORK, None, "")], (None, Standing.WRONG)),
        ([(Purpose.TRIAL, None, ""), (Purpose.TRIAL, 1e-3, "load")], (None, Standing.SEARCHED)),
    ],
)
def test_the_measurement_that_says_most_represents_its_schedule(
    store: RecordStore,
    lookup: Lookup,
    latencies: list[tuple[Purpose, float | None, str]],
    expected: tuple[float | None, Standing],
) -> None:
    batch = [
        measured(trial, latency_s, candidate="x", purpose=purpose, disturbed=disturbed)
        for trial, (purpose, latency_s, disturbed) in enumerate(latencies)
    ]
    for number, order in enumerate(itertools.permutations(batch)):
        store.add(Origin(f"order {number}"), order)
        ((_, best_s, standing),) = known(lookup)
        assert standing is expected[1]
        assert best_s == pytest.approx(expected[0])


def test_a_tag_gives_the_place_to_another_measurement(store: RecordStore, lookup: Lookup) -> None:
    start = store.cursor(LAB)
    store.add(LAB, [measured(0, 3e-3, candidate="x"), measured(1, 1e-3, candidate="x"), measured(2, 2e-3)])
    assert lookup.best(CONV.hash, HERE)[0].best_s == pytest.approx(1.1e-3)
    store.write(LAB, (), [Tag(JOB.number, 1, "load")], start, Cursor(0, 0, 1))
    assert [one.best_s for one in lookup.best(CONV.hash, HERE, 5)] == [pytest.approx(2.2e-3), pytest.approx(3.3e-3)]


def test_a_tag_of_the_only_measurement_leaves_an_upper_bound(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 3e-3)])
    store.write(LAB, (), [Tag(JOB.number, 0, "load"), Tag(99, 0, "no such job")], store.cursor(LAB), Cursor(0, 0, 2))
    ((_, best_s, standing),) = known(lookup)
    assert (best_s, standing) == (pytest.approx(3e-3), Standing.BOUND)


@pytest.mark.parametrize("seed", range(5))
def test_any_order_and_repetition_gives_one_result(url: str, store: RecordStore, lookup: Lookup, seed: int) -> None:
    chance = random.Random(seed)
    records = [
        measured(
            trial,
            chance.choice((None, 1e-3, 2e-3)),
            candidate=chance.choice("abc"),
            purpose=chance.choice(list(Purpose)),
            disturbed=chance.choice(("", "", "load")),
        )
        for trial in range(30)
    ]
    results = []
    for _ in range(3):
        chance.shuffle(records)
        again = [*records, *chance.sample(records, 10)]
        for begin in range(0, len(again), 7):
            store.add(LAB, again[begin : begin + 7])
        results.append(known(lookup))
    assert results[0] == results[1] == results[2]
    assert len(results[0]) == 3


# Trouble --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("url", ["", "nonsense", "mysql://lab@host/db", "postgresql://host", "sqlite://"])
def test_url_of_no_store_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"write postgresql://"):
        RecordStore(url)


def test_password_is_not_shown() -> None:
    store = RecordStore("postgresql://lab:secret@127.0.0.1:1/records")
    with pytest.raises(StoreUnavailable, match=r"check that the server runs") as raised:
        store.cursor(LAB)
    assert "secret" not in str(raised.value)


def test_a_ranker_replaces_that_of_its_family_and_device(store: RecordStore, lookup: Lookup) -> None:
    one = StoredRanker("conv2d", HERE.device, "1 ab", 900, 5.0, {"ndcg": 0.9, "random": 0.5}, b"trees")
    other = msgspec.structs.replace(one, device="another device")
    newer = msgspec.structs.replace(one, schedules=1_000, quality={"ndcg": 0.95}, content=b"more trees")
    for ranker in (one, other, newer):
        store.put_ranker(ranker)
    assert lookup.ranker("conv2d", HERE.device) == newer
    assert lookup.ranker("matmul", HERE.device) is None
    listed = {ranker.device: ranker for ranker in lookup.rankers()}
    assert listed == {one.device: msgspec.structs.replace(newer, content=b""),
                      other.device: msgspec.structs.replace(other, content=b"")}  # fmt: skip
