"""Writes one-dimensional convolutions as two-dimensional ones of height 1, and what lies between them alike.

Templates, blocked layouts and Winograd's algorithm are made for images. A tensor N x C x W that a convolution computes
becomes N x C x 1 x W, and stays so through pools, pads, slices along W, concatenations and elementwise operators. Where
another operator reads the tensor, a Squeeze takes the height out again, which moves no data.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import helper

Graph = Any
"""`autosched_tvm.compile.frontend.rewrites.Graph`."""
Node = Any
HEIGHT = 2
"""Axis of the height that is put in."""
OPSET_AXES_AS_INPUT = 13

_WINDOWED = ("Conv", "ConvTranspose")
_POOLS = ("MaxPool", "AveragePool", "LpPool")
_UNARY = frozenset({
    "Abs", "BatchNormalization", "Cast", "Ceil", "Celu", "Clip", "Cos", "Elu", "Erf", "Exp", "Floor", "Gelu",
    "GlobalAveragePool", "GlobalMaxPool", "HardSigmoid", "HardSwish", "InstanceNormalization", "LeakyRelu", "Log",
    "Mish", "Neg", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt",
    "Tanh", "ThresholdedRelu",
})  # fmt: skip
"""Operators whose other inputs are no tensors of W elements."""
_BROADCASTING = frozenset({
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Mul", "Or",
    "PRelu", "Pow", "Sub", "Sum", "Where",
})  # fmt: skip


class _Fixed(Exception):
    """The operator must stay as it is."""


def lift(state: Graph) -> tuple[list[Node], int]:
    """The nodes of the graph after the rewrite, and the number of convolutions that were rewritten."""
    lifter = _Lifter(state)
    lifter.run()
    return lifter.nodes, lifter.count


class _Lifter:
    """One graph, in which every tensor has at most one form with a height."""

    def __init__(self, state: Graph) -> None:
        self.nodes: list[Node] = []
        self.count = 0
        self._state = state
        state.ranks |= {name: len(tensor.dims) for name, tensor in state.constants.items()}
        self._ranks = state.ranks
        self._lifted: dict[str, str] = {}
        """Tensors that exist with a height, whether they also exist without or not."""
        self._flat: set[str] = set()
        """Those of them that exist without a height, too."""

    def run(self) -> None:
        """Fill `nodes`."""
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
        except _Fixed:  # nothing was written yet
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
            raise _Fixed  # only some axes are padded
        if len(node.input) < 2:
            (pads,) = ([*attribute.ints] for attribute in node.attribute if attribute.name == "pads")
            self._emit(node, [self._with_height(node.input[0])], {"pads": _pads(pads)})
            return
        amounts = self._constant(node.input[1])
        inputs = [self._with_height(node.input[0]), self._add_constant(node.input[1], np.array(_pads([*amounts])))]
        self._emit(node, [*inputs, *node.input[2:3]])

    def _slice(self, node: Node) -> None:
        if len(node.input) < 3:
            raise _Fixed  # starts and ends are attributes, as they were before opset 10
        if len(node.input) > 3 and node.input[3]:
            axes = [*self._constant(node.input[3])]
        else:
            axes = [*range(len(self._constant(node.input[1])))]
        mapped = self._add_constant(f"{node.output[0]}_axes", np.array([_axis(int(axis)) for axis in axes]))
        self._emit(node, [self._with_height(node.input[0]), *node.input[1:3], mapped, *node.input[4:]])

    # Tensors ----------------------------------------------------------------------------------------------------------

    def _emit(self, node: Node, inputs: Sequence[str], changed: dict[str, Any] | None = None) -> None:
        """The same operator on tensors with a height."""
        name = self._lifted[node.output[0]] = self._state.fresh(node.output[0])
        made = helper.make_node(node.op_type, list(inputs), [name], name=node.name, **(changed or {}))
        made.attribute.extend(attribute for attribute in node.attribute if attribute.name not in (changed or {}))
        self.nodes.append(made)
        self._ranks[name] = 4

    def _with_height(self, name: str) -> str:
        """The form of an operand that fits tensors with a height."""
        rank = self._ranks[name]
        if rank < 2:  # it lies along W, or is a scalar
            return name
        if name in self._lifted:
            return self._lifted[name]
        axis = rank - 1  # before W; a kernel has the same axes
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
        """Make a tensor without a height, if it has not been made."""
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

    def _add_constant(self, like: str, array: Any) -> str:
        name: str = self._state.constant(like, array)
        self._ranks[name] = array.ndim
        return name


def _axis(axis: int) -> int:
    """An axis of N x C x W as one of N x C x 1 x W."""
    axis %= 3
    return 3 if axis == 2 else axis


def _pads(pads: list[int]) -> list[int]:
    return [*pads[:2], 0, pads[2], *pads[3:5], 0, pads[5]]


def _captured(graph: Any) -> set[str]:
    """Names that subgraphs of the graph's nodes may read."""
    names: set[str] = set()
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
                names |= {name for one in inner.node for name in one.input} | {value.name for value in inner.output}
                names |= _captured(inner)
    return names
