"""Finds the whole numbers that an input may have, so that each index computed from it lies in its table.

Every number up to a limit is followed through the network at the same time, elementwise, as an interval of the values
that it may become there (interval arithmetic: Moore, Interval Analysis, 1966, chapter 2).
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from msgspec import Struct
from onnx import GraphProto, numpy_helper

from autosched_tvm.compile.frontend.node_builder import Node, attributes, optional

Array = Any
NUMBERS_MIN, NUMBERS_MAX, GROWTH = 1 << 12, 1 << 20, 16
"""Numbers that are followed: at first, and at most, if the last one is still valid; the factor between them."""
_SAME_VALUES = frozenset({
    "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Expand", "Transpose", "Slice", "Split", "Tile",
    "ReduceMax", "ReduceMin", "Gather", "GatherElements", "GatherND", "Dropout",
})  # fmt: skip
"""Operators whose results are values of their first input."""
_INDEX = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1,
}  # fmt: skip
"""Operators with a table as their first input, and the place of their indices."""


class Interval(Struct, frozen=True):
    """Values that each number may become, `low` to `high`: arrays with an element for each number, or single values."""

    low: Array
    high: Array

    @property
    def exact(self) -> bool:
        """Whether each number becomes one value."""
        return bool(np.array_equal(self.low, self.high))


def valid(graph: GraphProto, name: str, dims: Mapping[str, list[int]]) -> tuple[int, int] | None:
    """Returns the lowest run of valid numbers of an input, its end exclusive; None where no index is computed from it,
    or where all numbers are valid. `dims`: known shapes."""
    count = NUMBERS_MIN
    while (found := _allowed(graph, name, dims, count)) is not None:
        if not found.any():
            return 0, 1
        if found.all():
            if count >= NUMBERS_MAX:
                return None
        else:
            first = int(np.argmax(found))
            behind = np.flatnonzero(~found[first:])
            if behind.size or count >= NUMBERS_MAX:
                return first, first + int(behind[0]) if behind.size else count
        count *= GROWTH
    return None


def _allowed(graph: GraphProto, name: str, dims: Mapping[str, list[int]], count: int) -> Array | None:
    """Whether each number below `count` is valid; None if no index is computed from the input."""
    numbers = np.arange(count, dtype="float64")
    known = {name: Interval(numbers, numbers)}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    found: Array | None = None
    for node in graph.node:  # ONNX requires topological order
        place = _INDEX.get(node.op_type)
        if place is not None and len(node.input) > place and node.input[place] in known:
            size, index = _table(node, dims), known[node.input[place]]
            inside = (index.low >= 0) & (index.high < size) & np.ones(count, bool)
            found = inside if found is None else found & inside
        if any(one in known for one in node.input):
            made = _follow(node, known, constants, dims)
            if made is not None:
                known.update(dict.fromkeys((one for one in node.output if one), made))
    return found


def _table(node: Node, dims: Mapping[str, list[int]]) -> int:
    """The number of entries that an index selects from; 2 where it is not known."""
    table, given = dims.get(node.input[0], []), attributes(node)
    if node.op_type in ("GatherND", "ScatterND"):  # an index is a row with one coordinate for each dimension
        batch, rows = int(given.get("batch_dims", 0)), dims.get(node.input[1], [])
        return min(table[batch:][: rows[-1]] if rows else table, default=2)
    axis = int(given.get("axis", 0))
    return table[axis] if -len(table) <= axis < len(table) else 2


def _follow(
    node: Node, known: Mapping[str, Interval], constants: Mapping[str, Any], dims: Mapping[str, list[int]]
) -> Interval | None:
    """Returns the results of a node for the numbers; None where they are not known."""
    operator, given = node.op_type, attributes(node)

    def operand(place: int) -> Interval | None:
        name = optional(node, place)
        if name in constants:
            array = np.asarray(numpy_helper.to_array(constants[name]), "float64")
            return Interval(array.min(), array.max()) if array.size else None
        return known.get(name)

    if operator in _SAME_VALUES:
        return known.get(node.input[0])
    if operator in ("Concat", "ScatterElements", "ScatterND"):
        places = range(len(node.input)) if operator == "Concat" else (0, 2)
        return _union([one for place in places if (one := operand(place)) is not None])
    if operator in ("CumSum", "ReduceSum"):
        if (one := operand(0)) is None:
            return None
        length = max(1, math.prod(dims.get(node.input[0], [1])))
        if operator == "CumSum" and optional(node, 1) in constants and node.input[0] in dims:
            length = dims[node.input[0]][int(numpy_helper.to_array(constants[node.input[1]]).reshape(-1)[0])]
        return Interval(np.minimum(one.low, length * one.low), np.maximum(one.high, length * one.high))
    operands = [operand(place) for place in range(len(node.input))]
    if operator == "Clip":
        low, high = ([*operands, None, None][place] for place in (1, 2))
        bounds = [_bound(low, given.get("min"), -np.inf), _bound(high, given.get("max"), np.inf)]
        one = operands[0]
        return None if one is None else Interval(np.clip(one.low, *bounds), np.clip(one.high, *bounds))
    if operator == "Pad":
        filling = operands[2] if len(operands) > 2 and operands[2] is not None else Interval(0.0, 0.0)
        return None if operands[0] is None else _union([operands[0], filling])
    if operator not in _ELEMENTWISE:
        return None
    present = [one for one in operands if one is not None]
    return _ELEMENTWISE[operator](*present) if len(present) == len(operands) else None


def _bound(one: Interval | None, attribute: Any, otherwise: float) -> Array:
    if one is not None:
        return one.low
    return otherwise if attribute is None else float(attribute)


def _union(found: list[Interval]) -> Interval | None:
    if not found:
        return None
    made = found[0]
    for one in found[1:]:
        made = Interval(np.minimum(made.low, one.low), np.maximum(made.high, one.high))
    return made


def _corners(compute: Callable[[Array, Array], Array]) -> Callable[[Interval, Interval], Interval]:
    """An operation that is monotone in each operand: its extremes lie at those of the operands."""

    def combined(a: Interval, b: Interval) -> Interval:
        with np.errstate(all="ignore"):
            found = [np.nan_to_num(compute(x, y), nan=0.0) for x in (a.low, a.high) for y in (b.low, b.high)]
        return Interval(np.minimum.reduce(np.broadcast_arrays(*found)), np.maximum.reduce(np.broadcast_arrays(*found)))

    return combined


def _monotone(compute: Callable[[Array], Array]) -> Callable[[Interval], Interval]:
    return lambda one: Interval(compute(one.low), compute(one.high))


def _mod(a: Interval, b: Interval) -> Interval:
    if a.exact and b.exact and np.all(b.low != 0):
        made = np.mod(a.low, b.low)
        return Interval(made, made)
    size = np.maximum(np.abs(b.low), np.abs(b.high)) - 1
    return Interval(np.where(b.low < 0, -size, 0.0), np.where(b.high > 0, size, 0.0))


def _compared(surely: Callable[[Interval, Interval], Array], never: Callable[[Interval, Interval], Array]) -> Any:
    """A comparison: 1 where it holds for all values, 0 where for none, and both otherwise."""

    def compare(a: Interval, b: Interval) -> Interval:
        return Interval(np.where(surely(a, b), 1.0, 0.0), np.where(never(a, b), 0.0, 1.0))

    return compare


def _where(condition: Interval, a: Interval, b: Interval) -> Interval:
    low = np.where(condition.low == 1, a.low, np.where(condition.high == 0, b.low, np.minimum(a.low, b.low)))
    high = np.where(condition.low == 1, a.high, np.where(condition.high == 0, b.high, np.maximum(a.high, b.high)))
    return Interval(low, high)


def _absolute(one: Interval) -> Interval:
    ends = np.abs(one.low), np.abs(one.high)
    return Interval(np.where((one.low < 0) & (one.high > 0), 0.0, np.minimum(*ends)), np.maximum(*ends))


_less = _compared(lambda a, b: a.high < b.low, lambda a, b: a.low >= b.high)
_less_or_equal = _compared(lambda a, b: a.high <= b.low, lambda a, b: a.low > b.high)
_ELEMENTWISE: dict[str, Callable[..., Interval]] = {
    "Abs": _absolute, "Add": _corners(np.add), "And": _corners(np.minimum), "Cast": _monotone(np.trunc),
    "Ceil": _monotone(np.ceil), "Div": _corners(lambda x, y: np.trunc(x / y)),
    "Equal": _compared(
        lambda a, b: (a.low == a.high) & (b.low == b.high) & (a.low == b.low),
        lambda a, b: (a.high < b.low) | (a.low > b.high),
    ),
    "Floor": _monotone(np.floor), "Greater": lambda a, b: _less(b, a),
    "GreaterOrEqual": lambda a, b: _less_or_equal(b, a), "Less": _less, "LessOrEqual": _less_or_equal,
    "Max": _corners(np.maximum), "Min": _corners(np.minimum), "Mod": _mod, "Mul": _corners(np.multiply),
    "Neg": lambda one: Interval(-one.high, -one.low), "Not": lambda one: Interval(1 - one.high, 1 - one.low),
    "Or": _corners(np.maximum), "Relu": _monotone(lambda x: np.maximum(x, 0)), "Round": _monotone(np.round),
    "Sub": _corners(np.subtract), "Where": _where,
}  # fmt: skip
"""Results of operators on intervals. Division is that of whole numbers."""
