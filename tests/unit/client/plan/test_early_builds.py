"""Builds of the network during its search."""

import pytest

from autosched.backend import Baseline, Evaluation, OperatorTime, OperatorTimes, Timing
from autosched.client.plan import early_builds
from autosched.client.plan.early_builds import BuildMeasurement, EarlyBuilds
from autosched.model import TaskInfo
from autosched.network_status import NetworkStatus

RIVAL = Baseline("ONNX Runtime", "1.0", "as it is", 10e-3, 9.9e-3, 10.1e-3)


def knowing(*builds: tuple[float, float, bool]) -> EarlyBuilds:
    """Returns the state after builds of (sum over the tasks, latency, whether it was kept), with rounds between
    them."""
    found = EarlyBuilds(builds=1)  # the one before the search
    found.measured_baseline(RIVAL)
    for tasks_s, latency_s, kept in builds:
        found.begin(tasks_s)
        found.measured(BuildMeasurement(1, latency_s), kept=kept, after_s=60.0)
        found.rounds = early_builds.ROUNDS_BETWEEN
    return found


def test_without_a_baseline_or_an_estimate_nothing_is_built() -> None:
    nothing = EarlyBuilds()
    nothing.measured_baseline(None)
    assert not nothing.wants(1e-3)
    assert not nothing.wants(None)
    assert not knowing().wants(None)


@pytest.mark.parametrize(("tasks_s", "wanted"), [(15e-3, True), (15.1e-3, False)])
def test_while_the_untuned_time_is_unknown_builds_wait_until_the_baseline_is_near(tasks_s: float, wanted: bool) -> None:
    assert knowing().wants(tasks_s) is wanted


@pytest.mark.parametrize(("tasks_s", "wanted"), [(8e-3, True), (8.1e-3, False)])
def test_the_next_build_must_be_expected_to_win_including_untuned_operators(tasks_s: float, wanted: bool) -> None:
    assert knowing((9e-3, 11e-3, False)).wants(tasks_s) is wanted


def test_a_build_that_beats_its_sum_scales_it() -> None:
    found = knowing((12e-3, 10.2e-3, False)).comparison
    assert found is not None
    assert found.whole_s(10e-3) == pytest.approx(8.5e-3)


def test_a_build_is_not_made_twice_for_the_same_gain() -> None:
    """Its latency was unlucky: only a better estimate leads to another attempt."""
    found = knowing((8e-3, 10.0e-3, False))
    assert not found.wants(8e-3)
    assert not found.wants(7.9e-3)
    assert found.wants(7.7e-3)


@pytest.mark.parametrize(("tasks_s", "wanted"), [(7e-3, True), (7.2e-3, False)])
def test_a_published_module_is_replaced_only_by_a_clearly_better_one(tasks_s: float, wanted: bool) -> None:
    assert knowing((7e-3, 8e-3, False), (7e-3, 9e-3, True)).wants(tasks_s - 0.9e-3) is wanted


def test_some_rounds_lie_between_two_builds() -> None:
    found = knowing((9e-3, 11e-3, False))
    found.rounds = early_builds.ROUNDS_BETWEEN - 1
    assert not found.wants(1e-3)


def test_one_build_at_a_time_and_none_after_two_that_failed() -> None:
    found = knowing()
    found.begin(9e-3)
    assert not found.wants(1e-3)
    for _ in range(early_builds.FAILURES_MAX):
        found.failed()
    found.rounds = early_builds.ROUNDS_BETWEEN
    assert not found.wants(1e-3)


def test_both_sides_of_the_ratio_of_a_kept_module_are_of_one_run() -> None:
    """A disturbed run is slower for both; beside an undisturbed baseline its module would be called slower."""
    found = knowing()
    found.begin(9e-3)
    slow = Timing(name="onnxruntime", samples_s=(), median_s=30e-3, low_s=29e-3, high_s=31e-3)
    found.measured(BuildMeasurement(1, 16e-3, slow, disturbed=True), kept=True, after_s=1.0)
    assert found.comparison is not None
    assert (found.comparison.module_s, found.comparison.baseline.median_s) == (16e-3, 30e-3)
    assert found.comparison.faster_after_s == 1.0


