"""Steps and clients that exceed their time, and late answers."""

import pytest

from autosched.core.events import (
    DeadlineReached,
    JobSubmitted,
    ResourcesDeclared,
    StepEnded,
)
from autosched.core.scheduler import REVOKE_GRACE_S
from autosched.model import JobLoad, JobSpec, Outcome, TaskLoad
from unit.core.scheduler_driver import (
    DEVICE,
    ONE_EACH,
    RevokeStep,
    StartClient,
    StopClient,
    Story,
    complete,
    idle,
    of,
    pool,
    steps,
    wants,
)

# Deadlines ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_s", [None, 5.0])
def test_an_overdue_step_is_revoked_and_keeps_its_units(timeout_s: float | None) -> None:
    story = Story(step_timeout_s=30.0)
    job = story.running(wants(1, timeout_s=timeout_s))
    story.running(wants(1))
    assert story.wake_at == (timeout_s or 30.0)
    actions = story.wait()
    assert [(action.step, action.job) for action in of(RevokeStep, actions)] == [(1, job)]
    assert not steps(actions)
    assert story.holders()["host/0"] == 1
    assert 1 in story.state.revoked


@pytest.mark.parametrize(("worked_s", "learned_s"), [(None, 40.0), (2.0, 2.0), (90.0, 40.0)])
def test_a_late_report_of_an_end_does_not_lengthen_the_step(worked_s: float | None, learned_s: float) -> None:
    """Its client was cut off when it ended, or the daemon was away."""
    story = Story()
    job = story.running(wants(1))
    story.tell(StepEnded(1, Outcome.DONE, JobLoad(tasks=(wants(1),)), worked_s=worked_s), 40.0)
    assert story.state.estimates.of_job(job, "build") == (learned_s, 1.0)


@pytest.mark.parametrize("how", ["answer", "loss"])
def test_a_revoked_step_frees_its_units_only_when_it_has_ended(how: str) -> None:
    story = Story(step_timeout_s=30.0)
    job = story.running(wants(1))
    other = story.running(wants(1))
    story.wait()
    actions = story.end(1, wants(1), outcome=Outcome.FAILED) if how == "answer" else story.lose(job)
    assert [step.job for step in steps(actions)] == [other]
    assert not story.state.revoked


def test_a_client_that_does_not_kill_its_step_is_killed() -> None:
    story = Story(step_timeout_s=30.0)
    job = story.running(wants(1))
    story.wait()
    assert story.wake_at == 30.0 + REVOKE_GRACE_S
    actions = story.wait()
    assert [action.job for action in of(StopClient, actions)] == [job]
    assert story.holders()["host/0"] == 1
    assert story.wake_at is None


def test_a_step_that_ended_has_no_deadline() -> None:
    story = Story(step_timeout_s=30.0)
    story.running(wants(1))
    story.end(1, job_complete=True, at=29.0)
    assert story.wake_at is None
    assert story.tell(DeadlineReached(), 100.0) == []


def test_a_step_that_ends_at_its_deadline_is_not_revoked() -> None:
    story = Story(step_timeout_s=30.0)
    story.running(wants(1))
    assert story.end(1, idle(1), at=30.0) == []


def test_deadlines_are_ordered() -> None:
    story = Story((pool("host", "a", "b", "c"),))
    story.running(wants(1, timeout_s=30.0), wants(2, timeout_s=10.0), wants(3, timeout_s=20.0))
    overdue = [of(RevokeStep, story.wait())[0].step for _ in range(2)]
    assert overdue == [2, 3]
    assert story.now == 20.0


def test_any_event_revokes_overdue_steps() -> None:
    story = Story(step_timeout_s=30.0)
    story.running(wants(1))
    job = story.state.last_job + 1
    actions = story.tell(JobSubmitted(job, JobSpec(name="late", model="0" * 64)), 31.0)
    assert [action.step for action in of(RevokeStep, actions)] == [1]


@pytest.mark.parametrize("load", [[], [idle(1)], [complete(1)]])
def test_a_client_that_reports_no_work_is_replaced(load: list[TaskLoad]) -> None:
    """A client reports when a step ends, and none runs: without a replacement, the job would be silent for ever."""
    story = Story(attach_timeout_s=20.0)
    job = story.running(wants(1), wants(2, DEVICE))
    story.end(1, *load, at=5.0)
    assert story.wake_at == 600.0, "task 2 runs: there will be news"
    story.end(2, idle(2), at=6.0)
    assert story.wake_at == 26.0
    assert [(action.job, action.reason) for action in of(StopClient, story.wait())] == [
        (job, "its client named nothing to run")
    ]
    assert of(StartClient, story.lose(job)) == [StartClient(job)]


def test_a_client_without_a_running_step_must_report_too() -> None:
    story = Story(attach_timeout_s=20.0)
    story.running(wants(1))
    story.tell(StepEnded(1, Outcome.FAILED, None, "killed"), 5.0)
    assert story.wake_at == 25.0


def test_a_report_in_time_is_enough() -> None:
    story = Story(attach_timeout_s=20.0)
    job = story.running(idle(1), at=15.0)
    assert story.wake_at == 35.0
    story.attach(job, wants(1), at=19.0)
    assert story.wake_at == 619.0


# Late and double answers --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [1, 2, 99])
def test_an_end_of_an_unknown_step_changes_nothing(step: int) -> None:
    story = Story()
    job = story.running(wants(1))
    story.end(1, wants(1), at=1.0)  # step 2 starts
    story.lose(job, at=2.0)
    story.attach(job, wants(1), at=3.0)  # step 3 starts
    losses = story.state.jobs[job].losses
    assert story.end(step, wants(1), wants(2, DEVICE), job_complete=True, at=4.0) == []
    assert story.holders() == {"host/0": 3, "cpu0": None}
    assert story.state.jobs[job].losses == losses


def test_step_ids_are_never_used_again() -> None:
    story = Story()
    job = story.running(wants(1))
    for _ in range(5):
        story.end(story.state.last_step, wants(1))
    story.lose(job)
    story.attach(job, wants(1))
    story.tell(ResourcesDeclared(ONE_EACH, 600.0, 60.0))
    story.attach(job, wants(1))
    ids = [step.id for step in steps(story.said)]
    assert ids == sorted(set(ids)) == list(range(1, 9))
