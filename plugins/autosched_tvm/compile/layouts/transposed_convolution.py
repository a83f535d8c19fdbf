"""Transposed convolutions as plain ones: each place of the data computes several results, which are then interleaved.

With stride s and kernel k, result y (padding included) is in phase r = y mod s at place q = y div s, and

    result[r + s q] = sum over j of data[q - j] * kernel[r + s j]

A convolution of ceil(k / s) taps with filters (phase, filter) therefore computes all results of a place. Shi et al.
call the following step pixel shuffle ("Real-Time Single Image and Video Super-Resolution", CVPR 2016).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te

from autosched_tvm.compile.layouts.layout import Layout
from autosched_tvm.compile.layouts.packing import Array
from autosched_tvm.compile.relax_operators import Shape
from autosched_tvm.tvm_types import Attrs, BlockBuilder, Expr

SPREAD = "spread"
"""Name of each kernel that interleaves the results of the phases."""


@dataclass(frozen=True)
class Upsampling:
    """Window of a transposed convolution; each pair is rows and columns."""

    strides: tuple[int, int]
    start: tuple[int, int]
    """Padding at the top and on the left: results that are cut off."""
    taps: tuple[int, int]
    """Taps of the convolution that computes all phases."""
    image: tuple[int, int]
    """Number of places that it computes."""
    padding: tuple[int, int, int, int]
    """Padding of that convolution: top, left, bottom, right."""

    @property
    def phases(self) -> int:
        """Number of results of one filter at a place."""
        return self.strides[0] * self.strides[1]

    @classmethod
    def of(cls, attrs: Attrs, kernel: Sequence[int], image: Sequence[int], out: Sequence[int]) -> "Upsampling":
        """Returns the window in the attributes of a Relax operator. The other arguments are rows and columns of its
        kernel, data and result."""
        down, across = (int(step) for step in attrs.strides)
        top, left = (int(width) for width in attrs.padding[:2])
        taps = (-(-int(kernel[0]) // down), -(-int(kernel[1]) // across))
        places = ((int(out[0]) - 1 + top) // down + 1, (int(out[1]) - 1 + left) // across + 1)
        more = [max(0, count - int(size)) for count, size in zip(places, image, strict=True)]
        computed = (int(image[0]) + more[0], int(image[1]) + more[1])
        return cls((down, across), (top, left), taps, computed, (taps[0] - 1, taps[1] - 1, more[0], more[1]))

    def kernel(self, weights: Array, together: int) -> Array:
        """Returns weights IOHW as those of the convolution, OIHW with filters (phase, filter). `together`: pad the
        filters of a phase with zeros to a multiple of it."""
        channels, filters, rows, columns = weights.shape
        (down, across), (tall, wide) = self.strides, self.taps
        whole = np.zeros((channels, filters + -filters % together, down * tall, across * wide), weights.dtype)
        whole[:, :filters, :rows, :columns] = weights
        split = whole.reshape(channels, -1, tall, down, wide, across)[:, :, ::-1, :, ::-1]
        turned = split.transpose(3, 5, 1, 0, 2, 4)
        return np.ascontiguousarray(turned.reshape(-1, channels, tall, wide))


def spread(builder: BlockBuilder, value: Expr, how: Upsampling, out: Shape, sink: Layout) -> Expr:
    """Returns the results of NCHW shape `out` from those of all phases in a blocked layout: in the same layout with the
    filters of each phase padded, or in NCHW without padding."""
    (down, across), (top, left) = how.strides, how.start
    filters = out[1]

    def compute(phases: Expr) -> Expr:
        block = int(phases.shape[4])
        chunks = -(-filters // block)

        def element(*index: Expr) -> Expr:
            n, chunk, h, w = index[:4]
            phase = (h + top) % down * across + (w + left) % across
            place = (h + top) // down, (w + left) // across
            if sink.block:
                return phases[n, phase * chunks + chunk, *place, index[4]]
            number = phase * filters + chunk
            return phases[n, number // block, *place, number % block]

        return te.compute(sink.stored(out), element, name=SPREAD)

    return builder.call_te(compute, value, primfunc_name_hint=SPREAD)
