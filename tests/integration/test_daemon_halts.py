"""Held and raised jobs, and a paused lab: over real sockets, and across a restart."""

from pathlib import Path

import pytest

from autosched.core.events import Paused
from autosched.daemon.operations.graceful_shutdown import WHY
from autosched.errors import Refused
from autosched.protocol import (
    Done,
    ExplainJob,
    Explanation,
    HoldJob,
    Pause,
    PreviousSettings,
    ReleaseJob,
    Resume,
    SetJob,
)
from integration.served import BUILD, attached, run, serving, until, user


def test_a_held_job_starts_nothing_until_it_is_released(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            step = await puppet.steps.get()
            await daemon.link.call(HoldJob(job=job, reason="the demo"), Done)
            await puppet.end(step, BUILD)
            view = await until(daemon, job, lambda view: view.doing == "held")
            assert view.reason.startswith("held: the demo (uid ")
            assert view.eta_s is None
            other, second = await attached(daemon, tmp_path)
            running = await second.steps.get()
            assert running.job == other
            with pytest.raises(Refused, match=r"job 2 is not held.*autosched explain 2"):
                await daemon.link.call(ReleaseJob(job=other), Done)
            await second.end(running)
            await daemon.link.call(ReleaseJob(job=job), Done)
            assert (await puppet.steps.get()).job == job
            daemon.close()

    run(work)


def test_changed_settings_are_reported_with_the_previous_ones(tmp_path: Path) -> None:
    async def work() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, _ = await attached(daemon, tmp_path)
            before = await daemon.link.call(SetJob(job=job, priority=5, deadline_s=3600.0), PreviousSettings)
            assert (before.priority, before.deadline_at) == (0, None)
            view = await daemon.job(job)
            assert view.priority == 5
            assert view.deadline_at == pytest.approx(view.now + 3600, abs=20)
            before = await daemon.link.call(SetJob(job=job, deadline_s=0.0), PreviousSettings)
            assert before.priority == 5
            assert (await daemon.job(job)).deadline_at is None
            await daemon.cancel(job)
            with pytest.raises(Refused, match="job 1 has ended already: cancelled"):
                await daemon.link.call(SetJob(job=job, priority=1), PreviousSettings)
            daemon.close()

    run(work)


def test_a_pause_survives_a_restart(tmp_path: Path) -> None:
    async def before() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            await daemon.link.call(Pause(reason="the room is hot"), Done)
            assert (await daemon.info()).paused.startswith("the room is hot (uid ")
            daemon.close()

    async def after() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            job, puppet = await attached(daemon, tmp_path)
            view = await until(daemon, job, lambda view: view.doing == "paused")
            assert view.reason.startswith("all jobs wait: the room is hot")
            why = await daemon.link.call(ExplainJob(job=job), Explanation)
            assert why.lines[0].startswith("no steps start, all jobs wait: the room is hot")
            assert puppet.steps.empty()
            await daemon.link.call(Resume(), Done)
            assert (await puppet.steps.get()).job == job
            with pytest.raises(Refused, match="nothing is paused"):
                await daemon.link.call(Resume(), Done)
            daemon.close()

    run(before)
    run(after)


@pytest.mark.parametrize(
    "event", [Paused("uid 1", WHY, until_restart=True), Paused("uid 1", WHY)], ids=("now", "of old")
)
def test_a_pause_that_waits_for_a_stop_ends_with_the_next_daemon(event: Paused, tmp_path: Path) -> None:
    """An earlier event has no field for it, only the text."""

    async def before() -> None:
        async with serving(tmp_path) as served:
            await served._services.runtime.post(lambda: event)
            daemon = await user(tmp_path)
            assert (await daemon.info()).paused == WHY
            daemon.close()

    async def after() -> None:
        async with serving(tmp_path):
            daemon = await user(tmp_path)
            assert (await daemon.info()).paused == ""
            daemon.close()

    run(before)
    run(after)


def test_a_pause_before_a_stop_ends_with_the_next_daemon_however_it_was_requested(tmp_path: Path) -> None:
    async def before() -> None:
        async with serving(tmp_path) as served:
            await served._services.runtime.post(lambda: Paused("uid 1", "any words", until_restart=True))

    async def after() -> None:
        async with serving(tmp_path) as served:
            assert served._services.runtime.state.paused == ""

    run(before)
    run(after)
