"""Rewrites one-dimensional convolutions, and the operators between them, as two-dimensional ones of height 1.

The convolution templates, blocked layouts and Winograd's algorithm are two-dimensional. A convolution's result N x C x
W becomes N x C x 1 x W, and keeps the height through pools, pads, slices along W, concatenations and elementwise
operators. A Squeeze, which moves no data, removes the height before any other operator.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, helper
from onnx import NodeProto as Node

from autosched_tvm.compile.frontend.node_builder import read_inside
from autosched_tvm.tensors import Array

Graph = Any

"""Type of `autosched_tvm.compile.frontend.rewrites.Graph`."""

HEIGHT = 2
"""Axis at which the height is inserted."""
OPSET_AXES_AS_INPUT = 13

_WINDOWED = ("Conv", "ConvInteger", "ConvTranspose")
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_UNARY = frozenset({
    "Abs", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid", "HardSwish", "InstanceNormalization", "LeakyRelu", "Log",
    "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt",
    "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators whose inputs after the first do not have the size W."""
_BROADCASTING = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Or",
    "PRelu", "Pow", "Sub", "Sum", "Where",
})  # fmt: skip


class _Fixed(Exception):
    """The operator cannot be rewritten and stays as it is."""


def lift(state: Graph) -> tuple[list[Node], int]:
    """Returns the nodes of the graph after the rewrite, and the number of convolutions that were rewritten."""
    lifter = _Lifter(state)
    lifter.run()
    return lifter.nodes, lifter.count


