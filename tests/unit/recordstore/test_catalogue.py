"""Queries of a store by people."""

import contextlib
import itertools
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from autosched.errors import NotFound, RequestError
from autosched.model import Purpose
from autosched.recordstore.catalogue import Catalogue, Filter
from autosched.recordstore.keys import candidate_digest
from autosched.recordstore.rows import SourceJob, Workload
from autosched.recordstore.store import RecordStore
from samples_of_store import CONV, HERE, JOB, LAB, measured

pytestmark = pytest.mark.slow

DENSE = Workload("beef01", "dense", "dense 1x512 -> 1x1000", 1e6)
POINTWISE = Workload("c0ffa0", "conv2d", "conv2d 64x56x56 -> 128x56x56, 1x1", 1e8)
RYZEN = replace(HERE, device="AMD Ryzen", backend="ansor 2")


@pytest.fixture
def catalogue(url: str, store: RecordStore) -> Iterator[Catalogue]:
    """Three workloads: one on two devices, one whose schedules all failed."""
    store.add(LAB, [measured(0, 3e-3), measured(1, 2e-3), measured(2, None)])
    store.add(LAB, [measured(3, 1e-3, where=RYZEN)])
    store.add(LAB, [measured(4, None, workload=DENSE, job=SourceJob(8, "100%", "bert.onnx"))])
    store.add(LAB, [measured(5, 5e-4, workload=POINTWISE, job=SourceJob(9, "net_1", "resnet18.onnx"))])
    with contextlib.closing(Catalogue(url)) as made:
        yield made


def test_the_latest_workloads_come_first(catalogue: Catalogue) -> None:
    found = catalogue.workloads()
    assert [(one.workload, one.environment, one.tried, one.failed) for one in found] == [
        (POINTWISE, HERE, 1, 0), (DENSE, HERE, 1, 1), (CONV, HERE, 3, 1), (CONV, RYZEN, 1, 0),
    ]  # fmt: skip
    assert [one.best and one.best.candidate for one in found] == [b"schedule 5", None, b"schedule 1", b"schedule 3"]
    assert found[2].measured_at == 1.7e9 + 2
    assert {one.workload for one in catalogue.workloads(limit=2)} == {POINTWISE, DENSE}


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Filter(operator="CONV2D"), {POINTWISE, CONV}),
        (Filter(operator="3x3"), {CONV}),
        (Filter(operator="c0ff"), {POINTWISE, CONV}),
        (Filter(operator="_"), set()),
        (Filter(network="SQUEEZE"), {CONV}),
        (Filter(network="0%"), {DENSE}),
        (Filter(network="t_1"), {POINTWISE}),
        (Filter(device="ryzen"), {CONV}),
        (Filter(backend="autotvm", operator="conv2d", network="net"), {CONV, POINTWISE}),
        (Filter(device="epyc", backend="ansor"), set()),
    ],
)
def test_words_choose_workloads(catalogue: Catalogue, wanted: Filter, found: set[Workload]) -> None:
    assert {one.workload for one in catalogue.workloads(wanted)} == found


def test_a_device_is_shown_alone(catalogue: Catalogue) -> None:
    assert [one.environment for one in catalogue.workloads(Filter(device="ryzen"))] == [RYZEN]


@pytest.mark.parametrize("text", ["c0ffe", "c0ffee", CONV.shape, "3X3"])
def test_a_workload_is_named_by_hash_or_description(catalogue: Catalogue, text: str) -> None:
    assert catalogue.workload(text) == CONV


def test_a_text_that_names_several_workloads_is_refused(catalogue: Catalogue) -> None:
    with pytest.raises(RequestError, match=r"several workloads: conv2d 64x56x56 -> 64x56x56, 3x3 \(c0ffee\)"):
        catalogue.workload("conv2d")
    with pytest.raises(NotFound, match="autosched records list"):
        catalogue.workload("softmax")


