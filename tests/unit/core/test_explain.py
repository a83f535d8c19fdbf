"""Explanations of waiting: for what, held by whom, since when and until when."""

import copy

import pytest

from autosched.core.explain import TASKS_NAMED, explain_job, why_step, why_task
from autosched.core.policies.policy import SEQUENTIAL
from autosched.model import JobFailure, TaskLoad
from unit.core.scheduler_driver import BOTH, DEVICE, HOST, Story, complete, idle, pool, wants


def told(story: Story, job: int, now: float | None = None) -> str:
    return "\n".join(explain_job(story.state, job, story.core.policy.name, now))


def test_a_starting_job_is_explained() -> None:
    story = Story(attach_timeout_s=60.0)
    job = story.submit()
    assert told(story, job, 20.0) == "job 1: its client is being started; it must connect within 40s"


def test_an_external_job_is_explained() -> None:
    story = Story(attach_timeout_s=60.0)
    assert "which its user starts; it must connect within 1m00s" in told(story, story.submit(external=True))


def test_a_late_client_is_explained() -> None:
    story = Story()
    job = story.submit()
    story.wait()
    assert told(story, job) == "job 1: its client did not connect in time and is being stopped"


def test_earlier_clients_are_counted() -> None:
    story = Story()
    job = story.running(wants(1))
    story.lose(job)
    assert told(story, job).endswith("(1 client of it died before)")


def test_a_running_step_is_explained_with_units_and_duration() -> None:
    story = Story(step_timeout_s=100.0)
    job = story.running(TaskLoad(task=3, resources_next=BOTH, stage_next="evaluate", expected_s=30.0))
    assert told(story, job, 10.0) == (
        "task 3 runs on host/0, cpu0: evaluate for 10s, likely done in 20s, killed in 1m30s at the latest"
    )
    assert told(story, job, 40.0) == "task 3 runs on host/0, cpu0: evaluate for 40s, killed in 1m00s at the latest"


def test_a_revoked_step_is_explained() -> None:
    story = Story(step_timeout_s=100.0)
    job = story.running(wants(1))
    story.wait()
    assert "told to stop (deadline passed after 100 s), not known to be dead" in told(story, job)


def test_a_waiting_task_names_the_holder_and_the_place_in_the_queue() -> None:
    story = Story(step_timeout_s=100.0)
    story.running(TaskLoad(task=4, resources_next=HOST, stage_next="update", expected_s=8.0), wants(5))
    job = story.running(wants(1), wants(2), at=1.0)
    assert told(story, job, 3.0).splitlines() == [
        "tasks 1, 2 have waited 2s for one of host, to build",
        "  host: 1 task before task 1, the first is task 5 of job 1; its unit is busy",
        "    host/0 held by job 1, task 4: update for 3s, likely done in 5s, killed in 1m37s at the latest",
    ]


def test_the_first_in_the_queue_is_explained() -> None:
    story = Story((pool("host", "a", "b"),))
    story.running(wants(1), wants(2))
    job = story.running(wants(7))
    lines = told(story, job).splitlines()
    assert lines[1] == "  host: task 7 is first in the queue; all 2 units are busy"
    assert [line.split()[0] for line in lines[2:]] == ["a", "b"]


def test_a_task_that_waits_for_one_of_two_pools_is_explained() -> None:
    story = Story()
    story.running(wants(1))
    job = story.running(wants(1, BOTH))
    text = told(story, job)
    assert "for one of host and one of device:cpu" in text
    assert "device:cpu: task 1 is first in the queue; free: cpu0" in text
    assert "host: task 1 is first in the queue; its unit is busy" in text


def test_a_task_behind_one_that_waits_for_two_pools_is_explained() -> None:
    story = Story()
    story.running(wants(1))
    story.running(wants(1, BOTH), at=1.0)
    job = story.running(wants(1, DEVICE), at=2.0)
    assert "1 task before task 1, the first is task 1 of job 2; free: cpu0" in told(story, job)


