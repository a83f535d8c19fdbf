"""Latency of the network from those of its tasks, some of which compete."""

import pytest
from msgspec.structs import replace

from autosched.backend import Baseline
from autosched.model import TaskInfo
from autosched.network_status import Comparison
from autosched.records.network_estimate import calls_made, network_s
from autosched.text.latency_gain import against, best, compared, ready, tasks_by_share
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


def test_the_gain_of_an_ended_job_is_that_of_its_result() -> None:
    """Text and ratio refer to the same latency: "result 655 us (start 4.17 ms, x2.87)" mixed two."""
    assert best(job_view()) == "best 4.81 ms (start 14.9 ms, x3.10)"
    assert best(replace(job_view(), result_s=7.45e-3)) == "result 7.45 ms (start 14.9 ms, x2.00)"
    assert best(replace(job_view(), estimate_s=None)) == ""


def test_an_ended_job_is_compared_by_its_result_and_offers_no_earlier_module() -> None:
    baseline = Baseline("LiteRT", "2", "as it is", 10e-3, 9.9e-3, 10.1e-3)
    running = replace(job_view(), comparison=Comparison(baseline, rest_s=10e-3, module_s=8e-3))
    ended = replace(running, result_s=5e-3)
    assert (against(running), against(ended)) == ("x1.25 faster", "x2.00 faster")
    assert compared(running) == "x1.25 faster than LiteRT, 10.0 ms", "no estimate stands above the module in hand"
    assert compared(ended) == "x2.00 faster than LiteRT, 10.0 ms"
    assert ready(running).startswith("8.00 ms, x1.25 faster than LiteRT")
    assert ready(ended) == ""
