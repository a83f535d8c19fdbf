"""The host for a job's client."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from autosched.core import placement
from autosched.core.events import (
    ClientAttached,
    ClientPlaced,
    Event,
    HostCutOff,
    HostJoined,
    JobCancelRequested,
    JobSubmitted,
    ResourcesDeclared,
    StagesFreed,
    StepEnded,
    UnitDrained,
)
from autosched.core.scheduler import Scheduler
from autosched.core.state import State
from autosched.model import OWN_HOST, HostName, JobLoad, JobSpec, Outcome, Pool, TaskLoad, Unit, lent_by
from autosched.sim.scenario import pools

CPU = "cpu"


def joined(host: HostName, devices: int, kind: str = CPU) -> HostJoined:
    lanes, cpus = pools(1, devices)
    return HostJoined(host, lent_by(host, (lanes, Pool(f"device:{kind}", cpus.units))))


def submitted(job: int, device: str = CPU) -> JobSubmitted:
    return JobSubmitted(job, JobSpec(name=f"job {job}", model="0" * 64, device=device))


def scheduler(events: Sequence[Event], own: tuple[Pool, ...] = pools(1, 1)) -> Scheduler:
    made = Scheduler()
    for event in (ResourcesDeclared(own, 600.0, 60.0), *events):
        made.handle(0.0, event)
    return made


def chosen(made: Scheduler, job: int) -> HostName | None:
    return placement.choose(made.state, made.state.jobs[job])


@pytest.mark.parametrize(
    ("hosts", "placed", "expected"),
    [
        ([], [], OWN_HOST),
        ([("a", 1)], [], OWN_HOST),
        ([("a", 1)], [OWN_HOST], "a"),
        ([("a", 1), ("b", 1)], [OWN_HOST, "b"], "a"),
        ([("a", 3)], [], "a"),
        ([("a", 3)], ["a", "a"], OWN_HOST),
        ([("a", 2)], ["a"], OWN_HOST),
        ([("b", 1), ("a", 1)], [OWN_HOST], "b"),
    ],
)
def test_a_job_goes_to_the_host_with_the_fewest_jobs_for_each_device(
    hosts: list[tuple[str, int]], placed: list[str], expected: str
) -> None:
    events: list[Event] = [joined(host, devices) for host, devices in hosts]
    for job, host in enumerate(placed, 1):
        events += [submitted(job), ClientPlaced(job, host)]
    last = len(placed) + 1
    assert chosen(scheduler([*events, submitted(last)]), last) == expected


def test_a_job_counts_for_the_host_of_its_client() -> None:
    """Job 1 was started before there was a second host, so no host was chosen for it."""
    attached = ClientAttached(1, JobLoad())
    assert chosen(scheduler([submitted(1), attached, joined("a", 1), submitted(2)]), 2) == "a"


def test_an_ended_job_is_not_counted() -> None:
    ended = [submitted(1), ClientPlaced(1, OWN_HOST), JobCancelRequested(1, "ada")]
    assert chosen(scheduler([joined("a", 1), *ended, submitted(2)]), 2) == OWN_HOST


def test_a_host_whose_devices_are_all_drained_comes_last() -> None:
    drained = UnitDrained("cpu0", "it is too warm", "ada")
    made = scheduler([joined("a", 1), drained, submitted(1), ClientPlaced(1, "a"), submitted(2)])
    assert chosen(made, 2) == "a"
    made.handle(0.0, UnitDrained("cpu0@a", "so is this one", "ada"))
    assert chosen(made, 2) == OWN_HOST


def test_an_unreachable_host_gets_no_jobs() -> None:
    made = scheduler([joined("a", 4), HostCutOff("a", "silent"), submitted(1)])
    assert chosen(made, 1) == OWN_HOST


def test_a_kind_that_no_reachable_host_has_is_waited_for() -> None:
    made = scheduler([joined("a", 1, "gpu"), HostCutOff("a", "silent"), submitted(1, "gpu")])
    assert chosen(made, 1) is None
    assert list(made.state.without_host) == [1]


def test_a_kind_that_no_host_has_is_refused_by_the_own_one() -> None:
    made = scheduler([joined("a", 1), submitted(1, "gpu")], (Pool("host", (Unit("host/0"),)),))
    assert chosen(made, 1) == OWN_HOST


# Stages on other hosts -------------------------------------------------------------------------------------------


def busy(
    rounds_left: float, *events: Event, stages: tuple[str, ...] = ("build", "profile"), external: bool = False
) -> Scheduler:
    """Returns a job on the daemon's own host whose build waits for the only lane."""
    job = JobSubmitted(1, JobSpec(name="job 1", model="0" * 64, external=external))
    made = scheduler([job, ClientAttached(1, JobLoad()), StagesFreed(1, stages)])
    tasks = tuple(TaskLoad(task=n, stage_next="build", resources_next=("host",)) for n in (1, 2))
    made.handle(0.0, ClientAttached(1, JobLoad(tasks=tasks, rounds_left=rounds_left), ()))
    for event in events:
        made.handle(0.0, event)
    return made


