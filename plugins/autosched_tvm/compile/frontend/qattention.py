"""Rewrites ONNX Runtime's quantised attention and embedding in standard operators."""

from typing import Any

from onnx import helper

from autosched_tvm.compile.frontend import fused_operators
from autosched_tvm.compile.frontend.dequantisation import Dequantiser, Rule
from autosched_tvm.compile.frontend.integer_products import multiplied
from autosched_tvm.compile.frontend.node_builder import Node, attributes, optional


def _qattention(state: Dequantiser, node: Node) -> None:
    source, weight, bias, scale, weight_scale = node.input[:5]
    mask, zero, weight_zero, past = (optional(node, i) for i in (5, 6, 7, 8))
    real = [state.real(source, scale, zero), state.real(weight, weight_scale, weight_zero, 1)]
    form = _float_form("Attention", node, [*real, bias, mask, past])
    fused_operators.attended(state.emit, form, multiplied(state, *real))


def _qembed_layer_normalization(state: Dequantiser, node: Node) -> None:
    """Five tables and vectors are quantised, each with its own scale and zero point."""
    words, segments = node.input[:2]
    tables = [
        state.real(node.input[2 + i], node.input[8 + i], node.input[13 + i]) if node.input[2 + i] else ""
        for i in range(5)
    ]
    form = _float_form("EmbedLayerNormalization", node, [words, segments, *tables, optional(node, 7)])
    fused_operators.MICROSOFT_RULES[form.op_type](state.emit, form)


def _float_form(operator: str, node: Node, inputs: list[str]) -> Node:
    given: dict[str, Any] = attributes(node)
    return helper.make_node(operator, inputs, list(node.output), name=node.name, domain="com.microsoft", **given)


MICROSOFT_RULES: dict[str, Rule] = {
    "QAttention": _qattention,
    "QEmbedLayerNormalization": _qembed_layer_normalization,
}
