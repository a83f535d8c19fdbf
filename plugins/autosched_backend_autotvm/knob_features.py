"""Features of a configuration that need no schedule: the values of its knobs. Does not use TVM."""

import math

import numpy as np
from numpy.typing import NDArray

from autosched_backend_autotvm.config_space import PROMISE, ConfigSpace, Knob
from autosched_backend_autotvm.tuners.config_sampler import Digits

Matrix = NDArray[np.float32]
TABLE_MAX = 1 << 16


class KnobFeatures:
    """Flattened values (logarithms of numbers, each factor of a tiling separately, one-hot words), and the template's
    insights.

    A column has the same name and meaning in each task of a template, whatever values the task's space has.
    """

    def __init__(self, space: ConfigSpace) -> None:
        self.names: tuple[str, ...] = ()
        self._tables: list[tuple[int, Matrix]] = []
        for at, knob in enumerate(space.knobs):
            names, table = _columns(knob)
            self.names += names
            self._tables.append((at, table))
        self.largest: Matrix = np.concatenate([np.zeros(0, np.float32), *(t.max(axis=0) for _, t in self._tables)])
        """Largest value in each knob column. These columns are the first."""
        self._told = _Told(space) if space.knobs and space.insight is not None else None
        if self._told is not None:
            self.names += self._told.names

    def of(self, digits: Digits) -> Matrix:
        """Returns one row for each configuration."""
        if not len(self.names):
            return np.zeros((len(digits), 0), np.float32)
        own = [table[digits[:, at]] for at, table in self._tables]
        return np.concatenate(own if self._told is None else [*own, self._told.of(digits)], axis=1)

    def promise(self, digits: Digits) -> NDArray[np.float32] | None:
        """Returns the template's score of each configuration, larger is better; None without one."""
        if self._told is None or PROMISE not in self._told.names:
            return None
        found: NDArray[np.float32] = self._told.of(digits)[:, self._told.names.index(PROMISE)]
        return found


class _Told:
    """Insights of a template from a space's numeric knobs, tabulated where there are few combinations."""

    def __init__(self, space: ConfigSpace) -> None:
        assert space.insight is not None
        self._insight = space.insight
        numeric = [(at, knob) for at, knob in enumerate(space.knobs) if isinstance(knob.values[0], int)]
        self._at = [at for at, _ in numeric]
        self._values = {knob.name: np.array(knob.values, np.float64) for _, knob in numeric}
        radices = [len(knob.values) for _, knob in numeric]
        self.names = tuple(self._insight({name: values[:1] for name, values in self._values.items()}))
        self._table: Matrix | None = None
        if (size := math.prod(radices)) <= TABLE_MAX:
            self._strides = np.array([math.prod(radices[:place]) for place in range(len(radices))], np.int64)
            every = np.arange(size)[:, None] // self._strides % np.array(radices, np.int64)
            self._table = self._computed(every)

    def of(self, digits: Digits) -> Matrix:
        """Returns one row for each configuration."""
        own = digits[:, self._at]
        return self._computed(own) if self._table is None else self._table[own @ self._strides]

    def _computed(self, own: Digits) -> Matrix:
        """Returns the insights of rows that contain only the digits of the numeric knobs."""
        values = {name: table[own[:, at]] for at, (name, table) in enumerate(self._values.items())}
        return np.stack([np.asarray(column, np.float32) for column in self._insight(values).values()], axis=1)


def _columns(knob: Knob) -> tuple[tuple[str, ...], Matrix]:
    """Returns the names of a knob's columns, and a row for each of its values."""
    first = knob.values[0]
    if isinstance(first, str):
        words = sorted({str(value) for value in knob.values})
        table = [[float(str(value) == word) for word in words] for value in knob.values]
        return tuple(f"{knob.name}={word}" for word in words), np.array(table, np.float32)
    rows = [value if isinstance(value, tuple) else (int(value),) for value in knob.values]
    width = max(len(row) for row in rows)
    names = (knob.name,) if isinstance(first, int) else tuple(f"{knob.name}.{part}" for part in range(width))
    table = [[logarithm(part) for part in row] + [0.0] * (width - len(row)) for row in rows]
    return names, np.array(table, np.float32).reshape(len(rows), width)


def logarithm(number: float) -> float:
    """Returns the logarithm to base 2, continued smoothly through 0 to negative numbers."""
    return float(np.sign(number) * np.log2(1.0 + abs(number)))
