"""Steps that share the work of a running one."""

import pytest
from msgspec.structs import replace

from autosched.core.events import (
    ClientAttached,
    ClientPlaced,
    Event,
    HostJoined,
    JobSubmitted,
    ResourcesDeclared,
    StagesFreed,
    StepEnded,
    UnitDrained,
)
from autosched.core.explain import explain_job
from autosched.core.scheduler import Scheduler
from autosched.model import JobLoad, JobSpec, Outcome, Step, TaskLoad, UnitName, lent_by
from autosched.sim.scenario import pools

MEASURES = TaskLoad(task=1, stage_next="profile", resources_next=("device:cpu",), expected_s=9.0)
BUSY = JobLoad(tasks=(TaskLoad(task=1, stage_done=False),))
NEXT = JobLoad(tasks=(TaskLoad(task=1, stage_next="update", resources_next=("host",)),))


def told(made: Scheduler, *events: Event, now: float = 0.0) -> Scheduler:
    for event in events:
        made.handle(now, event)
        made.state.check_all()
    return made


def job(
    devices: int, load: TaskLoad = MEASURES, divisible: tuple[str, ...] = ("profile",), **spec: object
) -> Scheduler:
    """Returns a job of which one task measures, on the first device; the others of the daemon's own host are free."""
    submitted = JobSubmitted(1, replace(JobSpec(name="net", model="0" * 64), **spec))
    return told(
        Scheduler(), ResourcesDeclared(pools(1, devices), 600.0, 60.0), submitted, ClientAttached(1, JobLoad()),
        StagesFreed(1, ("profile",), divisible), ClientAttached(1, JobLoad(tasks=(load,), rounds_left=100), ()),
    )  # fmt: skip


def units(made: Scheduler) -> list[UnitName]:
    return [unit for step in made.state.steps.values() for unit in step.units]


def done(made: Scheduler, step: int, now: float, load: JobLoad = BUSY, outcome: Outcome = Outcome.DONE) -> Scheduler:
    return told(made, StepEnded(step, outcome, load), now=now)


def test_all_free_devices_share_a_measurement() -> None:
    assert units(job(3)) == ["cpu0", "cpu1", "cpu2"]


@pytest.mark.parametrize(("expected_s", "devices"), [(0.9, 1), (1.1, 2), (1.6, 3), (30.0, 4)])
def test_each_device_must_have_enough_to_do(expected_s: float, devices: int) -> None:
    assert len(units(job(4, replace(MEASURES, expected_s=expected_s)))) == devices


def test_a_stage_that_is_not_divisible_is_not_shared() -> None:
    assert units(job(3, divisible=("build",))) == ["cpu0"]


def test_a_device_that_is_to_be_avoided_or_is_drained_takes_no_share() -> None:
    assert units(job(3, replace(MEASURES, avoid=("cpu1",)))) == ["cpu0", "cpu2"]
    made = told(
        job(3, divisible=()), UnitDrained("cpu1", "it is loud", "ada"), StagesFreed(1, ("profile",), ("profile",))
    )
    told(done(made, 1, 1.0), ClientAttached(1, JobLoad(tasks=(MEASURES,), rounds_left=100), ()), now=1.0)
    assert units(made) == ["cpu0", "cpu2"]


def test_a_device_that_comes_free_later_takes_a_share_of_what_is_left() -> None:
    two = JobLoad(tasks=(MEASURES, replace(MEASURES, task=2)), rounds_left=100)
    made = told(job(2, divisible=()), StagesFreed(1, ("profile",), ("profile",)))
    done(made, 1, 0.0, JobLoad())
    told(made, ClientAttached(1, two, ()))
    assert [(step.task, *step.units) for step in made.state.steps.values()] == [(1, "cpu0"), (2, "cpu1")]
    done(made, 3, 4.0, JobLoad(tasks=(TaskLoad(task=2),)))
    assert [(step.task, *step.units) for step in made.state.steps.values()] == [(1, "cpu0"), (1, "cpu1")]


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 2, 1), (2, 1, 3)])
def test_the_task_goes_on_when_all_have_ended(order: tuple[int, int, int]) -> None:
    made = job(3)
    done(done(made, order[0], 2.0), order[1], 3.0)
    assert not made.state.jobs[1].waiting
    done(made, order[2], 4.0, NEXT)
    assert [(step.stage, step.units) for step in made.state.steps.values()] == [("update", ("host/0",))]
    expected_s, _ = made.state.estimates.of_job(1, "profile")
    assert expected_s == 2.0 + 3.0 + 4.0, "the stage takes as long as all of its steps together"


