"""Weights of few bits: products, ONNX Runtime's MatMulNBits, which is kept where few rows are multiplied; and tables.

The weights lie in blocks along the input: packed [output, blocks, bytes], low bits first.
"""

import math
from typing import Any

import numpy as np
from msgspec import Struct
from onnx import ModelProto, TensorProto, helper, numpy_helper

from autosched_tvm.compile.frontend.dequantisation import MICROSOFT, Dequantiser, dequantised
from autosched_tvm.compile.frontend.node_builder import Array, Node, Unknown, attributes, optional

ROWS_MAX = 8
"""Maximum number of rows multiplied with packed weights. For more rows, unpacking each weight to float32 takes longer
than reading float32 weights."""
FLOAT32 = 1
"""ONNX Runtime's `accuracy_level` for products in float32. Kept nodes carry it."""


class FewBits(Struct, frozen=True):
    """Constant weights of few bits."""

    bits: int
    block: int
    """Number of consecutive rows that share a scale."""
    levels: Array
    """Levels [output, rows], including those that pad the last block."""
    scales: Array
    """Scales [output, blocks]."""
    zeros: Array
    """Levels that represent 0: float32 [output, blocks]."""
    rows: int

    @property
    def real(self) -> Array:
        """Returns the weights as float32 [rows, output]."""
        found = dequantised(self.levels, self.scales, self.zeros, 1, self.block)[:, : self.rows]
        return np.ascontiguousarray(found.T)


def stays(node: Node) -> bool:
    """Returns whether the node is a product of 4-bit weights with float32 zero points, as this module writes it."""
    return node.op_type == "MatMulNBits" and attributes(node).get("accuracy_level") == FLOAT32 and len(node.input) == 4


def mat_mul_n_bits(state: Dequantiser, node: Node) -> None:
    """Writes the product with 4-bit weights, or with float32 weights."""
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
    """Returns the weights of a node. Raises Unknown."""
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
    """Returns the few-bit integers packed in the bytes along the last axis, low bits first."""
    shifts = np.arange(0, 8, bits, dtype="uint8")
    parts = (array[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return parts.reshape(*array.shape[:-1], -1)


_MOVES = frozenset({
    "Gather", "GatherElements", "GatherND", "Slice", "Reshape", "Transpose", "Squeeze", "Unsqueeze", "Identity",
    "Concat", "Split", "Flatten", "Expand", "Tile",
})  # fmt: skip
"""Operators whose results are values of their inputs."""
_WIDE = {
    TensorProto.INT4: TensorProto.INT8, TensorProto.UINT4: TensorProto.UINT8, TensorProto.INT2: TensorProto.INT8,
    TensorProto.UINT2: TensorProto.UINT8,
}  # fmt: skip


def widen_moved(model: ModelProto) -> int:
    """Stores constants of few bits that are moved before they are dequantised, such as tables of embeddings, as 8-bit
    numbers; returns the number of constants. Changes the model in place."""
    graph = model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer if tensor.data_type in _WIDE}
    wide: dict[str, str] = {}
    """Name of the wide form, by name of a value."""
    added: list[Any] = []

    def widened(name: str) -> str:
        if name not in wide:
            tensor = constants[name]
            kind = helper.tensor_dtype_to_np_dtype(_WIDE[tensor.data_type])
            wide[name] = f"{name}__8_bits"
            added.append(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(kind), wide[name]))
        return wide[name]

    moved: set[str] = set()
    for node in graph.node if constants else ():  # ONNX requires topological order
        if node.op_type in _MOVES and node.input[0] in moved | constants.keys():
            for place, name in enumerate(node.input):
                if name in constants:
                    node.input[place] = widened(name)
            moved.update(node.output)
        elif node.op_type == "DequantizeLinear" and node.input[0] in moved and optional(node, 2) in constants:
            node.input[2] = widened(node.input[2])
    graph.initializer.extend(added)
    for value in graph.value_info:
        kind = value.type.tensor_type.elem_type
        if value.name in moved and kind in _WIDE:
            value.type.tensor_type.elem_type = _WIDE[kind]
    return len(added)
