"""Rewrites ONNX Runtime's fused float operators (domain com.microsoft), which optimised exports contain, in standard
ones.

Source: the operators' definitions in ONNX Runtime's ContribOperators.md.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto

from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, attributes, optional, text

Rule = Callable[[NodeBuilder, Node], None]

MASKED = -10_000.0
"""Value added to the attention scores of masked positions, unless the model gives another."""
LOWEST = -65_504.0
"""Value added to the scores of later positions in causal attention: the minimum of float16."""


def _output(node: Node, index: int) -> str:
    return node.output[index] if index < len(node.output) else ""


# Activations ------------------------------------------------------------------------------------------------


def _gelu(emit: NodeBuilder, node: Node) -> None:
    _gelu_of(emit, node.input[0], node.output[0])


def _bias_gelu(emit: NodeBuilder, node: Node) -> None:
    _gelu_of(emit, emit.make("Add", list(node.input[:2])), node.output[0])


def _gelu_of(emit: NodeBuilder, value: str, output: str) -> None:
    inner = emit.make("Erf", [emit.make("Mul", [value, emit.number(1 / math.sqrt(2))])])
    emit.make("Mul", [_half(emit, value), emit.make("Add", [inner, emit.number(1.0)])], output)


def _fast_gelu(emit: NodeBuilder, node: Node) -> None:
    value = emit.make("Add", list(node.input[:2])) if optional(node, 1) else node.input[0]
    square = emit.make("Mul", [value, value])
    factor = emit.make(
        "Add", [emit.make("Mul", [square, emit.number(0.035677408136300125)]), emit.number(0.7978845608)]
    )
    inner = emit.make("Tanh", [emit.make("Mul", [value, factor])])
    emit.make("Mul", [_half(emit, value), emit.make("Add", [inner, emit.number(1.0)])], node.output[0])


def _quick_gelu(emit: NodeBuilder, node: Node) -> None:
    value = node.input[0]
    scaled = emit.make("Mul", [value, emit.number(attributes(node).get("alpha", 1.702))])
    emit.make("Mul", [value, emit.make("Sigmoid", [scaled])], node.output[0])


def _half(emit: NodeBuilder, value: str) -> str:
    return emit.make("Mul", [value, emit.number(0.5)])


def _activated(emit: NodeBuilder, value: str, name: str, parameters: Sequence[float], output: str) -> None:
    """Writes an activation that was fused into the operator before it."""
    names = {
        "LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Elu": ("alpha",), "ThresholdedRelu": ("alpha",),
    }  # fmt: skip
    if not name:
        emit.alias(value, output)
    elif name == "Clip":
        low, high = parameters or (-math.inf, math.inf)
        emit.clip(value, low, high, output)
    elif name in ("Relu", "Tanh", "Sigmoid", "Softplus", "Softsign", *names):
        emit.make(name, [value], output, **dict(zip(names.get(name, ()), parameters, strict=False)))
    else:
        raise Unknown(f"its activation {name} is not known")


# Convolutions and products ----------------------------------------------------------------------------------


def _fused_conv(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    activation = text(given.pop("activation", ""))
    parameters = given.pop("activation_params", ())
    value = emit.make("Conv", [name for name in node.input[:3] if name], **given)
    if added := optional(node, 3):
        value = emit.make("Add", [value, added])
    _activated(emit, value, activation, parameters, node.output[0])


def _fused_gemm(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    activation = text(given.pop("activation", ""))
    parameters = [given.pop(f"activation_{name}", None) for name in ("alpha", "beta", "gamma")]
    value = emit.make("Gemm", list(node.input), **given)
    _activated(emit, value, activation, [number for number in parameters if number is not None], node.output[0])


def _fused_mat_mul(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    operands = []
    for name, letter in zip(node.input[:2], "AB", strict=True):
        last, batch = given.get(f"trans{letter}", 0), given.get(f"transBatch{letter}", 0)
        if last or batch:
            order = list(range(emit.rank(name)))
            if batch:
                order = [*order[1:-1], order[0], order[-1]]
            if last:
                order[-2:] = order[:-3:-1]
            name = emit.make("Transpose", [name], perm=order)
        operands.append(name)
    alpha = given.get("alpha", 1.0)
    if alpha == 1.0:
        emit.make("MatMul", operands, node.output[0])
    else:
        emit.make("Mul", [emit.make("MatMul", operands), emit.number(alpha)], node.output[0])


def _nhwc_max_pool(emit: NodeBuilder, node: Node) -> None:
    given = attributes(node)
    rank = len(given["kernel_shape"]) + 2
    first = emit.make("Transpose", [node.input[0]], perm=[0, rank - 1, *range(1, rank - 1)])
    emit.make("Transpose", [emit.make("MaxPool", [first], **given)], node.output[0], perm=[0, *range(2, rank), 1])


# Normalisations ---------------------------------------------------------------------------------------------


def _normalised(emit: NodeBuilder, value: str, scale: str, shift: str, epsilon: float, output: str) -> None:
    """Writes a layer normalisation along the last axis."""
    if emit.opset >= 17:
        inputs = [value, scale, shift] if shift else [value, scale]
        emit.make("LayerNormalization", inputs, output, axis=-1, epsilon=epsilon)
        return
    centred = emit.make("Sub", [value, emit.reduce("ReduceMean", value, [-1])])
    _scaled_to_one(emit, centred, scale, shift, epsilon, output)


def _scaled_to_one(emit: NodeBuilder, value: str, scale: str, shift: str, epsilon: float, output: str) -> None:
    """Divides by the root mean square along the last axis, multiplies by the scale, and adds the shift if there is
    one."""
    square = emit.reduce("ReduceMean", emit.make("Mul", [value, value]), [-1])
    root = emit.make("Sqrt", [emit.make("Add", [square, emit.number(epsilon)])])
    unit = emit.make("Div", [value, root])
    if shift:
        emit.make("Add", [emit.make("Mul", [unit, scale]), shift], output)
    else:
        emit.make("Mul", [unit, scale], output)


def _skip_layer_normalization(emit: NodeBuilder, node: Node) -> None:
    total = _summed(emit, node, 4)
    _normalised(emit, total, node.input[2], optional(node, 3), _epsilon(node, 1e-12), node.output[0])


def _skip_simplified_layer_normalization(emit: NodeBuilder, node: Node) -> None:
    total = _summed(emit, node, 3)
    _scaled_to_one(emit, total, node.input[2], "", _epsilon(node, 1e-12), node.output[0])


def _summed(emit: NodeBuilder, node: Node, bias_at: int) -> str:
    if _output(node, 1) or _output(node, 2):
        raise Unknown("the mean and the deviation are outputs, as in training")
    total = emit.make("Add", list(node.input[:2]))
    if bias := optional(node, bias_at):
        total = emit.make("Add", [total, bias])
    if _output(node, 3):
        emit.alias(total, node.output[3])
    return total


def _epsilon(node: Node, default: float) -> float:
    return float(attributes(node).get("epsilon", default))


def _simplified_layer_normalization(emit: NodeBuilder, node: Node) -> None:
    _along_last(emit, node)
    _scaled_to_one(emit, node.input[0], node.input[1], "", _epsilon(node, 1e-5), node.output[0])


def _layer_normalization(emit: NodeBuilder, node: Node) -> None:
    """ONNX Runtime had this operator before ONNX added it, in opset 17."""
    if emit.opset >= 17:
        emit.keep(node)
        return
    _along_last(emit, node)
    _normalised(emit, node.input[0], node.input[1], optional(node, 2), _epsilon(node, 1e-5), node.output[0])


def _along_last(emit: NodeBuilder, node: Node) -> None:
    axis = attributes(node).get("axis", -1)
    if axis != -1 and axis != emit.rank(node.input[0]) - 1:
        raise Unknown("it normalises along several axes")
    if any(node.output[1:]):
        raise Unknown("the mean and the deviation are outputs, as in training")


def _embed_layer_normalization(emit: NodeBuilder, node: Node) -> None:
    words, segments, table, positions, segment_table, scale, shift = node.input[:7]
    mask, position_ids = optional(node, 7), optional(node, 8)
    value = emit.make("Gather", [table, words])
    if position_ids:
        place = emit.make("Gather", [positions, position_ids])
    else:
        length = emit.make("Gather", [emit.make("Shape", [words]), emit.integers(1)])
        place = emit.make("Slice", [positions, emit.integers(0), length, emit.integers(0)])
    value = emit.make("Add", [value, place])
    if segments and segment_table:
        value = emit.make("Add", [value, emit.make("Gather", [segment_table, segments])])
    _normalised(emit, value, scale, shift, _epsilon(node, 1e-12), node.output[0])
    if index := _output(node, 1):
        _mask_index(emit, words, mask, index)
    if total := _output(node, 2):
        emit.alias(value, total)


def _mask_index(emit: NodeBuilder, words: str, mask: str, output: str) -> None:
    """Writes the number of unmasked positions of each sequence; 0, which means all, without a mask."""
    whole = emit.make("Cast", [mask or words], to=TensorProto.INT32)
    if not mask:
        whole = emit.make("Mul", [whole, emit.constant(np.zeros((), "int32"))])
    if emit.opset >= 13:
        emit.make("ReduceSum", [whole, emit.integers(1)], output, keepdims=0)
    else:
        emit.make("ReduceSum", [whole], output, axes=[1], keepdims=0)


# Attention --------------------------------------------------------------------------------------------------


def _attention(emit: NodeBuilder, node: Node) -> None:
    """One product makes query, key and value."""
    attended(emit, node, emit.make("MatMul", node.input[:2]))


def attended(emit: NodeBuilder, node: Node, value: str) -> None:
    """Writes Attention after its product, `value`. Raises Unknown."""
    given = attributes(node)
    weight, bias = node.input[1:3]
    mask, past, added = optional(node, 3), optional(node, 4), optional(node, 5)
    if given.get("do_rotary") or optional(node, 6):
        raise Unknown("rotary positions and shared caches are not rewritten")
    if bias:
        value = emit.make("Add", [value, bias])
    sizes = given.get("qkv_hidden_sizes")
    if not sizes:
        array = emit.array(weight)
        if array is None:
            raise Unknown("its weights are not constant")
        sizes = [array.shape[-1] // 3] * 3
    heads = int(given["num_heads"])
    query, key, content = (_heads(emit, part, heads) for part in emit.split(value, -1, sizes))
    if past:
        earlier = [_taken(emit, past, i) for i in (0, 1)]
        key, content = (
            emit.make("Concat", [old, new], axis=2) for old, new in zip(earlier, (key, content), strict=True)
        )
    if present := _output(node, 1):
        emit.make("Concat", [emit.unsqueeze(key, 0), emit.unsqueeze(content, 0)], present, axis=0)
    masks = [*_mask(emit, mask, key, given), *([added] if added else [])]
    scale = given.get("scale") or 1 / math.sqrt(sizes[0] // heads)
    _attended(emit, (query, key, content), masks, scale, bool(given.get("unidirectional")), node.output[0])


def _multi_head_attention(emit: NodeBuilder, node: Node) -> None:
    """Query, key and value are separate inputs: [batch, position, channel], or key and value already in heads."""
    given = attributes(node)
    heads = int(given["num_heads"])
    query, key, content, bias, mask, added, past_key, past_value = (optional(node, i) for i in range(8))
    if not key or not content or optional(node, 8):
        raise Unknown("query, key and value are packed into one tensor, or share a cache")
    parts = [query, key, content]
    if bias:
        array = emit.array(bias)
        if array is None:
            raise Unknown("its bias is not constant")
        hidden = _last_size(emit, query, array.size)
        ends = [hidden, 2 * hidden]
        biases = np.split(array, ends)
        parts = [emit.make("Add", [part, emit.constant(b)]) for part, b in zip(parts, biases, strict=True)]
    query = _heads(emit, parts[0], heads)
    key, content = (
        part if len(emit.shapes.get(name, ())) == 4 else _heads(emit, part, heads)
        for part, name in zip(parts[1:], (node.input[1], node.input[2]), strict=True)
    )
    if past_key:
        key = emit.make("Concat", [past_key, key], axis=2)
    if past_value:
        content = emit.make("Concat", [past_value, content], axis=2)
    for index, whole in ((1, key), (2, content)):
        if present := _output(node, index):
            emit.alias(whole, present)
    masks = [*_mask(emit, mask, key, given), *([added] if added else [])]
    scale = given.get("scale") or 0.0
    if not scale:
        scale = 1 / math.sqrt(_last_size(emit, node.input[0], 0) / heads)
    _attended(emit, (query, key, content), masks, scale, bool(given.get("unidirectional")), node.output[0])


def _last_size(emit: NodeBuilder, name: str, of_three: int) -> int:
    """Returns the number of channels: from the shape, or else a third of `of_three`."""
    *_, size = emit.shapes.get(name, ()) or (0,)
    if not size and not of_three:
        raise Unknown(f"the last dimension of {name!r} is not known")
    return size or of_three // 3


def _heads(emit: NodeBuilder, value: str, heads: int) -> str:
    """Returns [batch, position, channel] as [batch, head, position, channel]."""
    parts = emit.make("Reshape", [value, emit.integers(0, 0, heads, -1)])
    return emit.make("Transpose", [parts], perm=[0, 2, 1, 3])


def _taken(emit: NodeBuilder, value: str, index: int) -> str:
    return emit.make("Gather", [value, emit.constant(np.asarray(index, "int64"))], axis=0)


def _attended(
    emit: NodeBuilder, parts: tuple[str, str, str], masks: Sequence[str], scale: float, causal: bool, output: str
) -> None:
    query, key, content = parts
    turned = emit.make("Transpose", [key], perm=[0, 1, 3, 2])
    scores = emit.make("MatMul", [emit.make("Mul", [query, emit.number(scale)]), turned])
    for mask in masks:
        scores = emit.make("Add", [scores, mask])
    if causal:
        scores = emit.make("Add", [scores, _causal(emit, query, key)])
    mixed = emit.make("MatMul", [emit.softmax(scores), content])
    joined = emit.make("Transpose", [mixed], perm=[0, 2, 1, 3])
    emit.make("Reshape", [joined, emit.integers(0, 0, -1)], output)


def _length(emit: NodeBuilder, value: str) -> str:
    """Returns the number of positions, a scalar, of a tensor [batch, head, position, channel]."""
    return emit.make("Gather", [emit.make("Shape", [value]), emit.constant(np.asarray(2, "int64"))])


def _positions(emit: NodeBuilder, start: str, end: str) -> str:
    return emit.make("Range", [start, end, emit.constant(np.asarray(1, "int64"))])


def _causal(emit: NodeBuilder, query: str, key: str) -> str:
    """Returns the bias of the scores that keeps each position from attending to later ones."""
    zero = emit.constant(np.asarray(0, "int64"))
    ends = _length(emit, key)
    rows = emit.unsqueeze(_positions(emit, emit.make("Sub", [ends, _length(emit, query)]), ends), 1)
    columns = emit.unsqueeze(_positions(emit, zero, ends), 0)
    later = emit.make("Greater", [columns, rows])
    return emit.make("Where", [later, emit.number(LOWEST), emit.number(0.0)])


def _mask(emit: NodeBuilder, mask: str, key: str, given: dict[str, Any]) -> list[str]:
    """Returns the bias of the scores for a mask: a vector of lengths, or 0 and 1 for each key or each query and key."""
    if not mask:
        return []
    rank = emit.rank(mask)
    whole = emit.make("Cast", [mask], to=TensorProto.INT32)
    if rank == 1:
        columns = emit.unsqueeze(_positions(emit, emit.constant(np.asarray(0, "int64")), _length(emit, key)), 0)
        lengths = emit.unsqueeze(emit.make("Cast", [mask], to=TensorProto.INT64), 1)
        kept, rank = emit.make("Less", [columns, lengths]), 2
    else:
        kept = emit.make("Greater", [whole, emit.constant(np.zeros((), "int32"))])
    spread = emit.make("Where", [kept, emit.number(0.0), emit.number(given.get("mask_filter_value", MASKED))])
    return [emit.unsqueeze(spread, *{2: (1, 2), 3: (1,), 4: ()}[rank]) if rank < 4 else spread]


MICROSOFT_RULES: dict[str, Rule] = {
    "Attention": _attention,
    "BiasGelu": _bias_gelu,
    "EmbedLayerNormalization": _embed_layer_normalization,
    "FastGelu": _fast_gelu,
    "FusedConv": _fused_conv,
    "FusedGemm": _fused_gemm,
    "FusedMatMul": _fused_mat_mul,
    "Gelu": _gelu,
    "MultiHeadAttention": _multi_head_attention,
    "NhwcMaxPool": _nhwc_max_pool,
    "QuickGelu": _quick_gelu,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
    "SkipLayerNormalization": _skip_layer_normalization,
    "SkipSimplifiedLayerNormalization": _skip_simplified_layer_normalization,
    "TransposeMatMul": _fused_mat_mul,
}
STANDARD_RULES: dict[str, Rule] = {
    "LayerNormalization": _layer_normalization,
    "SimplifiedLayerNormalization": _simplified_layer_normalization,
}
"""Operators that ONNX Runtime writes in ONNX's own domain."""
