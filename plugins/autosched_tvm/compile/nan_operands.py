"""Keeps NaN in maxima and minima with a constant: relu and clip.

TVM computes max(x, c) as "x if x > c else c", which is c where x is NaN. With the operands exchanged the result is x
there, and x86 takes the same instruction, whose result is its second operand if one is NaN. AArch64 has an instruction
for either meaning.
"""

from typing import Any

import tvm_ffi
from tvm import tirx

from autosched_tvm.tvm_types import Expr, PrimFunc

EXTREMA = (tirx.Max, tirx.Min)
KEEPS_NAN = {tirx.Max: "llvm.maximum", tirx.Min: "llvm.minimum"}
"""Functions of LLVM that are one instruction on AArch64, and several on x86."""


def are_lost(function: PrimFunc) -> bool:
    """Returns whether a function drops NaN that its result could show.

    A function that converts to whole numbers may use them as places in a table: there the constant stays the result.
    """
    found: list[Any] = []
    tvm_ffi.structural_walk(function.body, ((*EXTREMA, tirx.Cast), found.append))
    return any(_clips(one) for one in found) and not any(_to_whole_number(one) for one in found)


def kept(function: PrimFunc) -> PrimFunc:
    """Returns a lowered function whose maxima and minima with a constant keep NaN, if LLVM compiles it."""
    target = (function.attrs or {}).get("target")
    if target is None or str(target.kind.name) != "llvm":
        return function
    change = _as_intrinsic if target.attrs.get("feature.is_aarch64", False) else _exchanged
    callback = EXTREMA, lambda one: change(one) if _clips(one) else one
    return function.with_body(tvm_ffi.structural.structural_map(function.body, callback))


def _clips(extremum: Expr) -> bool:
    return isinstance(extremum, EXTREMA) and str(extremum.ty).startswith("float") and _is_constant(extremum.b)


def _is_constant(expression: Expr) -> bool:
    if isinstance(expression, tirx.Broadcast | tirx.Cast):
        return _is_constant(expression.value)
    return isinstance(expression, tirx.FloatImm)


def _to_whole_number(cast: Expr) -> bool:
    return isinstance(cast, tirx.Cast) and "int" in str(cast.ty) and str(cast.value.ty).startswith("float")


def _exchanged(extremum: Any) -> Any:
    return type(extremum)(extremum.b, extremum.a)


def _as_intrinsic(extremum: Expr) -> Expr:
    return tirx.call_llvm_pure_intrin(extremum.ty, KEEPS_NAN[type(extremum)], extremum.a, extremum.b)
