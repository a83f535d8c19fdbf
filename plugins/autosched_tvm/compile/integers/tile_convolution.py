"""Convolution of an 8-bit image for instructions on whole tiles, in 32-bit sums. Images are in NCHW[c]c.

A tile of data is 16 places of the image by 64 bytes. The image is copied so that all channels of a place are
contiguous, and places follow each other: a row of the kernel then covers one run of bytes, at equal distances from
place to place. Several rows of the image are multiplied as one where this fills the tiles better; sums of places that
cross the end of a row are discarded.
"""

import json
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from tvm import relax, te, tirx

from autosched_tvm.compile.integers import tile_instructions
from autosched_tvm.compile.integers.convolution import Window
from autosched_tvm.compile.integers.product import BORDER, FUSES_ELEMENTWISE, RESULT, TILE_DOT
from autosched_tvm.compile.integers.schedule_steps import factors
from autosched_tvm.compile.integers.tile_instructions import DEPTH, LANES, ROWS
from autosched_tvm.tvm_types import BlockBuilder, BlockRV, Expr, Schedule, Tensor

Array = np.ndarray[Any, Any]

SIZES = "autosched.sizes"
"""Annotation of the block of sums that holds its `Geometry`."""
SPEED = 2.5
"""Speed of tiles relative to vectors, measured on products that fill the tiles."""
COPY_PRODUCTS = 16
"""Number of products on vectors in the time in which a byte is copied."""
UNPAIRED_SPEED = 0.9
"""Speed of single tiles of places relative to pairs."""
GROUP_PLACES_MAX = 256
"""Maximum number of places that are multiplied as one. Their sums stay in the L1 cache."""
BAND_BYTES_MAX = 2**18
"""Maximum size of a copied part of an image in bytes. It stays in the L2 cache."""


class Group(NamedTuple):
    """Rows of an image that are multiplied as one."""

    rows: int
    places: int
    """Number of places for which sums are computed: a multiple of a tile."""