class _Lifter:
    """Rewrites one graph. Each tensor has at most one form with a height."""

    def __init__(self, state: Graph) -> None:
        self.nodes: list[Node] = []
        self.count = 0
        self._state = state
        state.ranks |= {name: len(tensor.dims) for name, tensor in state.constants.items()}
        self._ranks = state.ranks
        self._lifted: dict[str, str] = {}
        """Form with a height, by tensor name."""
        self._flat: set[str] = set()
        """Tensors of `_lifted` that also exist without a height."""

    def run(self) -> None:
        """Fills `nodes`."""
        captured = _captured(self._state.graph)
        for node in self._state.graph.node:
            if node.domain in ("", "ai.onnx") and self._try(node):
                for name in captured & set(node.output):
                    self._flatten(name)
                continue
            for name in node.input:
                self._flatten(name)
            self.nodes.append(node)
        for name in self._state.wanted:
            self._flatten(name)

    def _try(self, node: Node) -> bool:
        rule = self._rule(node)
        if rule is None or sum(1 for name in node.output if name) != 1:
            return False
        try:
            rule(node)
        except _Fixed:  # the exception is raised before any node is added
            return False
        self.count += node.op_type in _WINDOWED
        return True

    def _rule(self, node: Node) -> Callable[[Node], None] | None:
        if node.op_type in _WINDOWED:
            return self._window if all(self._ranks.get(name) == 3 for name in node.input[:2]) else None
        if not any(name in self._lifted for name in node.input):
            return None
        if node.op_type in _POOLS:
            return self._window
        if node.op_type in _UNARY:
            return self._unary
        if node.op_type in _BROADCASTING:
            return self._broadcast
        return {"Concat": self._concat, "Pad": self._pad, "Slice": self._slice}.get(node.op_type)

    # Rules ------------------------------------------------------------------------------------------------------------

    def _window(self, node: Node) -> None:
        given = {attribute.name: attribute for attribute in node.attribute}
        changed: dict[str, Any] = {}
        for name, filler in (
            ("kernel_shape", 1), ("strides", 1), ("dilations", 1), ("output_padding", 0), ("output_shape", 1),
        ):  # fmt: skip
            if name in given:
                changed[name] = [filler, *given[name].ints]
        if "pads" in given:
            begin, end = given["pads"].ints
            changed["pads"] = [0, begin, 0, end]
        inputs = [self._with_height(node.input[0])]
        if node.op_type in _WINDOWED:
            inputs += [self._with_height(node.input[1]), *node.input[2:]]
        self._emit(node, inputs, changed)

    def _unary(self, node: Node) -> None:
        self._emit(node, [self._with_height(node.input[0]), *node.input[1:]])

    def _broadcast(self, node: Node) -> None:
        ranks = [self._ranks.get(name) for name in node.input]
        if max((9 if rank is None else rank) for rank in ranks) > 3:
            raise _Fixed
        self._emit(node, [self._with_height(name) for name in node.input])

    def _concat(self, node: Node) -> None:
        if any(self._ranks.get(name) != 3 for name in node.input):
            raise _Fixed
        axis = next(attribute.i for attribute in node.attribute if attribute.name == "axis")
        self._emit(node, [self._with_height(name) for name in node.input], {"axis": _axis(axis)})

    def _pad(self, node: Node) -> None:
        if len(node.input) > 3 and node.input[3]:
            raise _Fixed  # the pads are given for some axes only
        if len(node.input) < 2:
            (pads,) = ([*attribute.ints] for attribute in node.attribute if attribute.name == "pads")
            self._emit(node, [self._with_height(node.input[0])], {"pads": _pads(pads)})
            return
        amounts = self._constant(node.input[1])
        inputs = [self._with_height(node.input[0]), self._add_constant(node.input[1], np.array(_pads([*amounts])))]
        self._emit(node, [*inputs, *node.input[2:3]])

    def _slice(self, node: Node) -> None:
        if len(node.input) < 3:
            raise _Fixed  # before opset 10, starts and ends are attributes
        if len(node.input) > 3 and node.input[3]:
            axes = [*self._constant(node.input[3])]
        else:
            axes = [*range(len(self._constant(node.input[1])))]
        mapped = self._add_constant(f"{node.output[0]}_axes", np.array([_axis(int(axis)) for axis in axes]))
        self._emit(node, [self._with_height(node.input[0]), *node.input[1:3], mapped, *node.input[4:]])

    # Tensors ----------------------------------------------------------------------------------------------------------

    def _emit(self, node: Node, inputs: Sequence[str], changed: dict[str, Any] | None = None) -> None:
        """Adds the same operator on tensors with a height."""
        name = self._lifted[node.output[0]] = self._state.fresh(node.output[0])
        made = helper.make_node(node.op_type, list(inputs), [name], name=node.name, **(changed or {}))
        made.attribute.extend(attribute for attribute in node.attribute if attribute.name not in (changed or {}))
        self.nodes.append(made)
        self._ranks[name] = 4

    def _with_height(self, name: str) -> str:
        """Returns the form of an operand that broadcasts with tensors that have a height."""
        rank = self._ranks[name]
        if rank < 2:  # a scalar, or a vector along W
            return name
        if name in self._lifted:
            return self._lifted[name]
        axis = rank - 1  # the height goes before W; a kernel has the same axes
        if (array := self._state.array(name)) is not None:
            lifted = self._add_constant(name, np.expand_dims(array, axis))
        else:
            lifted = self._state.fresh(name)
            self.nodes.append(self._axis_node("Unsqueeze", name, lifted, axis))
            self._ranks[lifted] = rank + 1
            self._flat.add(name)
        self._lifted[name] = lifted
        return lifted

    def _flatten(self, name: str) -> None:
        """Adds the form without a height, unless it exists."""
        if name in self._lifted and name not in self._flat and name not in self._state.constants:
            self.nodes.append(self._axis_node("Squeeze", self._lifted[name], name, HEIGHT))
            self._flat.add(name)

    def _axis_node(self, kind: str, given: str, made: str, axis: int) -> Node:
        if self._state.opset < OPSET_AXES_AS_INPUT:
            return helper.make_node(kind, [given], [made], name=made, axes=[axis])
        return helper.make_node(kind, [given, self._add_constant(f"{made}_axis", np.array([axis]))], [made], name=made)

    def _constant(self, name: str) -> list[int]:
        array = self._state.array(name)
        if array is None:
            raise _Fixed
        return [int(value) for value in array.ravel()]

    def _add_constant(self, like: str, array: Array) -> str:
        name: str = self._state.constant(like, array)
        self._ranks[name] = array.ndim
        return name


def _axis(axis: int) -> int:
    """Returns the axis of N x C x 1 x W that corresponds to an axis of N x C x W."""
    axis %= 3
    return 3 if axis == 2 else axis


def _pads(pads: list[int]) -> list[int]:
    return [*pads[:2], 0, pads[2], *pads[3:5], 0, pads[5]]


def _captured(graph: GraphProto) -> set[str]:
    """Returns the names that subgraphs of the graph's nodes read."""
    return {name for node in graph.node for name in read_inside(node)}
