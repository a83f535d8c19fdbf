"""Writes TVM's attention operator, which PyTorch programs have, as the operators that it stands for."""

from typing import Any

import numpy as np
import tvm
from tvm import relax

_OPERATORS = ("relax.nn.attention", "relax.nn.attention_bias")
_HEADS_FIRST = [0, 2, 1, 3]
"""Order of axes in which the heads stand before the rows, and back again."""


def expanded(module: Any) -> Any:
    """The module without such operators, but for those that attend to a window of each row's neighbours."""

    @relax.expr_functor.mutator
    class Expanded(relax.PyExprMutator):  # type: ignore[misc] # the base class is not typed
        """Replaces each of them."""

        def visit_call_(self, call: Any) -> Any:
            """A call, or the last of the operators in its place."""
            if getattr(call.op, "name", "") not in _OPERATORS or call.attrs.window_size is not None:
                return super().visit_call_(call)
            return _written_out(self.builder_, [self.visit_expr(one) for one in call.args], call.attrs)

    mutator = Expanded(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return relax.transform.CanonicalizeBindings()(mutator.builder_.get())


def _written_out(builder: Any, inputs: list[Any], attributes: Any) -> Any:
    """Attention over [batch, rows, heads, depth]."""
    op = relax.op
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