def test_a_policy_that_holds_back_is_named() -> None:
    story = Story(policy=SEQUENTIAL)
    story.submit()
    job = story.running(wants(1))
    assert "the policy sequential holds it back for other jobs" in told(story, job)


def test_many_tasks_are_counted() -> None:
    story = Story()
    job = story.running(*(wants(task) for task in range(1, TASKS_NAMED + 5)))
    assert "tasks 2, 3, 4, 5, 6, 7, 8, 9 and 3 more have waited 0s" in told(story, job)


def test_a_task_that_needs_two_of_a_pool_is_named_once() -> None:
    story = Story((pool("host", "a", "b"),))
    story.running(wants(1))
    job = story.running(wants(1, ("host", "host")))
    assert told(story, job).count("task 1 has waited 0s for one of host and one of host") == 1


def test_a_task_without_work_is_explained() -> None:
    story = Story(attach_timeout_s=60.0)
    nothing = "its client names nothing to run now; without a word it is stopped in 1m00s"
    assert told(story, story.running()) == f"job 1: {nothing}"
    assert told(story, story.running(idle(1), complete(2))) == f"job 2: {nothing}; 1 of 2 tasks complete"
    story.wait()
    assert told(story, 1) == "job 1: its client named nothing to run and is being stopped"


@pytest.mark.parametrize("failure", [None, JobFailure("model_rejected", "operator LSTM is not supported")])
def test_the_end_of_a_job_is_explained(failure: JobFailure | None) -> None:
    story = Story()
    job = story.running(wants(1))
    story.end(1, job_complete=failure is None, failure=failure, at=5.0)
    reason = "job 1 ended 7s ago, done" if failure is None else f"job 1 ended 7s ago, failed: {failure.message}"
    assert told(story, job, 12.0) == reason


def test_units_that_an_ended_job_holds_are_explained() -> None:
    story = Story()
    job = story.running(wants(1))
    other = story.running(wants(1))
    story.cancel(job)
    assert told(story, job).splitlines() == [
        "job 1 ended 0s ago, cancelled: cancelled by ada",
        "task 1 still holds host/0: its build is not known to be dead",
    ]
    assert "held by job 1, task 1: build for 0s, told to stop (job 1 is cancelled)" in told(story, other)


def test_an_unknown_job_is_explained() -> None:
    with pytest.raises(KeyError):
        explain_job(Story().state, 1)


def test_explanations_have_data_behind_their_sentences() -> None:
    story = Story(step_timeout_s=100.0)
    first = story.running(wants(1), wants(2), complete(3), idle(4))
    second = story.running(wants(1), at=1.0)
    assert [why_task(story.state, first, task) is not None for task in range(1, 5)] == [False, True, False, False]
    why = why_task(story.state, second, 1, now=5.0)
    assert why is not None
    assert (why.waited_s, why.pools[0].ahead, why.pools[0].first) == (4.0, 1, (first, 2))
    assert [(h.step, h.held_s, h.left_s) for h in why.pools[0].holders] == [(1, 5.0, 95.0)]


def test_a_step_that_is_being_stopped_has_its_data() -> None:
    story = Story(step_timeout_s=100.0)
    job = story.running(wants(1))
    story.wait()
    assert why_task(story.state, job, 1) is None
    why = why_step(story.state, 1, now=130.0)
    assert why is not None
    assert (why.stopping, why.left_s) == ("deadline passed after 100 s", -30.0)


def test_what_is_not_there() -> None:
    story = Story()
    job = story.running(wants(1))
    assert why_step(story.state, 99) is None
    assert why_task(story.state, job, 99) is None
    assert why_task(story.state, 99, 1) is None


def test_explaining_changes_nothing() -> None:
    story = Story()
    for _ in range(3):
        story.running(wants(1), wants(2, DEVICE), wants(3, BOTH))
    before = copy.deepcopy(story.state)
    for job in (1, 2, 3):
        told(story, job)
    assert story.state == before
