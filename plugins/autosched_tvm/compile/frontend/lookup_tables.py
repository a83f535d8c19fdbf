"""Replaces functions of one quantised tensor by tables of 256 entries.

An 8-bit integer has 256 values. If a network computes elementwise with one quantised tensor and constants, and
quantises the result, each result depends on one such integer, however many operators and roundings lie between.
Examples: a hard swish exported as seven operators, a GELU, x times its sigmoid. ONNX's reference implementation
computes the 256 results.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx import NodeProto as Node
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend import normalisation_patterns, rewrites
from autosched_tvm.compile.frontend.node_builder import read_inside
from autosched_tvm.compile.frontend.rewrites import Graph
from autosched_tvm.tensors import Array

DOMAIN, LOOKUP = "autosched", "Lookup"
"""Domain and name of the operator that maps (8-bit integers, table of 256) to table entries."""
NODES_MIN = 12
"""Minimum number of operators that a table replaces. Changing the scale of a quantised tensor takes 8."""
NODES_MAX = 2_000
"""Maximum number of operators that are searched for one table."""
_LEVELS = {TensorProto.UINT8: np.uint8, TensorProto.INT8: np.int8}
_ELEMENTWISE = frozenset({
    "Abs", "Add", "Cast", "Ceil", "Clip", "Div", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish",
    "Identity", "LeakyRelu", "Log", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid",
    "Sign", "Softplus", "Sqrt", "Sub", "Tanh",
})  # fmt: skip


def put_in(model: ModelProto) -> int:
    """Rewrites the model in place; returns the number of tables."""
    return _Tables(model).put_in()


class _Region:
    """The operators between one quantised tensor and others."""

    def __init__(self) -> None:
        self.nodes: list[Node] = []
        """Nodes in the order of the graph."""
        self.leaves: dict[str, None] = {}
        """Quantised tensors that the nodes read."""


class _Tables:
    """State of one rewrite."""

    def __init__(self, model: ModelProto) -> None:
        self._model, self._graph, self._state = model, model.graph, Graph(model)
        self._constants = self._state.constants
        self._types = self._state.types
        self._makers = {name: node for node in self._graph.node for name in node.output}
        self._order = {node.output[0]: number for number, node in enumerate(self._graph.node)}
        self._roots: dict[str, tuple[str, Array]] = {}
        """Source tensor and its 256 results, by quantised tensor that is a function of one other."""

    def put_in(self) -> int:
        """Replaces each such function; returns their number. A graph with subgraphs is left alone, since these may read
        any name."""
        if any(map(read_inside, self._graph.node)):
            return 0
        nodes = []
        for node in self._graph.node:
            made = self._lookup(node) if node.op_type == "Cast" else None
            nodes.append(node if made is None else made)
        if any(node.op_type == LOOKUP for node in nodes):
            rewrites.replace_nodes(self._state, nodes)
            normalisation_patterns.drop_unread(self._state)
            self._state.write_constants()
            self._model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
        return sum(node.op_type == LOOKUP for node in self._graph.node)

    def _lookup(self, cast: Node) -> Node | None:
        """Returns the operator that replaces the one which makes a quantised tensor; None unless that is a function of
        one other."""
        name = cast.output[0]
        if not self._is_quantised(name) or (region := self._region(cast)) is None:
            return None
        roots = {self._root(leaf)[0] for leaf in region.leaves}
        if len(roots) != 1 or not self._same_shape(root := roots.pop(), name):
            return None
        try:
            table = self._computed(region, name)
        # the reference implementation lacks some versions of operators, and raises various exceptions
        except Exception:
            return None
        self._roots[name] = root, table
        if len(region.nodes) < NODES_MIN and all(self._root(leaf)[0] == leaf for leaf in region.leaves):
            return None
        constant = self._state.constant(name, table)
        return helper.make_node(LOOKUP, [root, constant], [name], name=f"{name}_lookup", domain=DOMAIN)

    def _region(self, cast: Node) -> _Region | None:
        """Returns the operators between a quantised tensor and the nearest quantised ones; None unless all are
        elementwise."""
        found, seen, waiting = _Region(), set(cast.output), [cast]
        while waiting:
            node = waiting.pop()
            if node.op_type not in _ELEMENTWISE or len(node.output) != 1 or len(seen) > NODES_MAX:
                return None
            found.nodes.append(node)
            for name in filter(None, node.input):
                if name in self._constants:
                    if _size(self._constants[name]) != 1:
                        return None
                elif self._is_quantised(name):
                    found.leaves[name] = None
                elif (maker := self._makers.get(name)) is None:
                    return None
                elif name not in seen:
                    seen.add(name)
                    waiting.append(maker)
        found.nodes.sort(key=lambda node: self._order[node.output[0]])
        return found if found.leaves else None

    def _computed(self, region: _Region, name: str) -> Array:
        """Returns the results for all values of the root."""
        inputs = [helper.make_tensor_value_info(leaf, self._types[leaf].elem_type, [256]) for leaf in region.leaves]
        outputs = [helper.make_tensor_value_info(name, self._types[name].elem_type, [256])]
        used = {one for node in region.nodes for one in node.input}
        constants = [_scalar(tensor) for key, tensor in self._constants.items() if key in used]
        graph = helper.make_graph(region.nodes, "table", inputs, outputs, constants)
        evaluator = ReferenceEvaluator(helper.make_model(graph, opset_imports=self._model.opset_import))
        with np.errstate(all="ignore"):
            return evaluator.run(None, {leaf: self._root(leaf)[1] for leaf in region.leaves})[0]

    def _root(self, name: str) -> tuple[str, Array]:
        every = np.arange(256).astype("uint8").view(_LEVELS[self._types[name].elem_type])
        return self._roots.get(name, (name, every))

    def _is_quantised(self, name: str) -> bool:
        return name in self._types and self._types[name].elem_type in _LEVELS and name not in self._constants

    def _same_shape(self, one: str, other: str) -> bool:
        shapes = [list(_dims(self._types[name])) for name in (one, other)]
        return shapes[0] == shapes[1] and None not in shapes[0]


def _dims(kind: Any) -> Iterator[int | None]:
    if not kind.HasField("shape"):
        yield None
    for size in kind.shape.dim:
        yield size.dim_value or None


def _size(tensor: TensorProto) -> int:
    return int(np.prod(tensor.dims, dtype=int))


def _scalar(tensor: TensorProto) -> TensorProto:
    """Returns a constant of one element without axes."""
    return numpy_helper.from_array(numpy_helper.to_array(tensor).reshape(()), tensor.name)
