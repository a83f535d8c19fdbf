"""Finds attention in a network: a product of queries and keys, a softmax, and a product with values."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import relax

from autosched_tvm.compile.relax_operators import BINARY, UNARY, Shape, constant, shape_of
from autosched_tvm.tvm_types import Expr, Function

ELEMENTWISE = UNARY | BINARY | {"relax.where"}
MATMUL, SOFTMAX, PERMUTE = "relax.matmul", "relax.nn.softmax", "relax.permute_dims"


@dataclass(frozen=True)
class Attention:
    """The operators of one attention. Only the last has readers outside."""

    scores: Expr
    """Variable of the product of queries and keys."""
    softmax: Expr
    """Variable of the softmax."""
    mixed: Expr
    """Variable of the product with values."""
    last: Expr
    """Variable of the last operator."""
    combined: frozenset[Any]
    """Variables of elementwise operators between the products."""
    softmax_alone: bool
    """Whether no operator lies between the softmax and the product with values."""
    calls: Mapping[Expr, Expr]
    """All operators by variable, in order."""


def find(function: Function) -> list[Attention]:
    """Returns each attention in a function that is one block of operators."""
    blocks: Sequence[Any] = getattr(function.body, "blocks", ())
    if len(blocks) != 1 or any(not isinstance(one, relax.VarBinding) for one in blocks[0].bindings):
        return []
    graph = _Graph(blocks[0].bindings, function.body.body)
    found = (graph.attention(variable) for variable in graph.calls if graph.name(variable) == SOFTMAX)
    return [one for one in found if one is not None]


class _Graph:
    def __init__(self, bindings: Any, result: Expr) -> None:
        self.calls = {one.var: one.value for one in bindings if isinstance(one.value, relax.Call)}
        self._uses: Counter[Any] = Counter()
        self._readers: dict[Any, Any] = {}
        for variable, value in (*((one.var, one.value) for one in bindings), (None, result)):
            for read in _variables(value):
                self._uses[read] += 1
                self._readers[read] = variable

    def name(self, variable: Expr) -> str:
        """Returns the name of the operator that computes a value; empty for inputs."""
        return str(getattr(getattr(self.calls.get(variable), "op", None), "name", ""))

    def attention(self, softmax: Expr) -> Attention | None:
        """Returns the attention around a softmax."""
        shape = shape_of(softmax)
        call = self.calls[softmax]
        if shape is None or len(shape) < 3 or int(call.attrs.axis) % len(shape) != len(shape) - 1:
            return None
        before = self._to_product(call.args[0], shape)
        after = self._to_values(softmax, shape)
        if before is None or after is None:
            return None
        scores, *above = before
        mixed, *below = after
        if not self._fits(self.calls[scores].args, self.calls[mixed].args[1], shape):
            return None
        epilogue = list(self._epilogue(mixed))
        inputs = (*self.calls[scores].args, self.calls[mixed].args[1])
        inside = {
            scores, *above, softmax, *below, mixed, *epilogue, *(one for data in inputs for one in self._prologue(data))
        }  # fmt: skip
        calls = {variable: call for variable, call in self.calls.items() if variable in inside}
        return Attention(scores, softmax, mixed, (mixed, *epilogue)[-1], frozenset((*above, *below)), not below, calls)

    def _to_product(self, variable: Expr, shape: Shape) -> list[Expr] | None:
        """Returns the variables from the product of queries and keys to the softmax."""
        if self._uses[variable] != 1 or shape_of(variable) != shape or variable not in self.calls:
            return None
        if self.name(variable) == MATMUL:
            return [variable]
        if self.name(variable) not in ELEMENTWISE:
            return None
        for argument in self.calls[variable].args:
            if isinstance(argument, relax.Var) and (before := self._to_product(argument, shape)) is not None:
                return [*before, variable]
        return None

    def _to_values(self, softmax: Expr, shape: Shape) -> list[Expr] | None:
        """Returns the product with values, followed by the variables between it and the softmax."""
        between: list[Any] = []
        variable = softmax
        while self._uses[variable] == 1 and (reader := self._readers[variable]) in self.calls:
            if self.name(reader) == MATMUL and self.calls[reader].args[0].same_as(variable):
                return [reader, *between]
            if self.name(reader) not in ELEMENTWISE or shape_of(reader) != shape:
                return None
            between.append(reader)
            variable = reader
        return None

    def _fits(self, product: Any, values: Expr, shape: Shape) -> bool:
        queries, keys, last = shape_of(product[0]), shape_of(product[1]), shape_of(values)
        if queries is None or keys is None or last is None:
            return False
        computed = all(isinstance(one, relax.Var) and str(one.ty.dtype) == "float32" for one in (*product, values))
        return computed and queries[:-2] == keys[:-2] == last[:-2] == shape[:-2]

    def _epilogue(self, variable: Expr) -> Iterator[Any]:
        """Yields the operators after the product with values that join the kernel."""
        while self._uses[variable] == 1 and (reader := self._readers[variable]) in self.calls:
            if not self._alone(reader, variable):
                return
            yield (variable := reader)

    def _prologue(self, variable: Expr) -> list[Any]:
        """Returns the operators before an input that join the kernel, back to the first that moves elements. Earlier
        ones join the kernel before."""
        above: list[Any] = []
        while self._uses[variable] == 1 and self._alone(variable):
            above.append(variable)
            variable = next(one for one in self.calls[variable].args if isinstance(one, relax.Var))
        while above and self.name(above[-1]) != PERMUTE:
            above.pop()
        return above

    def _alone(self, variable: Expr, source: Any | None = None) -> bool:
        """Returns whether an operator moves or computes the elements of one value, without another computed operand."""
        name = self.name(variable)
        arguments = [one for one in getattr(self.calls.get(variable), "args", ()) if constant(one) is None]
        read = [one for one in arguments if isinstance(one, relax.Var)]
        if len(read) != 1 or (source is not None and not read[0].same_as(source)):
            return False
        return name == PERMUTE or (name in ELEMENTWISE and shape_of(variable) == shape_of(read[0]))


def _variables(value: Expr) -> list[Expr]:
    """Returns the variables in an expression, with repetitions."""
    found: list[Any] = []
    tvm_ffi.structural_walk(value, (relax.Var, found.append))
    return found
