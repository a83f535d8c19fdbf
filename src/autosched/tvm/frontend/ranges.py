"""Which whole numbers an input may hold, so that made-up inputs are valid and say something.

Zeros and ones alone are always valid indices, but they can drive a network into a corner in which rounding decides its
output: a variance of almost nothing, say. So an index may be as large as its table allows, others as bytes are.
"""

from typing import Any

PLAIN_HIGH = 128
MASK_HIGH = 2
_SAME_VALUES = {
    "Cast", "Reshape", "Squeeze", "Unsqueeze", "Identity", "Flatten", "Expand", "Transpose", "Slice", "Concat", "Split",
    "Tile",
}  # fmt: skip
_INDEX_OF = {
    "Gather": 1, "GatherElements": 1, "GatherND": 1, "ScatterElements": 1, "ScatterND": 1, "OneHot": 0,
}  # fmt: skip


def highs(model: Any) -> dict[str, int]:
    """Exclusive upper bound of each input's random whole numbers; the lower bound is 0."""
    graph = model.graph
    dims = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return {value.name: _high(graph, value.name, dims) for value in graph.input if value.name not in dims}


def _high(graph: Any, name: str, dims: dict[str, list[int]]) -> int:
    """The smallest table that the input's values look something up in; unknown tables allow 0 and 1 only."""
    same = {name}
    bounds = [MASK_HIGH] if "mask" in name.lower() else [PLAIN_HIGH]
    for node in graph.node:  # in topological order, as ONNX demands
        place = _INDEX_OF.get(node.op_type)
        if place is not None and len(node.input) > place and node.input[place] in same:
            bounds = [b for b in bounds if b != PLAIN_HIGH] + [_table(node, dims)]
        elif node.op_type in _SAME_VALUES and any(i in same for i in node.input):
            same.update(node.output)
    return max(1, min(bounds))


def _table(node: Any, dims: dict[str, list[int]]) -> int:
    if node.op_type == "OneHot":
        return PLAIN_HIGH
    if node.op_type in ("GatherND", "ScatterND"):  # an index is a row of coordinates, one for each dimension
        return min(dims.get(node.input[0], []), default=2)
    axis = next((a.i for a in node.attribute if a.name == "axis"), 0)
    table = dims.get(node.input[0], [])
    return table[axis] if -len(table) <= axis < len(table) else 2
