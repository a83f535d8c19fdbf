"""Maximum and minimum along axes, right for infinities: TVM begins with the least, or largest, finite number, which is
then the result where all values are infinite, as in a masked row of attention."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tvm

from autosched_tvm.tvm_types import BlockBuilder, Expr, Tensor

_START: dict[str, tuple[Callable[[Any, Any], Any], float, Any]] = {
    "relax.max": (lambda one, other: tvm.tirx.max(one, other), -np.inf, tvm.topi.max),
    "relax.min": (lambda one, other: tvm.tirx.min(one, other), np.inf, tvm.topi.min),
}
"""Combination, neutral value, and TVM's own computation, by operator."""


def _legalised(builder: BlockBuilder, call: Expr) -> Expr:
    name, value = call.op.name, call.args[0]
    function, start, usual = _START[name]
    axes, kept = call.attrs.axis, bool(call.attrs.keepdims)
    if not str(value.ty.dtype).startswith(("float", "bfloat")):
        return builder.call_te(usual, value, axes, kept, primfunc_name_hint=name.rpartition(".")[2])
    reducer = tvm.te.comm_reducer(function, lambda dtype: tvm.tirx.const(start, dtype), name=name.rpartition(".")[2])

    def reduced(tensor: Tensor) -> Expr:
        rank = len(tensor.shape)
        chosen = range(rank) if axes is None else sorted(int(axis) % rank for axis in axes)
        over = {axis: tvm.te.reduce_axis((0, tensor.shape[axis]), f"k{axis}") for axis in chosen}
        shape = [1 if axis in over else tensor.shape[axis] for axis in range(rank) if kept or axis not in over]

        def element(*at: Expr) -> Expr:
            rest = iter([index for axis, index in enumerate(at) if axis not in over] if kept else at)
            place = [over[axis] if axis in over else next(rest) for axis in range(rank)]
            return reducer(tensor(*place), axis=list(over.values()))

        return tvm.te.compute(shape, element, name=f"{tensor.op.name}_red", tag="comm_reduce")

    return builder.call_te(reduced, value, primfunc_name_hint=name.rpartition(".")[2])


LEGALISED = dict.fromkeys(_START, _legalised)
"""Replacements of TVM's lowering, by operator."""
