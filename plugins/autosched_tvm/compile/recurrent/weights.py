"""Weights of a recurrent layer in the order in which its kernel reads them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from tvm import relax

from autosched_tvm.compile.recurrent.kernel import Kernel
from autosched_tvm.compile.recurrent.layer import LANES, Layer
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import BlockBuilder, Expr


class Weights(Protocol):
    """Weights of inputs and hidden states, and their products."""

    @property
    def lanes(self) -> int:
        """Number of sums in a vector."""

    @property
    def hidden(self) -> int:
        """Number of hidden units."""

    def inputs(self, builder: BlockBuilder, layer: Layer, x: Expr) -> Any:
        """Returns the product of the inputs of all steps, a matrix with the columns D, block, gate, unit of the
        block."""

    def recurrent(self, layer: Layer) -> dict[str, Array]:
        """Returns the constants that the kernel reads, by name."""

    def kernel(self, layer: Layer, buffers: dict[str, Any]) -> Kernel:
        """Returns the writer of the recurrence."""


@dataclass(frozen=True)
class FloatWeights:
    """Float weights D x gates*hidden x inputs, and D x gates*hidden x hidden, as in ONNX's operators."""

    of_inputs: Array
    of_states: Array
    lanes = LANES

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return int(self.of_states.shape[-1])

    def inputs(self, _builder: BlockBuilder, layer: Layer, x: Expr) -> Expr:
        """Returns the product of the inputs of all steps, a matrix with the columns D, block, gate, unit of the
        block."""
        return relax.op.matmul(x, relax.const(packed_inputs(layer, self.of_inputs)))

    def recurrent(self, layer: Layer) -> dict[str, Array]:
        """Returns the constants that the kernel reads, by name."""
        return {f"r{i}": packed_recurrent(layer, self.of_states, phase) for i, phase in enumerate(layer.phases)}

    def kernel(self, layer: Layer, buffers: dict[str, Expr]) -> Kernel:
        """Returns the writer of the recurrence."""
        return Kernel(layer, buffers)


def packed_inputs(layer: Layer, weights: Array) -> Array:
    """Returns input weights, D x gates*hidden x inputs, as a matrix with the columns D, block, gate, unit of the
    block."""
    parts = [_blocked(layer, one, layer.gates).transpose(3, 1, 0, 2) for one in weights]
    return np.ascontiguousarray(np.stack(parts, axis=1).reshape(weights.shape[2], -1))


def packed_bias(layer: Layer, bias: Array) -> Array:
    """Returns biases, D x 2*gates*hidden, as one row that is added to the product of the inputs; see
    `packed_reset_bias`."""
    inputs, recurrent = np.split(bias.reshape(len(bias), 2, layer.gates, layer.hidden).copy(), 2, axis=1)
    if layer.reset_after and layer.kind == "GRU":
        recurrent[:, :, 2] = 0
    return packed_inputs(layer, (inputs + recurrent).reshape(len(bias), -1, 1)).reshape(-1)


def packed_reset_bias(layer: Layer, bias: Array) -> Array:
    """Returns the recurrent bias of the GRU's last gate, D x block x unit, which is multiplied by the reset gate."""
    last = bias.reshape(len(bias), 2, layer.gates, layer.hidden)[:, 1, 2]
    return _padded(layer, last).reshape(len(bias), layer.blocks, layer.block)


def packed_recurrent(layer: Layer, weights: Array, phase: Sequence[int]) -> Array:
    """Returns recurrent weights, D x gates*hidden x hidden, of some gates, as D x block x hidden x gate x unit of the
    block."""
    chosen = weights.reshape(len(weights), layer.gates, layer.hidden, layer.hidden)[:, list(phase)]
    parts = [_blocked(layer, one.reshape(-1, layer.hidden), len(phase)).transpose(1, 3, 0, 2) for one in chosen]
    return np.ascontiguousarray(np.stack(parts))


def packed_peepholes(layer: Layer, weights: Array) -> Array:
    """Returns peephole weights, D x 3*hidden, as D x gate x padded hidden units."""
    return _padded(layer, weights.reshape(len(weights), 3, layer.hidden))


def _blocked(layer: Layer, weights: Array, gates: int) -> Array:
    """Returns the rows gates*hidden as gate x block x unit; the columns stay."""
    rows = weights.reshape(gates, layer.hidden, -1)
    rows = np.pad(rows, ((0, 0), (0, layer.blocks * layer.block - layer.hidden), (0, 0)))
    return rows.reshape(gates, layer.blocks, layer.block, -1)


def _padded(layer: Layer, values: Array) -> Array:
    """Pads the last dimension, hidden units, to whole blocks."""
    missing = layer.blocks * layer.block - values.shape[-1]
    return np.ascontiguousarray(np.pad(values, [(0, 0)] * (values.ndim - 1) + [(0, missing)]))
