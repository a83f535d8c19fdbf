"""What the latencies of tasks say of the network, where some of them compete."""

import pytest
from msgspec.structs import replace

from autosched.measured.shares import calls_made, network_s, tasks_by_share
from autosched.model import TaskInfo
from samples import job_view

PLAIN = TaskInfo(task=1, name="plain", workload="a", weight=5, groups={"first": 2, "second": 1})
BLOCKED = TaskInfo(task=2, name="blocked", workload="b", weight=2, groups={"first": 2})
OTHER = TaskInfo(task=3, name="other", workload="c", groups={"second": 1})
ALONE = TaskInfo(task=4, name="alone", workload="d", weight=3)
TASKS = (PLAIN, BLOCKED, OTHER, ALONE)


@pytest.mark.parametrize(
    ("best_s", "calls"),
    [
        ({1: 1.0, 2: 2.0, 3: 2.0, 4: 1.0}, (5, 0, 0, 3)),
        ({1: 2.0, 2: 1.0, 3: 1.0, 4: 1.0}, (2, 2, 1, 3)),
        ({1: 2.0, 2: 1.0, 3: 3.0, 4: 1.0}, (3, 2, 0, 3)),
        ({1: 1.0, 2: 1.0, 3: 1.0, 4: 1.0}, (5, 0, 0, 3)),
    ],
)
def test_the_fastest_of_a_group_does_its_calls_and_every_call_is_counted_once(
    best_s: dict[int, float], calls: tuple[int, ...]
) -> None:
    assert tuple(calls_made(TASKS, best_s).values()) == calls
    assert sum(calls) == 5 + 3
    assert network_s(TASKS, best_s) == pytest.approx(sum(n * best_s[i] for i, n in enumerate(calls, start=1)))


def test_a_group_is_known_with_its_first_latency() -> None:
    assert network_s(TASKS, {1: 2.0, 4: 1.0}) == pytest.approx(5 * 2.0 + 3 * 1.0)
    assert network_s((BLOCKED, PLAIN), {2: 1.0}) is None, "calls in no group, and those in the other one"
    assert network_s((), {}) is None


def test_a_task_that_lost_has_no_share() -> None:
    first, second = job_view().tasks
    tasks = (replace(first, groups={"g": 2}), replace(second, weight=2, groups={"g": 2}))
    shares = tasks_by_share(replace(job_view(), tasks=tasks))
    assert [(task.task, part) for task, part in shares] == [(1, 1.0), (2, 0.0)]
