"""A job that ends when its network is fast enough."""

import pytest

from autosched.backend import Baseline, Network, Timing
from autosched.client.plan import latency_goal
from autosched.client.plan.early_builds import ROUNDS_BETWEEN, BuildMeasurement
from autosched.client.plan.job_plan import JobPlan
from autosched.errors import RequestError
from autosched.model import NETWORK_TASK, JobLoad, JobSpec, TaskInfo
from autosched.network_status import Comparison, GoalReached, LatencyGoal, MeasuredBuild, NetworkMeasurements
from told_plan import ToldPlan

RIVAL = Baseline("ONNX Runtime", "1.0", "as it is", 10e-3, 9.9e-3, 10.1e-3)
NETWORK = Network(
    tasks=(TaskInfo(task=1, name="op", workload="w", flops=1.0, weight=2, shape="op 1"),), default_trials=100, batch=4
)


def spec(**words: object) -> JobSpec:
    return JobSpec(name="net", model="0" * 64, **words)  # type: ignore[arg-type]


def timing(median_s: float, spread: float = 0.0) -> Timing:
    return Timing("tuned", (median_s,), median_s, median_s * (1 - spread), median_s * (1 + spread))


def build(latency_s: float, spread: float = 0.0, *, disturbed: bool = False) -> BuildMeasurement:
    return BuildMeasurement(1, latency_s, disturbed=disturbed, timing=timing(latency_s, spread))


def wants(load: JobLoad) -> dict[int, str]:
    return {t.task: t.stage_next for t in load.tasks if t.resources_next}


def measured(c: JobPlan, what: BuildMeasurement, *, kept: bool = True) -> JobLoad:
    """Plays task 0 from an early compile to its end."""
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    return c.evaluated_early(what, kept=kept, after_s=1.0)


def begun(**words: object) -> JobPlan:
    """Returns the plan after the baseline's measurement and the compilation of known schedules."""
    c = ToldPlan(spec(**words), lanes=1, devices=1)
    assert wants(c.imported(NETWORK, [], compares=True)) == {NETWORK_TASK: "baseline"}, "nothing is searched yet"
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert wants(c.baseline(RIVAL)) == {NETWORK_TASK: "compile"}
    return c


def a_round(c: JobPlan, best_s: float) -> JobLoad:
    c.selected(1, 4)
    c.advanced(1)
    c.advanced(1)
    return c.updated(1, best_s)


def ended(c: JobPlan, result: Timing | None) -> LatencyGoal | None:
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.compiled()
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    c.evaluated(None if result is None else BuildMeasurement(2, result.median_s, timing=result), result)
    return c.early.measurements.goal


@pytest.mark.parametrize(
    ("latency_s", "spread", "found"),
    [
        (9.0e-3, 0.02, GoalReached.MET),
        (9.95e-3, 0.0, GoalReached.UNCLEAR),  # within the difference of two measurements
        (9.5e-3, 0.06, GoalReached.UNCLEAR),
        (10.05e-3, 0.0, GoalReached.UNCLEAR),
        (10.2e-3, 0.0, GoalReached.MISSED),
        (10.9e-3, 0.1, GoalReached.UNCLEAR),
        (12e-3, 0.05, GoalReached.MISSED),
    ],
)
def test_a_goal_is_met_with_the_whole_interval(latency_s: float, spread: float, found: GoalReached) -> None:
    assert latency_goal.reached(10e-3, timing(latency_s, spread)) is found


def test_an_improvement_counts_from_the_first_build() -> None:
    builds = (MeasuredBuild(0, 80e-3, disturbed=True), MeasuredBuild(1, 8e-3), MeasuredBuild(2, 4e-3))
    assert latency_goal.goal_s(spec(improve_by=0.25), builds) == pytest.approx(6e-3)
    assert latency_goal.goal_s(spec(improve_by=0.25), builds[:1]) is None
    assert latency_goal.goal_s(spec(latency_goal_s=5e-3), ()) == 5e-3
    assert latency_goal.goal_s(spec(), builds) is None


def test_known_schedules_may_meet_the_goal() -> None:
    c = begun(latency_goal_s=10e-3)
    assert wants(measured(c, build(9e-3))) == {NETWORK_TASK: "compile"}, "the job ends"
    assert (c.spent, c.finishing) == (0, True)
    goal = ended(c, timing(9.1e-3))
    assert goal == LatencyGoal(10e-3, 9.1e-3, 9.1e-3, 9.1e-3, GoalReached.MET, "a build met the goal")


def test_the_search_lasts_from_a_too_slow_known_build_to_one_that_meets_the_goal() -> None:
    c = begun(latency_goal_s=5e-3)
    assert wants(measured(c, build(9e-3))) == {1: "select"}
    assert c.early.measurements.goal == LatencyGoal(5e-3, 9e-3, 9e-3, 9e-3, GoalReached.MISSED)
    c.early.rounds = ROUNDS_BETWEEN
    assert NETWORK_TASK not in wants(a_round(c, 4.4e-3)), "it promises too little"
    assert wants(a_round(c, 2.4e-3))[NETWORK_TASK] == "compile"
    c.selected(1, 4)
    measured(c, build(4.8e-3))
    assert c.finishing
    assert wants(c.advanced(1)) == {NETWORK_TASK: "compile"}


