"""Measured schedules of one task, as a ranker learns from them. Does not use TVM."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

Matrix: TypeAlias = NDArray[np.float32]
"""Features: one row for each schedule."""
Vector: TypeAlias = NDArray[np.float32]


class Family(NamedTuple):
    """Tasks whose schedules have the same features."""

    name: str
    """Name of a schedule template."""
    version: str
    """Version of the template: in another one, the same choices may be another schedule."""


@dataclass(frozen=True)
class MeasuredTask:
    """Measured schedules of one task."""

    workload: str
    """Hash of the workload."""
    networks: frozenset[str]
    """Networks that contain the task."""
    shape: tuple[int, ...]
    """Sizes of the workload, in the same order for all tasks of an operator family."""
    names: tuple[str, ...]
    """Names of the features."""
    features: Matrix
    speeds: Vector
    """Speed of each schedule, relative to the fastest; 0 for a failure."""

    def __len__(self) -> int:
        return len(self.speeds)


def shape_distance(one: Sequence[int], other: Sequence[int]) -> float:
    """Returns the distance of two shapes: the sum of the log ratios of their sizes. Fused operators add sizes."""
    ratios = (abs(math.log2(1.0 + a) - math.log2(1.0 + b)) for a, b in zip(one, other, strict=False))
    return sum(ratios) + abs(len(one) - len(other))


def column_names(tasks: Sequence[MeasuredTask]) -> tuple[str, ...]:
    """Returns the names of all features of the tasks, each once."""
    return tuple(dict.fromkeys(name for task in tasks for name in task.names))


def aligned_features(features: Matrix, names: Sequence[str], wanted: Sequence[str]) -> Matrix:
    """Returns the wanted columns. A word (`knob=word`) that a task lacks counts as not chosen, a number as unknown
    (NaN)."""
    if tuple(names) == tuple(wanted):
        return features
    at = {name: column for column, name in enumerate(names)}
    found = np.full((len(features), len(wanted)), np.nan, np.float32)
    for column, name in enumerate(wanted):
        if name in at:
            found[:, column] = features[:, at[name]]
        elif "=" in name:
            found[:, column] = 0.0
    return found


def stacked(tasks: Sequence[MeasuredTask], wanted: Sequence[str]) -> tuple[Matrix, Vector, NDArray[np.int64]]:
    """Returns the features and speeds of all schedules, and the number of the task of each, ascending."""
    features = [aligned_features(task.features, task.names, wanted) for task in tasks]
    groups = np.repeat(np.arange(len(tasks)), [len(task) for task in tasks])
    return np.concatenate(features), np.concatenate([task.speeds for task in tasks]), groups