def test_the_time_to_the_first_module_is_kept() -> None:
    found = knowing((8e-3, 9e-3, True))
    found.begin(7e-3)
    found.measured(BuildMeasurement(1, 8e-3), kept=True, after_s=99.0)
    assert found.comparison is not None
    assert (found.comparison.module_s, found.comparison.faster_after_s) == (8e-3, 60.0)


def test_an_unpublished_build_leaves_the_published_module() -> None:
    found = knowing((8e-3, 9e-3, True), (7e-3, 11e-3, False))
    assert found.comparison is not None
    assert found.comparison.module_s == 9e-3


def test_the_first_build_precedes_the_search_and_measures_untuned_operators() -> None:
    found = EarlyBuilds()
    found.measured_baseline(RIVAL)
    assert found.wants(None)
    found.begin(None)
    found.begin(None)
    assert found.builds == 1, "it waited for its lane"
    found.measured(BuildMeasurement(1, 15e-3), (11e-3, 12e-3), kept=False, after_s=1.0)
    assert found.comparison is not None and found.comparison.rest_s == pytest.approx(1e-3)
    found.rounds = early_builds.ROUNDS_BETWEEN
    assert not found.wants(9.5e-3)
    assert found.wants(8.9e-3)


def test_a_first_build_without_a_sum_is_kept_and_calibrates_nothing() -> None:
    found = EarlyBuilds()
    found.measured_baseline(RIVAL)
    found.begin(None)
    found.measured(BuildMeasurement(1, 9e-3), None, kept=True, after_s=1.0)
    assert found.comparison is not None
    assert (found.comparison.module_s, found.comparison.rest_s) == (9e-3, None)
    assert not found.wants(None)


def test_a_failed_first_build_is_not_repeated() -> None:
    found = EarlyBuilds()
    found.measured_baseline(RIVAL)
    found.begin(None)
    found.failed()
    assert not found.wants(None)


def task(number: int, words: str) -> TaskInfo:
    return TaskInfo(task=number, name=f"op{number}", workload=f"w{number}", shape=words)


def test_times_of_operators_by_rule_are_times_of_tasks_without_a_search() -> None:
    tasks = [task(1, "conv2d 8x8"), task(2, "mean 8"), task(3, "conv2d 8x8"), task(4, "softmax 8"), task(5, "pool 8")]
    rows = (
        OperatorTime("conv2d 8x8", "by rule", 4, 8e-3),
        OperatorTime("mean 8", "tuned", 1, 1e-3),
        OperatorTime("softmax 8", "by rule", 2, 0.0),
    )
    assert early_builds.untuned(tasks, OperatorTimes(1e-2, rows)) == {1: 2e-3, 3: 2e-3}
    assert early_builds.in_tasks_s(
        tasks, OperatorTimes(1e-2, (*rows, OperatorTime("pad 8", "by rule", 1, 5e-3)))
    ) == pytest.approx(9e-3)


def under_load(tasks_s: float, latency_s: float) -> EarlyBuilds:
    """Returns the state after one build with a disturbed measurement."""
    found = EarlyBuilds(builds=1)
    found.measured_baseline(RIVAL)
    found.begin(tasks_s)
    found.measured(BuildMeasurement(1, latency_s, disturbed=True), (0.9 * tasks_s, latency_s), kept=False, after_s=1.0)
    return found


def test_a_disturbed_build_never_sets_the_untuned_time() -> None:
    found = under_load(6e-3, 22e-3)
    assert found.comparison is not None
    assert found.comparison.rest_s is None
    assert found.comparison.whole_s(6e-3) == 6e-3
    (build,) = found.measurements.builds
    assert (build.latency_s, build.rest_s, build.disturbed) == (22e-3, None, True)


def test_a_disturbed_build_does_not_move_the_baseline() -> None:
    found = EarlyBuilds(builds=1)
    found.measured_baseline(RIVAL)
    slow = Timing("onnxruntime", (30e-3,), 30e-3, 29e-3, 31e-3)
    found.measured(BuildMeasurement(1, 22e-3, slow, disturbed=True), kept=False, after_s=1.0)
    assert found.comparison is not None and found.comparison.baseline == RIVAL
    found.measured(BuildMeasurement(2, 9e-3, slow), kept=False, after_s=1.0)
    assert found.comparison.baseline.median_s == 30e-3


