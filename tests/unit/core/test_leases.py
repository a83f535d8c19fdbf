"""The units that a step gets, and their release."""

import itertools

import pytest

from autosched.core.events import StepEnded, UnitDrained
from autosched.core.lifecycles import IDLE
from autosched.core.state import one_of_each
from autosched.model import JobFailure, JobLoad, Outcome, TaskLoad
from unit.core.scheduler_driver import BOTH, DEVICE, HOST, ONE_CORE, ONE_EACH, Story, complete, idle, pool, steps, wants

TWO_DEVICES = (pool("host", "host/0"), pool("device:cpu", "cpu0", "cpu1"))


@pytest.mark.parametrize("lanes", [1, 2, 3, 7])
@pytest.mark.parametrize("tasks", [1, 2, 3, 9])
def test_as_many_steps_run_as_there_are_units(lanes: int, tasks: int) -> None:
    story = Story((pool("host", *(f"host/{i}" for i in range(lanes))),))
    story.running(*(wants(task) for task in range(1, tasks + 1)))
    assert len(story.state.steps) == min(lanes, tasks)
    assert story.state.queues["host"].waiting == max(0, tasks - lanes)
    assert [unit for step in story.state.steps.values() for unit in step.units] == [
        f"host/{i}" for i in range(min(lanes, tasks))
    ]


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_tasks_run_in_the_order_in_which_they_became_ready(order: tuple[int, ...]) -> None:
    story = Story((pool("host", "host/0"),))
    busy = story.running(wants(1))
    jobs = [story.submit() for _ in order]
    for at, index in enumerate(order, start=1):
        story.attach(jobs[index - 1], wants(1), at=float(at))
    for step in range(1, 4):
        story.end(step, complete(1), at=10.0 + step)
    assert story.starts() == [(busy, 1), *((jobs[index - 1], 1) for index in order)]


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_ties_are_broken_by_registration(order: tuple[int, ...]) -> None:
    story = Story((pool("host", "host/0"),))
    busy = story.running(wants(1))
    jobs = [story.submit() for _ in order]
    for index in order:
        story.attach(jobs[index - 1], wants(1), at=5.0)
    for step in range(1, 4):
        story.end(step, complete(1), at=10.0 + step)
    assert story.starts() == [(busy, 1), *((job, 1) for job in jobs)]


@pytest.mark.parametrize("order", list(itertools.permutations([1, 2, 3])))
def test_tasks_of_one_job_that_become_ready_at_once_run_in_the_order_of_their_numbers(order: tuple[int, ...]) -> None:
    story = Story((pool("host", "host/0"),))
    story.running(wants(9))
    story.running(*(wants(task) for task in order), at=1.0)
    for step in range(1, 4):
        story.end(step, at=10.0 + step)
    assert story.starts() == [(1, 9), (2, 1), (2, 2), (2, 3)]


def test_a_lease_of_two_pools_is_all_or_nothing() -> None:
    story = Story()
    story.running(wants(1, HOST))
    story.running(wants(1, BOTH), at=1.0)
    assert story.holders() == {"host/0": 1, "cpu0": None}
    story.end(1, complete(1), at=2.0)
    assert story.holders() == {"host/0": 2, "cpu0": 2}
    story.end(2, complete(1), at=3.0)
    assert story.holders() == {"host/0": None, "cpu0": None}


@pytest.mark.parametrize("pools", [BOTH, BOTH[::-1]])
@pytest.mark.parametrize("blocked", [HOST, DEVICE])
def test_a_task_that_needs_two_pools_is_not_overtaken(pools: tuple[str, ...], blocked: tuple[str, ...]) -> None:
    story = Story()
    story.running(wants(1, blocked))
    story.running(wants(1, pools), at=1.0)
    for at in range(2, 6):  # single-pool tasks keep arriving
        story.running(wants(1, HOST), wants(2, DEVICE), at=float(at))
    assert story.starts() == [(1, 1)]
    story.end(1, wants(1, blocked), at=10.0)
    assert story.starts() == [(1, 1), (2, 1)]


def test_tasks_that_need_two_pools_do_not_overtake_each_other() -> None:
    story = Story((pool("a", "a0"), pool("b", "b0"), pool("c", "c0")))
    story.running(wants(1, ("c",)))
    story.running(wants(1, ("b", "c")), at=1.0)
    story.running(wants(1, ("a", "b")), at=2.0)
    assert story.starts() == [(1, 1)], "b is kept free for the first task there"
    story.end(1, complete(1), at=3.0)
    story.end(2, complete(1), at=4.0)
    assert story.starts() == [(1, 1), (2, 1), (3, 1)]


