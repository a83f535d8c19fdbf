"""Builds the new nodes of an ONNX graph that is being rewritten: constants, unused names, opset differences."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Node: TypeAlias = onnx.NodeProto
Array = np.ndarray[Any, Any]

_FOLDED = frozenset({
    "Cast", "Concat", "DequantizeLinear", "Expand", "Gather", "Identity", "Mul", "QuantizeLinear", "Reshape", "Slice",
    "Squeeze", "Transpose", "Unsqueeze",
})  # fmt: skip
"""Operators that are folded where all their inputs are constants, such as quantised weights."""


class Unknown(Exception):
    """A rewrite lacks facts about this node; the node stays as it is."""


class NodeBuilder:
    """The nodes of one graph in order, old and new; a subgraph looks names up in the graph around it."""

    def __init__(self, graph: onnx.GraphProto, opset: int, outer: "NodeBuilder | None" = None) -> None:
        self.graph, self.opset, self._outer = graph, opset, outer
        self.nodes: list[Node] = []
        self.constants = {tensor.name: tensor for tensor in graph.initializer}
        self.shapes: dict[str, tuple[int, ...]] = dict(outer.shapes) if outer else {}
        """Sizes of the tensors with a known number of dimensions; 0 for an unknown size."""
        self._aliases: dict[str, str] = {}
        self.types: dict[str, int] = dict(outer.types) if outer else {}
        for value in (*graph.value_info, *graph.input, *graph.output):
            tensor = value.type.tensor_type
            self.types[value.name] = tensor.elem_type
            if tensor.HasField("shape"):
                self.shapes[value.name] = tuple(max(0, size.dim_value) for size in tensor.shape.dim)
        self.taken: set[str] = outer.taken if outer else set()
        self.taken |= set(self.constants) | {v.name for v in graph.input}
        self.taken |= {name for node in graph.node for name in (*node.input, *node.output)}
        self._prefix = "value"
        self._number_type = "float32"

    def about(self, node: Node) -> None:
        """Names nodes added from now on after this node."""
        self._prefix = node.name or next((name for name in node.output if name), node.op_type)
        half = any(self.element_type(name) == TensorProto.FLOAT16 for name in node.input if name)
        self._number_type = "float16" if half else "float32"

    def compute_in_float32(self) -> None:
        """Computes in float32 from now on, whatever type the current node reads."""
        self._number_type = "float32"

    def array(self, name: str) -> Array | None:
        """Returns a constant's value; None for a computed value and for an omitted input."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return np.asarray(numpy_helper.to_array(tensor))
        return self._outer.array(name) if self._outer else None

    def element_type(self, name: str) -> int:
        """Returns a tensor's element type as an ONNX type number; 0 where it is unknown."""
        tensor = self.constants.get(name)
        if tensor is not None:
            return int(tensor.data_type)
        found = int(self.types.get(name, 0))
        return self._outer.element_type(name) if not found and self._outer else found

    def rank(self, name: str) -> int:
        """Returns the number of dimensions. Raises Unknown."""
        array = self.array(name)
        shape = array.shape if array is not None else self.shapes.get(name)
        if shape is None:
            raise Unknown(f"the rank of {name!r} is not known")
        return len(shape)

    def fixed_shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape. Raises Unknown where a size is not known."""
        array = self.array(name)
        shape = tuple(array.shape) if array is not None else self.shapes.get(name)
        if shape is None or (array is None and 0 in shape):
            raise Unknown(f"the shape of {name!r} is not known")
        return shape

    def constant(self, value: Array | np.generic, name: str = "") -> str:
        """Adds a constant; returns its name."""
        name = name or self.fresh("constant")
        self.constants[name] = numpy_helper.from_array(np.asarray(value, order="C"), name)
        return name

    def floats(self, *values: float) -> str:
        """Adds a float32 constant, a scalar for one value and a vector otherwise; returns its name."""
        return self.constant(np.asarray(values[0] if len(values) == 1 else values, "float32"))

    def number(self, value: float) -> str:
        """Adds a scalar of the floating-point type in which the current node computes; returns its name."""
        return self.constant(np.asarray(value, self._number_type))

    def integers(self, *values: int) -> str:
        """Adds an int64 vector; returns its name."""
        return self.constant(np.asarray(values, "int64"))

    def fresh(self, word: str) -> str:
        """Returns an unused name."""
        number = 0
        while (name := f"{self._prefix}__{word}{number or ''}") in self.taken:
            number += 1
        self.taken.add(name)
        return name

    def keep(self, node: Node) -> None:
        """Keeps a node as it is; folds it where all its inputs are constants."""
        if node.op_type in _FOLDED and node.domain in ("", "ai.onnx") and self._fold(node):
            return
        if node.op_type == "Constant" and self._known(node):
            return
        self.nodes.append(node)

    def make(self, operator: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        """Adds an operator with one output, a standard one unless `domain` is given; returns the output's name."""
        output = output or self.fresh(operator.lower())
        name = self.fresh(f"{operator.lower()}_node")
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=name, **attributes))
        return output

    def alias(self, value: str, name: str) -> None:
        """Gives a tensor a second name, which other nodes read."""
        array = self.array(value)
        if array is not None and name not in {output.name for output in self.graph.output}:
            self.constant(array, name)
            return
        self._aliases[name] = self.resolve(value)
        self.make("Identity", [value], name)

    def resolve(self, name: str) -> str:
        """Returns the first name of a tensor."""
        return self._aliases.get(name, name)

    def several(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Adds a standard operator with several outputs."""
        name = self.fresh(f"{operator.lower()}_node")
        self.nodes.append(helper.make_node(operator, list(inputs), list(outputs), name=name, **attributes))

    # Operators whose form depends on the opset --------------------------------------------------------------

    def clip(self, value: str, low: float, high: float, output: str = "") -> str:
        """Adds a clip of each element; returns its name."""
        if self.opset < 11:
            return self.make("Clip", [value], output, min=float(low), max=float(high))
        return self.make("Clip", [value, self.number(low), self.number(high)], output)

    def round(self, value: str) -> str:
        """Rounds to the nearest integer, ties to even where the opset has Round."""
        if self.opset >= 11:
            return self.make("Round", [value])
        return self.make("Floor", [self.make("Add", [value, self.floats(0.5)])])

    def reduce(self, operator: str, value: str, axes: Sequence[int] | None, *, keep: bool = True) -> str:
        """Adds ReduceMean, ReduceMax or ReduceMin over these axes; None: over all."""
        if axes is None:
            return self.make(operator, [value], keepdims=int(keep))
        if self.opset >= 18:
            return self.make(operator, [value, self.integers(*axes)], keepdims=int(keep))
        return self.make(operator, [value], axes=list(axes), keepdims=int(keep))

    def unsqueeze(self, value: str, *axes: int) -> str:
        """Inserts dimensions of size 1."""
        if self.opset >= 13:
            return self.make("Unsqueeze", [value, self.integers(*axes)])
        return self.make("Unsqueeze", [value], axes=list(axes))

    def split(self, value: str, axis: int, sizes: Sequence[int]) -> list[str]:
        """Splits a tensor along an axis into parts of these sizes."""
        outputs = [self.fresh("part") for _ in sizes]
        sized = [self.integers(*sizes)] if self.opset >= 13 else []
        attributes = {"axis": axis} if sized else {"axis": axis, "split": list(sizes)}
        self.several("Split", [value, *sized], outputs, **attributes)
        return outputs

    def pad(self, value: str, pads: Sequence[int], filling: Array) -> str:
        """Adds values before and behind a tensor: `pads` has the numbers before each dimension, then those behind."""
        if self.opset >= 11:
            return self.make("Pad", [value, self.integers(*pads), self.constant(filling)])
        return self.make("Pad", [value], pads=list(pads), value=float(filling))

    def slice(
        self, value: str, axes: Sequence[int], starts: Sequence[int], ends: Sequence[int], steps: Sequence[int]
    ) -> str:
        """Takes each step-th value from a start to an end along some axes. Before opset 10 there are no steps: each
        value is gathered."""
        if self.opset >= 10:
            return self.make("Slice", [value, *(self.integers(*list(n)) for n in (starts, ends, axes, steps))])
        for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
            value = self.make("Gather", [value, self.integers(*range(start, end, step))], axis=axis)
        return value

    def softmax(self, value: str) -> str:
        """Adds a softmax along the last axis. Before opset 13 the operator flattens its input, with the same result."""
        return self.make("Softmax", [value], axis=-1)

    def to_float(self, value: str) -> str:
        """Returns the tensor as float32; a constant is converted at once."""
        array = self.array(value)
        if array is not None:
            return self.constant(array.astype("float32"))
        if self.element_type(value) == TensorProto.FLOAT:
            return value
        return self.make("Cast", [value], to=TensorProto.FLOAT)

    # Finishing ----------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Writes the nodes back to the graph, except those that no output needs."""
        needed = {value.name for value in self.graph.output}
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if needed.intersection(name for name in node.output if name):
                kept.append(node)
                needed.update(name for name in node.input if name)
                needed.update(read_inside(node))
        copies = []
        for node in reversed(kept):
            copy = onnx.NodeProto()
            copy.CopyFrom(node)
            copies.append(copy)
        del self.graph.node[:]
        self.graph.node.extend(copies)
        tensors = [tensor for name, tensor in self.constants.items() if name in needed]
        kept_tensors = []
        for tensor in tensors:
            copy = onnx.TensorProto()
            copy.CopyFrom(tensor)
            kept_tensors.append(copy)
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept_tensors)

    def _known(self, node: Node) -> bool:
        """Turns a Constant node into an initializer, except in subgraphs: a branch may consist of it."""
        if self._outer is not None or node.output[0] in {value.name for value in self.graph.output}:
            return False
        attributes = {a.name: a for a in node.attribute}
        if "value" not in attributes:
            return False
        tensor = onnx.TensorProto()
        tensor.CopyFrom(attributes["value"].t)
        tensor.name = node.output[0]
        self.constants[tensor.name] = tensor
        return True

    def _fold(self, node: Node) -> bool:
        """Folds a node with constant inputs."""
        arrays = {name: self.array(name) for name in node.input if name}
        if any(array is None for array in arrays.values()) or len(node.output) != 1:
            return False
        if node.output[0] in {value.name for value in self.graph.output}:
            return False
        from onnx.reference import ReferenceEvaluator

        graph = helper.make_graph(
            [node],
            "fold",
            [],
            [helper.make_value_info(node.output[0], onnx.TypeProto())],
            [numpy_helper.from_array(array, name) for name, array in arrays.items()],
        )
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        try:
            (value,) = ReferenceEvaluator(made).run(None, {})
        except Exception:  # the reference implementation lacks some types; the node stays, and later passes handle it
            return False
        self.constant(np.asarray(value), node.output[0])
        return True


def attributes(node: Node) -> dict[str, Any]:
    """Returns a node's attributes as Python values."""
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def text(value: bytes | str) -> str:
    """Returns a text attribute."""
    return value.decode() if isinstance(value, bytes) else str(value)


def optional(node: Node, index: int) -> str:
    """Returns the name of an input; empty where it is omitted."""
    return node.input[index] if index < len(node.input) else ""


def opset_of(model: onnx.ModelProto) -> int:
    """Returns the version of the standard operators that a model uses."""
    return max((int(o.version) for o in model.opset_import if o.domain in ("", "ai.onnx")), default=1)


def subgraphs(node: Node) -> list[onnx.GraphProto]:
    """Returns the graphs in a node's attributes, such as the branches of an If."""
    return [
        graph
        for attribute in node.attribute
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]
    ]


def read_inside(node: Node) -> set[str]:
    """Returns all names that a node's subgraphs read, including their own."""
    names: set[str] = set()
    for graph in subgraphs(node):
        for inner in graph.node:
            names.update(inner.input)
            names |= read_inside(inner)
        names.update(value.name for value in graph.output)
    return names
