"""Builds one TIR expression with named intermediate results, for a scalar or for a vector of any width."""

from collections.abc import Sequence
from typing import Any

from tvm import tirx

from autosched_tvm.tvm_types import Expr

FLOAT32_MANTISSA_BITS = 23
FLOAT32_EXPONENT_BIAS = 127
FLOAT32_SIGN = -(2**31)
"""Sign bit of a float32, as an int32."""


class ExpressionBuilder:
    """An expression under construction. All operands and results have the same number of lanes."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._bindings: list[tuple[Any, Any]] = []

    def type(self, scalar: str) -> str:
        """Returns the vector type with elements of the given type."""
        return scalar if self.lanes == 1 else f"{scalar}x{self.lanes}"

    def constant(self, value: float, scalar: str = "float32") -> Expr:
        """Returns the same value in all lanes."""
        one = tirx.const(value, scalar)
        return one if self.lanes == 1 else tirx.Broadcast(one, self.lanes)

    def keep(self, expression: Expr) -> Expr:
        """Returns a variable with the expression's value, which is evaluated once. TVM has none for conditions."""
        variable = tirx.Var("v", str(expression.ty))
        self._bindings.append((variable, expression))
        return variable

    def close(self, result: Expr) -> Expr:
        """Returns the result inside all variables kept."""
        for variable, value in reversed(self._bindings):
            result = tirx.Let(variable, value, result)
        return result

    def cast(self, scalar: str, value: Expr) -> Expr:
        """Returns the value converted to another element type."""
        return tirx.Cast(self.type(scalar), value)

    def bits(self, value: Expr, scalar: str = "int32") -> Expr:
        """Returns the same bits as another element type of equal size."""
        return tirx.reinterpret(self.type(scalar), value)

    def where(self, condition: Any, then: Expr, otherwise: Expr) -> Expr:
        """Selects one value or the other in each lane; both are evaluated."""
        return tirx.Select(condition, then, otherwise)

    def at_most(self, value: Expr, bound: float, scalar: str = "float32") -> Expr:
        """Returns the minimum of value and bound; NaN stays."""
        limit = self.constant(bound, scalar)
        return self.keep(self.where(limit < value, limit, value))

    def at_least(self, value: Expr, bound: float, scalar: str = "float32") -> Expr:
        """Returns the maximum of value and bound; NaN stays."""
        limit = self.constant(bound, scalar)
        return self.keep(self.where(value < limit, limit, value))

    def polynomial(self, x: Expr, coefficients: Sequence[float], scalar: str = "float32") -> Expr:
        """Returns the polynomial with these coefficients, the constant one first, by Horner's rule."""
        result = self.constant(coefficients[-1], scalar)
        for coefficient in reversed(coefficients[:-1]):
            result = result * x + self.constant(coefficient, scalar)
        return self.keep(result)

    def magnitude(self, x: Expr) -> Expr:
        """Returns the absolute value of a float32."""
        return self.keep(self.bits(self.bits(x) & self.constant(~FLOAT32_SIGN, "int32"), "float32"))

    def with_sign_of(self, magnitude: Expr, x: Expr) -> Expr:
        """Returns a non-negative float32 with the sign of another."""
        sign = self.bits(x) & self.constant(FLOAT32_SIGN, "int32")
        return self.keep(self.bits(self.bits(magnitude) | sign, "float32"))

    def any_above(self, bits: Expr, bound: int) -> Expr:
        """Returns one scalar condition: whether any lane of an int32 exceeds the bound."""
        if self.lanes > 1:
            bits = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.smax", bits)
        return bits > tirx.const(bound, "int32")