def test_a_disturbed_build_is_repeated_after_growing_numbers_of_rounds() -> None:
    found = under_load(6e-3, 22e-3)
    for rounds in (2 * early_builds.ROUNDS_BETWEEN, 4 * early_builds.ROUNDS_BETWEEN):
        found.rounds = rounds - 1
        assert not found.wants(6e-3)
        found.rounds = rounds
        assert found.wants(6e-3), "although the sum has not fallen"
        found.begin(6e-3)
        found.measured(BuildMeasurement(2, 22e-3, disturbed=True), kept=False, after_s=1.0)
    found.measured(BuildMeasurement(3, 7e-3), kept=False, after_s=1.0)
    assert found.disturbed == 0
    assert found.comparison is not None and found.comparison.rest_s == pytest.approx(1e-3)


def test_a_network_that_only_untuned_operators_make_slow_is_built_again_after_many_rounds() -> None:
    """An undetected slowdown hit the first build; without another build it would count for ever."""
    found = knowing((6e-3, 22e-3, False))
    found.rounds = early_builds.ROUNDS_BETWEEN * early_builds.RECHECK_GROWTH**found.builds - 1
    assert not found.wants(5e-3)
    found.rounds += 1
    assert found.wants(5e-3)
    assert not found.wants(10.1e-3), "its tasks alone are slower"


def test_the_last_evaluation_corrects_untuned_time_and_baseline_and_is_the_result() -> None:
    """Once 22.4 ms stood beside a result of 6.32 ms at the job's end."""
    found = knowing((6e-3, 22e-3, True))
    now = Timing("onnxruntime", (10.11e-3,), 10.11e-3, 10e-3, 10.2e-3)
    found.ended(BuildMeasurement(9, 6.32e-3, now), 5.5e-3, 6.32e-3)
    assert found.comparison is not None
    assert found.comparison.whole_s(5.5e-3) == pytest.approx(6.32e-3)
    assert found.comparison.baseline.median_s == 10.11e-3
    assert found.measurements.result_s == 6.32e-3
    assert [build.latency_s for build in found.measurements.builds] == [22e-3, 6.32e-3]


def test_the_published_module_is_the_result_if_the_last_build_is_not_used() -> None:
    found = knowing((8e-3, 9e-3, True))
    slow = Timing("onnxruntime", (30e-3,), 30e-3, 29e-3, 31e-3)
    found.ended(BuildMeasurement(9, 12e-3, slow, disturbed=True), 8e-3, None)
    assert found.measurements.result_s == 9e-3
    assert found.comparison is not None and found.comparison.baseline == RIVAL


def test_without_a_baseline_the_last_build_is_measured_too() -> None:
    found = EarlyBuilds()
    found.ended(BuildMeasurement(9, 6e-3), 5e-3, 6e-3)
    assert (found.comparison, found.measurements.result_s) == (None, 6e-3)


def test_the_next_client_continues_from_the_measured_builds() -> None:

    before = knowing((6e-3, 7e-3, False))
    after = EarlyBuilds()
    after.resume(NetworkStatus(comparison=before.comparison, measured=before.measurements))
    assert after.comparison == before.comparison
    after.measured(BuildMeasurement(9, 6e-3), kept=False, after_s=1.0)
    assert [build.step for build in after.measurements.builds] == [1, 9]


def test_the_measurement_of_a_build_is_its_tuned_timing_beside_its_rival() -> None:
    ours, theirs = Timing("tuned", (1.0,), 1.0, 0.9, 1.1), Timing("litert", (2.0,), 2.0, 1.9, 2.1)
    evaluation = Evaluation((theirs, ours), "LiteRT", True, 0.0, 0.0, (1,), "tuned", form="simplified")
    assert BuildMeasurement.of(3, evaluation, disturbed=True) == BuildMeasurement(
        3, 1.0, theirs, "simplified", disturbed=True, timing=ours
    )
    only = Evaluation((theirs,), "LiteRT", True, 0.0, 0.0, (1,), "")
    assert BuildMeasurement.of(3, only, disturbed=False) is None