@pytest.mark.parametrize(
    ("what", "kept"), [(build(4.98e-3), True), (build(4e-3, disturbed=True), True), (build(4e-3), False)]
)
def test_only_a_clear_undisturbed_and_correct_build_ends_the_search(what: BuildMeasurement, kept: bool) -> None:
    c = begun(latency_goal_s=5e-3)
    measured(c, what, kept=kept)
    assert not c.finishing


def test_an_improvement_ends_the_search() -> None:
    c = begun(improve_by=0.5)
    measured(c, build(9e-3))
    assert not c.finishing
    assert c.goal_s == 4.5e-3
    c.early.rounds = ROUNDS_BETWEEN
    a_round(c, 2e-3)
    measured(c, build(4.4e-3))
    assert c.finishing


@pytest.mark.parametrize(("trials", "why"), [(8, "its 8 trials are made"), (0, "nothing was to be searched")])
def test_a_goal_that_is_missed_has_a_reason(trials: int, why: str) -> None:
    c = ToldPlan(spec(latency_goal_s=1e-3, trials=trials), lanes=1, devices=1)
    c.imported(NETWORK, [])
    while c.network_round is None:
        a_round(c, 4e-3)
    goal = ended(c, timing(9e-3))
    assert goal is not None
    assert (goal.reached, goal.ended) == (GoalReached.MISSED, why)


def test_the_deadline_ends_the_search() -> None:
    c = begun(latency_goal_s=1e-3)
    measured(c, build(9e-3))
    c.out_of_time()
    assert wants(c.selected(1, 4)) == {NETWORK_TASK: "compile"}, "the round ends with its step"
    goal = ended(c, timing(8e-3))
    assert goal is not None
    assert goal.ended == "the deadline is near"


def test_the_published_module_meets_the_goal_if_the_last_build_is_not_used() -> None:
    c = begun(latency_goal_s=10e-3)
    measured(c, build(9e-3))
    goal = ended(c, None)
    assert goal is not None
    assert (goal.latency_s, goal.reached, goal.ended) == (9e-3, GoalReached.MET, "a build met the goal")


def test_a_client_replaced_after_the_goal_was_met_ends_the_job() -> None:
    c = ToldPlan(spec(latency_goal_s=10e-3), lanes=1, devices=1)
    met = LatencyGoal(10e-3, 9e-3, 9e-3, 9e-3, GoalReached.MET)
    c.early.comparison = Comparison(RIVAL, rest_s=1e-3, module_s=9e-3)
    c.early.measurements = NetworkMeasurements((MeasuredBuild(1, 9e-3),), goal=met)
    assert wants(c.imported(NETWORK, [], compares=True)) == {NETWORK_TASK: "compile"}


def test_without_a_baseline_the_search_begins_at_once() -> None:
    c = ToldPlan(spec(latency_goal_s=10e-3), lanes=1, devices=1)
    c.imported(NETWORK, [], compares=True)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    assert wants(c.baseline(None)) == {1: "select"}


def test_a_failed_first_build_does_not_delay_the_search() -> None:
    c = begun(latency_goal_s=10e-3)
    c.started(NETWORK_TASK, c.current(NETWORK_TASK).stage)
    load = c.gave_up_early()
    assert wants(load)[1] == "select"


def conv(task: int, flops: float, weight: int = 1, groups: dict[str, int] | None = None) -> TaskInfo:
    return TaskInfo(task=task, name="conv", workload=f"w{task}", flops=flops, weight=weight, groups=groups or {})


@pytest.mark.parametrize(
    ("tasks", "bound_s"),
    [
        ((conv(1, 1e9, weight=3),), 3e-3),
        # the smallest number of operations in a group
        ((conv(1, 1e9, groups={"a": 1}), conv(2, 4e8, groups={"a": 1})), 4e-4),
        ((conv(1, 0.0),), 0.0),
        ((), 0.0),
    ],
)
def test_a_latency_below_the_cores_peak_is_refused(tasks: tuple[TaskInfo, ...], bound_s: float) -> None:
    network = Network(tasks=tasks)
    latency_goal.check(spec(latency_goal_s=1.01 * bound_s + 1e-9), network, 1e12)
    latency_goal.check(spec(improve_by=0.99), network, 1e12)
    latency_goal.check(spec(), network, 1e12)
    if bound_s:
        with pytest.raises(RequestError, match=r"need .* at their peak of 1,000 billion a second"):
            latency_goal.check(spec(latency_goal_s=0.99 * bound_s), network, 1e12)
