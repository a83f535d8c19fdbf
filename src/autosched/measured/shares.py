"""What the latencies of tasks say of the network: its latency, the gain, and which tasks hold how much of it."""

from collections.abc import Iterable, Mapping

from autosched.model import TaskInfo
from autosched.protocol import JobView, TaskView
from autosched.text import units

Part = TaskInfo | TaskView


def calls_made(parts: Iterable[Part], best_s: Mapping[int, float]) -> dict[int, int]:
    """How often the network will call each task, by the best latencies: the fastest of a group does all its calls.

    As long as no task of a group has a latency, its calls count for each of them.
    """
    parts = list(parts)
    first: dict[str, tuple[float, int]] = {}
    for part in parts:
        if part.task in best_s:
            for group in part.groups:
                own = best_s[part.task], part.task
                first[group] = min(own, first.get(group, own))
    return {
        part.task: part.weight
        - sum(calls for group, calls in part.groups.items() if first.get(group, (0.0, part.task))[1] != part.task)
        for part in parts
    }


def network_s(parts: Iterable[Part], best_s: Mapping[int, float]) -> float | None:
    """The network's latency as the sum of its tasks'; None while one that it must call has none, or without tasks."""
    calls = {task: count for task, count in calls_made(parts, best_s).items() if count}
    if not calls or not calls.keys() <= best_s.keys():
        return None
    return sum(count * best_s[task] for task, count in calls.items())


def tasks_by_share(job: JobView) -> list[tuple[TaskView, float | None]]:
    """Tasks with their share of the estimate, the largest first; tasks without a valid record at the end."""
    best_s = {task.task: task.best_s for task in job.tasks if task.best_s is not None}
    calls = calls_made(job.tasks, best_s)
    times = {task: calls[task] * latency_s for task, latency_s in best_s.items()}
    whole = sum(times.values())
    shares = [(task, times[task.task] / whole if task.task in times else None) for task in job.tasks]
    return sorted(shares, key=lambda pair: (pair[1] is None, -(pair[1] or 0.0), pair[0].task))


def gain(view: JobView) -> str:
    """Where it started and how far it came: " (start 14.9 ms, x3.10)"."""
    if not view.first_estimate_s or not view.estimate_s:
        return ""
    return f" (start {units.latency(view.first_estimate_s)}, {units.ratio(view.first_estimate_s / view.estimate_s)})"
