"""Progress is the same whether counted from arriving records or from the store."""

import asyncio

import pytest
from msgspec.structs import replace

from autosched.backend import Network
from autosched.daemon.jobs.progress import RECENT_TRIALS, JobProgress, ProgressRegistry
from autosched.daemon.storage.job_store import Found
from autosched.model import Identity, IdentityFrom, Purpose, TaskInfo
from autosched.network_status import NOT_MEASURED, NetworkMeasurements, NetworkStatus
from autosched.records.task_best import Measurement

NETWORK = Network(
    tasks=(TaskInfo(task=1, name="conv", workload="a", weight=3), TaskInfo(task=2, name="dense", workload="b"))
)


def found(
    task: int,
    trial: int,
    latency_s: float | None,
    purpose: Purpose = Purpose.TRIAL,
    *,
    candidate: str = "",
    failure: str | None = None,
    disturbed: bool = False,
    fastest_s: float | None = None,
) -> Found:
    """Returns a record of job 1; by default each trial has its own candidate."""
    digest = (candidate or str(trial)).encode()
    measured = Measurement(trial, digest, purpose, latency_s, fastest_s or latency_s, disturbed)
    return Found(1, task, measured, failure)


def planned() -> JobProgress:
    progress = JobProgress()
    progress.plan(NETWORK, 10, NOT_MEASURED)
    return progress


def test_the_estimate_needs_a_valid_record_of_each_task() -> None:
    progress = planned()
    assert progress.estimate_s is None
    progress.add(found(1, 0, 0.004))
    progress.add(found(2, 1, None))
    assert progress.estimate_s is None
    progress.add(found(2, 2, 0.010))
    progress.add(found(1, 3, 0.002))
    progress.add(found(1, 4, 0.003))
    assert progress.estimate_s == pytest.approx(3 * 0.002 + 0.010)
    assert progress.first_estimate_s == pytest.approx(3 * 0.004 + 0.010)


def test_an_identity_is_that_of_the_records_after_it() -> None:
    progress, first, second = planned(), Identity(compiler="a"), Identity(compiler="b")
    assert progress.identify(None) is None
    assert progress.identify(first) == IdentityFrom(0, first)
    assert progress.identify(second) == IdentityFrom(0, second), "nothing was measured under the first"
    progress.add(found(1, 0, 0.004))
    assert progress.identify(second) is None
    assert progress.identify(first) == IdentityFrom(1, first)
    assert progress.identities == [IdentityFrom(0, second), IdentityFrom(1, first)]


def test_a_task_without_a_record_counts_as_measured_in_a_build_without_a_search() -> None:
    progress = planned()
    measured = NetworkMeasurements(untuned_s={1: 0.006, 2: 0.010})
    progress.plan(NETWORK, 10, NetworkStatus(measured=measured))
    assert progress.estimate_s == pytest.approx(3 * 0.006 + 0.010)
    progress.add(found(1, 0, 0.004))
    assert progress.estimate_s == pytest.approx(3 * 0.004 + 0.010)
    assert progress.tasks[2].best_s is None
    progress.status = NetworkStatus(measured=replace(measured, result_s=0.02))
    assert progress.whole_s == 0.02, "what was measured at the end"


def test_only_the_best_of_competing_tasks_counts() -> None:
    progress = JobProgress()
    infos = [TaskInfo(task=n, name="conv", workload=str(n), weight=3, groups={"g": 3}) for n in (1, 2)]
    progress.plan(Network(tasks=tuple(infos)), 10, NOT_MEASURED)
    for task, trial, latency_s, estimate_s in ((1, 0, 0.004, 0.012), (2, 1, 0.006, 0.012), (2, 2, 0.001, 0.003)):
        progress.add(found(task, trial, latency_s))
        assert progress.estimate_s == pytest.approx(estimate_s)
    assert progress.first_estimate_s == pytest.approx(0.012)


def test_failures_are_counted_by_reason_and_by_task() -> None:
    progress = planned()
    for trial, failure in enumerate(["build error", "run crash", None, "build error"]):
        progress.add(found(1, trial, None if failure else 0.1, failure=failure))
    assert (progress.trials, progress.failed, dict(progress.failures)) == (4, 3, {"build error": 2, "run crash": 1})
    assert (progress.tasks[1].trials, progress.tasks[1].failed, progress.tasks[2].trials) == (4, 3, 0)
    assert progress.next_number == 4


def test_a_second_plan_of_the_same_network_keeps_the_counts() -> None:
    progress = planned()
    progress.add(found(1, 0, 0.004))
    progress.plan(NETWORK, 20, NOT_MEASURED)
    assert (progress.tasks[1].best_s, progress.trials_total) == (0.004, 20)


