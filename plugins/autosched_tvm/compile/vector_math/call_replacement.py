"""Replaces the calls of transcendental functions in lowered functions for CPUs."""

from collections.abc import Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.compile.vector_math import formulas
from autosched_tvm.compile.vector_math.expression_builder import ExpressionBuilder
from autosched_tvm.tvm_types import Expr, PrimFunc, Stmt

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
IF_THEN_ELSE = "prim.if_then_else"
ON_STACK = "disable_lower_builtin"
"""TVM's annotation of a buffer that is not taken from the pool."""
FUNCTIONS = frozenset({*UNARY, POWER})
VECTORIZABLE = ("tirx.erf", "tirx.log1p", "tirx.nearbyint", "tirx.rsqrt")
"""Elementwise operators that TVM does not mark as such. TVM does not vectorise a loop with one of them."""
EVALUATED_AS = {"float32": "float32", "float16": "float32"}
"""Element type of the arithmetic, by the element type of a call. Other calls stay as they are."""


def mark_vectorizable() -> None:
    """Marks the remaining elementwise operators as vectorisable for TVM."""
    for name in VECTORIZABLE:
        operator = tvm.ir.Op.get(name)
        if not operator.get_attr("TVectorizable"):
            operator.set_attr("TVectorizable", True)


def is_used(function: PrimFunc) -> bool:
    """Returns whether a function has such calls."""
    return bool(_transcendental(function.body))


def in_registers(function: PrimFunc) -> PrimFunc:
    """Returns a lowered function with such calls replaced, if LLVM compiles it."""
    if not _is_llvm(function):
        return function
    body = tvm_ffi.structural.structural_map(function.body, (tirx.BufferStore, separated))
    return function.with_body(tvm_ffi.structural.structural_map(body, (tvm.ir.Call, replaced)))


def separated(store: Stmt) -> Stmt:
    """Returns a store without nested calls: an inner call is stored in a local buffer first.

    A formula uses its argument many times, and TVM's analyser expands all variables of an expression, so nested
    formulas multiply: a softplus took twenty seconds to compile, a mish an hour. TVM does not expand loads. Calls
    guarded by a branch stay nested, since statements before the branch would always be evaluated.
    """
    if len(_transcendental(store.value)) < 2 or _guarded(store.value):
        return store
    before: list[Any] = []

    def separate(call: Expr) -> Expr:
        if getattr(call.op, "name", "") not in FUNCTIONS:
            return call
        arguments = [_stored(argument, before) if _transcendental(argument) else argument for argument in call.args]
        return tvm.ir.Call(call.op, arguments, call.attrs, list(call.ty_args), ret_ty=call.ty)

    value = tvm_ffi.structural.structural_map(store.value, (tvm.ir.Call, separate))
    return tirx.SeqStmt([*before, tirx.BufferStore(store.buffer, value, store.indices)]) if before else store


def _stored(expression: Expr, before: list[Stmt]) -> Expr:
    """Returns a load of the expression's value, which statements added to `before` store on the stack."""
    scalar, _, lanes = str(expression.ty).partition("x")
    count = int(lanes or 1)
    buffer = tirx.decl_buffer([count], scalar, "argument", scope="local")
    zero = tirx.const(0, "int32")
    place = [zero if count == 1 else tirx.Ramp(zero, tirx.const(1, "int32"), count)]
    on_stack = {ON_STACK: tirx.IntImm("bool", 1)}
    before.extend([tirx.AllocBuffer(buffer, on_stack), tirx.BufferStore(buffer, expression, place)])
    return tirx.BufferLoad(buffer, place)


def _transcendental(expression: Expr | Stmt) -> list[Expr]:
    """Returns the calls in an expression that become formulas."""
    return [call for call in _calls(expression) if getattr(call.op, "name", "") in FUNCTIONS]


def _guarded(expression: Expr) -> bool:
    """Returns whether a part of an expression is evaluated conditionally, or binds a variable."""
    if any(getattr(call.op, "name", "") == IF_THEN_ELSE for call in _calls(expression)):
        return True
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tirx.Let, found.append))
    return bool(found)


def _calls(expression: Expr | Stmt) -> list[Expr]:
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (tvm.ir.Call, found.append))
    return found


def replaced(call: Expr) -> Expr:
    """Returns a call of a transcendental function as arithmetic; any other call as it is."""
    name = getattr(call.op, "name", "")
    if name not in FUNCTIONS:
        return call
    scalar, _, lanes = str(call.ty).partition("x")
    wide = EVALUATED_AS.get(scalar)
    if wide is None or not (lanes or "1").isdigit():  # a scalable vector has no number of lanes
        return call
    v = ExpressionBuilder(int(lanes or 1))
    if wide == scalar:
        return v.close(_evaluated(v, name, call.args))
    return v.close(v.cast(scalar, _evaluated(v, name, [v.cast(wide, argument) for argument in call.args])))


def _evaluated(v: ExpressionBuilder, name: str, arguments: Sequence[Any]) -> Expr:
    if name == EXPONENTIAL and isinstance(arguments[0], tirx.Min) and _constant(arguments[0].b) == 0:
        return formulas.exp_of_negative(v, v.keep(arguments[0].a))
    operands = [v.keep(argument) for argument in arguments]
    if name != POWER:
        return UNARY[name](v, operands[0])
    exponent = _constant(arguments[1])
    known = None if exponent is None else formulas.constant_power(v, operands[0], exponent)
    return formulas.power(v, *operands) if known is None else known


def _constant(expression: Expr) -> float | None:
    """Returns the value of a constant, in all lanes; None for other expressions."""
    if isinstance(expression, tirx.Cast | tirx.Broadcast):
        return _constant(expression.value)
    return float(expression.value) if isinstance(expression, tirx.FloatImm) else None


def _is_llvm(function: PrimFunc) -> bool:
    target = (function.attrs or {}).get("target")
    return target is not None and str(target.kind.name) == "llvm"