def test_a_start_may_bring_up_a_task_that_waits_for_two_pools() -> None:
    """And then another one in the other pool: no task that could start keeps waiting."""
    story = Story((pool("host", "host/0", "host/1"), pool("device:cpu", "cpu0")))
    story.running(wants(1, DEVICE))
    story.running(wants(1, DEVICE), wants(2, BOTH), wants(3, HOST), at=1.0)
    assert story.starts() == [(1, 1)]
    story.end(1, complete(1), at=2.0)
    assert story.starts() == [(1, 1), (2, 1)]
    story.end(2, complete(1), at=3.0)
    assert story.starts()[2:] == [(2, 2), (2, 3)]


def test_tasks_behind_a_withdrawn_task_move_up() -> None:
    story = Story()
    story.running(wants(1, HOST), wants(2, BOTH))
    story.running(wants(1, DEVICE), at=1.0)
    assert story.starts() == [(1, 1)]
    story.end(1, wants(1, HOST), idle(2), at=2.0)
    assert sorted(story.starts()) == [(1, 1), (1, 1), (2, 1)]


@pytest.mark.parametrize("wishes", list(itertools.product([HOST, DEVICE], repeat=3)))
def test_a_unit_in_two_pools_is_leased_once(wishes: tuple[tuple[str, ...], ...]) -> None:
    story = Story(ONE_CORE)
    for at, wish in enumerate(wishes):
        story.running(wants(1, wish), at=float(at))
        assert len(story.state.steps) == 1
    for step in (1, 2):
        story.end(step, complete(1), at=10.0 + step)
        assert len(story.state.steps) == 1
    assert story.starts() == [(1, 1), (2, 1), (3, 1)], "the pools share a unit, so they share an order"


def test_the_first_free_unit_is_taken_and_given_back() -> None:
    story = Story((pool("host", "a", "b", "c"),))
    story.running(wants(1), wants(2), wants(3))
    story.end(2, idle(2), at=1.0)
    story.end(1, idle(1), at=2.0)
    story.running(wants(1), at=3.0)
    assert story.state.steps[4].units == ("a",)
    story.running(wants(1), at=4.0)
    assert story.state.steps[5].units == ("b",)


def test_two_units_of_one_pool() -> None:
    story = Story((pool("host", "a", "b", "c"),))
    story.running(wants(1, ("host", "host")), wants(2, ("host", "host")))
    assert story.state.steps[1].units == ("a", "b")
    assert len(story.state.steps) == 1
    assert story.state.queues["host"].waiting == 1
    story.end(1, complete(1), at=1.0)
    assert story.state.steps[2].units == ("a", "b")


@pytest.mark.parametrize(
    ("pools", "wish"),
    [
        (ONE_EACH, ("device:gpu",)),
        (ONE_EACH, ("host", "nowhere")),
        (ONE_EACH, ("host", "host")),
        (ONE_CORE, BOTH),
    ],
)
def test_a_request_that_can_never_be_met_fails_the_job(pools: tuple, wish: tuple[str, ...]) -> None:
    story = Story(pools)
    other = story.running(wants(1))
    job = story.running(wants(1, wish))
    failure = story.state.jobs[job].failure
    assert failure is not None
    assert failure.code == "not_found"
    assert wish[-1] in failure.message
    assert story.state.jobs[other].state.value == "running"
    assert not any(queue.waiting for queue in story.state.queues.values())


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ((), ""),
        (("host",), ""),
        (("device:cpu",), "says that task 1 uses device:cpu, and step 1 holds host/0"),
        (("host", "device:cpu"), "uses host and device:cpu, and step 1 holds host/0"),
        (("nowhere",), "uses nowhere"),
    ],
)
def test_reported_resources_are_checked_against_the_lease(said: tuple[str, ...], wrong: str) -> None:
    story = Story(ONE_EACH)
    job = story.running(wants(1), wants(2, DEVICE))
    running = TaskLoad(task=1, stage_done=False, resources_now=said, resources_next=DEVICE, stage_next="profile")
    device_step = next(step for step in story.state.steps.values() if step.task == 2)
    story.tell(StepEnded(device_step.id, Outcome.DONE, load=JobLoad(tasks=(running,))))
    failure = story.state.jobs[job].failure
    assert (failure is not None) == bool(wrong)
    if failure is not None:
        assert failure.code == "wire"
        assert wrong in failure.message


