"""Queues ordered by keys that change with time, and broken policies of other packages."""

from collections import Counter
from collections.abc import Callable

import pytest

from autosched.core.actions import ReplacePolicy
from autosched.core.events import DeadlineReached, PolicyChosen
from autosched.core.lifecycles import Key
from autosched.core.policies.policy import INTERLEAVED, POLICIES, PREDICTIVE, Policy
from autosched.core.ranking import RECOMPUTE_ALL, RECOMPUTE_EVERY, STALE_MIN
from autosched.core.state import State, Task
from autosched.model import Goal
from autosched.sim.scenario import Faults, random_scenario
from autosched.sim.simulator import Simulator
from unit.core.scheduler_driver import Story, complete, of, pool, wants

ONE_LANE = (pool("host", "host/0"),)
TURN_AT = 100.0


def turning_key(state: State, task: Task) -> Key:
    """Until a certain time the first task is first, then the last."""
    return (task.index if state.now < TURN_AT else -task.index,)


TURNING = Policy("turning", turning_key, drifts=True)


def crowd(policy: Policy, tasks: int) -> Story:
    """Returns a number of tasks that wait for one lane, which the first one has."""
    story = Story(ONE_LANE, policy)
    story.running(*(wants(task) for task in range(tasks + 1)))
    assert story.state.queues["host"].waiting == tasks
    return story


@pytest.mark.parametrize("tasks", [2, RECOMPUTE_ALL])
def test_few_waiting_tasks_are_all_rekeyed_at_each_event(tasks: int) -> None:
    story = crowd(TURNING, tasks)
    assert story.starts() == [(1, 0)]
    story.end(1, complete(0), at=TURN_AT)
    assert story.starts()[1:] == [(1, tasks)]


def test_many_waiting_tasks_are_rekeyed_one_at_a_time() -> None:
    tasks = 10 * RECOMPUTE_ALL
    asked: Counter[int] = Counter()

    def key(state: State, task: Task) -> Key:
        asked[task.index] += 1
        return turning_key(state, task)

    story = crowd(Policy("turning", key, drifts=True), tasks)
    asked.clear()
    story.now = TURN_AT
    for _ in range(tasks * RECOMPUTE_EVERY):
        story.tell(DeadlineReached())
    assert max(asked.values()) == 1, "no task twice before each was looked at"
    assert len(asked) == tasks
    story.end(1, complete(0))
    assert story.starts()[1:] == [(1, tasks)]


@pytest.mark.parametrize("policy", [TURNING, PREDICTIVE], ids=lambda policy: policy.name)
@pytest.mark.parametrize("tasks", [5, 200])
def test_the_heaps_do_not_grow_with_time(policy: Policy, tasks: int) -> None:
    def key(state: State, task: Task) -> Key:
        return (state.now * (-1) ** task.index, *policy.key(state, task))  # a new key at each event

    story = crowd(Policy("restless", key, drifts=True), tasks)
    queue = story.state.queues["host"]
    for _ in range(1_000):
        story.core.handle(story.now, DeadlineReached())
        story.now += 0.01
        assert len(queue.heap) <= 2 * (tasks + 1) + STALE_MIN + 1
    story.state.check_all()


def test_a_new_policy_reorders_waiting_tasks() -> None:
    story = Story(ONE_LANE)
    story.running(wants(0, stage="import"))
    story.attach(1, wants(1, stage="update"), wants(2, stage="build"), at=1.0)
    story.tell(PolicyChosen("predictive", Goal.BALANCED, "ada"))
    story.end(1, complete(0), at=2.0)
    assert story.starts()[1:] == [(1, 2)]
    story.tell(PolicyChosen("interleaved", Goal.BALANCED, "ada"))
    story.attach(1, wants(3, stage="build"), at=3.0)
    story.end(2, complete(2), at=4.0)
    assert story.starts()[2:] == [(1, 1)]


# Policies of other packages -------------------------------------------------------------------------------------------


def raises(state: State, task: Task) -> Key:
    raise ZeroDivisionError("oops")


def says_nothing(state: State, task: Task) -> Key:
    return None  # type: ignore[return-value]


def says_a_list(state: State, task: Task) -> Key:
    return [task.index]  # type: ignore[return-value]


def says_nan(state: State, task: Task) -> Key:
    return (float("nan"),)


def says_a_complex_number(state: State, task: Task) -> Key:
    return (1j,)  # type: ignore[return-value]


def raises_later(state: State, task: Task) -> Key:
    if state.last_step > 5:
        raise KeyError("later")
    return INTERLEAVED.key(state, task)


def never(state: State, task: Task) -> bool:
    return False


