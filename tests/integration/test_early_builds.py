"""Modules that are published while the search continues, through a real daemon and real clients."""

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from autosched.api import result_folder
from autosched.api.connection import Daemon
from autosched.backend import Evaluation, version
from autosched.errors import RequestError
from autosched.model import Identity
from autosched.network_status import GoalReached
from autosched.protocol import JobView
from autosched_runtime.cpu_model import cpu_model
from deadlines import DEADLINE_S
from integration.lab import BOARD, Lab, ended, lab

SEARCH = {"trials": 4000, "tasks": 2, "build_s": 0.01}
"""Fields of a job with many more trials than the first module needs."""


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, BOARD) as running:
        yield running


def until(there: Lab, job: int, fact: Callable[[JobView], bool]) -> JobView:
    async def ask(daemon: Daemon) -> JobView:
        async with asyncio.timeout(DEADLINE_S):
            async for view in daemon.follow(job):
                if fact(view):
                    return view
            raise AssertionError(f"the job ended first: {view}")

    return there.ask(ask)


def fetched(there: Lab, view: JobView, folder: Path) -> result_folder.Result:
    async def ask(daemon: Daemon) -> result_folder.Result:
        return await result_folder.fetch(daemon, view, folder)

    return there.ask(ask)


def kept(view: JobView) -> bool:
    return view.comparison is not None and view.comparison.module_s is not None


def test_a_faster_module_can_be_fetched_while_the_search_goes_on_and_outlives_its_client(
    there: Lab, tmp_path: Path
) -> None:
    job = there.submit(**SEARCH, rival_s=3e-3, rest_s=1e-4)
    view = until(there, job, kept)
    assert not ended(view)
    result = fetched(there, view, tmp_path / "out")
    assert (tmp_path / "out" / "net.json").is_file()
    assert isinstance(result.report.evaluation, Evaluation)
    assert result.report.evaluation.published == "tuned"
    there.kill_client(job)
    after = until(there, job, lambda later: later.trials > view.trials)
    assert after.comparison is not None and view.comparison is not None
    assert after.comparison.baseline == view.comparison.baseline
    assert after.comparison.faster_after_s == view.comparison.faster_after_s
    assert fetched(there, after, tmp_path / "again").report.evaluation is not None
    there.cancel(job)


def test_until_faster_ends_the_job_soon_after(there: Lab) -> None:
    job = there.submit(**SEARCH, rival_s=3e-3, rest_s=1e-4, until_faster=True)
    view = there.wait(job)
    assert view.state == "done"
    assert kept(view)
    assert view.trials < 1000


def test_a_job_ends_when_its_goal_is_met(there: Lab, tmp_path: Path) -> None:
    job = there.submit(**SEARCH, rival_s=1e-5, rest_s=1e-4, improve_by=0.3)
    view = there.wait(job)
    assert (view.state, view.goal and view.goal.reached) == ("done", GoalReached.MET)
    assert view.goal is not None
    assert view.goal.ended == "a build met the goal"
    assert view.goal.high_s <= view.goal.goal_s == pytest.approx(0.7 * view.builds[0].latency_s)
    assert 0 < view.trials < 4000


def test_the_module_of_known_schedules_can_be_fetched_before_the_search(there: Lab, tmp_path: Path) -> None:
    """It is slower than the engine that its user would run otherwise, and far from the goal."""
    job = there.submit(**SEARCH, rival_s=1e-5, rest_s=1e-4, latency_goal_s=5e-5)
    view = until(there, job, kept)
    assert view.comparison is not None and view.comparison.faster_after_s is None
    result = fetched(there, view, tmp_path / "out")
    assert result.report.job.goal is not None
    assert result.report.job.goal.reached is GoalReached.MISSED
    there.cancel(job)


def test_a_search_for_a_goal_ends_at_its_deadline(there: Lab) -> None:
    view = there.wait(there.submit(**SEARCH, rival_s=1e-5, latency_goal_s=5e-5, deadline_s=3.0))
    assert view.goal is not None
    assert (view.goal.reached, view.goal.ended) == (GoalReached.MISSED, "the deadline is near")
    assert view.trials < 4000


def test_an_ended_job_shows_what_was_measured_at_its_end(there: Lab) -> None:
    """The view shows the measured latency, not an estimate: the mock backend measures no unexplained rest at the
    end."""
    view = there.wait(there.submit(trials=64, tasks=2, build_s=0.01, rival_s=3e-3, rest_s=2e-3))
    assert view.comparison is not None
    assert view.result_s is not None and view.whole_s == view.result_s
    assert view.builds[-1].latency_s == view.result_s
    assert [build.latency_s == view.result_s for build in view.builds].count(True) == 1
    assert view.builds[-1].rest_s == 0.0


def test_without_a_faster_module_there_is_nothing_to_fetch(there: Lab, tmp_path: Path) -> None:
    job = there.submit(**SEARCH, rival_s=1e-5)
    view = until(there, job, lambda seen: seen.comparison is not None and seen.trials > 0)
    with pytest.raises(RequestError, match=f"no module to fetch: none of its builds .* autosched compile {job}"):
        fetched(there, view, tmp_path)
    there.cancel(job)


@pytest.mark.parametrize("stage", ["baseline"])
def test_a_baseline_that_hangs_is_killed_and_the_job_continues(there: Lab, stage: str) -> None:
    job = there.submit(trials=8, tasks=1, rival_s=3e-3, hang_stage=stage, step_timeout_s=1.0)
    view = there.wait(job)
    assert (view.state, view.trials, view.comparison) == ("done", 8, None)


def test_the_identity_of_measurements_survives_the_client_and_the_daemon(there: Lab) -> None:
    import signal

    job = there.submit(**SEARCH)
    view = until(there, job, lambda seen: seen.trials > 0)
    (known,) = view.identities
    assert known.number == 0
    assert known.identity == Identity("auto", cpu_model(), "", f"mock {version('mock')}", "mock 1")
    there.kill_client(job)
    until(there, job, lambda seen: seen.trials > view.trials)
    there.end(signal.SIGKILL)
    there.start(BOARD)
    after = until(there, job, lambda seen: seen.trials > view.trials)
    assert after.identities == view.identities, "the next client measures under the same circumstances"
    there.cancel(job)


def test_comparisons_survive_a_restart_of_the_daemon(there: Lab) -> None:
    import signal

    job = there.submit(**SEARCH, rival_s=3e-3, rest_s=1e-4)
    before = until(there, job, kept).comparison
    there.end(signal.SIGKILL)
    there.start(BOARD)
    after = until(there, job, kept).comparison
    assert after is not None and before is not None
    assert after.baseline == before.baseline
    assert msgspec.msgpack.encode(after.faster_after_s) == msgspec.msgpack.encode(before.faster_after_s)
    there.cancel(job)
