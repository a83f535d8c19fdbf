"""The transforms of minimal filtering algorithms F(m x m, 3 x 3). Pure.

A tile of m x m results needs (m + 2)^2 products instead of 9 m^2: the data and the weights are evaluated at m + 1
points and at infinity, multiplied point by point, and interpolated. Source: Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks", CVPR 2016; the matrices follow from the Toom-Cook construction.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

Matrix = np.ndarray[Any, Any]

TAPS = 3
"""Rows and columns of the filters."""
FLOAT_MACS_PER_BYTE = 4.0
"""Multiply-adds of one core in the time in which it reads one byte of weights from memory."""


@dataclass(frozen=True)
class Algorithm:
    """F(m x m, 3 x 3), with interpolation at 0, at plus and minus each of `points`, and at infinity."""

    points: tuple[float, ...]

    @property
    def outputs(self) -> int:
        """Rows and columns of a tile of results: m."""
        return 2 * len(self.points)

    @property
    def inputs(self) -> int:
        """Rows and columns of a tile of data: m + 2."""
        return self.outputs + TAPS - 1

    @property
    def products(self) -> int:
        """Products for each pair of channels of a tile."""
        return self.inputs**2

    @cached_property
    def _signed(self) -> list[float]:
        return [0.0, *(sign * point for point in self.points for sign in (1, -1))]

    @cached_property
    def data(self) -> Matrix:
        """The matrix B^T that transforms a column of data. Row i holds the coefficients of M(x) / (x - point i), and
        the last row those of M(x), where M is the product of all (x - point).
        """
        rows = [np.poly([other for other in self._signed if other is not one])[::-1] for one in self._signed]
        whole = np.poly(self._signed)[::-1]
        # Rounded: opposite points cancel exactly.
        return np.round(np.array([*(np.append(row, 0.0) for row in rows), whole]), 12) + 0.0

    @cached_property
    def weights(self) -> Matrix:
        """The matrix G that transforms a column of weights."""
        rows = []
        for one in self._signed:
            slope = np.prod([one - other for other in self._signed if other is not one])
            rows.append([one**power / slope for power in range(TAPS)])
        return np.array([*rows, [0.0] * (TAPS - 1) + [1.0]])

    @cached_property
    def results(self) -> Matrix:
        """The matrix A^T that transforms a column of products back."""
        rows = [[one**power for one in self._signed] + [0.0] for power in range(self.outputs)]
        rows[-1][-1] = 1.0
        return np.array(rows)

    def transform_data(self, column: Sequence[Any]) -> list[Any]:
        """B^T times a column of numbers, arrays or expressions. Rows of opposite points share their sums."""
        matrix = self.data
        found = [_sum(matrix[0], column)]
        for row in range(1, self.inputs - 1, 2):
            even, odd = (matrix[row] + matrix[row + 1]) / 2, (matrix[row] - matrix[row + 1]) / 2
            scale = max(odd.min(), odd.max(), key=abs) if np.abs(odd).max() != 1 else 1.0
            left, right = _sum(even, column), _sum(odd / scale, column)
            found += [_plus(left, scale, right), _plus(left, -scale, right)]
        return [*found, _sum(matrix[-1], column)]

    def transform_results(self, column: Sequence[Any]) -> list[Any]:
        """A^T times a column of numbers, arrays or expressions. Opposite points share their sums."""
        pairs = [(column[i] + column[i + 1], column[i] - column[i + 1]) for i in range(1, self.inputs - 1, 2)]
        found = []
        for power in range(self.outputs):
            terms = [pair[power % 2] for pair in pairs]
            factors = [point**power for point in self.points]
            if power == 0:
                factors, terms = [1.0, *factors], [column[0], *terms]
            elif power == self.outputs - 1:
                factors, terms = [*factors, 1.0], [*terms, column[-1]]
            found.append(_sum(np.round(factors, 12), terms))
        return found

    def tiles(self, extent: int) -> int:
        """Tiles along an axis of the result; the last one may be cut off."""
        return -(-extent // self.outputs)

    def pack(self, kernel: Matrix, inside: int, outside: int) -> Matrix:
        """Weights OIHW as they are multiplied: [O / outside][products][I][outside]. Channels are filled up with zeros
        to multiples of the blocks `inside` and `outside`.
        """
        filters, channels = kernel.shape[:2]
        whole = np.pad(kernel.astype("float64"), [(0, -filters % outside), (0, -channels % inside), (0, 0), (0, 0)])
        turned = np.einsum("ai,ocij,bj->aboc", self.weights, whole, self.weights, optimize=True)
        blocks = turned.reshape(self.products, -1, outside, whole.shape[1])
        return np.ascontiguousarray(blocks.transpose(1, 0, 3, 2).astype("float32"))


ALGORITHMS = {2: Algorithm((1.0,)), 4: Algorithm((0.5**0.5, 2.0**0.5))}
"""By the rows of a tile of results. The points of F(4x4) have the product 1, which keeps its error at a third of that
of the points 1 and 2. F(6x6) is not offered: its error is seven times as large."""


@dataclass(frozen=True)
class Shape:
    """A 3x3 convolution of stride 1."""

    batch: int
    channels: int
    filters: int
    height: int
    """Rows of the result."""
    width: int


def worth(shape: Shape, channels_min: int) -> tuple[int, ...]:
    """The tile sizes worth a trial for a convolution, the most promising first; empty: only the direct way.

    An estimate in multiply-adds of one core, which counts products, transforms and the bytes of the weights: a small
    image leaves tiles partly empty and reads the larger weights for few of them.
    """
    if min(shape.channels, shape.filters) < channels_min:
        return ()
    pairs = shape.channels * shape.filters
    direct = pairs * TAPS**2 * (shape.batch * shape.height * shape.width + 4 * FLOAT_MACS_PER_BYTE)
    costs = {}
    for size, one in ALGORITHMS.items():
        tiles = shape.batch * one.tiles(shape.height) * one.tiles(shape.width)
        transforms = TRANSFORM_MACS * one.products * tiles * (shape.channels + shape.filters)
        costs[size] = pairs * one.products * (tiles + 4 * FLOAT_MACS_PER_BYTE) + transforms
    least = min(costs.values())
    offered = [size for size, cost in costs.items() if cost < WORTH_SHARE * direct and cost < NEAR_RATIO * least]
    return tuple(sorted(offered, key=lambda size: costs[size]))


TRANSFORM_MACS = 8.0
"""Multiply-adds that transforming a number of a tile, there and back, takes the time of."""
WORTH_SHARE = 0.9
"""An algorithm is tried if its estimate is below this share of the direct one's."""
NEAR_RATIO = 1.3
"""A second tile size is tried if its estimate is within this ratio of the best."""


def _sum(factors: Any, terms: Sequence[Any]) -> Any:
    """The sum of factor times term; terms whose factor is 0 are left out."""
    found = None
    for factor, term in sorted(zip(map(float, factors), terms, strict=True), key=lambda pair: pair[0] != 1):
        if factor == 0:
            continue
        found = (term if factor == 1 else term * factor) if found is None else _plus(found, factor, term)
    return found


def _plus(left: Any, factor: float, term: Any) -> Any:
    if abs(factor) == 1:
        return left + term if factor > 0 else left - term
    return left + term * factor if factor > 0 else left - term * -factor
