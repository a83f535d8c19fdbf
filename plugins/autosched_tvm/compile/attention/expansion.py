"""Expands TVM's attention operator, which PyTorch programs contain, into matrix products and a softmax."""

import numpy as np
import tvm
from tvm import relax

from autosched_tvm.compile import relax_calls
from autosched_tvm.tvm_types import BlockBuilder, Expr, IRModule, Pass

_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias")
_HEADS_FIRST = [0, 2, 1, 3]
"""Permutation of axes that puts heads before rows, and back."""


def expansion() -> Pass:
    """Returns the pass. Attention over a sliding window of rows stays."""
    return tvm.transform.module_pass(
        lambda module, _context: _expanded(module), opt_level=0, name="autosched.attention"
    )


def _expanded(module: IRModule) -> IRModule:

    return relax.transform.CanonicalizeBindings()(relax_calls.replaced(module, _is_attention, _written_out))


def _is_attention(call: Expr) -> bool:
    return getattr(call.op, "name", "") in _OPERATORS and call.attrs.window_size is None


def _written_out(builder: BlockBuilder, call: Expr, inputs: list[Expr]) -> Expr:
    """Returns attention over [batch, rows, heads, depth] as separate operators."""
    op, attributes = relax.op, call.attrs
    query, key, value, *bias = inputs
    rows, depth, columns = (int(size) for size in (query.ty.shape[1], query.ty.shape[3], key.ty.shape[1]))
    dtype = str(query.ty.dtype)
    scale = depth**-0.5 if attributes.scale is None else float(attributes.scale)
    moved = [
        builder.emit(op.permute_dims(one, axes))
        for one, axes in ((query, _HEADS_FIRST), (key, [0, 2, 3, 1]), (value, _HEADS_FIRST))
    ]
    scores = builder.emit(op.multiply(builder.emit(op.matmul(*moved[:2])), relax.const(scale, dtype)))
    for one in bias:
        scores = builder.emit(op.add(scores, one))
    if attributes.causal_mask is not None:
        last = abs(rows - columns) if str(attributes.causal_mask) == "BottomRight" else 0
        seen = relax.const(np.tri(rows, columns, last, dtype="bool"))
        scores = builder.emit(op.where(seen, scores, relax.const(tvm.tirx.min_value(dtype).value, dtype)))
    weights = builder.emit(op.nn.softmax(scores, axis=-1))
    return op.permute_dims(builder.emit(op.matmul(weights, moved[2])), _HEADS_FIRST)
