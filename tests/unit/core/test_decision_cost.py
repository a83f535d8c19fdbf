"""A decision costs O(log n) in the waiting tasks, however many jobs there are."""

from collections.abc import Iterator

import pytest

from autosched.core.events import ClientAttached, DeadlineReached, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.core.lifecycles import Key
from autosched.core.policies.policy import INTERLEAVED, POLICIES, Policy
from autosched.core.scheduler import Scheduler
from autosched.core.state import State, Task
from autosched.model import JobLoad, JobSpec, Outcome, TaskLoad
from unit.core.scheduler_driver import ONE_EACH, wants

comparisons = 0


class Counting(float):
    """A number that counts its comparisons, which are the work of a heap."""

    def __lt__(self, other: object) -> bool:
        global comparisons
        comparisons += 1
        return float.__lt__(self, other)  # type: ignore[operator]

    def __eq__(self, other: object) -> bool:
        global comparisons
        comparisons += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__


def counting_key(state: State, task: Task) -> Key:
    return tuple(Counting(part) for part in INTERLEAVED.key(state, task) if not isinstance(part, str))


def crowd(policy: Policy, jobs: int) -> Scheduler:
    """Returns a scheduler with this number of jobs; the first task runs, all others wait."""
    core = Scheduler(policy)
    core.handle(0.0, ResourcesDeclared(ONE_EACH, 600.0, 60.0))
    for job in range(1, jobs + 1):
        core.handle(float(job), JobSubmitted(job, JobSpec(name="x", model="0" * 64)))
        core.handle(float(job), ClientAttached(job, JobLoad(tasks=(wants(1),))))
    assert core.state.queues["host"].waiting == jobs - 1
    return core


def decide(core: Scheduler, times: int) -> int:
    """Returns comparisons per decision; each decision ends a step, queues its task again and starts the next."""
    global comparisons
    comparisons = 0
    for _ in range(times):
        step = core.state.last_step
        load = JobLoad(tasks=(TaskLoad(task=1, resources_next=("host",), stage_next="build"),))
        core.handle(core.state.now + 1, StepEnded(step, Outcome.DONE, load))
        assert core.state.last_step == step + 1
    return comparisons // times


def test_comparisons_per_decision_grow_with_the_logarithm() -> None:
    policy = Policy("counting", counting_key, INTERLEAVED.admits)
    few, many = decide(crowd(policy, 100), 50), decide(crowd(policy, 10_000), 50)
    assert 0 < few < many <= 4 * few, "100 times as many tasks: twice the logarithm"
    assert many < 400


class Reads(dict):  # type: ignore[type-arg]
    """A dictionary that counts its reads."""

    reads = 0

    def __getitem__(self, key: object) -> object:
        Reads.reads += 1
        return super().__getitem__(key)

    def __iter__(self) -> Iterator[object]:
        Reads.reads += len(self)
        return super().__iter__()

    def values(self) -> object:
        Reads.reads += len(self)
        return super().values()


@pytest.mark.parametrize("name", [name for name in POLICIES if name != "synchronous"])
def test_a_decision_does_not_iterate_over_all_jobs(name: str) -> None:
    def reads(jobs: int) -> int:
        core = crowd(POLICIES[name], jobs)
        core.state.jobs = Reads(core.state.jobs)
        Reads.reads = 0
        decide(core, 20)
        return Reads.reads

    assert 0 < reads(2_000) <= 2 * reads(20)


def test_the_heaps_do_not_grow_with_time() -> None:
    core = crowd(INTERLEAVED, 10)
    decide(core, 2_000)
    assert len(core.state.queues["host"].heap) <= 10 + 1
    core.handle(core.state.now, DeadlineReached())
    assert len(core.state.alarms) <= 600 + 10, "a step's alarm is dropped when its time has come, 600 s after its start"
