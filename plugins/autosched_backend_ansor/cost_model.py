"""Ansor's cost model: boosted trees on rows of features, one row for each store of a program. Loads without TVM.

Source: Ansor (Zheng et al., OSDI 2020), section 5.2: the score of a program is the sum over its rows, its label the
best latency of its task over its own, so that one model serves all tasks; errors at fast programs weigh more. The trees
are as deep as in TVM's. What is different from there, and why:

- A failed program has label 0 and, like the slowest, a small weight; TVM's has none, so that model never learns from
  failures. The latency is the median everywhere; TVM takes the mean in its database and the median in its model.
- Training ends when the error falls slowly, not after fifty rounds without any progress on the data it is fitted to.
- On which measurements the model was trained depends on nothing but the measurements in their order, so that a search
  which is built anew from its records scores like the one before. The same holds for scores before there is a model:
  TVM draws them from a generator that all share.
"""

import threading
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xgboost
from numpy.typing import NDArray

Rows = NDArray[np.float32]
"""(stores of the program, features)"""

PARAMETERS = {"max_depth": 10, "gamma": 0.001, "min_child_weight": 0, "eta": 0.2, "seed": 43, "base_score": 0.0}
ROUNDS_MAX = 300
PATIENCE = 8
"""Number of rounds that together must lower the error by GAIN_MIN; otherwise training ends."""
GAIN_MIN = 0.02
WEIGHT_MIN = 0.1
EAGER = 64
"""Number of measurements up to which each new one starts a training; beyond, a tenth more does."""


@dataclass
class Measurements:
    """Measurements of one task."""

    rows: list[Rows] = field(default_factory=list)
    latency_s: list[float] = field(default_factory=list)
    """Latency in seconds; infinite for a failure."""

    def labels(self, count: int) -> NDArray[np.float64]:
        """Speeds of the first `count` measurements, relative to the best of them."""
        latency_s = np.asarray(self.latency_s[:count])
        best_s = latency_s.min(initial=np.inf)
        return best_s / latency_s if np.isfinite(best_s) else np.zeros(count)


class SharedModel:
    """One cost model for all tasks of a job, so that measurements of one task help the others."""

    def __init__(self, warm_at: int, threads: int) -> None:
        """`warm_at`: number of measurements, of all tasks together, before scores are given."""
        self._warm_at = max(1, warm_at)
        self._parameters = {**PARAMETERS, "nthread": threads}
        self._tasks: defaultdict[str, Measurements] = defaultdict(Measurements)
        self._order: list[str] = []
        self._trained_on = 0
        self._trees: xgboost.Booster | None = None
        self._lock = threading.Lock()

    def learn(self, task: str, rows: Sequence[Rows], latency_s: Sequence[float | None]) -> None:
        """Add programs of a task with their latencies in seconds, None for a failure."""
        with self._lock:
            for program, measured_s in zip(rows, latency_s, strict=True):
                if len(program):
                    self._tasks[task].rows.append(program)
                    self._tasks[task].latency_s.append(np.inf if measured_s is None else measured_s)
                    self._order.append(task)
            count = trained_size(len(self._order))
            if count >= self._warm_at and count != self._trained_on:
                self._train(count)

    @property
    def warm(self) -> bool:
        """Whether there are enough measurements for scores."""
        return self._trees is not None

    def scores(self, rows: Sequence[Rows]) -> NDArray[np.float64]:
        """Expected speed relative to the best of the task; larger is better. Only if `warm`."""
        with self._lock:
            assert self._trees is not None
            flat, owners = _packed(rows)
            if not len(flat):
                return np.zeros(len(rows))
            predicted: NDArray[np.float64] = np.bincount(
                owners, self._trees.predict(xgboost.DMatrix(flat)), len(rows)
            ).astype("float64")
            return predicted

    def _train(self, count: int) -> None:
        """Train on the first measurements."""
        rows: list[Rows] = []
        labels: list[NDArray[np.float64]] = []
        for task, measurements in sorted(self._tasks.items()):
            own = self._order[:count].count(task)
            rows += measurements.rows[:own]
            labels.append(measurements.labels(own))
        self._trees = _fitted(rows, np.concatenate(labels), self._parameters)
        self._trained_on = count


def trained_size(count: int) -> int:
    """Number of measurements to train on, of `count` in all."""
    size = min(count, EAGER)
    while size >= EAGER and (more := size + size // 10) <= count:
        size = more
    return size


def _packed(rows: Sequence[Rows]) -> tuple[Rows, NDArray[np.int64]]:
    return np.concatenate(rows), np.repeat(np.arange(len(rows)), [len(program) for program in rows])


def _fitted(rows: Sequence[Rows], labels: NDArray[np.float64], parameters: dict[str, Any]) -> xgboost.Booster:
    flat, owners = _packed(rows)
    data = xgboost.DMatrix(flat, label=labels[owners])
    target, weight = labels[owners], np.maximum(labels, WEIGHT_MIN)[owners]
    errors: list[float] = []

    def gradient(predicted: NDArray[Any], _data: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        wrong = np.bincount(owners, predicted, len(rows))[owners] - target
        errors.append(float(np.sqrt(np.average(wrong**2, weights=weight))))
        return wrong * weight, weight

    trees = xgboost.Booster(parameters, [data])
    for number in range(ROUNDS_MAX):
        trees.update(data, number, fobj=gradient)
        if len(errors) > PATIENCE and errors[-1] > (1 - GAIN_MIN) * errors[-1 - PATIENCE]:
            break
    return trees
