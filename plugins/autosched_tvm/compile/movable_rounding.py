"""Makes the roundings of a kernel movable, which shows how far its results depend on ties.

A number halfway between two levels is rounded to either of them by two correct kernels that add in another order. A
kernel that rounds once then differs by one level. One that rounds several times in a row, such as the normalisation of
a quantised network, multiplies the difference: one level of a mean is several levels of the result.
"""

from itertools import count
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.tvm_types import Expr, PrimFunc

ROUNDINGS = "autosched.roundings"
"""Attribute with the number of roundings of a function that `movable` has changed."""
_ROUND = {"tirx.round": tirx.round, "tirx.nearbyint": tirx.nearbyint}
"""Functions that round, by the name of their operator. Quantised networks have the second."""


def movable(function: PrimFunc) -> PrimFunc:
    """Returns a function that rounds several times with one more parameter: a tensor of float32, with a number for each
    rounding that is added to what it rounds. Other functions stay."""
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tvm.ir.Call, found.append))
    roundings = sum(map(_rounds, found))
    if roundings < 2:
        return function
    moves = tirx.decl_buffer((roundings,), "float32", "moves")
    number = count()

    def moved(call: Expr) -> Expr:
        if not _rounds(call):
            return call
        (value,) = call.args
        own = tirx.BufferLoad(moves, [next(number)])
        return _ROUND[call.op.name](value + tirx.Cast(str(value.ty.dtype), own))

    body = tvm_ffi.structural.structural_map(function.body, (tvm.ir.Call, moved))
    changed = tirx.PrimFunc([*function.params, moves], body, function.ret_type, function.attrs)
    return changed.with_attr(ROUNDINGS, roundings)


def roundings_of(function: PrimFunc) -> int:
    """Returns the number of roundings of a function that `movable` has changed; 0 for others."""
    return int((function.attrs or {}).get(ROUNDINGS, 0))


def _rounds(call: Expr) -> bool:
    return str(getattr(call.op, "name", "")) in _ROUND
