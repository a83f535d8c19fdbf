"""Properties of Relax operators and values: shapes, constants, elementwise operators."""

from typing import Any

from autosched_tvm.tvm_types import Expr

Shape = tuple[int, ...]

UNARY = frozenset(
    f"relax.{name}"
    for name in (
        "nn.relu", "nn.leakyrelu", "nn.gelu", "nn.gelu_tanh", "nn.silu", "nn.selu", "nn.softplus", "clip", "sigmoid",
        "tanh", "exp", "abs", "negative", "sqrt", "square", "erf", "floor", "ceil", "round", "sign", "sin", "cos",
        "log", "rsqrt", "astype",
    )
)  # fmt: skip
"""Names of operators that compute each element of one value."""
BINARY = frozenset(f"relax.{name}" for name in ("add", "subtract", "multiply", "maximum", "minimum", "divide", "power"))
"""Names of operators that combine two values element by element."""


def shape_of(value: Expr) -> Shape | None:
    """Returns the fixed shape of a tensor; None for other values."""
    dims = getattr(getattr(getattr(value, "ty", None), "shape", None), "values", None)
    if dims is None:
        return None
    sizes = tuple(getattr(d, "value", d) for d in dims)
    return sizes if all(isinstance(size, int) for size in sizes) else None


def is_lookup(call: Expr) -> bool:
    """Returns whether an operator maps bytes through a constant table of 256 entries, elementwise."""
    if getattr(getattr(call, "op", None), "name", "") != "relax.take" or str(call.args[1].ty.dtype) != "uint8":
        return False
    table = constant(call.args[0])
    return table is not None and table.shape == (256,) and table.dtype.itemsize == 1


def constant(value: Expr) -> Any:
    """Returns a constant's array; None for a computed value."""
    return value.value.numpy() if type(value).__name__ == "GenericConst" else None