def test_a_client_that_uses_a_resource_without_a_lease_has_its_job_failed() -> None:
    story = Story(ONE_EACH)
    other = story.running(wants(1))
    job = story.running(TaskLoad(task=1, stage_done=False, resources_now=DEVICE))
    failure = story.state.jobs[job].failure
    assert failure is not None
    assert "says that task 1 uses device:cpu, and no step of the task holds a lease" in failure.message
    assert story.state.jobs[other].state.value == "running"


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        ([["a"]], ("a",)),
        ([[]], None),
        ([["a", "b"], ["a"]], ("b", "a")),
        ([["a"], ["a"]], None),
        ([["a"], ["a", "b"]], ("a", "b")),
        ([["a", "b", "c"], ["a", "b"], ["a"]], ("c", "b", "a")),
        ([["a", "b"], ["a", "b"], ["a", "b"]], None),
        ([["a", "b"], []], None),
        ([[str(i) for i in range(1000)]] * 4, ("0", "1", "2", "3")),
    ],
)
def test_a_step_may_need_one_unit_of_each_pool(choices: list[list[str]], expected: tuple[str, ...] | None) -> None:
    assert one_of_each(choices) == expected


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_frees_the_units(outcome: Outcome) -> None:
    story = Story()
    story.running(wants(1))
    story.end(1, idle(1), outcome=outcome)
    assert story.holders() == {"host/0": None, "cpu0": None}


def test_a_step_that_ends_without_a_load_leaves_its_task_idle() -> None:
    story = Story()
    story.running(wants(1), wants(2))
    started = steps(story.tell(StepEnded(1, Outcome.LOST), 1.0))
    assert [(step.job, step.task) for step in started] == [(1, 2)]
    assert story.state.jobs[1].tasks[1].state == IDLE


def test_a_task_has_one_step_in_flight() -> None:
    story = Story((pool("host", "a", "b"),))
    job = story.running(wants(1), wants(2))
    story.end(2, wants(1), idle(2), at=1.0)  # the client reports a task that is running
    assert story.starts() == [(job, 1), (job, 2)]
    assert story.state.queues["host"].waiting == 0


@pytest.mark.parametrize("failure", [None, JobFailure("model_rejected", "LSTM")])
def test_units_of_an_ended_job_are_freed_when_its_client_has_ended(failure: JobFailure | None) -> None:
    story = Story((pool("host", "a", "b"),))
    job = story.running(wants(1), wants(2))
    waiting = story.running(wants(1), wants(2), at=1.0)
    story.end(1, job_complete=failure is None, failure=failure, at=2.0)
    assert story.holders() == {"a": 3, "b": 2}
    assert steps(story.lose(job, at=3.0))[0].job == waiting
    assert story.holders() == {"a": 3, "b": 4}


def avoiding(task: int, *units: str, pools: tuple[str, ...] = DEVICE) -> TaskLoad:
    return TaskLoad(task=task, resources_next=pools, stage_next="profile", avoid=units)


@pytest.mark.parametrize(("avoided", "given"), [("cpu0", "cpu1"), ("cpu1", "cpu0"), ("gpu0", "cpu0")])
def test_a_step_does_not_get_what_it_avoids(avoided: str, given: str) -> None:
    story = Story(TWO_DEVICES)
    story.running(avoiding(1, avoided))
    assert story.state.steps[1].units == (given,)


def test_a_task_that_avoids_the_free_unit_waits_and_holds_up_no_other() -> None:
    story = Story(TWO_DEVICES)
    story.running(wants(1, DEVICE), wants(2, DEVICE))
    story.running(avoiding(1, "cpu0"), at=1.0)
    story.running(wants(1, DEVICE), at=2.0)
    story.end(1, complete(1), at=3.0)
    assert [(step.job, step.units) for step in story.state.steps.values()] == [(1, ("cpu1",)), (3, ("cpu0",))]
    story.end(3, wants(1, DEVICE), at=4.0)
    assert story.state.steps[4].job == 3, "again it goes before who cannot"
    story.end(2, complete(2), at=5.0)
    assert story.state.steps[5].units == ("cpu1",)


def test_an_avoided_unit_is_used_if_there_is_no_other() -> None:
    story = Story(ONE_EACH)
    story.running(avoiding(1, "cpu0"))
    assert story.state.steps[1].units == ("cpu0",)


def test_a_drained_unit_is_no_alternative_to_an_avoided_one() -> None:
    story = Story(TWO_DEVICES)
    story.running(wants(1, DEVICE), wants(2, DEVICE))
    story.end(1, complete(1), at=1.0)
    story.running(avoiding(1, "cpu0"), at=2.0)
    assert len(story.state.steps) == 1
    story.tell(UnitDrained("cpu1", "it smokes", "ada"), 3.0)
    assert story.state.steps[3].units == ("cpu0",)


def test_a_step_on_two_pools_avoids_too() -> None:
    story = Story(TWO_DEVICES)
    story.running(avoiding(1, "cpu0", pools=BOTH))
    assert story.state.steps[1].units == ("host/0", "cpu1")
