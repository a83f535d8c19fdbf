"""Converts constants into a layout: weights, and operands that are broadcast. Pure."""

from typing import Any

import numpy as np

from autosched_tvm.compile.layouts.layout import Layout
from autosched_tvm.compile.relax_operators import Shape

Array = np.ndarray[Any, Any]


def pack(array: Array, layout: Layout, fill: float = 0.0) -> Array:
    """Returns a constant of NCHW shape in a layout."""
    if layout.name == "NHWC":
        return np.ascontiguousarray(array.transpose(0, 2, 3, 1))
    if not layout.block:
        return array
    n, _, h, w = array.shape
    whole = _filled(array, 1, layout.block, fill)
    return np.ascontiguousarray(whole.reshape(n, -1, layout.block, h, w).transpose(0, 1, 3, 4, 2))


def pack_kernel(kernel: Array, in_block: int, out_block: int) -> Array:
    """Returns convolution weights OIHW as OIHW[i]i[o]o."""
    whole = _filled(_filled(kernel, 0, out_block, 0.0), 1, in_block, 0.0)
    o, i, h, w = whole.shape
    split = whole.reshape(o // out_block, out_block, i // in_block, in_block, h, w)
    return np.ascontiguousarray(split.transpose(0, 2, 4, 5, 3, 1))


def pack_columns(matrix: Array, block: int) -> Array:
    """Returns a matrix [k, n] as blocks of columns [n/block, k, block]; the last block is padded with zeros."""
    whole = _filled(matrix, 1, block, 0.0)
    return np.ascontiguousarray(whole.reshape(len(matrix), -1, block).transpose(1, 0, 2))


def operand(array: Array, shape: Shape, layout: Layout, fill: float = 0.0) -> Array | None:
    """Returns a constant operand that is broadcast to a value of NCHW `shape` in its layout; None where that is
    impossible."""
    if array.ndim > 4:
        return None
    if array.size == 1:
        return array.reshape(())
    whole = array.reshape((1,) * (4 - array.ndim) + array.shape)
    if any(have not in (1, want) for have, want in zip(whole.shape, shape, strict=True)):
        return None
    if layout.block and whole.shape[1] == 1:
        return whole[..., np.newaxis]
    return pack(whole, layout, fill)


def _filled(array: Array, axis: int, multiple: int, fill: float) -> Array:
    lack = -array.shape[axis] % multiple
    if not lack:
        return array
    widths = [(0, 0)] * array.ndim
    widths[axis] = (0, lack)
    return np.pad(array, widths, constant_values=fill)
