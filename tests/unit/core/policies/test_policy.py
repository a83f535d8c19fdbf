"""The order of tasks under each policy."""

import pytest

from autosched.core.explain import explain_job
from autosched.core.policies.policy import INTERLEAVED, POLICIES, PREDICTIVE, SEQUENTIAL, STAGEWISE, SYNCHRONOUS, Policy
from unit.core.scheduler_driver import DEVICE, HOST, Story, complete, pool, steps, wants

ONE_LANE = (pool("host", "host/0"),)


def test_policies_are_registered_under_their_names() -> None:
    assert {name: policy.name for name, policy in POLICIES.items()} == {name: name for name in POLICIES}
    assert list(POLICIES) == ["predictive", "interleaved", "sequential", "stagewise", "synchronous"]


@pytest.mark.parametrize(
    ("policy", "order"),
    [(INTERLEAVED, [(1, 2), (1, 3), (2, 1), (2, 2)]), (PREDICTIVE, [(1, 3), (2, 2), (1, 2), (2, 1)])],
    ids=lambda value: getattr(value, "name", ""),
)
def test_builds_go_first_where_the_policy_says_so(policy: Policy, order: list[tuple[int, int]]) -> None:
    story = Story(ONE_LANE, policy)
    story.running(wants(1, stage="import"))
    busy = story.state.last_step
    story.attach(1, wants(2, stage="update"), wants(3, stage="build"), at=1.0)
    story.running(wants(1, stage="update"), wants(2, stage="build"), at=2.0)
    for _ in range(4):
        story.end(busy, at=story.now + 1)
        busy = story.state.last_step
    assert story.starts()[-4:] == order


@pytest.mark.parametrize("policy", [INTERLEAVED, PREDICTIVE], ids=lambda policy: policy.name)
def test_no_unit_is_idle_while_a_task_waits_for_it(policy: Policy) -> None:
    story = Story(policy=policy)
    story.running(wants(1, HOST))
    story.running(wants(1, DEVICE))
    assert len(story.state.steps) == 2


def test_sequential_gives_all_units_to_one_job() -> None:
    story = Story(policy=SEQUENTIAL)
    first, second, third = story.submit(), story.submit(), story.submit()
    story.attach(third, wants(1, DEVICE))
    story.attach(second, wants(1), wants(2, DEVICE))
    assert story.starts() == []
    story.attach(first, wants(1), wants(2))
    assert story.starts() == [(first, 1)]
    story.end(1, complete(1))
    story.end(2, complete(2), job_complete=True)
    assert story.starts()[2:] == [(second, 1), (second, 2)]
    story.cancel(second)
    story.lose(second)
    assert story.starts()[4:] == [(third, 1)]


def test_stagewise_runs_one_step_at_a_time() -> None:
    story = Story(policy=STAGEWISE)
    first, second = story.submit(), story.submit()
    story.attach(second, wants(1, DEVICE, "profile"))
    assert story.starts() == []
    story.attach(first, wants(1, stage="select"), wants(2, stage="select"))
    assert story.starts() == [(first, 1)]
    (build,) = steps(story.end(1, wants(1, stage="build"), at=1.0))
    (profile,) = steps(story.end(build.id, wants(1, DEVICE, "profile"), at=2.0))
    assert (build.task, profile.task) == (1, 1), "its round is finished before task 2 begins one"
    (update,) = steps(story.end(profile.id, wants(1, stage="update"), at=3.0))
    (other,) = steps(story.end(update.id, wants(1, stage="select"), at=4.0))
    assert (update.task, other.task) == (1, 2)
    story.end(other.id, wants(2, stage="build"), at=5.0)
    assert len(story.state.steps) == 1


def test_stagewise_explains_why_a_task_waits() -> None:
    story = Story(policy=STAGEWISE)
    job = story.running(wants(1, stage="select"), wants(2, DEVICE, "profile"))
    told = "\n".join(explain_job(story.state, job, "stagewise"))
    assert "the policy stagewise holds it back while another step runs: one stage after the other" in told


def test_sequential_waits_for_a_client_that_starts() -> None:
    story = Story(policy=SEQUENTIAL)
    first = story.running(wants(1))
    second = story.running(wants(1, DEVICE))
    story.lose(first)
    assert story.starts() == [(first, 1)]
    story.cancel(first)
    assert story.starts() == [(first, 1), (second, 1)]


def test_synchronous_jobs_run_the_same_stage_at_once_on_one_unit() -> None:
    story = Story((pool("host", "a", "b"), pool("device:cpu", "c")), SYNCHRONOUS)
    jobs = [story.submit() for _ in range(3)]
    for at, job in enumerate(jobs[:2], start=1):
        assert story.attach(job, wants(1), at=float(at)) == []
    started = story.attach(jobs[2], wants(1), at=3.0)
    assert [(step.job, step.units) for step in started] == [(job, ("a",)) for job in jobs]
    assert steps(story.end(1, wants(1, DEVICE, "profile"), at=4.0)) == []
    assert steps(story.end(2, wants(1, DEVICE, "profile"), at=5.0)) == []
    assert [step.units for step in steps(story.end(3, wants(1, DEVICE, "profile"), at=6.0))] == [("c",)] * 3


def test_synchronous_jobs_in_different_stages_meet_again() -> None:
    story = Story(policy=SYNCHRONOUS)
    slow, fast = story.submit(), story.submit()
    story.attach(fast, wants(1, DEVICE, "profile"), at=1.0)
    (step,) = story.attach(slow, wants(1), at=2.0)
    assert step.job == slow, "it lags behind, and would never be where the other one waits"
    assert len(steps(story.end(step.id, wants(1, DEVICE, "profile"), at=3.0))) == 2


def test_the_longest_waiting_task_does_not_block_the_common_stage() -> None:
    story = Story(policy=SYNCHRONOUS)
    ahead, *others = (story.submit() for _ in range(3))
    story.attach(ahead, wants(1, stage="update"), at=1.0)
    story.attach(others[0], wants(1), at=2.0)
    assert [step.job for step in story.attach(others[1], wants(1), at=3.0)] == others
