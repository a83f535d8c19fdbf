"""Virtual time: shares of units, the cost of a crash, and the end of a simulation."""

from dataclasses import replace

import pytest

from autosched.core.policies.policy import SYNCHRONOUS
from autosched.core.scheduler import CLIENT_LOSSES_MAX
from autosched.model import JobState, Pool, Unit
from autosched.sim import simulator as world_module
from autosched.sim.scenario import DEVICE, HOST, Faults, Scenario, ScenarioJob, Work, lower_bound_s, pools
from autosched.sim.simulator import Simulator

BUILD, PROFILE = Work("build", (HOST,), 8.0), Work("profile", (DEVICE,), 40.0)


def scenario(*jobs: ScenarioJob, faults: Faults = Faults(), lanes: int = 1, **settings: float) -> Scenario:  # noqa: B008
    return Scenario(pools=pools(lanes, 1), jobs=jobs, faults=faults, **settings)


def plan(*steps: Work, **settings: float) -> ScenarioJob:
    return ScenarioJob(tasks=((steps,),), **settings)


def test_one_job_takes_as_long_as_its_steps() -> None:
    report = Simulator(scenario(plan(BUILD, PROFILE), client_start_s=2.0)).run()
    assert report.makespan_s == 50.0
    assert report.completion_s == {1: 50.0}
    assert report.busy == {"host/0": pytest.approx(0.16), "cpu0": pytest.approx(0.8)}
    assert [(span.stage, span.started_at, span.ended_at) for span in report.spans] == [
        ("build", 2.0, 10.0),
        ("profile", 10.0, 50.0),
    ]


def test_spans_say_since_when_a_step_waited() -> None:
    report = Simulator(scenario(plan(BUILD), plan(BUILD))).run()
    assert [(span.queued_at, span.started_at) for span in report.spans] == [(0.0, 0.0), (0.0, 8.0)]


def test_jobs_arrive_when_they_arrive_and_are_numbered_so() -> None:
    report = Simulator(scenario(plan(PROFILE, arrives_at=5.0), plan(BUILD))).run()
    assert {span.job: span.stage for span in report.spans} == {1: "build", 2: "profile"}
    assert report.completion_s == {1: 8.0, 2: 40.0}
    assert report.mean_completion_s == 24.0


@pytest.mark.parametrize("jobs", [1, 2, 5])
def test_steps_that_share_a_unit_share_its_speed(jobs: int) -> None:
    report = Simulator(scenario(*[plan(BUILD)] * jobs), SYNCHRONOUS).run()
    assert [span.ended_at for span in report.spans] == [8.0 * jobs] * jobs


def test_who_remains_on_a_unit_goes_on_faster() -> None:
    long = Work("build", (HOST,), 20.0)
    report = Simulator(scenario(plan(BUILD), plan(long)), SYNCHRONOUS).run()
    assert [span.ended_at for span in report.spans] == [16.0, 28.0]


def test_the_network_comes_first_and_last() -> None:
    load = ScenarioJob(
        tasks=(((BUILD, PROFILE),) * 2, ((BUILD,),)),
        before=(Work("import", (HOST,), 1.0),),
        after=(Work("compile", (HOST,), 2.0), Work("evaluate", (DEVICE,), 3.0)),
    )
    report = Simulator(scenario(load, lanes=2)).run()
    stages = [span.stage for span in report.spans]
    assert (stages[0], stages[-2:]) == ("import", ["compile", "evaluate"])
    assert sorted(stages[1:-2]) == ["build"] * 3 + ["profile"] * 2
    assert [span.task for span in report.spans if span.stage in ("import", "compile", "evaluate")] == [0, 0, 0]


def test_a_new_client_resumes_after_the_last_finished_round() -> None:
    rounds = ScenarioJob(tasks=(((BUILD, PROFILE),) * 3,))
    report = Simulator(scenario(rounds, faults=Faults(client_dies=0.3), seed=1)).run()
    assert "lost" in {span.outcome for span in report.spans}
    assert report.states == {1: JobState.DONE}
    assert sum(span.stage == "profile" and span.outcome == "done" for span in report.spans) == 3
    assert sum(span.stage == "build" and span.outcome == "done" for span in report.spans) >= 3


