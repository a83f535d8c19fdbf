"""Remaining work: of jobs with known and unknown rounds, by several tasks, and by all of them together."""

from collections.abc import Sequence

import pytest

from autosched.core.events import ClientAttached, JobSubmitted, StepEnded
from autosched.core.policies import work_estimation
from autosched.core.policies.policy import PREDICTIVE
from autosched.core.remaining_work import STALE_MIN, RemainingWork
from autosched.core.scheduler import Scheduler
from autosched.core.state import Job
from autosched.model import Goal, JobLoad, JobSpec, Outcome, TaskLoad
from autosched.sim.random_testing import CHOICE
from autosched.sim.scenario import random_scenario
from autosched.sim.simulator import Simulator
from unit.core.scheduler_driver import DEVICE, HOST, ONE_CORE, ONE_EACH, Story, wants

TIMES = {"build": 2.0, "profile": 5.0, "update": 1.0}
PLACES = {"build": HOST, "profile": DEVICE, "update": HOST}


def story_of(loads: Sequence[TaskLoad] = (), rounds_left: float | None = None) -> tuple[Story, Job]:
    """Returns one job after one round with constant stage times, whose client then reports these loads."""
    story = Story(policy=PREDICTIVE)
    story.tell(JobSubmitted(1, JobSpec(name="x", model="0" * 64)))
    story.tell(ClientAttached(1, JobLoad(tasks=(wants(1),), rounds_left=rounds_left)))
    stages = list(TIMES)
    for stage, following in zip(stages, [*stages[1:], None], strict=True):
        step = story.state.last_step
        now = (wants(1, PLACES[following], following),) if following else tuple(loads)
        after = JobLoad(tasks=now, rounds_left=rounds_left)
        story.tell(StepEnded(step, Outcome.DONE, after), at=story.now + TIMES[stage])
    return story, story.state.jobs[1]


def test_remaining_work_is_that_of_future_and_running_rounds() -> None:
    story, job = story_of([wants(1, DEVICE, "profile")], rounds_left=3)
    assert job.remaining.left_s == pytest.approx(3 * 8.0 + 5.0 + 1.0)
    assert job.remaining.pools == pytest.approx({"host": 3 * 3.0 + 1.0, "device:cpu": 3 * 5.0 + 5.0})
    assert story.state.totals.bottleneck_s() == pytest.approx(20.0)


def test_remaining_work_includes_each_task() -> None:
    _, job = story_of([wants(1), wants(2, DEVICE, "profile"), wants(3, HOST, "update")], rounds_left=0)
    assert job.remaining.left_s == pytest.approx(8.0 + 6.0 + 1.0)


def test_a_client_without_a_number_of_rounds_is_taken_to_be_half_way_through() -> None:
    story, job = story_of([wants(1)], rounds_left=None)
    assert job.rounds_seen == 1
    assert job.remaining.left_s == pytest.approx(8.0 + 8.0)
    fresh = Job(id=9, spec=job.spec, submitted_at=story.now)
    assert work_estimation.rounds_left(fresh) > 0, "a job that has just come has something to do"


def test_stages_outside_of_rounds_count_too() -> None:
    _, job = story_of([wants(1, HOST, "compile")], rounds_left=0)
    assert job.remaining.left_s == pytest.approx(8.0 / 3), "nothing is known of it: it is taken for a mean stage"


def test_uncertain_estimates_have_high_quantiles() -> None:
    _, job = story_of([wants(1)], rounds_left=3)
    assert job.remaining.left_s < job.remaining.pessimistic_s < 2 * job.remaining.left_s


def test_an_unseen_stage_is_taken_to_use_the_pools_of_other_jobs() -> None:
    story, _ = story_of([wants(1)], rounds_left=3)
    story.tell(JobSubmitted(2, JobSpec(name="y", model="0" * 64)))
    story.tell(ClientAttached(2, JobLoad(tasks=(wants(1),), rounds_left=1)))
    job = story.state.jobs[2]
    assert set(job.remaining.pools) == {"host", "device:cpu"}
    assert job.remaining.left_s == pytest.approx(2 * 8.0)


def test_an_ended_job_has_no_remaining_work() -> None:
    story, job = story_of([wants(1)], rounds_left=3)
    story.cancel(1)
    assert job.remaining == RemainingWork()
    assert story.state.totals.pools == pytest.approx({"host": 0.0, "device:cpu": 0.0})
    assert story.state.totals.bottleneck_s() == pytest.approx(0.0)


@pytest.mark.parametrize(("pools", "bottleneck_s"), [(ONE_EACH, 7.0), (ONE_CORE, 7.0)], ids=["each", "core"])
def test_a_pool_is_as_busy_as_its_own_work_makes_it(pools: tuple, bottleneck_s: float) -> None:
    """Units in two pools count in both."""
    story = Story(pools, PREDICTIVE)
    oracle = {1: [("build", HOST, 3.0), ("profile", DEVICE, 7.0)]}
    story.state.oracle = lambda job, task: oracle[task]
    story.running(wants(1))
    assert story.state.totals.bottleneck_s() == bottleneck_s
    assert story.state.jobs[1].remaining.left_s == 10.0


def check_totals(scheduler: Scheduler) -> None:
    """Checks by brute force that the incremental sums are the jobs' remaining and current work."""
    state = scheduler.state
    sums = dict.fromkeys(state.totals.pools, 0.0)
    for job in state.jobs.values():
        at: dict[str, int] = {}
        for task in job.tasks.values():
            if task.stage:
                at[task.stage] = at.get(task.stage, 0) + 1
        assert {stage: number for stage, number in job.at.items() if number} == at
        assert job.id in state.active or not job.remaining.pools
        for pool, seconds in job.remaining.pools.items():
            sums[pool] += seconds
    assert state.totals.pools == pytest.approx(sums, abs=1e-6)
    per_unit = [s / len(state.queues[pool].pool.units) for pool, s in state.totals.pools.items()]
    assert state.totals.bottleneck_s() == max(per_unit, default=0.0), "to the last bit: decisions rest on it"
    assert len(state.totals.busy) <= 2 * len(state.queues) + STALE_MIN


@pytest.mark.parametrize("goal", Goal)
def test_totals_equal_the_remaining_work_of_all_jobs(goal: Goal) -> None:
    for seed in range(25):
        scenario = random_scenario(seed)
        Simulator(scenario, CHOICE["predictive"], check_totals, goal=goal, choice=CHOICE).run()


def test_names_of_stages_without_a_role_are_not_kept() -> None:
    """A foreign client may invent any number of them."""
    named = [f"mine {number}" for number in range(50)]
    loads = [TaskLoad(task=n, stage_next=name, resources_next=("host",)) for n, name in enumerate(named, 1)]
    story, job = story_of(loads)
    assert set(named) < job.places.keys(), "their pools are"
    assert list(story.state.stages) == ["build", "profile", "update"]
