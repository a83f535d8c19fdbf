"""Which host a job's client goes to."""

from collections.abc import Sequence

import pytest

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
    UnitDrained,
)
from autosched.core.scheduler import Scheduler
from autosched.model import OWN_HOST, HostName, JobLoad, JobSpec, Pool, Unit, lent_by
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
def test_the_host_with_the_fewest_jobs_for_each_device(
    hosts: list[tuple[str, int]], placed: list[str], expected: str
) -> None:
    events: list[Event] = [joined(host, devices) for host, devices in hosts]
    for job, host in enumerate(placed, 1):
        events += [submitted(job), ClientPlaced(job, host)]
    last = len(placed) + 1
    assert chosen(scheduler([*events, submitted(last)]), last) == expected


def test_a_job_counts_where_its_client_is_however_it_came_there() -> None:
    """Job 1 was started before there was a second host, so no host was chosen for it."""
    attached = ClientAttached(1, JobLoad())
    assert chosen(scheduler([submitted(1), attached, joined("a", 1), submitted(2)]), 2) == "a"


def test_an_ended_job_counts_no_more() -> None:
    ended = [submitted(1), ClientPlaced(1, OWN_HOST), JobCancelRequested(1, "ada")]
    assert chosen(scheduler([joined("a", 1), *ended, submitted(2)]), 2) == OWN_HOST


def test_a_host_of_which_all_devices_are_drained_comes_last() -> None:
    drained = UnitDrained("cpu0", "it is too warm", "ada")
    made = scheduler([joined("a", 1), drained, submitted(1), ClientPlaced(1, "a"), submitted(2)])
    assert chosen(made, 2) == "a"
    made.handle(0.0, UnitDrained("cpu0@a", "so is this one", "ada"))
    assert chosen(made, 2) == OWN_HOST


def test_a_host_that_cannot_be_reached_gets_none() -> None:
    made = scheduler([joined("a", 4), HostCutOff("a", "silent"), submitted(1)])
    assert chosen(made, 1) == OWN_HOST


def test_a_kind_that_no_reachable_host_has_is_waited_for() -> None:
    made = scheduler([joined("a", 1, "gpu"), HostCutOff("a", "silent"), submitted(1, "gpu")])
    assert chosen(made, 1) is None
    assert list(made.state.without_host) == [1]


def test_a_kind_that_no_host_has_is_refused_by_the_own_one() -> None:
    made = scheduler([joined("a", 1), submitted(1, "gpu")], (Pool("host", (Unit("host/0"),)),))
    assert chosen(made, 1) == OWN_HOST