def test_a_network_without_tasks_has_no_estimate() -> None:
    progress = JobProgress()
    progress.plan(Network(tasks=()), 0, NOT_MEASURED)
    assert progress.estimate_s is None


def test_remaining_trials_are_expected_to_take_as_long_as_those_so_far() -> None:
    progress = planned()
    progress.began_at = 100.0
    for trial in range(5):
        assert trial >= 4 or progress.eta_s(110.0) is None
        progress.add(found(1, trial, 0.1))
        progress.recent.append(101.0 + trial)
    assert progress.eta_s(110.0) == pytest.approx(5 * 10.0 / 5)
    progress.trials = 10
    assert progress.eta_s(110.0) is None, "the time after the last trial is not known"


def test_the_rate_is_that_of_the_last_trials() -> None:
    progress = JobProgress(trials_total=2 * RECENT_TRIALS, began_at=0.0)
    for trial in range(RECENT_TRIALS + 10):
        progress.add(found(1, trial, 0.1))
        progress.recent.append(1_000.0 + trial)
    assert progress.eta_s(1_010.0 + RECENT_TRIALS) == pytest.approx(RECENT_TRIALS - 10)


def test_changes_wake_waiting_readers() -> None:
    async def work() -> None:
        progress = ProgressRegistry()
        version = progress.get(1).version
        waiting = asyncio.ensure_future(progress.wait(1, version, 20.0))
        await asyncio.sleep(0)
        progress.changed(2)
        await asyncio.sleep(0)
        assert not waiting.done()
        progress.changed(1)
        await waiting
        assert progress.get(1).version != version
        await progress.wait(1, version, 20.0)  # earlier news: no waiting

    asyncio.run(work())


def test_waiting_for_changes_has_a_time_limit() -> None:
    async def work() -> None:
        progress = ProgressRegistry()
        await progress.wait(1, progress.get(1).version, 0.01)

    asyncio.run(work())


def test_versions_do_not_repeat_after_a_restart() -> None:
    first, second = ProgressRegistry(), ProgressRegistry()
    for _ in range(3):
        first.changed(1)
    second.changed(1)
    assert first.get(1).version != second.get(1).version


def test_remeasurements_cost_no_trials_and_finals_alone_decide() -> None:
    progress = planned()
    progress.add(found(1, 0, 0.004, candidate="a", disturbed=True))
    progress.add(found(1, 1, 0.003, Purpose.AGAIN, candidate="a"))
    task = progress.tasks[1]
    assert (progress.trials, progress.records, task.trials, task.best_s) == (1, 2, 1, 0.003)
    assert progress.disturbed == {0}
    progress.add(found(1, 2, 0.0035, Purpose.FINAL, candidate="b"))
    assert task.best_s == 0.003, "not before the last of the finals, the default"
    progress.add(found(1, 3, 0.009, Purpose.DEFAULT))
    assert (task.best_s, task.default_s) == (0.0035, 0.009)
    for trial, purpose in ((4, Purpose.FINAL), (5, Purpose.DEFAULT)):  # held again
        progress.add(found(1, trial, 0.005, purpose))
    assert (task.best_s, task.default_s) == (0.005, 0.005)
    assert (progress.trials, progress.next_number) == (1, 6)


def test_a_disturbed_latency_is_replaced_by_a_remeasurement() -> None:
    progress = planned()
    progress.add(found(1, 0, 1.10, candidate="a", disturbed=True))
    progress.add(found(1, 1, 1.20, Purpose.AGAIN, candidate="a"))
    progress.add(found(2, 2, 1.0))
    assert progress.tasks[1].best_s == 1.20
    assert progress.estimate_s == pytest.approx(3 * 1.20 + 1.0)


def test_finals_that_all_fail_leave_no_best() -> None:
    progress = planned()
    progress.add(found(1, 0, 0.004, candidate="a"))
    for trial, purpose in ((1, Purpose.FINAL), (2, Purpose.DEFAULT)):
        progress.add(found(1, trial, None, purpose, candidate="a" if trial == 1 else ""))
    assert progress.tasks[1].best_s is None
    assert progress.failed == 0, "they were no trials"


def test_finals_that_turn_out_disturbed_are_decided_by_the_fastest_repeats() -> None:
    progress = planned()
    progress.add(found(1, 0, 0.004, Purpose.FINAL, fastest_s=0.001))
    progress.add(found(1, 1, 0.003, Purpose.DEFAULT, fastest_s=0.002))
    task = progress.tasks[1]
    assert (task.best_s, task.default_s) == (0.003, 0.003)
    progress.tag([0, 1])
    assert (task.best_s, task.default_s) == (0.001, 0.002)
    assert progress.disturbed == {0, 1}