def test_clients_that_always_die_take_their_job_with_them() -> None:
    world = Simulator(scenario(plan(BUILD), faults=Faults(client_dies=1.0)))
    assert world.run().states == {1: JobState.FAILED}
    assert len(world.spans) == CLIENT_LOSSES_MAX


def test_clients_that_never_attach_take_their_job_with_them() -> None:
    report = Simulator(scenario(plan(BUILD), faults=Faults(client_never_attaches=1.0), attach_timeout_s=5.0)).run()
    assert report.states == {1: JobState.FAILED}
    assert report.makespan_s == 5.0 * CLIENT_LOSSES_MAX


def test_a_hanging_step_is_killed_at_its_deadline() -> None:
    faults = Faults(step_hangs=1.0, until_s=1.0)
    report = Simulator(scenario(plan(BUILD, PROFILE), faults=faults, step_timeout_s=100.0, client_stop_s=1.0)).run()
    assert [(span.outcome, span.ended_at) for span in report.spans] == [("failed", 101.0)]
    assert report.states == {1: JobState.DONE}, "its round is given up, and there is no other"


def test_a_restart_loses_what_was_running_and_nothing_else() -> None:
    faults = Faults(restarts=(20.0,))
    report = Simulator(scenario(plan(BUILD, PROFILE), faults=faults)).run()
    assert [(span.stage, span.outcome) for span in report.spans] == [
        ("build", "done"), ("profile", "lost"), ("build", "done"), ("profile", "done"),
    ]  # fmt: skip
    assert report.makespan_s == 20.0 + 48.0


def test_a_cancelled_job_ends() -> None:
    report = Simulator(scenario(plan(PROFILE, cancelled_at=3.0), plan(PROFILE))).run()
    assert report.states == {1: JobState.CANCELLED, 2: JobState.DONE}
    assert report.makespan_s == 43.0


def test_equal_seeds_give_equal_worlds() -> None:
    faults = Faults(step_fails=0.3, client_dies=0.1)
    jobs = [ScenarioJob(tasks=(((BUILD, PROFILE),) * 5,))] * 3
    first, second, other = (Simulator(scenario(*jobs, faults=faults, seed=seed)) for seed in (1, 1, 2))
    report = first.run()
    assert second.run() == report
    assert second.history == first.history
    assert other.run() != report


def test_a_simulation_that_does_not_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(world_module, "events_max", lambda scenario: 5)
    with pytest.raises(AssertionError, match="no end after 5 events"):
        Simulator(scenario(*[plan(BUILD)] * 3)).run()


def test_the_world_itself_notices_a_unit_that_is_used_twice() -> None:
    liar = replace(SYNCHRONOUS, name="liar")
    world = Simulator(scenario(plan(BUILD), plan(BUILD)), liar)
    world._configured = replace(
        liar, shares_units=False
    )  # the scheduler leases twice, and the world does not expect it
    with pytest.raises(AssertionError, match=r"host/0 runs steps \[1\] and now 2"):
        world.run()


def test_the_lower_bound_is_the_fullest_pool_or_the_longest_job() -> None:
    assert lower_bound_s(scenario(plan(BUILD, PROFILE), plan(BUILD, PROFILE))) == 80.0
    assert lower_bound_s(scenario(plan(BUILD, PROFILE))) == 48.0
    together = Work("check", (HOST, DEVICE), 30.0)
    assert lower_bound_s(scenario(plan(BUILD, together), plan(BUILD, together), plan(BUILD, together))) == 114.0
    assert lower_bound_s(scenario(ScenarioJob(tasks=(), before=(BUILD,), after=(PROFILE,)))) == 48.0


def test_a_plan_without_work_ends_at_once() -> None:
    empty = Scenario(pools=(Pool(HOST, (Unit("a"),)),), jobs=(ScenarioJob(tasks=()),))
    report = Simulator(empty).run()
    assert (report.states, report.makespan_s, report.busy) == ({1: JobState.DONE}, 0.0, {"a": 0.0})
