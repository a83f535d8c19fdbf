"""Collected networks in stores of both kinds."""

import contextlib
from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from autosched.model import Program, Purpose
from autosched.recordstore.collected import Collected, Collection, Collector, Knowledge, Scope
from autosched.recordstore.keys import split_target
from autosched.recordstore.rows import Workload
from samples_of_store import CONV, HERE, LAB, measured

SCOPE = Scope(HERE.target, "nchwc")
DENSE = Workload("beef", "matmul", "matmul 1x512 by 512x1000", 1e6)
POOL = Workload("bad", "max_pool2d", "max_pool2d 64x56x56", 1e4)


def network(model: str, uses: dict[Workload, int], change: str = "", scope: Scope = SCOPE) -> Collected:
    return Collected(model, f"{model}.onnx", change, scope, "importer 1", (), 1.7e9, uses)


def programs(*workloads: Workload) -> dict[Workload, Program]:
    return {one: Program("tvm 0.27", one.hash.encode()) for one in workloads}


@pytest.fixture
def collector(url: str) -> Iterator[Collector]:
    with contextlib.closing(Collector(url)) as made:
        yield made


@pytest.fixture
def collection(url: str, collector: Collector) -> Iterator[Collection]:
    with Collection(url) as made:
        yield made


def test_new_tasks_are_those_that_no_network_had(collector: Collector, collection: Collection) -> None:
    assert collector.add_network(network("one", {CONV: 2, DENSE: 1}), programs(CONV, DENSE)) == 2
    assert collector.add_network(network("two", {CONV: 1, POOL: 1}), programs(CONV, POOL)) == 1
    assert {(use.model, use.workload, use.weight) for use in collection.uses(SCOPE)} == {
        ("one", CONV, 2), ("one", DENSE, 1), ("two", CONV, 1), ("two", POOL, 1),
    }  # fmt: skip
    assert collection.programs(["bad", "beef"]) == {
        "bad": Program("tvm 0.27", b"bad"),
        "beef": Program("tvm 0.27", b"beef"),
    }
    assert [one.name for one in collection.networks(SCOPE)] == ["one.onnx", "two.onnx"]


def test_the_same_network_is_kept_once_as_it_was_found_last(collector: Collector, collection: Collection) -> None:
    collector.add_network(network("one", {CONV: 2, DENSE: 1}), programs(CONV, DENSE))
    again = replace(network("one", {CONV: 3, POOL: 1}), importer="importer 2", notes=("matmul of 1x8",))
    assert collector.changes("one", SCOPE, "importer 1") == {""}
    assert collector.add_network(again, programs(CONV, POOL)) == 1
    assert list(collection.networks(SCOPE)) == [again]
    assert collector.changes("one", SCOPE, "importer 1") == set()
    assert collector.changes("one", SCOPE, "importer 2") == {""}


def test_sizes_and_scopes_are_told_apart(collector: Collector, collection: Collection) -> None:
    other = Scope(HERE.target, "nhwc")
    collector.add_network(network("one", {CONV: 1}), programs(CONV))
    collector.add_network(network("one", {DENSE: 1}, "batch 4"), programs(DENSE))
    collector.add_network(replace(network("one", {POOL: 1}, scope=other), collected_at=1.8e9), programs(POOL))
    assert collector.changes("one", SCOPE, "importer 1") == {"", "batch 4"}
    assert len({use.network for use in collection.uses(SCOPE)}) == 2
    assert [use.workload for use in collection.uses(other)] == [POOL]
    assert collection.scopes() == [other, SCOPE]


def test_a_size_that_a_network_cannot_have_is_remembered(collector: Collector, collection: Collection) -> None:
    assert collector.add_network(replace(network("one", {}), notes=("no image",)), {}) == 0
    assert collector.changes("one", SCOPE, "importer 1") == {""}
    assert collection.uses(SCOPE) == []


def test_what_is_known_is_of_this_backend_and_number_of_threads(collector: Collector, collection: Collection) -> None:
    collector.add_network(network("one", {CONV: 1, DENSE: 1}), programs(CONV, DENSE))
    assert collection.known(SCOPE, "autotvm", 0) == {}
    assert collection.threads(SCOPE, "autotvm") == 1
    target, threads = split_target('{"kind": "llvm", "mcpu": "znver4", "num-cores": 2}')
    two = replace(HERE, target=target, threads=threads)
    rows = [
        measured(0, 4e-3, where=two, purpose=Purpose.DEFAULT),
        measured(1, 2e-3, where=two),
        measured(2, None, where=two),
    ]
    untuned = replace(rows[0], record=replace(rows[0].record, candidate=b""))
    elsewhere = measured(5, 1e-3, where=replace(two, backend="ansor 1"))
    stranger = measured(6, 1e-3, where=two, workload=POOL)
    untold, four = measured(7, 9e-3), measured(8, 1e-4, where=replace(two, threads=4))
    collector.add(LAB, [untuned, *rows[1:], elsewhere, stranger, untold, four])
    known = collection.known(SCOPE, "autotvm", 2)
    assert known == {CONV.hash: Knowledge(pytest.approx(2.2e-3), pytest.approx(4.4e-3), 4)}, (
        "without those of 4 threads"
    )
    assert collection.known(SCOPE, "ansor", 2)[CONV.hash].tried == 1
    assert collection.threads(SCOPE, "autotvm") == 2