def test_the_fastest_are_of_all_circumstances(catalogue: Catalogue) -> None:
    fastest = [one.candidate for one in catalogue.fastest(CONV.hash)]
    assert fastest == [b"schedule 3", b"schedule 1", b"schedule 0"]
    assert [one.candidate for one in catalogue.fastest(CONV.hash, Filter(device="epyc"), 1)] == [b"schedule 1"]
    assert catalogue.fastest(DENSE.hash) == []


def test_a_schedule_is_found_by_its_first_digits(catalogue: Catalogue, store: RecordStore) -> None:
    store.add(LAB, [measured(10, 9e-4, candidate="schedule 1", where=RYZEN, purpose=Purpose.FINAL)])
    digits = candidate_digest(b"schedule 1").hex()
    for length in (7, 12, 32):
        found = catalogue.schedule(digits[:length])
        assert [(one.environment, one.best_s) for one in found] == [(RYZEN, pytest.approx(9.9e-4)), (HERE, 2.2e-3)]


def test_measurements_of_a_schedule_come_in_order(catalogue: Catalogue, store: RecordStore) -> None:
    store.add(LAB, [measured(11, 2.1e-3, candidate="schedule 1", disturbed="load")])
    (known,) = catalogue.schedule(candidate_digest(b"schedule 1").hex())
    told = [(one.record.number, one.record.disturbed) for one in catalogue.measurements(known)]
    assert told == [(1, ""), (11, "load")]


@pytest.mark.parametrize("digits", ["", "abc", "xyzw1", "é" * 8])
def test_what_is_no_identifier_is_refused(catalogue: Catalogue, digits: str) -> None:
    with pytest.raises(NotFound, match="names no schedule"):
        catalogue.schedule(digits)


def test_an_unknown_schedule_is_not_found(catalogue: Catalogue) -> None:
    with pytest.raises(NotFound):
        catalogue.schedule("0" * 32)


def test_digits_of_several_schedules_are_refused(catalogue: Catalogue, store: RecordStore) -> None:
    store.add(LAB, [measured(number, 1e-3) for number in range(20, 600)])
    digests = sorted(candidate_digest(f"schedule {number}".encode()).hex() for number in range(20, 600))
    twins = next(one for one, other in itertools.pairwise(digests) if one[:4] == other[:4])
    with pytest.raises(RequestError, match="may be several schedules"):
        catalogue.schedule(twins[:4])


@pytest.mark.parametrize(
    ("wanted", "admitted"),
    [
        (Filter(), True),
        (Filter(operator="CONV2D", network="squeeze", device="epyc", target="ZNVER4", backend="autotvm"), True),
        (Filter(operator="c0ff"), True),
        (Filter(operator="0ff"), False),
        (Filter(network="bert"), False),
        (Filter(device="ryzen"), False),
        (Filter(target="rocketlake"), False),
        (Filter(backend="ansor"), False),
    ],
)
def test_texts_choose_measurements(wanted: Filter, admitted: bool) -> None:
    assert wanted.admits(measured(0, 1e-3)) is admitted


def test_work_of_the_latest_jobs_of_a_model(catalogue: Catalogue, store: RecordStore) -> None:
    first, second = (replace(JOB, number=number, model="a" * 64) for number in (21, 22))
    rows = [
        replace(one, record=replace(one.record, build_s=0.5, profile_s=0.25))
        for one in (
            measured(0, 1e-3, job=first), measured(1, 1e-3, job=first),
            measured(2, 1e-3, job=first, purpose=Purpose.FINAL),
            measured(0, 1e-3, job=second), measured(0, 1e-3, job=replace(JOB, number=23, model="b" * 64)),
        )
    ]  # fmt: skip
    store.add(LAB, rows)
    found = catalogue.jobs(["a" * 64], 10)
    assert [(one.trials, one.build_s, one.profile_s, one.lasted_s) for one in found] == [
        (1, 0.5, 0.25, 0.0), (2, 1.5, 0.75, 2.0),
    ]  # fmt: skip
    assert {one.backend for one in found} == {HERE.backend.split()[0]}
    assert len(catalogue.jobs(["a" * 64], 1)) == 1
    assert catalogue.jobs([], 10) == []