def admits_and_raises(state: State, task: Task) -> bool:
    raise IndexError("oops")


def refuses_job_1(state: State, task: Task) -> bool:
    return task.job != 1


BROKEN = {
    f"{each.__name__}{' and drifts' * drifts}": Policy("theirs", each, drifts=drifts)
    for drifts in (False, True)
    for each in (raises, says_nothing, says_a_list, says_nan, says_a_complex_number)
} | {
    each.__name__: Policy("theirs", INTERLEAVED.key, each) for each in (never, admits_and_raises, refuses_job_1)
}  # fmt: skip
BROKEN["raises_later"] = Policy("theirs", raises_later)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=list(BROKEN))
def test_a_broken_policy_is_replaced_and_all_jobs_end(broken: Policy) -> None:
    replaced = 0
    for seed in range(5):
        world = Simulator(random_scenario(seed, Faults()), broken, lambda scheduler: scheduler.state.check_all())
        report = world.run()
        assert len(report.states) == len(world.scenario.jobs), f"seed {seed}"
        said = [action for entry in world.history for action in entry.actions if isinstance(action, ReplacePolicy)]
        assert {(action.policy, action.instead) for action in said} <= {("theirs", "interleaved")}
        replaced += len(said)
    assert replaced >= 1


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        ("raises", "ZeroDivisionError: oops"),
        ("says_nothing", "a key is a tuple of numbers and words, not None"),
        ("says_nan", "not a number has no place in an order: (nan,)"),
        ("says_a_complex_number", "not (1j,)"),
        ("never", "it starts nothing, although nothing runs and units are free"),
        ("admits_and_raises", "IndexError: oops"),
    ],
)
def test_a_broken_policy_is_reported_and_waiting_tasks_start(broken: str, reason: str) -> None:
    story = Story(ONE_LANE, BROKEN[broken])
    story.submit()
    story.attach(1, wants(1), wants(2))
    (replaced,) = of(ReplacePolicy, story.said)
    assert reason in replaced.reason
    assert story.core.policy is INTERLEAVED
    assert story.starts() == [(1, 1)]
    assert story.state.queues["host"].waiting == 1


def test_a_policy_that_breaks_while_many_wait_is_replaced_too() -> None:
    def key(state: State, task: Task) -> Key:
        return turning_key(state, task) if state.now < TURN_AT else raises(state, task)

    story = crowd(Policy("theirs", key, drifts=True), 2 * RECOMPUTE_ALL)
    story.now = TURN_AT
    for _ in range(RECOMPUTE_EVERY):
        story.tell(DeadlineReached())
    story.end(1, complete(0))
    assert len(of(ReplacePolicy, story.said)) == 1
    assert story.starts()[1:] == [(1, 1)]


def test_a_policy_may_hold_back_while_something_runs() -> None:
    story = Story(ONE_LANE, Policy("theirs", INTERLEAVED.key, lambda state, task: not state.revoked and task.index < 2))
    story.running(wants(1), wants(2))
    assert story.starts() == [(1, 1)]
    assert of(ReplacePolicy, story.said) == []


def test_an_unknown_policy_is_replaced_too() -> None:
    story = Story(ONE_LANE)
    said = story.tell(PolicyChosen("magic", Goal.BALANCED, "ada"))
    (replaced,) = of(ReplacePolicy, said)
    assert "no policy 'magic' is installed; there are: " in replaced.reason
    assert all(name in replaced.reason for name in POLICIES)
    story.running(wants(1))
    assert story.starts() == [(1, 1)]


def words_here_and_numbers_there(state: State, task: Task) -> Key:
    return ("a",) if task.queued_in == ("host",) else (1.0,)


def words_and_numbers(state: State, task: Task) -> Key:
    return (0, "a") if task.index == 1 else (1, task.index if task.index % 2 else "b")


@pytest.mark.parametrize("key", [words_here_and_numbers_there, words_and_numbers])
def test_keys_of_different_types_need_not_be_comparable(key: Callable[[State, Task], Key]) -> None:
    for seed in range(6):
        world = Simulator(random_scenario(seed, Faults()), Policy("theirs", key))
        assert len(world.run().states) == len(world.scenario.jobs)
        assert world.scheduler.policy.name == "theirs" or world.scenario.choices


def test_keys_may_be_texts() -> None:
    story = Story(ONE_LANE, Policy("theirs", lambda state, task: (task.load.stage_next, task.index)))
    story.running(wants(1))
    story.attach(1, wants(2, stage="update"), wants(3, stage="build"))
    story.end(1, complete(1))
    assert story.starts() == [(1, 1), (1, 3)]
    assert of(ReplacePolicy, story.said) == []
