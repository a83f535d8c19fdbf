"""Normalised discounted cumulative gain (Järvelin and Kekäläinen, TOIS 2002): how good is the beginning of an order?

The gain of a schedule is its speed relative to the fastest of its task, and 0 for a failure.
"""

from collections.abc import Callable, Sequence

import numpy as np

from autosched_tvm.ranking.measured_task import MeasuredTask, Vector

FIRST = 8
"""Number of schedules at the beginning of an order that count."""
SCHEDULES_MIN = 2 * FIRST
"""Minimum number of schedules of a task whose order says something."""


def ndcg(scores: Vector, speeds: Vector, first: int = FIRST) -> float:
    """Returns the quality of the order by descending scores: 1 for the best order.

    Schedules with equal scores count with their mean speed, so that the order of the rows says nothing.
    """
    _, tied, counts = np.unique(-scores, return_inverse=True, return_counts=True)
    expected = (np.bincount(tied, speeds) / counts)[tied]
    order = np.argsort(-scores, kind="stable")[:first]
    discounts = 1.0 / np.log2(np.arange(2, len(order) + 2))
    best = float(np.sort(speeds)[::-1][: len(order)] @ discounts)
    return float(expected[order] @ discounts) / best if best > 0 else 1.0


def mean_ndcg(tasks: Sequence[MeasuredTask], score: Callable[[MeasuredTask], Vector]) -> float:
    """Returns the mean quality over tasks with enough schedules that differ; NaN if there are none."""
    found = [ndcg(score(task), task.speeds) for task in tasks if len(task) >= SCHEDULES_MIN and np.ptp(task.speeds) > 0]
    return float(np.mean(found)) if found else float("nan")
