"""Simulated instances: the placement of jobs, and the columns of a row."""

import pytest

from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.errors import NotFound, RequestError
from autosched.model import Goal
from autosched.sim.estimate_quality import PERFECT, parse
from autosched.sim.policy_benchmark import SimulationRun, attempt, run, simulate
from autosched.sim.workload_scenarios import instance_scenario
from autosched.workloads import generator
from autosched.workloads.instances import Instance, InstanceJob, standard


def tiny(**changes: object) -> Instance:
    """Two jobs on their own hosts, one device: 1 build, 2 profile, 3 update; the second arrives a second later."""
    jobs = tuple(InstanceJob(host=host, arrival_s=host, iterations=((1.0, 2.0, 3.0),)) for host in (0, 1))
    return Instance(**{"name": "tiny", "hosts": 2, "devices": 1, "jobs": jobs, **changes})  # type: ignore[arg-type]


def trial(instance: Instance, policy: str = "interleaved") -> SimulationRun:
    return SimulationRun(instance=instance, policy=policy, estimates=PERFECT)


def test_a_job_stays_on_its_host_and_devices_are_shared() -> None:
    report = simulate(instance_scenario(tiny()), "interleaved", Goal.BALANCED)
    on_host = {span.job: {s.units for s in report.spans if s.job == span.job} for span in report.spans}
    assert on_host == {1: {("host/0",), ("cpu0",)}, 2: {("host/1",), ("cpu0",)}}


def test_a_row_says_what_came_of_it() -> None:
    row = run(trial(tiny()))
    assert (row.makespan_s, row.mean_completion_s) == (8.0, 6.5)
    assert (row.bound_s, row.best_known_s, row.ratio) == (8.0, None, 1.0)
    assert (row.mean_slowdown, row.max_slowdown) == pytest.approx((6.5 / 6, 7 / 6))
    assert (row.hosts_busy, row.devices_busy) == pytest.approx((0.5, 0.5))
    assert (row.estimates, row.steps) == ("perfect", 6)


def test_the_best_known_makespan_is_the_anchor_and_the_bound_is_the_files() -> None:
    row = run(trial(tiny(best_known_s=4.0, lower_bound_s=3.0)))
    assert (row.ratio, row.bound_s, row.best_known_s) == (2.0, 3.0, 4.0)


def test_interleaved_reproduces_what_listing_2_comes_to_on_the_standard_instances() -> None:
    """An independent simulator with other tie-breaking: mean 1.102 and worst 1.26 over instances of up to 12 jobs."""
    ratios = [run(trial(one)).ratio for one in standard() if len(one.jobs) <= 12]
    assert len(ratios) == 23
    assert sum(ratios) / len(ratios) == pytest.approx(1.102, abs=0.008)
    assert max(ratios) == pytest.approx(1.26, abs=0.01)


@pytest.mark.parametrize("load", ["het:8-1-1:13", "heavy:12-1-1:33"])
def test_wrong_estimates_cost_no_makespan(load: str) -> None:
    """If they were dropped, as they once were, these loads would take 1.11 and 1.08 times as long."""
    one = generator.generate(generator.parse(load))
    mistaken = run(SimulationRun(instance=one, policy="predictive", estimates=parse("wrong:1.0")))
    assert mistaken.makespan_s <= 1.02 * run(trial(one)).makespan_s


def test_an_unforeseen_giant_costs_no_makespan() -> None:
    """With the longest job always first, this load, whose device one job fills, would take 1.10 times as long."""
    one = generator.generate(generator.parse("heavy:12-1-1:11"))
    learned = run(SimulationRun(instance=one, policy="predictive", goal=Goal.MAKESPAN))
    assert learned.makespan_s <= 1.02 * run(trial(one)).makespan_s


def test_hundreds_of_jobs_are_simulated_whole() -> None:
    load = generator.generate(generator.parse("hom:200-20-15"))
    row = run(trial(load))
    assert row.steps == 6_000
    assert 1.0 <= row.ratio < 1.2


def test_a_policy_that_gets_nowhere_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES, "never", Policy("never", INTERLEAVED.key, lambda _state, _task: False))
    outcome = attempt(trial(tiny(), "never"))
    assert isinstance(outcome, RequestError)
    assert f"under policy 'never' 2 of the 2 jobs of {tiny().name} never end" in str(outcome)


def test_synchronous_jobs_that_are_not_equal_come_to_an_end() -> None:
    late = InstanceJob(host=0, arrival_s=2.0, iterations=((1.0, 2.0, 3.0),))
    unequal = Instance(name="unequal", hosts=1, devices=1, jobs=(*tiny().jobs[:1], late))
    assert not isinstance(attempt(trial(unequal, "synchronous")), RequestError)


def test_policies_and_estimates_that_there_are_not_are_refused() -> None:
    with pytest.raises(NotFound, match="no policy is named 'fastest'; there are: "):
        run(trial(tiny(), "fastest"))
    for text in ("", "exact", "wrong", "wrong:", "wrong:-1", "wrong:nan", "wrong:1e9", "wrong:99"):
        with pytest.raises(RequestError, match="is no kind of estimates"):
            parse(text)
