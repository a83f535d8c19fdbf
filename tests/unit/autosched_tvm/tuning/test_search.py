"""Ansor's search on a tiny matrix product: its candidates, and that it is a fold."""

import dataclasses
import json
import statistics

import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from tvm import te  # noqa: E402

from autosched_backend_ansor.options import Options  # noqa: E402
from autosched_backend_ansor.search import AnsorMethod, AnsorSearch  # noqa: E402
from autosched_tvm.compile import candidate_build  # noqa: E402
from autosched_tvm.compile.integers import dot_instructions, product  # noqa: E402
from autosched_tvm.compile.task_extraction import hash_of  # noqa: E402
from autosched_tvm.tuning.search_method import SearchContext  # noqa: E402
from small import matmul, rounds  # noqa: E402

OPTIONS = Options(population_size=12, init_min_unmeasured=4, genetic_num_iters=1, num_warmup_samples=8)


def search(seed: int = 1, options: Options = OPTIONS) -> AnsorSearch:
    return AnsorMethod(options, 1).search(matmul(seed))


def integer_product(seed: int) -> SearchContext:
    """Returns a product of 8-bit integers, whose space is listed."""
    instruction = dot_instructions.VNNI_512
    place = matmul(seed, target={"kind": "llvm", "mcpu": "cascadelake", "num-cores": 1})
    data = te.placeholder((24, 64), instruction.data)
    weights = te.placeholder((8, 16, instruction.lanes, instruction.group), instruction.weights)
    function = te.create_prim_func([data, weights, product.product(data, weights)])
    return dataclasses.replace(place, workload=tvm.IRModule({"main": function.with_attr("global_symbol", "main")}))


def test_a_replaced_client_proposes_what_the_first_would_have() -> None:
    live, again = search(), search()
    history = rounds(live, 4)
    assert len({candidate for candidate, _ in history}) == 16
    again.update(history)
    assert live.select(4) == again.select(4)


def test_a_replaced_client_proposes_the_same_of_a_listed_space() -> None:
    live, again = (AnsorMethod(OPTIONS, 1).search(integer_product(1)) for _ in range(2))
    history = rounds(live, 4)
    assert live._model.warm
    assert len({candidate for candidate, _ in history}) == 16
    again.update(history)
    assert live.select(4) == again.select(4)


def test_a_listed_space_is_searched_to_its_end_and_its_candidates_replay() -> None:
    live = AnsorMethod(OPTIONS, 1).search(integer_product(1))
    assert live._space.listed is not None
    history = rounds(live, 200, 8)
    keys = {hash_of(candidate_build.replay(live._space.workload, candidate).mod) for candidate, _ in history}
    assert len(keys) == len(history)
    made = [live._space.grow(0, decisions, 1) for decisions in live._space.listed]
    assert keys == {grown.key for grown in made if grown is not None}


def test_the_cost_model_leads_a_listed_space() -> None:
    """The latency falls with the first decision: the second half of the trials is faster than the first."""

    def latency_s(candidate: bytes) -> list[float]:
        return [1.0 / (1 + live._pending[candidate].decisions[0][1])]  # type: ignore[index]

    live = AnsorMethod(OPTIONS, 1).search(integer_product(3))
    medians = []
    for _ in range(6):
        measured = [(candidate, latency_s(candidate)) for candidate in live.select(6)]
        live.update(measured)
        medians.append(statistics.median(samples[0] for _, samples in measured))
    assert sum(medians[3:]) <= sum(medians[:3])


def test_other_seeds_propose_other_candidates() -> None:
    assert search(1).select(4) != search(2).select(4)


def test_candidates_measured_elsewhere_are_not_measured_again() -> None:
    """TVM forgets the contents of its database."""
    first = search()
    history = rounds(first, 1)
    warm = search()
    warm.update(history)
    assert not set(warm.select(8)) & {candidate for candidate, _ in history}


def test_the_best_known_are_parents() -> None:
    live = search()
    history = rounds(live, 2)
    best = sorted(history, key=lambda one: one[1])[: live._parents]
    warm = search(5)
    warm.update(history)
    assert [latency_s for latency_s, _, _ in warm._best] == [s[0] for _, s in best]


def test_failed_candidates_are_no_parents() -> None:
    live = search()
    live.update([(candidate, []) for candidate in live.select(4)])
    assert live._best == []
    assert len(live.select(4)) == 4


def test_candidates_of_another_backend_teach_and_are_not_selected() -> None:
    live = search()
    schedule = tvm.s_tir.Schedule(live._space.workload)
    loops = schedule.get_loops(schedule.get_sblock("matmul"))
    schedule.split(loops[0], factors=[None, 8])
    template = json.dumps([*schedule.trace.as_json(), {"config": 3}], default=lambda number: number.value).encode()
    live.update([(template, [1e-6]), (b"", [2e-6]), (b"garbage", [1e-6]), (b"[[],[]]", [])])
    assert live._best == [], "its schedule has no decisions to mutate"
    assert live._model._order == ["00000000000000ff"] * len(live._model._order) != []
    assert len(live.select(4)) == 4


def test_a_candidate_that_is_measured_again_stays_the_same() -> None:
    live = search()
    history = rounds(live, 1)
    samples = len(live._model._order)
    best = min(history, key=lambda one: one[1])[0]
    live.update([(best, [9.0])])
    assert len(live._model._order) == samples
    assert live._best[0][0] < 9.0


def test_a_repeated_proposal_is_the_same() -> None:
    live = search()
    rounds(live, 1)
    assert live.select(4) == live.select(4)


def test_candidates_build_as_they_are_proposed() -> None:
    live = search()
    for candidate in live.select(4):
        grown = live._pending[candidate]
        assert hash_of(candidate_build.replay(live._space.workload, candidate).mod) == grown.key


def test_early_stopping_ends_it() -> None:
    live = search(options=Options(early_stopping=3, population_size=12, genetic_num_iters=0))
    candidates = live.select(4)
    live.update([(candidate, [1.0]) for candidate in candidates])
    assert live.select(4) == []


def test_a_tiny_space_is_exhausted() -> None:
    live = AnsorMethod(OPTIONS, 1).search(matmul(1, size=1))
    found: list[bytes] = []
    while new := live.select(8):
        live.update([(candidate, [1.0]) for candidate in new])
        found += new
        assert len(found) < 200
    assert len(found) == len(set(found)) > 0
