"""A recorded run is simulated again, with more of everything."""

from pathlib import Path

import pytest

from autosched.core.policies.policy import INTERLEAVED, SEQUENTIAL, Policy
from autosched.errors import NotFound, RequestError
from autosched.model import Goal
from autosched.sim.scenario import DEVICE, HOST, Faults, Scenario, ScenarioJob, Work, pools
from autosched.sim.simulator import Simulator
from autosched.sim.what_if import Plan, plan
from autosched.sim.workload_scenarios import Change
from autosched.workloads.recordings import Recording, read
from recordings import record

BUILD, PROFILE, UPDATE = Work("build", (HOST,), 8.0), Work("profile", (DEVICE,), 40.0), Work("update", (HOST,), 4.0)
JOB = ScenarioJob(
    tasks=(((BUILD, PROFILE, UPDATE),) * 3, ((BUILD, PROFILE, UPDATE),) * 2),
    before=(Work("import", (HOST,), 5.0),),
    after=(Work("compile", (HOST,), 6.0), Work("evaluate", (DEVICE,), 3.0)),
    name="net",
)


def recording(path: Path, *jobs: ScenarioJob, policy: Policy = INTERLEAVED, faults: Faults = Faults()) -> Recording:  # noqa: B008
    world = Simulator(Scenario(pools=pools(1, 1), jobs=jobs, client_start_s=2.0, faults=faults), policy)
    world.run()
    record(world, path / "db")
    return read(path / "db")


def late(at: float) -> ScenarioJob:
    return ScenarioJob(tasks=JOB.tasks, before=JOB.before, after=JOB.after, arrives_at=at, name="late")


def answer(known: Recording, **changes: object) -> Plan:
    return plan(known, [job.job for job in known.jobs], Change(**changes))  # type: ignore[arg-type]


def test_the_past_is_simulated_as_it_was(tmp_path: Path) -> None:
    said = answer(recording(tmp_path, JOB, late(100.0)))
    assert said.simulated == said.recorded == said.planned
    assert said.recorded.makespan_s > 400
    assert said.recorded.units == {"host": 1, "device:cpu": 1}
    assert [(job.job, job.name, job.copy, job.arrived_s) for job in said.jobs] == [
        (1, "net", 0, 0),
        (2, "late", 0, 100),
    ]
    assert all(job.recorded_s == job.simulated_s == job.planned_s for job in said.jobs)
    assert said.notes == ()


def test_a_device_more_is_of_use_where_the_device_was_busy(tmp_path: Path) -> None:
    known = recording(tmp_path, JOB, JOB)
    said = answer(known, devices={"device:cpu": 2})
    assert said.planned.units == {"host": 1, "device:cpu": 2}
    assert said.planned.makespan_s < 0.7 * said.simulated.makespan_s
    assert said.planned.busy["device:cpu"] < said.simulated.busy["device:cpu"]
    work_s = 2 * (5 * 40.0 + 3.0)
    assert said.planned.busy["device:cpu"] * 2 * said.planned.makespan_s == pytest.approx(work_s)
    assert answer(known, lanes=2).planned.makespan_s > 0.9 * said.simulated.makespan_s


def test_a_host_more_takes_half_of_the_jobs(tmp_path: Path) -> None:
    slow = Work("build", (HOST,), 50.0)
    job = ScenarioJob(tasks=(((slow, Work("profile", (DEVICE,), 5.0)),) * 3,))
    said = answer(recording(tmp_path, job, job, job, job), hosts=2)
    assert said.planned.units == {"host": 1, "host/1": 1, "device:cpu": 1}
    assert said.planned.busy["host"] == pytest.approx(said.planned.busy["host/1"], rel=0.05)
    assert said.planned.makespan_s == pytest.approx(said.simulated.makespan_s / 2, rel=0.1)


def test_jobs_may_be_added(tmp_path: Path) -> None:
    known = recording(tmp_path, JOB, late(50.0))
    said = answer(known, added=((2, 2),))
    assert [(job.job, job.copy, job.arrived_s) for job in said.jobs] == [(1, 0, 0), (2, 0, 50), (2, 1, 50), (2, 2, 50)]
    assert [job.recorded_s is None for job in said.jobs] == [False, False, True, True]
    assert said.planned.makespan_s > 1.8 * said.simulated.makespan_s
    with pytest.raises(RequestError, match="job 7 cannot be added"):
        answer(known, added=((7, 1),))


def test_another_policy(tmp_path: Path) -> None:
    known = recording(tmp_path, JOB, JOB)
    said = plan(known, [1, 2], Change(), "sequential", Goal.LATENCY)
    assert (said.recorded.policy, said.simulated.policy, said.planned.policy) == ("interleaved",) * 2 + ("sequential",)
    assert said.planned.goal is Goal.LATENCY
    world = Simulator(Scenario(pools=pools(1, 1), jobs=(JOB, JOB), client_start_s=2.0), SEQUENTIAL)
    assert said.planned.makespan_s == world.run().makespan_s


def test_jobs_that_did_not_end_are_named(tmp_path: Path) -> None:
    stopped = ScenarioJob(tasks=JOB.tasks, cancelled_at=60.0)
    said = answer(recording(tmp_path, JOB, stopped))
    assert said.notes == ("not complete in the recording, so only the steps that they made count: job 2",)


def test_some_of_the_jobs(tmp_path: Path) -> None:
    known = recording(tmp_path, JOB, late(1000.0))
    said = plan(known, [2], Change())
    assert [job.arrived_s for job in said.jobs] == [0.0]
    assert said.simulated.makespan_s == said.recorded.makespan_s
    with pytest.raises(NotFound, match="there is no job 3 in this recording; there are: 1, 2"):
        plan(known, [1, 3], Change())


def test_lost_steps_do_not_come_again(tmp_path: Path) -> None:
    known = recording(tmp_path, JOB, faults=Faults(restarts=(100.0,)))
    said = answer(known)
    assert said.simulated.makespan_s < said.recorded.makespan_s
    assert {"import", "compile", "evaluate"} == {s.stage for job in known.jobs for s in (*job.before, *job.after)}


def test_unused_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="these jobs use no device:gpu; they use host, device:cpu"):
        answer(recording(tmp_path, JOB), devices={"device:gpu": 2})
