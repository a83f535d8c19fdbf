"""Queries of a store."""

import math
import random

import pytest
from msgspec.structs import replace

from autosched.model import Program
from autosched.recordstore import shapes
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Workload
from autosched.recordstore.store import RecordStore
from samples_of_store import CONV, HERE, LAB, measured

pytestmark = pytest.mark.slow


def test_best_are_the_fastest_that_work(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 3e-3), measured(1, None), measured(2, 1e-3), measured(3, 2e-3)])
    assert [one.candidate for one in lookup.best(CONV.hash, HERE, 2)] == [b"schedule 2", b"schedule 3"]
    assert len(lookup.best(CONV.hash, HERE, 10)) == 3


@pytest.mark.parametrize("field", ["target", "compiler", "measurement", "backend", "template"])
def test_best_of_other_circumstances_is_no_strict_match(store: RecordStore, lookup: Lookup, field: str) -> None:
    store.add(LAB, [measured(0, 1e-3, where=replace(HERE, **{field: "another 2"}))])
    assert lookup.best(CONV.hash, HERE) == []
    hinted = field in ("compiler", "measurement")
    assert len(lookup.hints(CONV.hash, HERE)) == hinted


def test_another_version_of_the_backend_gives_hints(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 1e-3, where=replace(HERE, backend="autotvm 2"))])
    assert lookup.best(CONV.hash, HERE) == []
    assert len(lookup.hints(CONV.hash, HERE)) == 1


def test_schedules_of_a_template_are_hints_for_other_backends(store: RecordStore, lookup: Lookup) -> None:
    ansor = replace(HERE, backend="ansor 1", template="trace 1")
    autotvm = replace(ansor, backend="autotvm 2")
    store.add(LAB, [measured(0, 1e-3, where=ansor), measured(1, 2e-3, where=autotvm)])
    assert [one.candidate for one in lookup.hints(CONV.hash, autotvm, 9)] == [b"schedule 0", b"schedule 1"]
    assert [one.candidate for one in lookup.best(CONV.hash, autotvm, 9)] == [b"schedule 1"]


def test_trials_of_other_backends_are_not_counted(store: RecordStore, lookup: Lookup) -> None:
    names = ("auto", "auto 1", "auto 2", "autotvm 2", "ansor 1")
    where = [replace(HERE, backend=name, template="trace 1") for name in names]
    store.add(LAB, [measured(number, 1e-3, where=one) for number, one in enumerate(where)])
    assert lookup.tried(CONV.hash, where[1]) == 3
    assert lookup.tried(CONV.hash, where[0]) == 3
    assert lookup.tried(CONV.hash, where[3]) == 1


def test_programs_are_kept_once(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 1e-3)])
    program = Program("tvm 0.27", b"\x00packed")
    store.add_programs({CONV: program})
    store.add_programs({CONV: Program("tvm 0.28", b"another")})
    store.add_programs({})
    assert lookup.programs({CONV.hash, "of no workload"}) == {CONV.hash: program}
    assert lookup.without_program({CONV.hash, "of no workload"}) == {"of no workload"}
    assert lookup.programs(()) == {}


def test_device_models_share_their_schedules(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 2e-3), measured(1, 1e-3, where=replace(HERE, device="AMD Ryzen"))])
    assert [one.environment.device for one in lookup.best(CONV.hash, HERE, 5)] == ["AMD Ryzen", "AMD EPYC"]


def test_other_devices_give_one_schedule_each(store: RecordStore, lookup: Lookup) -> None:
    ryzen, arm = replace(HERE, device="AMD Ryzen"), replace(HERE, device="Neoverse", target="neoverse-n1")
    upgraded = replace(HERE, compiler="tvm 0.28")
    places = [HERE, upgraded, ryzen, arm, arm]
    store.add(LAB, [measured(trial, 1e-3 * (9 - trial), where=where) for trial, where in enumerate(places)])
    found = [(one.environment.device, one.candidate) for one in lookup.other_devices(CONV.hash)]
    assert found == [("Neoverse", b"schedule 4"), ("AMD Ryzen", b"schedule 2"), ("AMD EPYC", b"schedule 1")]


def test_all_comes_in_pages(store: RecordStore, lookup: Lookup) -> None:
    arm = replace(HERE, target="neoverse-n1")
    store.add(
        LAB, [measured(trial, None if trial % 5 == 0 else 1e-3, where=(HERE, arm)[trial % 2]) for trial in range(50)]
    )
    found, page = [], lookup.all(CONV.hash, limit=7)
    while page:
        found += page
        page = lookup.all(CONV.hash, page[-1], 7)
    assert len(found) == 50
    assert {one.candidate for one in found} == {f"schedule {trial}".encode() for trial in range(50)}


def test_nearest_are_those_of_all(store: RecordStore, lookup: Lookup) -> None:
    chance = random.Random(0)
    sizes = [[chance.choice((8, 16, 24, 64, 100)) for _ in range(3)] for _ in range(150)]
    works = [Workload(str(n), "", f"conv2d {a}x{b}x{b} -> {c}x{b}x{b}, 3x3") for n, (a, b, c) in enumerate(sizes)]
    works += [Workload("other", "", "dense 8x8"), replace(works[0], hash="never measured")]
    store.add(LAB, [measured(n, 1e-3, workload=work) for n, work in enumerate(works[:-1])])
    store.add(LAB, [measured(999, None, workload=works[-1])])
    for wanted in works[:20]:
        place = shapes.parse(wanted.shape).place
        others = [shapes.parse(one.shape).place for one in works[:-2] if one.hash != wanted.hash]
        expected = sorted(math.dist(place, other) for other in others)
        found = lookup.nearest(wanted, 7)
        assert [one.distance for one in found] == pytest.approx(expected[:7])
        assert wanted.hash not in {one.workload.hash for one in found}


def test_nearest_of_an_unknown_operator_is_nothing(store: RecordStore, lookup: Lookup) -> None:
    store.add(LAB, [measured(0, 1e-3)])
    assert lookup.nearest(Workload("new", "", "attention 8x64")) == []
    assert len(lookup.nearest(Workload("new", "", "conv2d 3x224x224 -> 64x112x112, 7x7"))) == 1