def hosts_of_steps(made: Scheduler) -> list[HostName]:
    return [made.state.host_of(step) for step in made.state.steps.values()]


@pytest.mark.parametrize(
    ("rounds_left", "event", "expected"),
    [
        (100, joined("a", 1), [OWN_HOST, "a"]),
        (100, joined("a", 1, kind="other"), [OWN_HOST, "a"]),
        (100, replace(joined("a", 1), software="other"), [OWN_HOST]),
        (5, joined("a", 1), [OWN_HOST]),
    ],
)
def test_a_helper_is_worth_its_start(rounds_left: float, event: Event, expected: list[str]) -> None:
    assert hosts_of_steps(busy(rounds_left, event)) == expected


def test_a_stage_that_may_not_move_stays() -> None:
    assert hosts_of_steps(busy(100, joined("a", 1), stages=("profile",))) == [OWN_HOST]


def test_an_external_client_has_no_helpers() -> None:
    """It measures on its user's machine, whose devices were not compared."""
    made = busy(100, joined("a", 1), external=True)
    assert hosts_of_steps(made) == [OWN_HOST]
    assert placement.units_elsewhere(made.state, made.state.jobs[1]) == 0


def test_each_helper_of_a_job_must_be_worth_its_start() -> None:
    made = busy(60)
    for number in range(4):
        made.handle(0.0, joined(f"lab{number}", 1))
        load = TaskLoad(task=10 + number, stage_next="build", resources_next=("host",))
        made.handle(0.0, ClientAttached(1, JobLoad(tasks=(load,), rounds_left=60), tuple(made.state.steps)))
    assert list(made.state.jobs[1].helpers) == ["lab0", "lab1"], "60 s of work: each of three gets 20 s, too little"


def test_a_host_that_cannot_be_reached_or_is_drained_gets_none() -> None:
    drained = [UnitDrained(f"{unit}@a", "it is cleaned", "me") for unit in ("host/0", "cpu0")]
    assert hosts_of_steps(busy(100, *drained, joined("a", 1))) == [OWN_HOST]
    made = busy(5, joined("a", 1), HostCutOff("a", "silent"))
    load = TaskLoad(task=3, stage_next="build", resources_next=("host",))
    made.handle(1.0, ClientAttached(1, JobLoad(tasks=(load,), rounds_left=100), (1,)))
    assert hosts_of_steps(made) == [OWN_HOST]


def test_a_failed_candidate_is_measured_on_a_device_of_another_host() -> None:
    made = scheduler([joined("a", 1), submitted(1), ClientPlaced(1, OWN_HOST), ClientAttached(1, JobLoad())])
    made.handle(0.0, StagesFreed(1, ("profile",)))
    made.state.jobs[1].helpers["a"] = None
    again = TaskLoad(task=1, stage_next="profile", resources_next=("device:cpu",), avoid=("cpu0",))
    made.handle(0.0, ClientAttached(1, JobLoad(tasks=(again,)), ()))
    assert hosts_of_steps(made) == ["a"]


def test_waiting_steps_may_move_when_the_first_host_joins() -> None:
    made = busy(100)
    assert not made.state.kinds
    made.handle(0.0, joined("a", 1))
    made.state.check_all()
    assert made.state.queues["host"].waiting == made.state.kinds["host"].queue.waiting == 0


def test_a_decision_looks_at_few_of_many_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    made = busy(0.0, *(joined(f"lab{number}", 1) for number in range(100)))
    asked = 0
    first_free = State.first_free

    def counted(state: State, pool: str) -> str | None:
        nonlocal asked
        asked += 1
        return first_free(state, pool)

    monkeypatch.setattr(State, "first_free", counted)
    for _ in range(10):
        (step,) = made.state.steps
        load = TaskLoad(task=made.state.steps[step].task, stage_next="build", resources_next=("host",))
        made.handle(made.state.now + 1.0, StepEnded(step, Outcome.DONE, JobLoad(tasks=(load,), rounds_left=0.0)))
    assert asked <= 10 * 40
