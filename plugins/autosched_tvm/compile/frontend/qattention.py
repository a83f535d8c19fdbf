"""Float forms of ONNX Runtime's quantised attention and embedding."""

from typing import Any

from onnx import helper

from autosched_tvm.compile.frontend import fused_operators
from autosched_tvm.compile.frontend.dequantisation import Dequantiser, Rule
from autosched_tvm.compile.frontend.node_builder import Node, attributes, optional


def _qattention(state: Dequantiser, node: Node) -> None:
    source, weight, bias, scale, weight_scale = node.input[:5]
    mask, zero, weight_zero, past = (optional(node, i) for i in (5, 6, 7, 8))
    inputs = [
        state.real(source, scale, zero),
        state.real(weight, weight_scale, weight_zero, 1),
        bias, mask, past,
    ]  # fmt: skip
    _as_float(state, "Attention", node, inputs)


def _qembed_layer_normalization(state: Dequantiser, node: Node) -> None:
    """Its five tables and vectors are quantised, each with a scale and a zero point of its own."""
    words, segments = node.input[:2]
    tables = [
        state.real(node.input[2 + i], node.input[8 + i], node.input[13 + i]) if node.input[2 + i] else ""
        for i in range(5)
    ]
    _as_float(state, "EmbedLayerNormalization", node, [words, segments, *tables, optional(node, 7)])


def _as_float(state: Dequantiser, operator: str, node: Node, inputs: list[str]) -> None:
    given: dict[str, Any] = attributes(node)
    form = helper.make_node(operator, inputs, list(node.output), name=node.name, domain="com.microsoft", **given)
    fused_operators.MICROSOFT_RULES[operator](state.emit, form)


MICROSOFT_RULES: dict[str, Rule] = {
    "QAttention": _qattention,
    "QEmbedLayerNormalization": _qembed_layer_normalization,
}
