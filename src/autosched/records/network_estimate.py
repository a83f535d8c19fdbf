"""Estimates the network's latency from the latencies of its tasks. Pure."""

from collections.abc import Iterable, Mapping
from typing import Protocol


class Part(Protocol):
    """The part of a task that the estimate needs; `TaskInfo` and `TaskView` have it."""

    @property
    def task(self) -> int:
        """Number of the task."""

    @property
    def weight(self) -> int:
        """Calls of the task in one inference."""

    @property
    def groups(self) -> Mapping[str, int]:
        """Calls by group of interchangeable tasks."""


def calls_made(parts: Iterable[Part], best_s: Mapping[int, float]) -> dict[int, int]:
    """Number of the network's calls of each task, by the best latencies: the fastest of a group does all its calls.

    While no task of a group has a latency, its calls count for each of them.
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
    """The network's latency as the sum of its tasks'; None while a necessary one has none, or without tasks."""
    calls = {task: count for task, count in calls_made(parts, best_s).items() if count}
    if not calls or not calls.keys() <= best_s.keys():
        return None
    return sum(count * best_s[task] for task, count in calls.items())
