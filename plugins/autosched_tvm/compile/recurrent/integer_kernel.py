"""Kernel of an LSTM with 8-bit recurrent weights, as ONNX Runtime's DynamicQuantizeLSTM computes it.

In each step, the hidden states of all batch rows are rounded to 256 levels between their minimum and maximum (0
included):

    scale = (max - min) / 255, zero = round(-min / scale), level = round(h / scale) + zero
    h r = (sum(level r_q) - zero sum(r_q)) scale scale_r

The integer sums are exact. A dot instruction multiplies a group of levels by a group of weights of each unit. The
weights, which each step reads, take a quarter or half of float32's memory.
"""

from typing import Any

import numpy as np
from tvm import tirx
from tvm.script.ir_builder import tirx as T

from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.recurrent.kernel import Kernel
from autosched_tvm.compile.recurrent.layer import Layer
from autosched_tvm.tvm_types import Expr

LEVELS = 255
"""Largest level; the smallest is 0."""
FETCHED_AHEAD = 2048
"""Distance of the weights that are fetched from those that are multiplied, in bytes."""
CACHE_LINE = 64
"""Size of a cache line in bytes."""
READ_SOON = (0, 3, 1)
"""LLVM's flags of a prefetch: for reading, into the first cache, of data."""


class IntegerKernel(Kernel):
    """Reads the weights `r0` (D x block x group of hidden units x gate x bytes of a dot instruction), their sums `rc`
    and their scales `rs` (D x block x gate x unit)."""

    def __init__(self, layer: Layer, buffers: dict[str, Expr], instruction: DotInstruction) -> None:
        super().__init__(layer, buffers)
        self.instruction, self.r0 = instruction, buffers["r0"]
        self.levels: Any = None
        """Levels of the hidden states of a step: batch x hidden units, padded to whole groups."""
        self.scale: Any = None
        """Scale of the levels, in an array of one."""
        self.level_of_zero: Any = None
        """Level of the number 0, in an array of one."""

    def allocate(self) -> None:
        """Allocates the buffers of a direction."""
        super().allocate()
        layer = self.layer
        self.levels = T.alloc_buffer((layer.batch, layer.blocks * layer.block), self.instruction.data)
        self.scale = T.alloc_buffer((1,), layer.dtype)
        self.level_of_zero = T.alloc_buffer((1,), "int32")

    def begin_step(self, d: int, time: Expr) -> None:
        """Quantises the hidden states."""
        layer = self.layer
        low, high = self._ends(d, time)
        one, most = tirx.const(1.0, layer.dtype), tirx.const(float(LEVELS), layer.dtype)
        T.buffer_store(self.scale, tirx.Select(high == low, one, (high - low) / most), [0])
        start = tirx.round(tirx.max(tirx.min((self.zero - low) / self.scale[0], most), self.zero))
        offset = self.instruction.offset
        T.buffer_store(self.level_of_zero, tirx.Cast("int32", start) - offset, [0])
        with self.units() as (row, j):
            level = tirx.round(self.b["hn"][d, row, j] / self.scale[0]) + tirx.Cast(layer.dtype, self.level_of_zero[0])
            bounded = tirx.max(tirx.min(level, most - float(offset)), self.zero - float(offset))
            T.buffer_store(self.levels, tirx.Cast(self.instruction.data, tirx.Cast("int32", bounded)), [row, j])

    def _ends(self, d: int, time: Expr) -> tuple[Expr, Expr]:
        """Returns the minimum and the maximum of all hidden states and 0."""
        layer, width = self.layer, self.layer.block
        ends = [T.alloc_buffer((width,), layer.dtype, scope="local") for _ in range(2)]
        for end in ends:
            with T.vectorized(0, width) as lane:
                T.buffer_store(end, self.zero, [lane])
        functions = (tirx.min, tirx.max)
        with T.serial(0, layer.batch) as row, T.serial(0, layer.blocks) as block:
            for end, function in zip(ends, functions, strict=True):
                with T.vectorized(0, width) as lane:
                    state = self._counted(d, time, row, block * width + lane)
                    T.buffer_store(end, function(end[lane], state), [lane])
        left = width
        while left > 1:  # the block is a power of two times an odd number of vectors
            half = left // 2 if left % 2 == 0 else 1
            for end, function in zip(ends, functions, strict=True):
                with T.vectorized(0, half) as lane:
                    T.buffer_store(end, function(end[lane], end[left - half + lane]), [lane])
            left -= half
        return ends[0][0], ends[1][0]

    def _counted(self, d: int, time: Expr, row: Expr, j: Expr) -> Expr:
        """Returns a hidden state if its sequence continues or ended in the step before, else 0."""
        state, layer = self.b["hn"][d, row, j], self.layer
        if layer.blocks * layer.block != layer.hidden:
            state = tirx.Select(j < layer.hidden, state, self.zero)
        return tirx.Select(time <= self.b["lengths"][row], state, self.zero) if layer.lengths else state

    def _fetch_ahead(self, d: int, block: Expr, k: Expr) -> None:
        """Fetches the weights that are multiplied some iterations later. Where they come from the third cache, the
        CPU's own prefetching leaves some of the time to waiting."""
        _, _, _, gates, size = (int(extent) for extent in self.r0.shape)
        width = np.dtype(self.instruction.weights).itemsize
        iterations = -(-FETCHED_AHEAD // (gates * size * width))
        for g in range(gates):
            for first in range(0, size, CACHE_LINE // width):
                place = tirx.address_of(tirx.BufferLoad(self.r0, [d, block, k + iterations, g, first]))
                flags = (tirx.const(flag, "int32") for flag in READ_SOON)
                T.evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", place, *flags))

    def sums(self, d: int, time: Any, phase: int, rows: list[Any], block: Any) -> Any:
        """Returns the recurrent products of some rows for a block, added to their start: row x gate x unit."""
        layer, gates, width = self.layer, self.layer.phases[phase], self.layer.block
        lanes, size = self.instruction.lanes, self.instruction.group
        counts = T.alloc_buffer((len(rows), len(gates), width), "int32", scope="local")
        for r in range(len(rows)):
            for g in range(len(gates)):
                with T.vectorized(0, width) as lane:
                    T.buffer_store(counts, tirx.const(0, "int32"), [r, g, lane])
        with T.serial(0, -(-layer.hidden // size)) as k:
            self._fetch_ahead(d, block, k)
            for g in range(len(gates)):
                for first in range(0, width, lanes):
                    for r, row in enumerate(rows):
                        here = [r, g, tirx.Ramp(first, 1, self.instruction.lanes)]
                        group = tirx.BufferLoad(self.levels, [row, tirx.Ramp(k * size, 1, size)])
                        bytes_ = tirx.Ramp(first * size, 1, lanes * size)
                        weights = tirx.BufferLoad(self.r0, [d, block, k, g, bytes_])
                        T.buffer_store(
                            counts, self.instruction.added(tirx.BufferLoad(counts, here), group, weights), here
                        )
        sums = T.alloc_buffer((len(rows), len(gates), width), layer.dtype, scope="local")
        for r, row in enumerate(rows):
            for g, gate in enumerate(gates):
                with T.vectorized(0, width) as lane:
                    whole = counts[r, g, lane] - self.level_of_zero[0] * self.b["rc"][d, block, g, lane]
                    real = tirx.Cast(layer.dtype, whole) * (self.scale[0] * self.b["rs"][d, block, g, lane])
                    T.buffer_store(sums, self.start(d, time, row, block, gate, lane) + real, [r, g, lane])
        return sums
