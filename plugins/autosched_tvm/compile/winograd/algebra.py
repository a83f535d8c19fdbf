"""Transforms of minimal filtering algorithms F(m, r) along each axis of an image. Pure.

Along one axis, m results of a filter of r taps need m + r - 1 products instead of m r: the data and the weights are
evaluated at m + r - 2 points and at infinity, multiplied point by point, and interpolated. A 3x3 convolution is
filtered along both axes, a 1x3 convolution along one. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural
Networks", CVPR 2016; the matrices follow from the Toom-Cook construction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from autosched_tvm.tvm_types import Expr

Matrix = np.ndarray[Any, Any]

FLOAT_MACS_PER_BYTE = 4.0
"""Multiply-adds of one core in the time in which it reads one byte of weights from memory."""


@dataclass(frozen=True)
class Filtering:
    """F(m, r) along one axis, with interpolation at 0, at plus and minus each of `points`, and at infinity. F(1, 1), at
    infinity alone, leaves the axis unchanged."""

    taps: int
    """Size of a filter along the axis: r."""
    points: tuple[float, ...]

    @property
    def outputs(self) -> int:
        """Size of a tile of results along the axis: m."""
        return self.inputs - self.taps + 1

    @property
    def inputs(self) -> int:
        """Size of a tile of data along the axis: m + r - 1."""
        return len(self._signed) + 1

    @cached_property
    def _signed(self) -> list[float]:
        return [0.0, *(sign * point for point in self.points for sign in (1, -1))] if self.points else []

    @cached_property
    def data(self) -> Matrix:
        """Matrix B^T that transforms a column of data. Row i holds the coefficients of M(x) / (x - point i), and the
        last row those of M(x), where M is the product of all (x - point)."""
        rows = [np.poly([other for other in self._signed if other is not one])[::-1] for one in self._signed]
        whole = np.atleast_1d(np.poly(self._signed))[::-1]
        # rounded: opposite points cancel exactly
        return np.round(np.array([*(np.append(row, 0.0) for row in rows), whole]), 12) + 0.0

    @cached_property
    def weights(self) -> Matrix:
        """Matrix G that transforms a column of weights."""
        rows = []
        for one in self._signed:
            slope = np.prod([one - other for other in self._signed if other is not one])
            rows.append([one**power / slope for power in range(self.taps)])
        return np.array([*rows, [0.0] * (self.taps - 1) + [1.0]])

    @cached_property
    def results(self) -> Matrix:
        """Matrix A^T that transforms a column of products back."""
        rows = [[one**power for one in self._signed] + [0.0] for power in range(self.outputs)]
        rows[-1][-1] = 1.0
        return np.array(rows)

    def transform_data(self, column: Sequence[Any]) -> list[Any]:
        """Returns B^T times a column of numbers, arrays or expressions. Rows of opposite points share their sums."""
        if not self.points:
            return list(column)
        matrix = self.data
        found = [_sum(matrix[0], column)]
        for row in range(1, self.inputs - 1, 2):
            even, odd = (matrix[row] + matrix[row + 1]) / 2, (matrix[row] - matrix[row + 1]) / 2
            scale = max(odd.min(), odd.max(), key=abs) if np.abs(odd).max() != 1 else 1.0
            left, right = _sum(even, column), _sum(odd / scale, column)
            found += [_plus(left, scale, right), _plus(left, -scale, right)]
        return [*found, _sum(matrix[-1], column)]

    def transform_results(self, column: Sequence[Any]) -> list[Any]:
        """Returns A^T times a column of numbers, arrays or expressions. Opposite points share their sums."""
        if not self.points:
            return list(column)
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
        """Returns the number of tiles along an axis of the result. The last one may be cut off."""
        return -(-extent // self.outputs)


@dataclass(frozen=True)
class Algorithm:
    """A filtering along each axis of an image."""

    down: Filtering
    across: Filtering

    @property
    def outputs(self) -> tuple[int, int]:
        """Rows and columns of a tile of results."""
        return self.down.outputs, self.across.outputs

    @property
    def taps(self) -> tuple[int, int]:
        """Rows and columns of the filters."""
        return self.down.taps, self.across.taps

    @property
    def inputs(self) -> tuple[int, int]:
        """Rows and columns of a tile of data."""
        return self.down.inputs, self.across.inputs

    @property
    def products(self) -> int:
        """Number of products for each pair of channels of a tile."""
        return self.down.inputs * self.across.inputs

    @property
    def words(self) -> str:
        """Name from the tile of results and the filters: "4x4of3x3", "1x4of1x3"."""
        return "of".join("x".join(map(str, sizes)) for sizes in (self.outputs, self.taps))

    @property
    def axes(self) -> int:
        """Number of axes with a transform."""
        return sum(1 for axis in (self.down, self.across) if axis.points)

    def tiles(self, height: int, width: int) -> int:
        """Returns the number of tiles of a result. Those at its edges may be cut off."""
        return self.down.tiles(height) * self.across.tiles(width)

    def pack(self, kernel: Matrix, inside: int, outside: int) -> Matrix:
        """Returns weights OIHW in multiplication order: [O / outside][products][I][outside]. Channels are padded with
        zeros to multiples of the blocks `inside` and `outside`."""
        filters, channels = kernel.shape[:2]
        whole = np.pad(kernel.astype("float64"), [(0, -filters % outside), (0, -channels % inside), (0, 0), (0, 0)])
        turned = np.einsum("ai,ocij,bj->aboc", self.down.weights, whole, self.across.weights, optimize=True)
        blocks = turned.reshape(self.products, -1, outside, whole.shape[1])
        return np.ascontiguousarray(blocks.transpose(1, 0, 3, 2).astype("float32"))


SQUARE = 3
"""Rows and columns of filters that are filtered along both axes."""
AS_IT_IS = Filtering(1, ())
_FOUR = (0.5**0.5, 2.0**0.5)
_SIX = (0.6, 1.0, 1 / 0.6)
FILTERINGS = {
    (one.outputs, one.taps): one
    for one in (
        AS_IT_IS,
        Filtering(3, (1.0,)),
        Filtering(3, _FOUR),
        Filtering(3, _SIX),
        Filtering(5, _FOUR),
        Filtering(5, _SIX),
        Filtering(7, _SIX),
    )
}
"""Filtering by results of a tile and taps. The points have the product 1, which keeps the error of F(4x4, 3x3) at a
third of that of the points 1 and 2; with eight points, 0.6 rounds less than the square root of a half."""
BOTH_AXES = tuple(Algorithm(FILTERINGS[size, SQUARE], FILTERINGS[size, SQUARE]) for size in (2, 4))
"""Algorithms along both axes. F(6x6, 3x3) is left out: its error is seven times that of F(4x4, 3x3)."""


def algorithms(taps: tuple[int, int]) -> tuple[Algorithm, ...]:
    """Returns the algorithms for filters with a number of rows and columns."""
    if taps == (SQUARE, SQUARE):
        return BOTH_AXES
    if 1 not in taps:
        return ()
    own = [[one for one in FILTERINGS.values() if one.taps == extent] for extent in taps]
    return tuple(Algorithm(down, across) for down in own[0] for across in own[1] if down.points or across.points)


@dataclass(frozen=True)
class Shape:
    """A convolution of stride 1."""

    batch: int
    channels: int
    filters: int
    height: int
    """Rows of the result."""
    width: int
    taps: tuple[int, int] = (SQUARE, SQUARE)
    """Rows and columns of the filters."""


def worth(shape: Shape, channels_min: int) -> tuple[Algorithm, ...]:
    """Returns the algorithms worth a trial for a convolution, the most promising first; empty: only the direct way.

    The estimate, in multiply-adds of one core, counts products, transforms and the bytes of the weights. On a small
    image, tiles are partly empty, and the larger weights serve few of them.
    """
    if min(shape.channels, shape.filters) < channels_min:
        return ()
    pairs = shape.channels * shape.filters
    direct = pairs * math.prod(shape.taps) * (shape.batch * shape.height * shape.width + 4 * FLOAT_MACS_PER_BYTE)
    costs = {}
    for one in algorithms(shape.taps):
        tiles = shape.batch * one.tiles(shape.height, shape.width)
        transforms = TRANSFORM_MACS * one.axes * one.products * tiles * (shape.channels + shape.filters)
        costs[one] = pairs * one.products * (tiles + 4 * FLOAT_MACS_PER_BYTE) + transforms
    least = min(costs.values(), default=0.0)
    offered = [one for one, cost in costs.items() if cost < WORTH_SHARE * direct and cost < NEAR_RATIO * least]
    return tuple(sorted(offered, key=lambda one: costs[one]))


TRANSFORM_MACS = 4.0
"""Cost of transforming a number of a tile along an axis, there and back, in multiply-adds."""
WORTH_SHARE = 0.9
"""Maximum estimate of an algorithm worth a trial, relative to the direct way."""
NEAR_RATIO = 1.3
"""Maximum estimate of a second algorithm worth a trial, relative to the best one."""


def _sum(factors: Any, terms: Sequence[Any]) -> Any:
    """Returns the sum of factor times term; terms with factor 0 are left out."""
    found = None
    for factor, term in sorted(zip(map(float, factors), terms, strict=True), key=lambda pair: pair[0] != 1):
        if factor == 0:
            continue
        found = (term if factor == 1 else term * factor) if found is None else _plus(found, factor, term)
    return found


def _plus(left: Expr, factor: float, term: Expr) -> Expr:
    if abs(factor) == 1:
        return left + term if factor > 0 else left - term
    return left + term * factor if factor > 0 else left - term * -factor
