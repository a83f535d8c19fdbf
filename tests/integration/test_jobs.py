"""Whole jobs through a real daemon and real clients, with the backend that needs no compiler."""

import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.model import Failure, Purpose, Record
from deadlines import DEADLINE_S
from integration.lab import BOARD, Lab, ended, lab


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, BOARD) as running:
        yield running


def measured(records: list[Record]) -> list[tuple[int, bytes, tuple[float, ...]]]:
    """Returns the records of a job without times: per task in order."""
    return sorted((r.task, r.candidate, r.latency_s) for r in records)


def check_trials(records: list[Record], budget: int) -> None:
    """Checks that records are numbered without gaps, and that the budget is spent to the last trial; finals are
    extra."""
    assert [r.number for r in records] == list(range(len(records)))
    assert sum(r.purpose is Purpose.TRIAL for r in records) == budget


def test_a_job_spends_its_budget_and_ends(there: Lab) -> None:
    job = there.submit(trials=50, tasks=4)
    view = there.wait(job)
    assert (view.state, view.trials, view.trials_total) == ("done", 50, 50)
    assert len(view.tasks) == 4
    check_trials(there.records(job), 50)
    assert view.estimate_s == pytest.approx(sum(t.weight * t.best_s for t in view.tasks if t.best_s is not None))


def test_several_jobs_run_at_once(there: Lab) -> None:
    jobs = [there.submit(trials=30, seed=seed, tasks=3) for seed in range(4)]
    assert [there.wait(job).state for job in jobs] == ["done"] * 4


def test_failed_candidates_are_records_with_reasons(there: Lab) -> None:
    job = there.submit(trials=60, tasks=2, fail_ratio=0.5)
    view = there.wait(job)
    failed = [r for r in there.records(job) if r.failure is not None]
    assert view.state == "done"
    assert 0 < len(failed) < 60
    assert view.failures == {"build error": len(failed)} == {Failure.BUILD_ERROR.value: view.failed}


def test_the_same_seed_finds_the_same_schedules(there: Lab) -> None:
    """Compares records of one task: the order of rounds between tasks depends on timing."""
    first, second, other = (there.submit(trials=24, tasks=1, seed=seed) for seed in (5, 5, 6))
    for job in (first, second, other):
        there.wait(job)
    assert measured(there.records(first)) == measured(there.records(second)) != measured(there.records(other))


def test_a_killed_client_is_replaced_and_nothing_measured_is_lost(there: Lab) -> None:
    job = there.submit(trials=80, tasks=2, build_s=0.05)
    there.wait(job, until="trials", trials=20)
    before = there.records(job)
    there.kill_client(job)
    view = there.wait(job)
    after = there.records(job)
    assert view.state == "done"
    assert after[: len(before)] == before
    check_trials(after, 80)
    tried = {r.candidate for r in after if r.purpose is Purpose.TRIAL}
    assert len(tried) == 80, "a candidate was selected twice"


@pytest.mark.parametrize("stage", ["import", "select", "build", "profile", "compile", "evaluate"])
def test_a_client_that_always_dies_fails_its_job_with_the_reason(there: Lab, stage: str) -> None:
    view = there.wait(there.submit(trials=8, tasks=1, crash_stage=stage))
    assert view.state == "failed"
    assert view.failure is not None
    assert "exit code 11" in view.failure.message


def test_a_rejected_model_fails_the_job_with_the_backends_words(there: Lab) -> None:
    view = there.wait(there.submit(trials=8, reject="operator LSTM is not supported"))
    assert view.state == "failed"
    assert view.failure is not None
    assert (view.failure.code, view.failure.message) == ("model_rejected", "operator LSTM is not supported")


def test_an_unknown_option_fails_the_job_and_names_the_known_ones(there: Lab) -> None:
    view = there.wait(there.submit(trials=8, colour="red"))
    assert view.failure is not None
    assert "no option 'colour'" in view.failure.message
    assert "build_s" in view.failure.message


@pytest.mark.parametrize("stage", ["import", "build", "profile", "evaluate"])
def test_a_job_is_cancelled_soon_in_each_of_its_stages(there: Lab, stage: str) -> None:
    job = there.submit(trials=8, tasks=1, hang_stage=stage)
    view = there.wait(job, until="trials", trials=0)
    while stage not in running_stages(there):
        assert not ended(there.wait(job, until="trials", trials=0))
    started = time.monotonic()
    there.cancel(job)
    view = there.wait(job)
    while there.clients(job):
        assert time.monotonic() - started < DEADLINE_S, "the client lives on"
    assert view.state == "cancelled"


def running_stages(there: Lab) -> set[str]:

    from autosched.api.connection import Daemon
    from autosched.protocol import ListDevices, UnitList

    async def ask(daemon: Daemon) -> set[str]:
        return {unit.stage for unit in (await daemon.link.call(ListDevices(), UnitList)).units if unit.stage}

    return there.ask(ask)


def test_a_step_past_its_deadline_is_killed_and_the_job_says_so(tmp_path: Path) -> None:
    with lab(tmp_path) as there:
        for step_timeout_s in (0.5, 5.0, 15.0):  # on a busy machine the first of these may be too short for any step
            view = there.wait(there.submit(trials=8, tasks=1, hang_stage="build", step_timeout_s=step_timeout_s))
            assert view.failure is not None
            if "build: build was killed" in view.failure.message:
                break
        assert "build: build was killed" in view.failure.message
        assert (view.state, view.trials, view.failed_steps) == ("failed", 0, 3)


def test_a_frozen_client_is_replaced(there: Lab) -> None:
    """SIGSTOP: the client is connected and silent. It counts as dead, and another client continues its job."""
    import os

    job = there.submit(trials=60, tasks=2, build_s=0.1)
    there.wait(job, until="trials", trials=8)
    (pid,) = there.clients(job)
    os.kill(pid, signal.SIGSTOP)
    assert there.wait(job).state == "done"
    check_trials(there.records(job), 60)


def test_clients_leave_nothing_in_the_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    with lab(tmp_path) as there:
        job = there.submit(trials=8, tasks=1, hang_stage="build")
        started = time.monotonic()
        while not list(scratch.glob("autosched-job-*")):
            assert time.monotonic() - started < DEADLINE_S, "its client never began"
        there.cancel(job)
        while list(scratch.iterdir()):
            assert time.monotonic() - started < DEADLINE_S, list(scratch.iterdir())


def test_an_ended_job_leaves_only_its_logs(there: Lab) -> None:
    job = there.submit(trials=4, tasks=1)
    assert there.wait(job).state == "done"
    folder, deadline = there.folder / "jobs" / str(job), time.monotonic() + DEADLINE_S
    while sorted(path.name for path in folder.iterdir()) != ["client.log"]:
        assert time.monotonic() < deadline, sorted(folder.rglob("*"))
        threading.Event().wait(0.02)
