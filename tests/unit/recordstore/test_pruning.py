"""Deletion of schedules from a store."""

import pytest
from msgspec.structs import replace

from autosched.recordstore.pruning import Unwanted, prune
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Measurement, Origin, Pruned, SourceJob
from autosched.recordstore.store import RecordStore
from samples_of_store import HERE, LAB, measured

pytestmark = pytest.mark.slow

FILE = Origin("another lab", imported=True)
EVES = SourceJob(8, owner="key eve")


def left(lookup: Lookup) -> set[bytes]:
    return {one.record.candidate for _, one in lookup.everything()}


def names(*trials: int) -> set[bytes]:
    return {f"schedule {trial}".encode() for trial in trials}


@pytest.fixture
def known(store: RecordStore) -> RecordStore:
    """Six schedules, the last two imported; the latest are the fastest."""
    slow: list[Measurement] = [measured(0, None), *(measured(trial, 1e-3 / trial) for trial in (1, 2, 3))]
    store.add(LAB, slow)
    store.add(LAB, [measured(7, 9e-4, candidate="schedule 1")])
    store.add(FILE, [measured(trial, 1e-4, origin=FILE) for trial in (4, 5)])
    return store


@pytest.mark.usefixtures("known")
@pytest.mark.parametrize(
    ("wanted", "stay", "measurements"),
    [
        (Unwanted(before=1.7e9 + 3), {1, 3, 4, 5}, 2),
        (Unwanted(before=1.7e9 + 99), set(), 7),
        (Unwanted(before=1.7e9 + 99, keep=3), {3, 4, 5}, 4),
        (Unwanted(before=1.7e9 + 3, keep=4), {1, 2, 3, 4, 5}, 1),
        (Unwanted(before=1.7e9 + 5, imported=True), {0, 1, 2, 3, 5}, 1),
        (Unwanted(imported=True), {0, 1, 2, 3}, 2),
        (Unwanted(imported=True, keep=1), {0, 1, 2, 3} | {4}, 1),
    ],
)
def test_old_or_imported_schedules_go(
    url: str, lookup: Lookup, wanted: Unwanted, stay: set[int], measurements: int
) -> None:
    whole = left(lookup)
    counted = prune(url, wanted, dry_run=True)
    assert left(lookup) == whole
    assert counted == Pruned(len(whole) - len(stay), measurements)
    assert prune(url, wanted) == counted
    if wanted.keep != 1:  # one of two equally fast ones stays
        assert left(lookup) == names(*stay)
    assert prune(url, wanted) == Pruned(0, 0)


def test_each_kind_of_circumstances_keeps_its_own(url: str, store: RecordStore, lookup: Lookup) -> None:
    ryzen = replace(HERE, device="AMD Ryzen")
    store.add(LAB, [measured(trial, 1e-3 + trial / 1e4, where=(HERE, ryzen)[trial % 2]) for trial in range(1_200)])
    assert prune(url, Unwanted(before=2e9, keep=2)) == Pruned(1_196, 1_196)
    assert left(lookup) == names(0, 1, 2, 3)


@pytest.mark.usefixtures("known")
def test_a_pruned_schedule_may_come_again(url: str, known: RecordStore, lookup: Lookup) -> None:
    prune(url, Unwanted(before=2e9))
    assert known.add(LAB, [measured(2, 5e-4)]) == 1
    assert left(lookup) == names(2)


def test_an_empty_store_is_pruned_to_nothing(url: str) -> None:
    assert prune(url, Unwanted(before=2e9)) == Pruned(0, 0)


# One job --------------------------------------------------------------------------------------------------------------


def test_what_one_job_brought_is_forgotten_and_the_rest_judged_anew(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(1, 3e-3), measured(2, 1e-3)])
    invented = [measured(1, 1e-9, job=EVES), measured(3, 1e-9, job=EVES)]
    store.add(LAB, invented)
    assert [one.name for one in store.origins_of(8)] == [LAB.name]
    assert store.origins_of(9) == []
    assert store.forget(LAB.name, 8, dry_run=True) == Pruned(2, 2)
    assert left(lookup) == names(1, 2, 3)
    assert store.forget(LAB.name, 8) == Pruned(1, 2)
    assert left(lookup) == names(1, 2)
    best = {one.candidate: one.best_s for one in lookup.best(measured(1, 1.0).workload.hash, HERE, 9)}
    assert best == pytest.approx({b"schedule 1": 3.3e-3, b"schedule 2": 1.1e-3})
    assert store.forget(LAB.name, 8) == Pruned(0, 0)
    assert store.forget("another", 7) == Pruned(0, 0)
