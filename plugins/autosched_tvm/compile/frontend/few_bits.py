"""Products whose weights have 4 bits: MatMulNBits of ONNX Runtime, which stays one where few rows are multiplied.

Weights of few bits lie in blocks along the input: packed [output, blocks, bytes], low bits first.
"""

import math

import numpy as np
from msgspec import Struct
from onnx import TensorProto

from autosched_tvm.compile.frontend.dequantisation import MICROSOFT, Dequantiser, dequantised
from autosched_tvm.compile.frontend.node_builder import Array, Node, Unknown, attributes, optional

ROWS_MAX = 8
"""Maximum number of rows that are multiplied with the weights as they are. A product of more rows takes longer to make
float32 of each weight than to read it as such."""
FLOAT32 = 1
"""ONNX Runtime's `accuracy_level` of products that are computed in float32. A node that stays says so."""


class FewBits(Struct, frozen=True):
    """Constant weights of few bits."""

    bits: int
    block: int
    """Rows of the weights that share a scale."""
    levels: Array
    """[output, rows], those that fill the last block too."""
    scales: Array
    """[output, blocks]."""
    zeros: Array
    """The level that stands for 0: float32 [output, blocks]."""
    rows: int

    @property
    def real(self) -> Array:
        """As float32 [rows, output]."""
        found = dequantised(self.levels, self.scales, self.zeros, 1, self.block)[:, : self.rows]
        return np.ascontiguousarray(found.T)


def stays(node: Node) -> bool:
    """Whether it is a product of 4-bit weights as this module leaves them: with float32 zero points."""
    return node.op_type == "MatMulNBits" and attributes(node).get("accuracy_level") == FLOAT32 and len(node.input) == 4


def mat_mul_n_bits(state: Dequantiser, node: Node) -> None:
    """The product with 4-bit weights, or with float32 weights."""
    emit = state.emit
    weights = _read(state, node)
    bias = optional(node, 5)
    output = emit.fresh("product") if bias else node.output[0]
    shape = emit.shapes.get(node.input[0], (0,))
    whole = weights.bits == 4 and not weights.block % 2 and not weights.rows % weights.block
    whole &= emit.element_type(node.input[0]) == TensorProto.FLOAT  # the kernel's results are float32
    if state.integers and whole and 0 < math.prod(shape[:-1]) <= ROWS_MAX:
        zeros = emit.constant(weights.zeros)
        words = {name: value for name, value in attributes(node).items() if name in ("K", "N", "bits", "block_size")}
        emit.make(
            "MatMulNBits", [*node.input[:3], zeros], output, domain=MICROSOFT, accuracy_level=FLOAT32, **words
        )  # fmt: skip
    else:
        emit.make("MatMul", [node.input[0], emit.constant(weights.real)], output)
    if bias:
        emit.make("Add", [output, bias], node.output[0])


def _read(state: Dequantiser, node: Node) -> FewBits:
    """The weights of a node. Raises Unknown."""
    emit, given = state.emit, attributes(node)
    rows, outputs, bits, block = (int(given[key]) for key in ("K", "N", "bits", "block_size"))
    packed, scales = emit.array(node.input[1]), emit.array(node.input[2])
    zero_name = optional(node, 3)
    zeros = emit.array(zero_name) if zero_name else None
    if packed is None or scales is None or (zero_name and zeros is None) or optional(node, 4) or bits not in (2, 4, 8):
        raise Unknown("its weights are not constant, or are packed in another way")
    blocks = -(-rows // block)
    middle: Array = np.full((outputs, blocks), 1 << (bits - 1), "float32")
    if zeros is not None:
        unpacked = unpacked_numbers(zeros.reshape(outputs, -1), bits) if zeros.dtype == np.uint8 else zeros
        middle = unpacked.reshape(outputs, -1)[:, :blocks].astype("float32")
    levels = unpacked_numbers(packed.reshape(outputs, -1), bits)[:, : blocks * block]
    return FewBits(bits, block, levels, scales.reshape(outputs, blocks), middle, rows)


def unpacked_numbers(array: Array, bits: int) -> Array:
    """Numbers of few bits from the bytes along the last axis, low bits first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    parts = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*array.shape[:-1], -1)
