"""Properties of `predictive` under all its rules: no task starves, deadlines have an effect, steps end in time."""

import pytest

from autosched.core.estimates import STEP_TIMEOUT_LEAST_S, STEP_TIMEOUT_MOST_S
from autosched.core.events import ClientAttached, HistoryRecalled, JobSubmitted, RuleChosen, StepEnded
from autosched.core.policies.lookahead import Forecast
from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE, Policy
from autosched.core.policies.predictive import JOBS_MAX, JOBS_MAX_SURE, PATIENCE, plan
from autosched.model import Goal, JobLoad, JobSpec, JobState, Outcome, StageHistory, Step
from autosched.sim.random_testing import CHOICE
from autosched.sim.scenario import DEVICE, HOST, Scenario, ScenarioJob, Work, pools
from autosched.sim.simulator import Simulator
from unit.core.scheduler_driver import Story, complete, pool, wants

ROUND = (Work("build", (HOST,), 4.0), Work("profile", (DEVICE,), 3.0), Work("update", (HOST,), 2.0))
ROUND_S = 9.0


def stream(important: int, rounds: int) -> Scenario:
    """Returns one job of low priority, and one of high priority every 15 s, which keep the host completely busy."""
    low = ScenarioJob(tasks=((ROUND,) * rounds,), arrives_at=1.0, priority=-100, name="low")
    high = (ScenarioJob(tasks=((ROUND,) * 3,), arrives_at=15.0 * n, priority=100) for n in range(important))
    return Scenario(pools=pools(1, 1), jobs=(low, *high))


@pytest.mark.parametrize("goal", Goal)
def test_a_job_of_low_priority_is_not_starved(goal: Goal) -> None:
    rounds = 2
    world = Simulator(stream(important=70, rounds=rounds), CHOICE["predictive"], goal=goal)
    report = world.run()
    (low,) = (job for job, plan in world.plans.items() if plan.name == "low")
    assert report.states[low] is JobState.DONE
    waits = [span.started_at - span.queued_at for span in report.spans if span.job == low]
    assert max(waits) < PATIENCE * rounds * ROUND_S + 2 * ROUND_S
    assert world.ended[low][0] < max(world.arrived_at.values()), "and they still come"


def test_jobs_of_high_priority_lose_little_to_low_ones() -> None:
    """Guards the test above, which would also pass if priorities had no effect."""
    load = stream(important=12, rounds=4)

    def high_s(policy: Policy) -> float:
        world = Simulator(load, policy)
        world.run()
        return sum(world.ended[job][0] - at for job, at in world.arrived_at.items() if world.plans[job].priority > 0)

    assert high_s(CHOICE["predictive"]) < high_s(INTERLEAVED)


# Step deadlines from quantiles ----------------------------------------------------------------------------------------


def after(story: Story, steps: int, seconds: float) -> float:
    """Returns the time limit of the step after a number of equally long steps."""
    for _ in range(steps):
        story.end(story.state.last_step, wants(1), at=story.now + seconds)
    step = story.state.steps[story.state.last_step]
    return step.deadline_at - step.started_at


@pytest.mark.parametrize(
    ("seconds", "timeout_s"),
    [
        (1.0, STEP_TIMEOUT_LEAST_S),  # with a minimum, since a machine may be busy
        (30.0, 150.0),
        (500.0, 2_500.0),  # even above the configured limit: such steps are known to end
        (50_000.0, STEP_TIMEOUT_MOST_S),
    ],
)
def test_a_step_is_overdue_when_it_takes_much_longer_than_nearly_all_before(seconds: float, timeout_s: float) -> None:
    story = Story((pool(HOST, "a"),), PREDICTIVE, step_timeout_s=600.0)
    story.running(wants(1))
    assert after(story, 3, seconds) == 600.0, "too few were seen"
    assert after(story, 60, seconds) == pytest.approx(timeout_s, rel=0.1)


def test_the_clients_time_limit_counts_until_such_steps_have_ended() -> None:
    story = Story((pool(HOST, "a"),), PREDICTIVE)
    story.running(wants(1, timeout_s=70.0))
    step = story.state.steps[story.state.last_step]
    assert step.deadline_at - step.started_at == 70.0
    after(story, 60, 50.0)
    story.end(story.state.last_step, wants(1, timeout_s=70.0), at=story.now + 50.0)
    step = story.state.steps[story.state.last_step]
    assert step.deadline_at - step.started_at == pytest.approx(250.0, rel=0.1)


def test_imports_of_small_networks_do_not_limit_those_of_large_ones() -> None:
    """The time of an earlier import by the same client or job is known; that of another network, from which a job
    learns, is not used."""
    story = Story((pool(HOST, "a"),), PREDICTIVE)

    def given_s(learn_from: tuple[int, ...] = (), *, known: bool = False) -> float:
        job = story.state.last_job + 1
        story.tell(JobSubmitted(job, JobSpec(name="x", model="0" * 64, learn_from=learn_from)))
        if known:
            story.tell(HistoryRecalled(job, (StageHistory(0, "import", 3.0, 9),)))
        (step,) = story.attach(job, wants(0, stage="import", timeout_s=1_800.0))
        return step.deadline_at - step.started_at

    for _ in range(60):
        assert given_s() == 1_800.0
        story.end(story.state.last_step, job_complete=True, at=story.now + 3.0)
    assert given_s(known=True) == STEP_TIMEOUT_LEAST_S
    story.end(story.state.last_step, job_complete=True, at=story.now + 3.0)
    assert given_s((1,), known=True) == 1_800.0


