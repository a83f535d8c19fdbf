"""Recognises normalisations along the last axis that are exported as means, differences and quotients.

Exports before opset 17 write a layer normalisation as nine nodes, which become three kernels; one operator becomes one
kernel. ONNX has the normalisation by the root mean square since opset 23.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import NodeProto as Node
from onnx import helper

from autosched_tvm.compile.frontend.node_builder import read_inside

State = Any
"""Type of `rewrites.Graph`."""


class Reader:
    """Finds the node that writes a value, and counts its readers."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.writers = {name: node for node in state.graph.node for name in node.output}
        self.reads = Counter(name for node in state.graph.node for name in node.input)

    def writer(self, name: str, kind: str, reads: int = 1) -> Node | None:
        """Returns the node of a kind that writes a value with `reads` readers which is no output of the network."""
        node = self.writers.get(name)
        if node is None or node.op_type != kind or self.reads[name] != reads or name in self.state.wanted:
            return None
        return node

    def scalar(self, name: str) -> float | None:
        """Returns the value of a constant with one element."""
        array = self.state.array(name)
        return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None

    def split(self, node: Node) -> tuple[str, Any] | None:
        """Returns the computed operand of a binary node, and the value of the constant one."""
        for computed, constant in (node.input, reversed(node.input)):
            if (array := self.state.array(constant)) is not None:
                return computed, array
        return None


def recognise(state: State) -> int:
    """Replaces each chain by one operator; returns their number."""
    return _replaced(state, _layer_norm) + _replaced(state, _rms_norm)  # the first pattern contains the second


def _replaced(state: State, rule: Callable[[Reader, Node], Node | None]) -> int:
    reader = Reader(state)
    found = {node.output[0]: made for node in state.graph.node if (made := rule(reader, node)) is not None}
    for node in state.graph.node:
        if (made := found.get(node.output[0])) is not None:
            node.CopyFrom(made)
    if found:
        drop_unread(state)
    return len(found)


def _layer_norm(reader: Reader, last: Node) -> Node | None:
    """Returns the operator for a chain that ends with (x - mean) / sqrt(variance + epsilon) * scale + bias."""
    if last.op_type != "Add" or (ends := reader.split(last)) is None:
        return None
    product, bias = ends
    multiplication = reader.writer(product, "Mul")
    if multiplication is None or (factors := reader.split(multiplication)) is None:
        return None
    quotient, scale = factors
    division = reader.writer(quotient, "Div")
    if division is None or (centred := _standardised(reader, division)) is None:
        return None
    value, epsilon = centred
    size = scale.shape[-1] if scale.ndim else 1
    if scale.size != size or bias.size != size or bias.shape[-1:] != (size,) or size < 2 or scale.dtype != np.float32:
        return None
    names = [reader.state.constant(f"{last.output[0]}_{name}", array.reshape(size)) for name, array in
             (("scale", scale), ("bias", bias))]  # fmt: skip
    return helper.make_node(
        "LayerNormalization", [value, *names], [last.output[0]], name=last.name, axis=-1, epsilon=epsilon
    )


def _rms_norm(reader: Reader, last: Node) -> Node | None:
    """Returns the operator for a chain that ends with x / sqrt(mean of squares + epsilon) * scale."""
    if last.op_type != "Mul" or (ends := reader.split(last)) is None:
        return None
    quotient, scale = ends
    size = scale.shape[-1] if scale.ndim else 1
    if scale.size != size or size < 2 or scale.dtype != np.float32:
        return None
    for value, root in _quotients(reader, quotient):
        if (found := _mean_of_squares(reader, root)) is not None and found[0] == value:
            name = reader.state.constant(f"{last.output[0]}_scale", scale.reshape(size))
            return helper.make_node(
                "RMSNormalization", [value, name], [last.output[0]], name=last.name, axis=-1, epsilon=found[1]
            )
    return None


def _quotients(reader: Reader, name: str) -> list[tuple[str, str]]:
    """Returns dividend and divisor of a value, for each way to write the division."""
    if (division := reader.writer(name, "Div")) is not None:
        return [(division.input[0], division.input[1])]
    if (product := reader.writer(name, "Mul")) is None:
        return []
    found = []
    for value, inverse in (product.input, reversed(product.input)):
        if (reciprocal := reader.writer(inverse, "Reciprocal")) is not None:
            found.append((value, reciprocal.input[0]))
        elif (division := reader.writer(inverse, "Div")) is not None and reader.scalar(division.input[0]) == 1:
            found.append((value, division.input[1]))
    return found


def _standardised(reader: Reader, division: Node) -> tuple[str, float] | None:
    """Returns the value that a division standardises along the last axis, and the epsilon."""
    found = _mean_of_squares(reader, division.input[1])
    if found is None:
        return None
    first, second = _difference(reader, division.input[0]), _difference(reader, found[0])
    return None if first is None or first != second else (first, found[1])


def _mean_of_squares(reader: Reader, root: str) -> tuple[str, float] | None:
    """Returns the value x for which a value is sqrt(mean(x * x) + epsilon) along the last axis, and the epsilon."""
    node = reader.writer(root, "Sqrt")
    total = reader.writer(node.input[0], "Add") if node else None
    if total is None or (parts := reader.split(total)) is None or parts[1].size != 1:
        return None
    mean = reader.writer(parts[0], "ReduceMean")
    if mean is None or not _along_last(reader, mean) or (squared := _squared(reader, mean.input[0])) is None:
        return None
    return squared, float(parts[1].reshape(-1)[0])


def _squared(reader: Reader, name: str) -> str | None:
    """Returns the value whose square a value is."""
    power = reader.writer(name, "Pow")
    if power is not None:
        return str(power.input[0]) if reader.scalar(power.input[1]) == 2 else None
    product = reader.writer(name, "Mul")
    return str(product.input[0]) if product is not None and product.input[0] == product.input[1] else None


def _difference(reader: Reader, name: str) -> str | None:
    """Returns the value x for which a value is x - mean(x) along the last axis."""
    node = reader.writers.get(name)
    if node is None or node.op_type != "Sub":
        return None
    mean = reader.writers.get(node.input[1])
    if mean is None or mean.op_type != "ReduceMean" or mean.input[0] != node.input[0]:
        return None
    return str(node.input[0]) if _along_last(reader, mean) else None


def _along_last(reader: Reader, node: Node) -> bool:
    """Returns whether a mean is taken along the last axis with the dimension kept."""
    given = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
    axes = given.get("axes")
    if axes is None and len(node.input) > 1 and (array := reader.state.array(node.input[1])) is not None:
        axes = np.atleast_1d(array).tolist()
    rank = reader.state.ranks.get(node.input[0])
    last = (-1,) if rank is None else (-1, rank - 1)
    return bool(given.get("keepdims", 1)) and axes is not None and len(axes) == 1 and axes[0] in last


def drop_unread(state: State) -> None:
    """Removes the nodes whose results have no readers."""
    nodes = list(state.graph.node)
    inside = set().union(*(read_inside(node) for node in nodes))
    kept: list[Node] = []
    read = state.wanted | inside
    for node in reversed(nodes):
        if any(name in read for name in node.output if name):
            kept.append(node)
            read = read | set(node.input)
    copies = [helper.make_node("Identity", [], []) for _ in kept]
    for copy, node in zip(copies, reversed(kept), strict=True):
        copy.CopyFrom(node)
    del state.graph.node[:]
    state.graph.node.extend(copies)
