"""The plan of a job that is compared with its baseline during the search."""

import pytest

from autosched.backend import Baseline, Network, OperatorTime, OperatorTimes
from autosched.client.plan.early_builds import ROUNDS_BETWEEN, BuildMeasurement
from autosched.client.plan.job_plan import JobPlan
from autosched.model import NETWORK_TASK, JobLoad, JobSpec, TaskInfo
from autosched.network_status import Comparison
from told_plan import ToldPlan
from unit.client.plan.test_job_plan import trials

RIVAL = Baseline("ONNX Runtime", "1.0", "as it is", 10e-3, 9.9e-3, 10.1e-3)
NETWORK = Network(
    tasks=(TaskInfo(task=1, name="op", workload="w", flops=1.0, weight=2, shape="op 1"),), default_trials=100, batch=4
)


def course(*, until_faster: bool = False, known: Comparison | None = None, trials: int | None = None) -> JobPlan:
    c = ToldPlan(JobSpec(name="net", model="0" * 64, until_faster=until_faster, trials=trials), lanes=1, devices=1)
    c.early.comparison = known
    return c


def wants(load: JobLoad) -> dict[int, str]:
    return {t.task: t.stage_next for t in load.tasks if t.resources_next}


def inside(seconds: dict[int, float]) -> OperatorTimes:
    """Returns the operators of a build, each a task with as many calls as the network has."""
    calls = {1: 2} if len(seconds) == 1 else {}
    rows = tuple(OperatorTime(f"op {task}", "by rule", calls.get(task, 1), s) for task, s in seconds.items())
    return OperatorTimes(sum(seconds.values()) + 1e-3, rows)


def a_round(c: JobPlan, best_s: float) -> JobLoad:
    """Plays one round of task 1, with this best latency."""
    c.selected(1, 4)
    c.advanced(1)
    c.advanced(1)
    return c.updated(1, best_s)


def built(c: JobPlan, latency_s: float, *, kept: bool) -> JobLoad:
    """Plays task 0 from an early compile to its end."""
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert wants(c.compiled()) == {NETWORK_TASK: "evaluate"}
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    return c.evaluated_early(BuildMeasurement(1, latency_s), kept=kept, after_s=1.0)


def begun(c: JobPlan) -> JobPlan:
    """Returns the plan after import and measurement of the baseline."""
    load = c.imported(NETWORK, [], compares=True)
    assert wants(load) == {NETWORK_TASK: "baseline", 1: "select"}
    (baseline,) = [task for task in load.tasks if task.task == NETWORK_TASK]
    assert baseline.resources_next == ("device:cpu",)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert wants(c.baseline(RIVAL)) == {NETWORK_TASK: "compile"}, "the network is built before anything is searched"
    return c


def searching(c: JobPlan, untuned_s: float = 6e-3) -> JobPlan:
    """Returns the plan after a build without a search, which is slower than the baseline."""
    begun(c)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.evaluated_early(BuildMeasurement(1, 2 * untuned_s + 1e-3), inside({1: 2 * untuned_s}), kept=False, after_s=1.0)
    c.early.rounds = ROUNDS_BETWEEN
    return c


def test_the_search_continues_beside_an_early_build() -> None:
    c = searching(course())
    assert wants(a_round(c, 4e-3)) == {1: "select", NETWORK_TASK: "compile"}
    assert wants(built(c, 9e-3, kept=True)) == {}, "no task but the network's was waiting"
    assert c.early.comparison == Comparison(RIVAL, rest_s=pytest.approx(1e-3), module_s=9e-3, faster_after_s=1.0)
    assert wants(a_round(c, 3.9e-3)) == {1: "select"}
    assert not c.complete


def test_a_build_is_compared_with_the_sum_when_it_was_compiled() -> None:
    """Rounds end while an early build waits for a lane."""
    c = searching(course())
    a_round(c, 5e-3)
    a_round(c, 4e-3)
    built(c, 9e-3, kept=True)
    assert c.early.comparison is not None
    assert c.early.comparison.rest_s == pytest.approx(1e-3)


