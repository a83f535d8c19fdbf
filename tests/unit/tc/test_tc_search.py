"""The genetic search on schedules of a tiny matrix product."""

import json
from typing import Any

import pytest

tvm = pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_backend_ansor.options import Options as AnsorOptions  # noqa: E402
from autosched_backend_ansor.search import AnsorMethod  # noqa: E402
from autosched_backend_tc.options import Options  # noqa: E402
from autosched_backend_tc.search import TcMethod, TcSearch, launched, rules_of  # noqa: E402
from autosched_tvm.compile import candidate_build  # noqa: E402
from autosched_tvm.compile.task_extraction import hash_of  # noqa: E402
from autosched_tvm.tuning import schedule_traces  # noqa: E402
from small import Measured, matmul, rounds, timed  # noqa: E402

SMALL = {"pop_size": 8, "number_elites": 2, "mutation_rate": 20}


def search(seed: int = 1, **options: Any) -> TcSearch:
    return TcMethod(Options(**{**SMALL, **options})).search(matmul(seed))


def memos(history: list[Measured]) -> list[Any]:
    found = [schedule_traces.read(candidate) for candidate, _ in history]
    return [trace.memo for trace in found if trace is not None]


@pytest.mark.parametrize("mode", ["generational", "tc_compat", "random"])
def test_a_replaced_client_proposes_what_the_first_would_have(mode: str) -> None:
    live, again = search(mode=mode), search(mode=mode)
    history = rounds(live, 7, 3)
    again.update(history)
    expected = live.select(4)
    assert expected
    assert again.select(4) == expected
    assert live.select(4) == expected, "asked again it says the same"


def test_candidates_remember_generation_and_sketch() -> None:
    history = rounds(search(), 5)
    remembered = memos(history)
    assert [memo["generation"] for memo in remembered] == sorted(memo["generation"] for memo in remembered)
    assert remembered[-1]["generation"] > 0
    assert {memo["sketch"] for memo in remembered} <= {0, 1, 2}


def test_candidates_are_distinct_programs_that_build_as_proposed() -> None:
    live = search()
    history = rounds(live, 5)
    keys = [hash_of(candidate_build.replay(live._space.workload, candidate).mod) for candidate, _ in history]
    assert len(set(keys)) == len(keys) >= 16
    assert set(keys) <= set(live._keys.values())


def test_earlier_records_of_another_job_found_the_first_generation() -> None:
    history = rounds(search(1), 4)
    best = sorted(history, key=lambda one: one[1])[:2]
    other = search(2, restore_number=2)
    other.update(history)
    proposed = other.select(8)
    assert len(proposed) == 6
    assert not {json.dumps(json.loads(c)[1]) for c in proposed} & {json.dumps(json.loads(c)[1]) for c, _ in history}
    founders = {one.genes for one in other._evolution._population[:2]}
    assert founders == {trace.decisions for c, _ in best if (trace := schedule_traces.read(c)) is not None}


def test_records_of_ansor_have_children_here() -> None:
    """Both search MetaSchedule's sketches."""
    ansor = AnsorMethod(AnsorOptions(population_size=12, genetic_num_iters=0), 1).search(matmul(1))
    found = ansor.select(6)
    live = search(restore_number=10)
    live.update([(candidate, timed(candidate)) for candidate in found])
    assert len(live.select(8)) == 8 - len(found)


def test_records_of_templates_are_ignored() -> None:
    live, untouched = search(), search()
    template = json.dumps([[["GetSBlock", [], ["matmul", "main"], ["b0"]]], [], {"config": 3}]).encode()
    live.update([(template, [1e-6]), (b"", [1.0]), (b"garbage", []), (b"[[],[]]", [1.0])])
    assert live.select(4) == untouched.select(4)


def test_failures_are_not_bred_from() -> None:
    live = search()
    live.update([(candidate, []) for candidate in live.select(8)])
    assert len(live.select(8)) == 8, "all anew"
    assert live._evolution.generation == 1


def test_early_stopping_ends_it() -> None:
    live = search(early_stopping=3)
    live.update([(candidate, [1.0]) for candidate in live.select(4)])
    assert live.select(4) == []


def test_published_defaults() -> None:
    rules = rules_of(Options(mode="tc_compat"))
    assert (rules.pop_size, rules.elites) == (100, 10)
    assert (rules.crossover_rate, rules.mutation_rate, rules.restore_number) == (0.8, 0.07, 10)
    assert rules_of(Options(pop_size=50, number_elites=7)).elites == 7


def test_on_a_gpu_small_launches_are_not_worth_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    live = search()
    live._threads_min = 64  # as for a CUDA target
    monkeypatch.setattr("autosched_backend_tc.genetic.BARREN_MAX", 2)
    monkeypatch.setattr("autosched_backend_tc.search.launched", lambda _: 63)
    assert live.select(8) == []
    monkeypatch.setattr("autosched_backend_tc.search.launched", lambda _: 64)
    assert len(live.select(8)) == 8


def test_threads_are_those_of_all_dimensions() -> None:
    """Only scheduled, not compiled: no GPU is needed."""
    schedule = tvm.s_tir.Schedule(matmul(1, 32).workload)
    assert launched(schedule) == 1
    rows, columns, _ = schedule.get_loops(schedule.get_sblock("matmul"))
    block, thread = schedule.split(columns, factors=[None, 8])
    schedule.bind(rows, "blockIdx.y")
    schedule.bind(block, "blockIdx.x")
    schedule.bind(thread, "threadIdx.x")
    assert launched(schedule) == 32 * 4 * 8