def test_a_load_reported_before_a_share_does_not_count() -> None:
    made = done(job(2), 1, 3.0, NEXT)
    assert [step.id for step in made.state.steps.values()] == [2], "the other step still runs"
    done(made, 2, 3.0, NEXT)
    assert [step.stage for step in made.state.steps.values()] == ["update"]


def test_a_stage_is_no_longer_shared_when_one_of_its_steps_has_ended() -> None:
    assert units(done(job(3), 2, 1.0)) == ["cpu0", "cpu2"]
    failed = done(job(3), 1, 1.0, outcome=Outcome.FAILED)
    assert units(failed) == ["cpu1", "cpu2"]
    assert failed.state.jobs[1].tasks[1].step == 2


def test_a_lost_client_loses_all_its_shares() -> None:
    made = told(job(3), ClientAttached(1, JobLoad(tasks=(replace(MEASURES, expected_s=0.1),)), ()), now=1.0)
    assert units(made) == ["cpu0"]
    (step,) = made.state.steps.values()
    assert step.id == 4


def test_another_waiting_task_precedes_a_share() -> None:
    two = JobLoad(tasks=(MEASURES, replace(MEASURES, task=2)), rounds_left=100)
    made = job(3, divisible=())
    told(done(made, 1, 0.0, JobLoad()), StagesFreed(1, (), ("profile",)), ClientAttached(1, two, ()))
    tasks = [step.task for step in list(made.state.steps.values())[:2]]
    assert tasks == [1, 2], "each task has a device before one has two"


def lab(devices: int = 1) -> HostJoined:
    return HostJoined("lab", lent_by("lab", pools(1, devices)), "a" * 32)


@pytest.mark.parametrize(
    ("movable", "rounds_left", "external", "expected"),
    [
        (("profile",), 100, False, ["cpu0", "cpu0@lab"]),
        ((), 100, False, ["cpu0"]),
        (("profile",), 1, False, ["cpu0"]),
        (("profile",), 100, True, ["cpu0"]),
    ],
)
def test_devices_of_other_hosts_take_a_share_where_a_helper_pays(
    movable: tuple[str, ...], rounds_left: int, external: bool, expected: list[UnitName]
) -> None:
    made = told(
        Scheduler(), ResourcesDeclared(pools(1, 1), 600.0, 60.0), lab(),
        JobSubmitted(1, JobSpec(name="net", model="0" * 64, external=external)), ClientPlaced(1, ""),
        ClientAttached(1, JobLoad()), StagesFreed(1, movable, ("profile",)),
        ClientAttached(1, JobLoad(tasks=(MEASURES,), rounds_left=rounds_left), ()),
    )  # fmt: skip
    assert units(made) == expected


def test_a_replay_starts_the_same_shares() -> None:
    first, again = job(3), Scheduler()
    started: list[Step] = list(first.state.steps.values())
    events: list[Event] = [
        ResourcesDeclared(pools(1, 3), 600.0, 60.0), JobSubmitted(1, JobSpec(name="net", model="0" * 64)),
        ClientAttached(1, JobLoad()), StagesFreed(1, ("profile",), ("profile",)),
        ClientAttached(1, JobLoad(tasks=(MEASURES,), rounds_left=100), ()),
    ]  # fmt: skip
    for event in events:
        again.handle(0.0, event, started=tuple(started) if event is events[-1] else ())
    assert again.state.steps == first.state.steps
    assert again.state.jobs[1].tasks[1].steps == first.state.jobs[1].tasks[1].steps == (1, 2, 3)
    again.state.check_all()


def test_shared_steps_stay_shared_after_a_restart() -> None:
    made = job(2, divisible=())
    told(made, StagesFreed(1, ("profile",), ("profile",)), ResourcesDeclared(pools(1, 2), 600.0, 60.0, kept=(1,)))
    assert units(made) == ["cpu0"], "its client may not be there any more"
    told(made, ClientAttached(1, BUSY, (1,)))
    assert units(made) == ["cpu0", "cpu1"]


def test_each_share_is_explained() -> None:
    lines = explain_job(job(2).state, 1)
    assert [line.partition(",")[0] for line in lines] == [
        "task 1 runs on cpu0: profile for 0s", "task 1 runs on cpu1: profile for 0s",
    ]  # fmt: skip
    assert all("likely done in 4s" in line or "likely done in 5s" in line for line in lines)