def test_until_faster_ends_with_a_module_that_is_faster() -> None:
    c = searching(course(until_faster=True))
    a_round(c, 4e-3)
    c.selected(1, 4)
    built(c, 9e-3, kept=True)
    assert c.load().rounds_left == 0
    assert wants(c.advanced(1)) == {NETWORK_TASK: "compile"}, "the round under way ends with its step"
    assert not c.early.under_way, "the last build is a full one"
    assert wants(c.compiled()) == {NETWORK_TASK: "evaluate"}
    assert c.evaluated().complete


def test_until_faster_continues_without_a_faster_module() -> None:
    c = searching(course(until_faster=True))
    a_round(c, 4e-3)
    built(c, 10.5e-3, kept=False)
    assert wants(a_round(c, 3.9e-3)) == {1: "select"}


def test_a_replaced_client_does_not_measure_the_baseline_again() -> None:
    c = course(known=Comparison(RIVAL, rest_s=1e-3))
    assert wants(c.imported(NETWORK, [], compares=True)) == {1: "select"}


def test_a_client_replaced_after_a_faster_module_ends_the_search() -> None:
    c = course(until_faster=True, known=Comparison(RIVAL, rest_s=1e-3, module_s=9e-3))
    assert wants(c.imported(NETWORK, [], compares=True)) == {NETWORK_TASK: "compile"}


def test_a_failed_baseline_or_early_build_does_not_end_the_job() -> None:
    c = course()
    c.imported(NETWORK, [], compares=True)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert c.optional
    c.gave_up_early()
    assert c.failure is None
    assert wants(a_round(c, 1e-3)) == {1: "select"}, "nothing to compare with, nothing to build early"
    assert not c.optional

    c = searching(course())
    a_round(c, 4e-3)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert c.optional
    c.gave_up_early()
    assert c.failure is None
    assert c.early.failures == 1


def test_the_last_build_waits_for_an_early_one() -> None:
    c = searching(course(trials=12))
    assert wants(a_round(c, 4e-3)) == {1: "select", NETWORK_TASK: "compile"}
    a_round(c, 3e-3)
    assert wants(a_round(c, 3e-3)) == {}
    assert wants(built(c, 9e-3, kept=True)) == {NETWORK_TASK: "compile"}
    assert not c.optional


def test_without_a_search_there_is_no_baseline() -> None:
    assert wants(course(trials=0).imported(NETWORK, [], compares=True)) == {NETWORK_TASK: "compile"}


TWO = Network(
    tasks=(
        TaskInfo(task=1, name="small", workload="a", shape="op 1", flops=900.0),
        TaskInfo(task=2, name="large", workload="b", shape="op 2", flops=100.0),
        TaskInfo(task=3, name="light", workload="c", shape="op 3", flops=500.0),
    ),
    default_trials=48,
    batch=4,
)


def test_candidates_wait_for_the_lane_until_the_network_is_compiled() -> None:
    c = course()
    assert wants(c.imported(TWO, [], compares=True)) == {NETWORK_TASK: "baseline", 1: "select"}
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert wants(c.baseline(RIVAL)) == {NETWORK_TASK: "compile"}
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    assert wants(a_round(c, 1e-3))[3] == "select", "lane and device have work again"


def test_after_the_first_build_rounds_go_to_the_slowest_tasks() -> None:
    c = course()
    c.imported(TWO, [], compares=True)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.baseline(RIVAL)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert (
        wants(
            c.evaluated_early(BuildMeasurement(1, 20e-3), inside({1: 2e-3, 2: 17e-3, 3: 1e-5}), kept=False, after_s=1.0)
        )[2]
        == "select"
    )
    assert c.tasks_s == pytest.approx(19.01e-3), "known before every task had a round"
    assert trials(c) == {1: 4, 2: 4, 3: 1}, "of a light task only the latency without a search is measured"


def test_a_network_is_built_again_before_every_task_had_a_round() -> None:
    c = course()
    c.imported(TWO, [], compares=True)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.baseline(RIVAL)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.evaluated_early(BuildMeasurement(1, 20e-3), inside({1: 2e-3, 2: 17e-3, 3: 1e-5}), kept=False, after_s=1.0)
    c.early.rounds = ROUNDS_BETWEEN
    c.selected(2, 4)
    c.advanced(2)
    c.advanced(2)
    assert wants(c.updated(2, 6e-3)) == {NETWORK_TASK: "compile"}, (
        "two rounds are under way, and the lane is to be free"
    )
