"""What a cost model sees of a configuration, without applying it: the values of its knobs. Knows no TVM."""

import numpy as np
from numpy.typing import NDArray

from autosched_backend_autotvm.space import Knob, Space
from autosched_backend_autotvm.tuners.points import Digits

Matrix = NDArray[np.float32]


class KnobFeatures:
    """Values flattened: numbers as logarithms, each factor of a tiling by itself, words one-hot.

    A column has the same name and meaning in every task of a template, whatever values the task's space has.
    """

    def __init__(self, space: Space) -> None:
        self.names: tuple[str, ...] = ()
        self._tables: list[tuple[int, Matrix]] = []
        for at, knob in enumerate(space.knobs):
            names, table = _columns(knob)
            self.names += names
            self._tables.append((at, table))
        self.largest: Matrix = np.concatenate([np.zeros(0, np.float32), *(t.max(axis=0) for _, t in self._tables)])
        """Of each column."""

    def of(self, digits: Digits) -> Matrix:
        """One row for each."""
        if not len(self.names):
            return np.zeros((len(digits), 0), np.float32)
        return np.concatenate([table[digits[:, at]] for at, table in self._tables], axis=1)


def _columns(knob: Knob) -> tuple[tuple[str, ...], Matrix]:
    """Names of a knob's columns, and a row for each of its values."""
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
    """Of base 2, going on smoothly through 0 to negative numbers."""
    return float(np.sign(number) * np.log2(1.0 + abs(number)))
