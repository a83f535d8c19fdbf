"""Replaces the calls of transcendental functions in lowered functions for CPUs."""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched.tvm.vector_math import formulas
from autosched.tvm.vector_math.lanes import Lanes

UNARY: dict[str, formulas.Formula] = {
    **{
        f"tirx.{formula.__name__}": formula
        for formula in (
            formulas.cos, formulas.erf, formulas.exp, formulas.exp10, formulas.exp2, formulas.log, formulas.log10,
            formulas.log1p, formulas.sigmoid, formulas.sin, formulas.tan, formulas.tanh,
        )
    },
    "prim.log2": formulas.log2,
}  # fmt: skip
EXPONENTIAL = "tirx.exp"
POWER = "tirx.pow"
FUNCTIONS = frozenset({*UNARY, POWER})
VECTORIZABLE = ("tirx.erf", "tirx.log1p", "tirx.rsqrt")
"""Elementwise operators that TVM does not know as such: it vectorises nothing in a loop that has one of them."""
EVALUATED_AS = {"float32": "float32", "float16": "float32"}
"""Element type of the arithmetic, by the element type of a call. Other calls stay as they are."""


def mark_vectorizable() -> None:
    """Tell TVM that loops with the remaining elementwise operators may be vectorised."""
    for name in VECTORIZABLE:
        operator = tvm.ir.Op.get(name)
        if not operator.has_attr("TVectorizable"):
            operator.set_attr("TVectorizable", True)


def in_registers(module: Any) -> Any:
    """The lowered module with such calls replaced, in the functions that LLVM compiles."""
    for name, function in module.functions.items():
        if isinstance(function, tirx.PrimFunc) and _is_llvm(function):
            body = tvm_ffi.structural.structural_map(function.body, (tvm.ir.Call, replaced))
            module.update_func(name, function.with_body(body))
    return module


def replaced(call: Any) -> Any:
    """A call of a transcendental function as arithmetic; any other call as it is."""
    name = getattr(call.op, "name", "")
    if name not in FUNCTIONS:
        return call
    scalar, _, lanes = str(call.ty).partition("x")
    wide = EVALUATED_AS.get(scalar)
    if wide is None or not (lanes or "1").isdigit():  # a vector of a width that only the CPU knows has no digits
        return call
    v = Lanes(int(lanes or 1))
    if wide == scalar:
        return v.close(_evaluated(v, name, call.args))
    return v.close(v.cast(scalar, _evaluated(v, name, [v.cast(wide, argument) for argument in call.args])))


def _evaluated(v: Lanes, name: str, arguments: Sequence[Any]) -> Any:
    if name == EXPONENTIAL and isinstance(arguments[0], tirx.Min) and _constant(arguments[0].b) == 0:
        return formulas.exp_of_negative(v, v.keep(arguments[0].a))
    operands = [v.keep(argument) for argument in arguments]
    if name != POWER:
        return UNARY[name](v, operands[0])
    exponent = _constant(arguments[1])
    known = None if exponent is None else formulas.constant_power(v, operands[0], exponent)
    return formulas.power(v, *operands) if known is None else known


def _constant(expression: Any) -> float | None:
    """The value of a constant, in all lanes; None for anything else."""
    if isinstance(expression, tirx.Cast | tirx.Broadcast):
        return _constant(expression.value)
    return float(expression.value) if isinstance(expression, tirx.FloatImm) else None


def _is_llvm(function: Any) -> bool:
    target = (function.attrs or {}).get("target")
    return target is not None and str(target.kind.name) == "llvm"