class Geometry(NamedTuple):
    """Sizes of a convolution, in bytes of the copied image."""

    bands: int
    """Number of parts of the image, which are copied one after the other."""
    groups: int
    """Number of groups of rows in the result of a band."""
    group: Group
    width: int
    """Places in a row of the padded image."""
    channels: int
    """Channels including the padding of blocks."""
    strides: tuple[int, int]
    below: int
    """Distance between two rows of the kernel."""
    taps: int
    """Rows of the kernel."""
    run: int
    """Bytes that a row of the kernel covers, rounded up to a multiple of a tile."""

    @property
    def first(self) -> int:
        """Distance between the first bytes of two groups."""
        return self.group.rows * self.strides[0] * self.width * self.channels

    @property
    def apart(self) -> int:
        """Distance between two places."""
        return self.strides[1] * self.channels

    @property
    def bytes(self) -> int:
        """Size of a copied band: all rows that are read, including those past its end."""
        last = (self.groups - 1) * self.first + (self.taps - 1) * self.below
        row = self.width * self.channels
        return -(-(last + (self.group.places - 1) * self.apart + self.run) // row) * row


def geometry(image: tuple[int, int], channels: int, taps: tuple[int, int], how: Window) -> Geometry:
    """Returns the sizes for an image with some rows and columns, without padding."""
    width = image[1] + how.border[1] + how.border[3]
    height, across = how.results(image, taps)
    group = max(_groups(height, across, width, how.strides), key=lambda one: _share(one, across))
    run = -(-taps[1] * channels // DEPTH) * DEPTH
    below = how.dilation[0] * width * channels
    whole = Geometry(1, height // group.rows, group, width, channels, how.strides, below, taps[0], run)
    parts = [whole._replace(bands=bands, groups=whole.groups // bands) for bands in factors(whole.groups, whole.groups)]
    return next((one for one in parts if one.bytes <= BAND_BYTES_MAX), parts[-1])


def _groups(height: int, across: int, width: int, strides: tuple[int, int]) -> Iterator[Group]:
    """Yields all groups of rows whose sums stay in the L1 cache. Rows of the result are `across` places."""
    for rows in range(1, height + 1):
        places = (rows - 1) * width + across
        filled = -(-places // ROWS) * ROWS
        if rows > 1 and (strides != (1, 1) or filled > GROUP_PLACES_MAX):
            return
        if height % rows == 0:
            yield Group(rows, filled)


def _share(group: Group, across: int) -> tuple[float, int]:
    """Returns the share of a group's sums that are used, reduced where tiles cannot be paired; for equal shares the
    smallest group is best."""
    pairs = group.places // ROWS % 2 == 0
    return round(group.rows * across / group.places * (1.0 if pairs else UNPAIRED_SPEED), 2), -group.places


def worthwhile(data: Sequence[Any], weights: Sequence[int], how: Window) -> bool:
    """Returns whether a convolution is faster on tiles than on vectors. `data`: shape of the image, NCHW[c]c;
    `weights`: OIHW."""
    _, chunks, height, width, block = (int(size) for size in data)
    image, channels, filters, taps = (height, width), chunks * block, weights[0], (weights[2], weights[3])
    if how.dilation[1] != 1:
        return False
    sizes = geometry(image, channels, taps, how)
    filled = -(-filters // LANES) * LANES
    on_tiles = sizes.bands * sizes.groups * sizes.group.places * sizes.taps * sizes.run * filled / SPEED
    on_vectors = math.prod(how.results(image, taps)) * math.prod(taps) * channels * filters
    copied = sizes.bands * sizes.bytes * COPY_PRODUCTS
    return taps[0] * sizes.run >= tile_instructions.DEPTH_MIN and on_tiles + copied < on_vectors


def pack(weights: Array, channels: int, run: int) -> Array:
    """Returns OIHW as [O / 16, H, run / 4, 16, 4]. `channels` and `run` in bytes of the copied image."""
    filters, own, rows, columns = weights.shape
    filled = np.pad(weights, ((0, -filters % LANES), (0, channels - own), (0, 0), (0, 0)))
    lines = filled.transpose(0, 2, 3, 1).reshape(len(filled), rows, columns * channels)
    lines = np.pad(lines, ((0, 0), (0, 0), (0, run - lines.shape[2])))
    return np.ascontiguousarray(lines.reshape(-1, LANES, rows, run // 4, 4).transpose(0, 2, 3, 1, 4))


def convolution(data: Tensor, weights: Tensor, sizes: Geometry, how: Window, result: tuple[int, int, int]) -> Tensor:
    """Returns the sums of `data` [n, blocks, rows, columns, block] and packed weights: int32 [n, O / 16, rows, columns,
    16].

    `result`: blocks of filters, rows and columns.
    """
    n, _, height, across, block = (int(size) for size in data.shape)
    filters = int(weights.shape[0])
    top, left, _, _ = how.border
    line, channels = sizes.width * sizes.channels, sizes.channels

    def copied(b: Expr, band: Expr, j: Expr) -> Expr:
        start = band * (sizes.groups * sizes.group.rows * sizes.strides[0])
        y, x, c = start + j // line - top, j % line // channels - left, j % channels
        here = tirx.all(y >= 0, y < height, x >= 0, x < across)
        value = data[b, c // block, y, x, c % block]
        return tirx.if_then_else(here, value, tirx.const(how.border_value, data.dtype))

    image = te.compute((n, sizes.bands, sizes.bytes), copied, name=BORDER)
    tap, step = te.reduce_axis((0, sizes.taps), name="tap"), te.reduce_axis((0, sizes.run // 4), name="step")
    part = te.reduce_axis((0, 4), name="part")

    def sums(b: Expr, group: Expr, place: Expr, o: Expr, lane: Expr) -> Expr:
        band, own = group // sizes.groups, group % sizes.groups
        at = own * sizes.first + tap * sizes.below + place * sizes.apart + step * 4 + part
        factor = weights[o, tap, step, lane, part].astype("int32")
        return te.sum(image[b, band, at].astype("int32") * factor, axis=[tap, step, part])

    known = {SIZES: json.dumps(sizes)}
    shape = n, sizes.bands * sizes.groups, sizes.group.places, filters, LANES
    dot = te.compute(shape, sums, name=TILE_DOT, attrs=known)
    rows = sizes.group.rows

    def found(b: Expr, o: Expr, y: Expr, x: Expr, i: Expr) -> Expr:
        return dot[b, y // rows, y % rows * sizes.width + x, o, i]

    return te.compute((n, *result, LANES), found, name=RESULT)


def sizes_of(schedule: Schedule, anchor: BlockRV) -> Geometry:
    """Returns the sizes of a convolution, from its block of sums."""
    bands, groups, group, *others = json.loads(str(schedule.get(anchor).annotations[SIZES]))
    width, channels, strides, below, taps, run = others
    return Geometry(bands, groups, Group(*group), width, channels, tuple(strides), below, taps, run)


def packed(builder: BlockBuilder, data: Expr, weights: Array, how: Window) -> Expr:
    """Returns a call for the sums of unsigned integers in NCHW[i]c and weights OIHW, in NCHW[16]c."""
    _, chunks, height, width, block = (int(size) for size in data.ty.shape)
    channels = chunks * block
    taps = weights.shape[2], weights.shape[3]
    sizes = geometry((height, width), channels, taps, how)
    result = -(-len(weights) // LANES), *how.results((height, width), taps)
    factors = pack(weights, channels, sizes.run)
    return builder.call_te(
        lambda x, w: convolution(x, w, sizes, how, result), data, relax.const(factors),
        primfunc_name_hint="int8_conv2d_NCHWc", primfunc_attrs={"op_pattern": FUSES_ELEMENTWISE},
    )  # fmt: skip