@pytest.mark.parametrize(("asked_s", "early_s", "late_s"), [(10.0, 10.0, 250.0), (1_000.0, 1_000.0, 1_000.0)])
def test_no_step_is_killed_before_its_user_wants_it_or_while_others_took_as_long(
    asked_s: float, early_s: float, late_s: float
) -> None:
    story = Story((pool(HOST, "a"),), PREDICTIVE)
    story.tell(JobSubmitted(1, JobSpec(name="x", model="0" * 64, step_timeout_s=asked_s)))
    story.attach(1, wants(1))
    step = story.state.steps[story.state.last_step]
    assert step.deadline_at - step.started_at == early_s
    assert after(story, 60, 50.0) == pytest.approx(late_s, rel=0.1)


def test_a_replay_keeps_the_deadlines_of_steps() -> None:
    story = Story((pool(HOST, "a"),), PREDICTIVE)
    story.tell(JobSubmitted(1, JobSpec(name="x", model="0" * 64)))
    step = Step(id=1, job=1, task=1, stage="build", units=("a",), started_at=3.0, deadline_at=45.0)
    decision = story.core.handle(3.0, ClientAttached(1, JobLoad(tasks=(wants(1),))), (step,))
    assert story.state.steps[1] == step
    assert decision.wake_at == 45.0


# Deadlines ------------------------------------------------------------------------------------------------------------


def urgent(deadline_s: float | None) -> Story:
    """Job 1 has one more long build and job 2 a short one; which is first when the lane is free at 10 s?"""
    story = Story((pool(HOST, "a"),), PREDICTIVE)
    story.state.goal = Goal.LATENCY
    story.tell(JobSubmitted(1, JobSpec(name="x", model="0" * 64, deadline_s=deadline_s)))
    story.tell(JobSubmitted(2, JobSpec(name="y", model="0" * 64)))
    story.tell(HistoryRecalled(1, (StageHistory(1, "build", 30.0, 5),)))
    story.tell(HistoryRecalled(2, (StageHistory(1, "build", 2.0, 5), StageHistory(2, "build", 2.0, 5))))
    story.tell(ClientAttached(2, JobLoad(tasks=(wants(1),), rounds_left=0)))
    story.tell(ClientAttached(1, JobLoad(tasks=(wants(1),), rounds_left=0)), at=1.0)
    story.tell(ClientAttached(2, JobLoad(tasks=(wants(2),), rounds_left=0)), at=2.0)
    story.tell(StepEnded(1, Outcome.DONE, JobLoad(tasks=(complete(1),), rounds_left=0)), at=10.0)
    return story


@pytest.mark.parametrize(("deadline_s", "first"), [(None, 2), (10_000.0, 2), (45.0, 1), (5.0, 1)])
def test_a_job_is_hurried_when_its_deadline_is_near_or_past(deadline_s: float | None, first: int) -> None:
    assert urgent(deadline_s).starts()[1][0] == first


def test_looking_ahead_never_moves_a_job_before_one_of_higher_priority() -> None:
    story = Story((pool(HOST, "a"),), PREDICTIVE)
    story.running(wants(1))
    story.tell(JobSubmitted(2, JobSpec(name="x", model="0" * 64, priority=1)))
    story.attach(1, wants(2))
    story.attach(2, wants(1, stage="update"))
    story.tell(RuleChosen("order jobs-first 1 2"))
    story.end(1, complete(1), at=5.0)
    assert story.starts()[1:] == [(2, 1)]


@pytest.mark.parametrize("sure", [False, True])
@pytest.mark.parametrize("jobs", [JOBS_MAX, JOBS_MAX + 1, JOBS_MAX_SURE, JOBS_MAX_SURE + 1])
def test_for_more_jobs_it_looks_ahead_only_where_the_estimates_are_hardly_in_doubt(jobs: int, sure: bool) -> None:
    story = Story(policy=PREDICTIVE)
    if sure:
        story.state.oracle = lambda job, task: [("build", (HOST,), 4.0)]
    for job in range(1, jobs + 1):
        story.tell(JobSubmitted(job, JobSpec(name="x", model="0" * 64)))
        story.tell(ClientAttached(job, JobLoad(tasks=(wants(1),), rounds_left=10)))
    search = plan(story.state)
    assert search is not None
    assert (len(search.rules) > 1) == (jobs <= (JOBS_MAX_SURE if sure else JOBS_MAX))


@pytest.mark.parametrize("goal", Goal)
def test_once_estimates_have_proved_wrong_balanced_looks_for_a_short_makespan_first(goal: Goal) -> None:
    story = Story(policy=PREDICTIVE)
    story.state.goal = goal
    for job in (1, 2):
        story.tell(JobSubmitted(job, JobSpec(name="x", model="0" * 64)))
    before = plan(story.state)
    story.state.estimates.doubted = True
    after = plan(story.state)
    assert before is not None
    assert after is not None
    assert (after == before) == (goal is not Goal.BALANCED)
    now, slower_but_fair = Forecast(100.0, 100.0), Forecast(110.0, 60.0)
    if goal is Goal.BALANCED:
        assert after.score(slower_but_fair, now) > after.score(now, now)
