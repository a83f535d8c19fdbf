"""Computation of a Winograd convolution in the layout NCHW[x]c, as a task has it: plain stages.

    image     the data, padded so that all tiles are whole
    columns   B^T times each tile
    points    that times B
    products  for each point a product of matrices: tiles by channels, channels by filters
    rows      A^T times the products of each tile
    result    that times A

No schedule of the separate stages is fast. A template chooses the values of a few knobs, which `annotate` writes beside
the computation, and `kernel.expanded` makes the loop nest from them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import te

from autosched_tvm.compile.winograd.algebra import FILTERINGS, Algorithm
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import IRModule, Schedule, Stmt, Tensor

MARK = "autosched.winograd"
"""Annotation of the last stage: for rows and for columns, the size of a tile of results and the taps of a filter; last
the padding at the top and on the left."""
CHOSEN = "autosched.winograd.knobs"
"""Annotation of a scheduled workload: the knobs' values, as a JSON object."""
IMAGE, COLUMNS, POINTS, PRODUCTS, ROWS, RESULT = (
    f"winograd_{stage}" for stage in ("image", "columns", "points", "products", "rows", "result")
)
"""Names of the stages' blocks."""


@dataclass(frozen=True)
class Sizes:
    """Sizes of the computation. Channels and filters are counted in blocks."""

    algorithm: Algorithm
    batch: int
    channel_blocks: int
    channel_block: int
    height: int
    """Rows of the data."""
    width: int
    top: int
    """Rows of padding at the top of the data."""
    left: int
    filter_blocks: int
    filter_block: int
    out_height: int
    out_width: int

    @property
    def tile_rows(self) -> int:
        """Number of tiles along the height."""
        return self.algorithm.down.tiles(self.out_height)

    @property
    def tile_columns(self) -> int:
        """Number of tiles along the width."""
        return self.algorithm.across.tiles(self.out_width)

    @property
    def tiles(self) -> int:
        """Number of tiles of all images of the batch."""
        return self.batch * self.tile_rows * self.tile_columns


def convolution(data: Tensor, weights: Tensor, one: Algorithm, padding: tuple[int, int, int, int]) -> Tensor:
    """Returns the result [n, filters / o, h, w, o] of data [n, channels / i, h, w, i] and packed weights.

    `padding`: top, left, bottom, right.
    """
    (tall, wide), (high, long) = one.outputs, one.inputs
    n, chunks, height, width, block = (int(d) for d in data.shape)
    filters, _, channels, lanes = (int(d) for d in weights.shape)
    top, left, bottom, right = padding
    out_height, out_width = height + top + bottom - one.down.taps + 1, width + left + right - one.across.taps + 1
    rows, across = one.down.tiles(out_height), one.across.tiles(out_width)
    tiles = n * rows * across
    into_rows, into_columns = _constant(one.down.data, "winograd_into"), _constant(one.across.data, "winograd_into")
    back_rows, back_columns = (_constant(axis.results, "winograd_back") for axis in (one.down, one.across))
    zero = tvm.tirx.const(0, "float32")
    image = te.compute(
        (n, chunks, (rows - 1) * tall + high, (across - 1) * wide + long, block),
        lambda b, c, h, w, i: tvm.tirx.if_then_else(
            tvm.tirx.all(h >= top, h < height + top, w >= left, w < width + left),
            data[b, c, h - top, w - left, i], zero,
        ),
        name=IMAGE,
    )  # fmt: skip
    over = [te.reduce_axis((0, extent), name=f"over{number}") for number, extent in enumerate((high, long) * 2)]
    columns = te.compute(
        (high, long, tiles, chunks, block),
        lambda e, f, p, c, i: te.sum(
            into_rows[e, over[0]] * image[
                p // (rows * across), c, p // across % rows * tall + over[0], p % across * wide + f, i
            ],
            axis=over[0],
        ),
        name=COLUMNS,
    )  # fmt: skip
    turned = te.compute(
        columns.shape,
        lambda e, f, p, c, i: te.sum(into_columns[f, over[1]] * columns[e, over[1], p, c, i], axis=over[1]),
        name=POINTS,
    )
    depth = te.reduce_axis((0, channels), name="channel")
    products = te.compute(
        (filters, high, long, tiles, lanes),
        lambda o, e, f, p, j: te.sum(
            turned[e, f, p, depth // block, depth % block] * weights[o, e * long + f, depth, j], axis=depth
        ),
        name=PRODUCTS,
    )
    halves = te.compute(
        (filters, tall, long, tiles, lanes),
        lambda o, a, f, p, j: te.sum(back_rows[a, over[2]] * products[o, over[2], f, p, j], axis=over[2]),
        name=ROWS,
    )
    return te.compute(
        (n, filters, out_height, out_width, lanes),
        lambda b, o, h, w, j: te.sum(
            back_columns[w % wide, over[3]]
            * halves[o, h % tall, over[3], (b * rows + h // tall) * across + w // wide, j],
            axis=over[3],
        ),
        name=RESULT,
        attrs={MARK: [tall, one.down.taps, wide, one.across.taps, top, left]},
    )


def _constant(matrix: Array, name: str) -> Tensor:
    """Returns a small matrix that is computed where it is used."""

    def element(i: Any, j: Any) -> Any:
        value = tvm.tirx.const(0, "float32")
        for row, numbers in enumerate(matrix):
            for column, number in enumerate(numbers):
                if number:
                    place = tvm.tirx.all(i == row, j == column)
                    value = tvm.tirx.Select(place, tvm.tirx.const(float(number), "float32"), value)
        return value

    return te.compute(matrix.shape, element, name=name)


def marked(workload: IRModule) -> tuple[Algorithm, int, int] | None:
    """Returns the mark of a workload: the algorithm, padding at the top and on the left; None without one."""
    found: list[tuple[Algorithm, int, int]] = []

    def note(block: Stmt) -> None:
        if MARK in block.annotations:
            tall, rows, wide, columns, top, left = (int(number) for number in block.annotations[MARK])
            found.append((Algorithm(FILTERINGS[tall, rows], FILTERINGS[wide, columns]), top, left))

    tvm_ffi.structural_walk(workload["main"].body, (tvm.s_tir.SBlock, note))
    return found[0] if len(found) == 1 else None


def annotate(schedule: Schedule, knobs: Mapping[str, int | str]) -> None:
    """Writes the knobs' values beside the computation."""
    schedule.annotate(schedule.get_sblock("root"), CHOSEN, json.dumps(knobs, sort_keys=True, separators=(",", ":")))


def chosen(schedule: Schedule) -> dict[str, int | str] | None:
    """Returns the knobs' values of a scheduled workload; None without any."""
    text = schedule.get(schedule.get_sblock("root")).annotations.get(CHOSEN)
    return None if text is None else json.loads(str(text))
