"""8-bit weights of ONNX Runtime's DynamicQuantizeLSTM, and the product with its inputs."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tvm import relax

from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.recurrent.integer_kernel import LEVELS, IntegerKernel
from autosched_tvm.compile.recurrent.kernel import Kernel
from autosched_tvm.compile.recurrent.layer import Layer
from autosched_tvm.compile.recurrent.weights import FloatWeights, Weights, packed_inputs, packed_recurrent
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import BlockBuilder, Expr


@dataclass(frozen=True)
class Numbers:
    """Integers minus their zero point, D x gates*hidden x columns, and the scale of each row, D x gates*hidden."""

    levels: Array
    scales: Array

    @property
    def fits(self) -> bool:
        """Whether the integers fit into 8 bits."""
        return bool(self.levels.min(initial=0) >= -128 and self.levels.max(initial=0) <= 127)

    @property
    def real(self) -> Array:
        """Returns the real numbers that they represent, as float32."""
        return self.levels.astype("float32") * self.scales[..., None]


@dataclass(frozen=True)
class IntegerWeights:
    """Both weight matrices, in 8-bit integers."""

    of_inputs: Numbers
    of_states: Numbers
    instruction: DotInstruction

    @property
    def lanes(self) -> int:
        """Number of sums in a vector."""
        return self.instruction.lanes

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return int(self.of_states.levels.shape[-1])

    def inputs(self, builder: BlockBuilder, layer: Layer, x: Expr) -> Expr:
        """Returns the product of the inputs of all steps, a matrix with the columns D, block, gate, unit of the
        block."""
        levels, scale, zero = _rounded(builder, x)
        weights = packed_inputs(layer, self.of_inputs.levels.astype("int8"))
        scales = packed_inputs(layer, self.of_inputs.scales[..., None]).reshape(-1)
        sums = relax.op.matmul(levels, relax.const(weights), out_dtype="int32")
        excess = relax.op.multiply(zero, relax.const(weights.sum(0, dtype="int32")))
        real = relax.op.astype(relax.op.subtract(sums, excess), layer.dtype)
        return relax.op.multiply(real, relax.op.multiply(scale, relax.const(scales)))

    def recurrent(self, layer: Layer) -> dict[str, Array]:
        """Returns the constants that the kernel reads, by name."""
        (gates,) = layer.phases
        group = self.instruction.group
        levels = packed_recurrent(layer, self.of_states.levels.astype(self.instruction.weights), gates)
        levels = np.pad(levels, ((0, 0), (0, 0), (0, -layer.hidden % group), (0, 0), (0, 0)))
        directions, blocks, hidden, count, units = levels.shape
        groups = levels.reshape(directions, blocks, hidden // group, group, count, units).transpose(0, 1, 2, 4, 5, 3)
        scales = packed_inputs(layer, self.of_states.scales[..., None])
        per_unit = (directions, blocks, count, units)
        return {
            "r0": np.ascontiguousarray(groups.reshape(*groups.shape[:4], -1)),
            "rc": levels.sum(2, dtype="int32"),
            "rs": np.ascontiguousarray(scales.reshape(per_unit)),
        }

    def kernel(self, layer: Layer, buffers: dict[str, Expr]) -> Kernel:
        """Returns the writer of the recurrence."""
        return IntegerKernel(layer, buffers, self.instruction)


def quantised_weights(arrays: Sequence[Array], instruction: DotInstruction | None) -> Weights:
    """Returns the operator's weights: in float32 where the CPU has no dot instruction, or the integers do not fit into
    8 bits.

    `arrays`: the weights of the inputs and of the hidden states, D x columns x gates*hidden; scale and zero point of
    each, of D or D x gates*hidden numbers.
    """
    inputs, states = _numbers(arrays[0], *arrays[2:4]), _numbers(arrays[1], *arrays[4:6])
    if instruction is None or not (inputs.fits and states.fits):
        return FloatWeights(inputs.real, states.real)
    return IntegerWeights(inputs, states, instruction.suited(1, states.levels))


def _numbers(weights: Array, scales: Array, zeros: Array) -> Numbers:
    directions, _, columns = weights.shape
    scales, zeros = (values.reshape(directions, -1) for values in (scales, zeros))
    levels = weights.astype("int16") - zeros.astype("int16")[:, None]
    return Numbers(levels.swapaxes(1, 2), np.ascontiguousarray(np.broadcast_to(scales, (directions, columns))))


def _rounded(builder: BlockBuilder, x: Expr) -> tuple[Expr, Expr, Expr]:
    """Returns real numbers as levels between their minimum and maximum (0 included): the levels as uint8, their scale,
    and the level of 0 as int32."""
    zero, one, most = (relax.const(np.float32(value)) for value in (0.0, 1.0, LEVELS))
    low = builder.emit(relax.op.minimum(relax.op.min(x), zero))
    high = builder.emit(relax.op.maximum(relax.op.max(x), zero))
    width = builder.emit(relax.op.subtract(high, low))
    scale = builder.emit(relax.op.where(relax.op.equal(width, zero), one, relax.op.divide(width, most)))

    def bounded(value: Expr) -> Expr:
        return relax.op.minimum(relax.op.maximum(value, zero), most)

    start = builder.emit(relax.op.round(bounded(relax.op.divide(relax.op.negative(low), scale))))
    levels = relax.op.add(relax.op.round(relax.op.divide(x, scale)), start)
    return builder.emit(relax.op.astype(bounded(levels), "uint8")), scale, builder.emit(relax.op.astype(start, "int32"))
