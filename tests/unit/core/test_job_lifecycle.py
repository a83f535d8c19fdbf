"""Jobs and clients from submission to end, with deaths of either in between."""

from collections.abc import Callable

import pytest

from autosched.core.events import (
    ClientAttached,
    DeadlineReached,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    StepEnded,
)
from autosched.core.explain import explain_job
from autosched.core.scheduler import CLIENT_LOSSES_MAX, TURN_S, Scheduler
from autosched.core.state import JobEnd
from autosched.model import JobFailure, JobLoad, JobSpec, JobState, Outcome, TaskLoad
from unit.core.scheduler_driver import (
    BOTH,
    DEVICE,
    HOST,
    ONE_EACH,
    EndJob,
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

# Ends ---------------------------------------------------------------------------------------------------------------


def test_a_job_is_done_when_its_client_says_so() -> None:
    story = Story()
    job = story.running(wants(1))
    actions = story.end(1, complete(1), job_complete=True, at=7.0)
    assert [type(action) for action in actions] == [EndJob, StopClient]
    assert story.state.jobs[job].end == JobEnd(JobState.DONE, None, 7.0)
    assert not story.state.active


def test_a_job_fails_when_its_client_says_so() -> None:
    story = Story()
    job = story.running(wants(1))
    failure = JobFailure("model_rejected", "operator LSTM is not supported")
    actions = story.end(1, failure=failure)
    assert of(EndJob, actions) == [EndJob(job, JobState.FAILED, failure)]


def test_a_client_may_have_nothing_to_do_from_the_start() -> None:
    story = Story()
    job = story.submit()
    actions = story.tell(ClientAttached(job, JobLoad(complete=True)))
    assert of(EndJob, actions) == [EndJob(job, JobState.DONE)]


def starting(story: Story) -> int:
    return story.submit()


def overdue(story: Story) -> int:
    job = story.submit()
    story.wait()
    return job


def idling(story: Story) -> int:
    return story.running(idle(1))


def waiting(story: Story) -> int:
    story.running(wants(1, BOTH))
    return story.running(wants(1), wants(2, DEVICE))


def running(story: Story) -> int:
    return story.running(wants(1), wants(2, DEVICE), wants(3))


def revoked(story: Story) -> int:
    job = story.running(wants(1))
    story.wait()
    return job


def replaced(story: Story) -> int:
    job = story.running(wants(1))
    story.lose(job)
    return job


UNFINISHED: list[Callable[[Story], int]] = [starting, overdue, idling, waiting, running, revoked, replaced]


def done(story: Story) -> int:
    job = story.running(wants(1))
    story.end(story.state.last_step, job_complete=True)
    return job


def failed(story: Story) -> int:
    return story.running(wants(1, ("nowhere",)))


def cancelled(story: Story) -> int:
    job = story.running(wants(1))
    story.cancel(job)
    return job


ENDED: list[Callable[[Story], int]] = [done, failed, cancelled]


@pytest.mark.parametrize("until", UNFINISHED)
def test_a_job_can_be_cancelled_at_any_time(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    actions = story.cancel(job)
    assert of(EndJob, actions) == [EndJob(job, JobState.CANCELLED, JobFailure("job_cancelled", "cancelled by ada"))]
    assert [action.job for action in of(StopClient, actions)] == [job]
    assert all(step.job != job for step in steps(actions))
    held = list(story.state.jobs[job].steps)
    assert all(story.state.slots[unit].holder == step for step in held for unit in story.state.steps[step].units)
    story.lose(job, at=story.now + 1)
    assert not story.state.jobs[job].steps
    assert story.state.jobs[job].state is JobState.CANCELLED


@pytest.mark.parametrize("until", ENDED)
def test_cancelling_an_ended_job_changes_nothing(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    before = story.state.jobs[job].state
    assert story.cancel(job) == []
    assert story.state.jobs[job].state is before


@pytest.mark.parametrize("until", ENDED)
def test_a_client_that_attaches_to_an_ended_job_is_stopped(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    actions = story.tell(ClientAttached(job, JobLoad(tasks=(wants(1),))))
    assert [type(action) for action in actions] == [StopClient]


@pytest.mark.parametrize("until", ENDED)
def test_a_client_of_an_ended_job_is_not_replaced(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    assert not of(StartClient, story.lose(job))
    assert not of(EndJob, story.lose(job))


@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_report_for_an_ended_job_frees_its_units_and_starts_nothing(outcome: Outcome) -> None:
    story = Story()
    job = story.running(wants(1))
    other = story.running(wants(1))
    story.cancel(job)
    actions = story.end(1, wants(1), wants(2, DEVICE), outcome=outcome)
    assert [step.job for step in steps(actions)] == [other]


# Clients ------------------------------------------------------------------------------------------------------------


def test_a_submitted_job_gets_a_client() -> None:
    story = Story()
    story.submit()
    story.submit()
    assert of(StartClient, story.said) == [StartClient(1), StartClient(2)]


@pytest.mark.parametrize("until", UNFINISHED)
def test_a_lost_client_is_replaced_and_its_units_are_free(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    actions = story.lose(job)
    assert of(StartClient, actions) == [StartClient(job)]
    it = story.state.jobs[job]
    assert (it.state, it.connected, it.waiting, dict(it.steps), dict(it.tasks)) == (
        JobState.STARTING, False, 0, {}, {},
    )  # fmt: skip
    assert all(holder is None or story.state.steps[holder].job != job for holder in story.holders().values())


def test_the_new_client_continues_the_job() -> None:
    story = Story()
    job = story.running(wants(1), wants(2, DEVICE))
    story.lose(job, at=1.0)
    started = story.attach(job, wants(1), wants(2, DEVICE), at=2.0)
    assert [(step.id, step.task) for step in started] == [(3, 1), (4, 2)]


@pytest.mark.parametrize("progressed", [False, True])
def test_a_job_survives_a_limited_number_of_losses_without_progress(progressed: bool) -> None:
    story = Story()
    job = story.submit()
    for loss in range(1, CLIENT_LOSSES_MAX + 1):
        story.attach(job, wants(1))
        story.end(story.state.last_step, wants(1))
        story.lose(job, progressed=progressed)
        ended = not progressed and loss == CLIENT_LOSSES_MAX
        assert story.state.jobs[job].state is (JobState.FAILED if ended else JobState.STARTING)
    if not progressed:
        failure = story.state.jobs[job].failure
        assert failure is not None
        assert "killed by signal 9" in failure.message


def test_progress_resets_the_number_of_losses() -> None:
    story = Story()
    job = story.submit()
    for progressed in (False, False, True, False):
        assert story.state.jobs[job].state is JobState.STARTING
        story.lose(job, progressed=progressed)
    assert story.state.jobs[job].losses == 2


def test_failed_steps_are_remembered_with_the_last_reason() -> None:
    story = Story()
    job = story.running(wants(1))
    story.end(1, wants(1), outcome=Outcome.FAILED)
    story.end(2, wants(1))
    assert story.state.jobs[job].failed_steps == 1
    assert story.state.jobs[job].last_error.startswith("build: ")
    assert "1 step failed as a whole, the last one: build: " in explain_job(story.state, job)[-1]


def test_steps_without_a_record_are_no_progress() -> None:
    """Each new client imports the model again: if that counted, a job whose clients always die would never end."""
    story = Story()
    job = story.submit()
    for _ in range(CLIENT_LOSSES_MAX):
        story.attach(job, wants(1))
        story.end(story.state.last_step, wants(1))
        story.lose(job)
    assert story.state.jobs[job].state is JobState.FAILED


def test_a_client_that_does_not_connect_is_stopped_and_tried_again() -> None:
    story = Story(attach_timeout_s=10.0)
    job = story.submit()
    assert story.wake_at == 10.0
    assert [type(action) for action in story.wait()] == [StopClient]
    assert story.wake_at is None
    assert of(StartClient, story.lose(job, at=11.0)) == [StartClient(job)]
    assert story.wake_at == 21.0


def test_waiting_for_its_start_does_not_count_against_a_client() -> None:
    story = Story(attach_timeout_s=10.0)
    first, second, other, third = story.submit(), story.submit(), story.submit(external=True), story.submit()
    due = [story.state.jobs[job].speak_by for job in (first, second, other, third)]
    assert due == [10.0, 10.0 + TURN_S, 10.0, 10.0 + 2 * TURN_S]
    story.attach(first, at=1.0)
    story.tell(JobCancelRequested(second, "me"), 2.0)
    assert story.state.jobs[story.submit()].speak_by == 12.0 + TURN_S, "only the third is before it"


def test_a_client_that_connects_at_its_deadline_is_welcome() -> None:
    story = Story(attach_timeout_s=10.0)
    job = story.submit()
    actions = story.tell(ClientAttached(job, JobLoad(tasks=(wants(1),))), 10.0)
    assert [step.job for step in steps(actions)] == [job]
    assert not of(StopClient, actions)


def test_the_daemon_starts_no_external_client() -> None:
    story = Story(attach_timeout_s=10.0)
    job = story.submit(external=True)
    assert not of(StartClient, story.said)
    assert len(story.attach(job, wants(1), at=5.0)) == 1
    actions = story.lose(job, at=6.0)
    assert of(EndJob, actions)[0].state is JobState.FAILED
    assert not of(StartClient, actions)


def test_an_external_client_has_a_deadline() -> None:
    story = Story(attach_timeout_s=10.0)
    job = story.submit(external=True)
    assert of(StopClient, story.wait())[0].job == job
    assert of(EndJob, story.lose(job))[0].state is JobState.FAILED


# A new life of the daemon -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("until", UNFINISHED)
def test_a_restart_gives_every_unfinished_job_a_client(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    actions = story.tell(ResourcesDeclared(ONE_EACH, 600.0, 60.0))
    assert job in [action.job for action in of(StartClient, actions)]
    assert story.holders() == {"host/0": None, "cpu0": None}
    assert not any(queue.waiting for queue in story.state.queues.values())
    assert len(story.attach(job, wants(1), at=story.now + 1)) == 1


@pytest.mark.parametrize("until", ENDED)
def test_a_restart_leaves_ended_jobs_alone(until: Callable[[Story], int]) -> None:
    story = Story()
    job = until(story)
    state = story.state.jobs[job].state
    actions = story.tell(ResourcesDeclared(ONE_EACH, 600.0, 60.0))
    assert not actions
    assert story.state.jobs[job].state is state


def test_a_restart_may_bring_other_resources() -> None:
    story = Story((pool("host", "old0"), pool("device:cpu", "old1")))
    job = story.running(wants(1), wants(2, DEVICE))
    story.tell(ResourcesDeclared((pool("host", "a", "b"),), 10.0, 20.0), 5.0)
    assert story.holders() == {"a": None, "b": None}
    started = story.attach(job, wants(1), wants(2), at=6.0)
    assert [(step.units, step.deadline_at) for step in started] == [(("a",), 16.0), (("b",), 16.0)]


def test_a_restart_can_name_the_policy() -> None:
    story = Story()
    story.tell(ResourcesDeclared(ONE_EACH, 600.0, 60.0, "sequential"))
    assert story.core.policy.name == "sequential"


# What a client says while it waits ----------------------------------------------------------------------------------


def test_a_repeated_request_keeps_its_place_in_the_queue() -> None:
    story = Story((pool("host", "a"),))
    story.running(wants(1), wants(2))
    story.running(wants(1), at=1.0)
    story.end(1, wants(2), wants(1), at=2.0)
    assert story.starts() == [(1, 1), (1, 2)]
    story.end(2, at=3.0)
    assert story.starts()[2:] == [(2, 1)]


CONTRADICTIONS = [
    TaskLoad(task=2, complete=True, resources_next=HOST, stage_next="build"),
    TaskLoad(task=2, stage_done=False, resources_next=HOST, stage_next="build"),
]


@pytest.mark.parametrize("now_says", CONTRADICTIONS)
def test_complete_tasks_and_running_ones_are_not_queued(now_says: TaskLoad) -> None:
    story = Story()
    story.running(wants(1), wants(2))
    story.end(1, now_says)
    assert story.starts() == [(1, 1)]
    assert not story.state.queues["host"].waiting
    story.running(now_says)
    assert story.starts() == [(1, 1)]


@pytest.mark.parametrize("now_says", [idle(2), complete(2), wants(2, DEVICE), wants(2, stage="update")])
def test_a_changed_request_is_queued_again(now_says: object) -> None:
    story = Story((pool("host", "a"), pool("device:cpu", "b")))
    story.running(wants(1), wants(2))
    story.running(wants(1), at=1.0)
    story.end(1, now_says, at=2.0)
    assert (2, 1) in story.starts()
    assert (1, 2) not in story.starts() or story.state.jobs[1].tasks[2].load == wants(2, DEVICE)


# The shell's part ---------------------------------------------------------------------------------------------------


def test_time_does_not_go_back() -> None:
    story = Story()
    story.tell(DeadlineReached(), 5.0)
    with pytest.raises(AssertionError, match="time went back"):
        story.core.handle(4.0, DeadlineReached())


def test_job_ids_are_counted() -> None:
    with pytest.raises(AssertionError, match="job 3 does not follow 0"):
        Scheduler().handle(0.0, JobSubmitted(3, JobSpec(name="x", model="0" * 64)))


def test_the_end_of_a_step_without_a_load_frees_the_lane() -> None:
    story = Story()
    story.running(wants(1))
    story.tell(StepEnded(1, Outcome.LOST), 1.0)
    assert story.holders() == {"host/0": None, "cpu0": None}


def test_a_client_may_name_no_task() -> None:
    story = Story()
    job = story.running()
    assert story.state.jobs[job].state is JobState.RUNNING
    assert HOST[0] in story.state.queues
