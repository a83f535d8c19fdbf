"""Computes what a network's input shapes and constants determine: shapes, conditions, loop counts and their results.

One walk through the graph keeps the type of each value and the value of each constant. ONNX's reference implementation
computes an operator whose inputs are all constant. An If with a constant condition becomes the taken branch; with a
run-time condition, both branches and a selection. A Loop or Scan with a known number of steps is unrolled.
"""

import contextlib
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np
import onnx
from onnx import NodeProto as Node
from onnx import defs, helper, numpy_helper, shape_inference
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend.shape_inference import schema_of
from autosched_tvm.compile.frontend.unused_names import unused
from autosched_tvm.tensors import Array

Type = Any

COMPUTED_ELEMENTS_MAX = 1 << 20
"""Maximum number of elements of a computed constant that is larger than its inputs."""
DATA_ELEMENTS_MAX = 4096
"""Maximum number of elements of a constant that type inference reads: shapes, axes, pads."""
UNROLLED_NODES_MAX = 20_000
"""Maximum number of nodes of one unrolled loop."""

BOTH_BRANCHES = "If computed as both branches and a selection"
FITTING_BRANCH = "If replaced by the branch that fits the shapes"
TO_BE_KNOWN = frozenset({BOTH_BRANCHES, FITTING_BRANCH})
"""Rewrites that are reported to the user: they cost time or restrict the inputs."""

_STANDARD = frozenset({"", "ai.onnx"})
_NEVER_COMPUTED = frozenset({
    "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial", "Dropout",
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear",
})  # fmt: skip
"""Operators that are random, or that mark the quantised parts of a network."""
_TYPE_OF_FIRST_INPUT = frozenset({"FastGelu", "Gelu", "BiasGelu", "QuickGelu", "SkipLayerNormalization", "NhwcMaxPool"})
"""Non-standard operators whose first output has the type of their first input."""


def fold(model: onnx.ModelProto) -> tuple[Any, dict[str, int]]:
    """Returns the model with everything its shapes determine folded, and the number of rewrites by kind."""
    folder = _Folder(model)
    folder.walk(model.graph.node, {})
    return folder.result(), {said: count for said, count in folder.done.items() if count}


class _Unknown(Exception):
    """A loop's number of steps, or the shapes of a selection, are unknown."""


class _Folder:
    """State of one walk."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = model
        self.opsets = {opset.domain: int(opset.version) for opset in model.opset_import}
        self.opset = max((v for domain, v in self.opsets.items() if domain in _STANDARD), default=1)
        self.nodes: list[Node] = []
        self.constants: dict[str, Array] = {}
        self.types: dict[str, Type] = {}
        self.done: Counter[str] = Counter()
        self.wanted = {value.name for value in model.graph.output}
        self._originals = {tensor.name: tensor for tensor in model.graph.initializer}
        self._taken = set(_names(model.graph))
        for tensor in model.graph.initializer:
            self._learn(tensor.name, numpy_helper.to_array(tensor))
        for value in model.graph.input:
            self.types[value.name] = value.type

    def result(self) -> onnx.ModelProto:
        """Returns the model with the remaining graph."""
        needed = set(self.wanted)
        kept: list[Node] = []
        for node in reversed(self.nodes):
            if any(name in needed for name in node.output):
                kept.append(node)
                needed |= _read(node)
        made = onnx.ModelProto()
        made.CopyFrom(_without_graph(self.model))
        graph = made.graph
        graph.name = self.model.graph.name
        graph.input.extend(self.model.graph.input)
        for value in self.model.graph.output:
            known = self.types.get(value.name, value.type) if self._shape(value.name) is not None else value.type
            graph.output.append(onnx.ValueInfoProto(name=value.name, type=known))
        for name in sorted(self.wanted & self.constants.keys()):
            source = self._fresh(name)
            self._learn(source, self.constants.pop(name))
            needed.add(source)
            kept.append(helper.make_node("Identity", [source], [name]))
        graph.node.extend(reversed(kept))
        for name, array in self.constants.items():
            if name in needed:
                graph.initializer.append(self._originals.get(name) or numpy_helper.from_array(array, name))
        made_here = {name for node in kept for name in node.output} - self.wanted
        for name in sorted(made_here & self.types.keys()):
            graph.value_info.append(onnx.ValueInfoProto(name=name, type=self.types[name]))
        return made

    def walk(self, nodes: Iterable[Node], names: dict[str, str]) -> None:
        """Visits nodes in order; `names` maps the names of a subgraph to those of this graph, and grows."""
        inner = bool(names) or nodes is not self.model.graph.node
        for original in nodes:
            node = onnx.NodeProto()
            node.CopyFrom(original)
            _rename(node, names)
            if inner:
                for place, name in enumerate(node.output):
                    if name:
                        names[name] = node.output[place] = self._fresh(name)
                if node.name:
                    node.name = self._fresh(node.name)
            self._visit(node, names)

    def _visit(self, node: Node, names: dict[str, str]) -> None:
        kind = node.op_type if node.domain in _STANDARD else f"{node.domain}.{node.op_type}"
        if kind == "Identity" and self._alias(node, names):
            return
        if kind in ("If", "Loop", "Scan"):
            handler = {"If": self._branch, "Loop": self._loop, "Scan": self._scan}[kind]
            position, mark = len(self.nodes), Counter(self.done)
            try:
                handler(node, names)
                return
            except _Unknown:  # the node stays, and the import reports it
                del self.nodes[position:]
                self.done = mark
        if self._compute(node, kind):
            return
        self._infer(node)
        self.nodes.append(node)

    def _alias(self, node: Node, names: dict[str, str]) -> bool:
        """Maps the output of an Identity to its input."""
        if node.output[0] in self.wanted:
            return False
        target = node.output[0]
        names.update({key: node.input[0] for key, value in names.items() if value == target})
        if target not in names.values():
            names[target] = node.input[0]
        return True

    # Types and constants.

    def _learn(self, name: str, array: Array) -> None:
        self.constants[name] = array
        with contextlib.suppress(Exception):  # types without a tensor form, such as strings, are left out
            self.types[name] = helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)

    def _shape(self, name: str) -> tuple[int, ...] | None:
        """Returns the shape of a value; None unless all of it is known."""
        kind = self.types.get(name)
        if kind is None or not kind.HasField("tensor_type") or not kind.tensor_type.HasField("shape"):
            return None
        dims = kind.tensor_type.shape.dim
        if not all(dim.HasField("dim_value") for dim in dims):
            return None
        return tuple(int(dim.dim_value) for dim in dims)

    def _infer(self, node: Node) -> None:
        """Records the types of a node's outputs. Raises shape_inference.InferenceError for a node that cannot work."""
        schema = schema_of(node, self.opset)
        if schema is None:
            if node.op_type in _TYPE_OF_FIRST_INPUT and node.input[0] in self.types:
                self.types[node.output[0]] = self.types[node.input[0]]
            return
        if not all(name in self.types for name in node.input if name):
            return
        data = {
            name: numpy_helper.from_array(array, name)
            for name in node.input
            if (array := self.constants.get(name)) is not None and array.size <= DATA_ELEMENTS_MAX
        }
        given = {name: self.types[name] for name in node.input if name}
        if node.op_type == "STFT":
            self._correct(node, given)
        found = shape_inference.infer_node_outputs(schema, node, given, data, None, list(self.model.opset_import))
        self.types.update({name: kind for name, kind in found.items() if name})
        self._check(node)

    def _correct(self, node: Node, given: dict[str, Type]) -> None:
        """Corrects inference where ONNX Runtime differs: a signal may lack its last dimension, and a transform is
        one-sided by default."""
        signal = self._shape(node.input[0]) or ()
        if len(signal) == 2:
            kind = self.types[node.input[0]].tensor_type.elem_type
            given[node.input[0]] = helper.make_tensor_type_proto(kind, (*signal, 1))
        if "onesided" not in _attributes(node):
            node.attribute.append(helper.make_attribute("onesided", 1))

    def _check(self, node: Node) -> None:
        """Raises InferenceError for sizes that ONNX's inference accepts and no runtime can compute."""
        if node.op_type not in ("Reshape", "Conv"):
            return
        first = self._shape(node.input[0])
        other = self._shape(node.output[0] if node.op_type == "Reshape" else node.input[1])
        if first is None or other is None:
            return
        if node.op_type == "Reshape":
            fits = prod(first) == prod(other)
        else:
            fits = first[1] == other[1] * int(_attributes(node).get("group", 1))
        if not fits:
            said = f"{node.op_type} {node.name or node.output[0]!r}: {first} and {other} do not fit"
            raise shape_inference.InferenceError(said)

    def _try_infer(self, node: Node) -> None:
        with contextlib.suppress(shape_inference.InferenceError, defs.SchemaError, RuntimeError, ValueError):
            self._infer(node)

    def _compute(self, node: Node, kind: str) -> bool:
        """Replaces a node's outputs by constants, where its inputs allow it."""
        if kind in ("Shape", "Size") and (shape := self._shape(node.input[0])) is not None:
            attributes = _attributes(node)
            dims = np.array(shape[attributes.get("start", 0) : attributes.get("end", len(shape))], "int64")
            self._learn(node.output[0], dims if kind == "Shape" else np.array(prod(shape), "int64"))
            self.done["shapes and constants computed"] += 1
            return True
        if node.domain not in _STANDARD or kind in _NEVER_COMPUTED or not set(filter(None, node.input)) <= set(
            self.constants
        ) or any(a.HasField("g") for a in node.attribute):  # fmt: skip
            return False
        self._try_infer(node)
        given = sum(self.constants[name].size for name in node.input if name)
        for name in node.output:
            shape = self._shape(name) if name else ()
            if shape is not None and prod(shape) > max(COMPUTED_ELEMENTS_MAX, given):
                return False
        values = self._evaluated(node)
        if values is None or any(value.size > max(COMPUTED_ELEMENTS_MAX, given) for value in values):
            return False
        for name, value in zip(node.output, values, strict=False):
            if name:
                self._learn(name, value)
        self.done["shapes and constants computed"] += kind != "Constant"
        return True

    def _evaluated(self, node: Node) -> list[Array] | None:
        """Returns a node's outputs from constant inputs; None when they cannot be computed here."""
        names = [name for name in dict.fromkeys(node.input) if name]
        outputs = [name for name in node.output if name]
        try:
            graph = helper.make_graph(
                [node], "one", [onnx.ValueInfoProto(name=name, type=self.types[name]) for name in names],
                [onnx.ValueInfoProto(name=name) for name in outputs],
            )  # fmt: skip
            model = helper.make_model(graph, opset_imports=list(self.model.opset_import))
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                made = ReferenceEvaluator(model).run(None, {name: self.constants[name] for name in names})
        except Exception:  # the reference implementation is incomplete; the node stays as it is
            return None
        by_name = dict(zip(outputs, (np.asarray(value) for value in made), strict=True))
        if any(value.dtype.kind not in "biuf" for value in by_name.values()):
            return None
        return [by_name.get(name, np.zeros(0)) for name in node.output]

    # Control flow.

    def _branch(self, node: Node, names: dict[str, str]) -> None:
        attributes = _attributes(node)
        branches = [attributes["then_branch"], attributes["else_branch"]]
        condition = self.constants.get(node.input[0])
        if condition is not None:
            taken = branches[0] if bool(np.all(condition)) else branches[1]
            self._connect(self._inlined(taken, names), node.output, names)
            self.done["If replaced by the branch that its condition takes"] += 1
            return
        made: list[list[str] | None] = []
        for branch in branches:
            position = len(self.nodes)
            try:
                made.append(self._inlined(branch, names))
            except (shape_inference.InferenceError, IndexError):
                del self.nodes[position:]
                made.append(None)
        match made:
            case [list(first), list(second)]:
                self._select(node, first, second, names)
                self.done[BOTH_BRANCHES] += 1
            case [list(only), None] | [None, list(only)]:
                self._connect(only, node.output, names)
                self.done[FITTING_BRANCH] += 1
            case _:
                raise _Unknown

    def _select(self, node: Node, first: list[str], second: list[str], names: dict[str, str]) -> None:
        """Selects between the values of two branches."""
        chosen = []
        for one, other in zip(first, second, strict=True):
            if self._shape(one) is None or self._shape(one) != self._shape(other):
                raise _Unknown
        condition = node.input[0]
        if self._shape(condition) != ():
            condition = self._fresh(condition)
            empty = self._constant("scalar", np.zeros(0, "int64"))
            self._visit(helper.make_node("Reshape", [node.input[0], empty], [condition]), {})
        for one, other in zip(first, second, strict=True):
            chosen.append(self._fresh(one))
            self._visit(helper.make_node("Where", [condition, one, other], [chosen[-1]]), {})
        self._connect(chosen, node.output, names)

    def _loop(self, node: Node, names: dict[str, str]) -> None:
        body = _attributes(node)["body"]
        most, going = (node.input[i] if len(node.input) > i else "" for i in (0, 1))
        carried = list(node.input[2:])
        if (most and most not in self.constants) or (going and going not in self.constants):
            raise _Unknown
        steps = int(np.max(self.constants[most])) if most else None
        goes_on = bool(np.all(self.constants[going])) if going else True
        collected: list[list[str]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
        first, number = len(self.nodes), 0
        while goes_on and (steps is None or number < steps):
            given = [self._constant("step", np.array(number, "int64")), self._constant("going", np.array(True))]
            ahead, *made = self._inlined(body, names, [*given, *carried])
            carried, rest = made[: len(carried)], made[len(carried) :]
            for kept, name in zip(collected, rest, strict=True):
                kept.append(name)
            if len(self.nodes) - first > UNROLLED_NODES_MAX:
                raise _Unknown
            number += 1
            if steps is None or number < steps:
                if ahead not in self.constants:
                    raise _Unknown
                goes_on = bool(np.all(self.constants[ahead]))
        stacked = [self._stacked(kept, 0) for kept in collected]
        self._connect([*carried, *stacked], node.output, names)
        self.done["Loop unrolled"] += 1

    def _scan(self, node: Node, names: dict[str, str]) -> None:
        if self.opset < 9:
            raise _Unknown
        attributes = _attributes(node)
        body, count = attributes["body"], int(attributes["num_scan_inputs"])
        states, scanned = list(node.input[: len(node.input) - count]), list(node.input[len(node.input) - count :])
        outputs = len(body.output) - len(states)
        axes = list(attributes.get("scan_input_axes", [0] * count))
        out_axes = list(attributes.get("scan_output_axes", [0] * outputs))
        backward = list(attributes.get("scan_input_directions", [0] * count))
        out_backward = list(attributes.get("scan_output_directions", [0] * outputs))
        shapes = [self._shape(name) for name in scanned]
        if any(shape is None for shape in shapes):
            raise _Unknown
        (steps,) = {shape[axis] for shape, axis in zip(shapes, axes, strict=True) if shape is not None}
        collected: list[list[str]] = [[] for _ in range(outputs)]
        first = len(self.nodes)
        for number in range(steps):
            parts = [
                self._part(name, axis, steps - 1 - number if turned else number)
                for name, axis, turned in zip(scanned, axes, backward, strict=True)
            ]
            made = self._inlined(body, names, [*states, *parts])
            states, rest = made[: len(states)], made[len(states) :]
            for kept, name in zip(collected, rest, strict=True):
                kept.append(name)
            if len(self.nodes) - first > UNROLLED_NODES_MAX:
                raise _Unknown
        stacked = [
            self._stacked(kept[::-1] if turned else kept, axis)
            for kept, axis, turned in zip(collected, out_axes, out_backward, strict=True)
        ]
        self._connect([*states, *stacked], node.output, names)
        self.done["Scan unrolled"] += 1

    def _inlined(self, graph: onnx.GraphProto, names: Mapping[str, str], inputs: Iterable[str] = ()) -> list[str]:
        """Inserts a subgraph's nodes here; returns the names of its outputs."""
        inside = dict(names)
        inside.update(zip((value.name for value in graph.input), inputs, strict=True))
        for tensor in graph.initializer:
            inside[tensor.name] = self._fresh(tensor.name)
            self._learn(inside[tensor.name], numpy_helper.to_array(tensor))
        self.walk(list(graph.node), inside)
        return [inside.get(value.name, value.name) for value in graph.output]

    def _connect(self, made: Iterable[str], outputs: Iterable[str], names: dict[str, str]) -> None:
        """Maps a node's outputs to these values."""
        for name, output in zip(made, outputs, strict=False):
            if output:
                self._visit(helper.make_node("Identity", [name], [output]), names)

    def _part(self, name: str, axis: int, place: int) -> str:
        part = self._fresh(name)
        index = self._constant("place", np.array(place, "int64"))
        self._visit(helper.make_node("Gather", [name, index], [part], axis=axis), {})
        return part

    def _stacked(self, names: list[str], axis: int) -> str:
        """Returns the values stacked along a new axis."""
        if not names:
            raise _Unknown
        rows = []
        for name in names:
            rows.append(self._fresh(name))
            if self.opset >= 13:
                axes = self._constant("axes", np.array([axis], "int64"))
                self._visit(helper.make_node("Unsqueeze", [name, axes], [rows[-1]]), {})
            else:
                self._visit(helper.make_node("Unsqueeze", [name], [rows[-1]], axes=[axis]), {})
        stacked = self._fresh(names[0])
        self._visit(helper.make_node("Concat", rows, [stacked], axis=axis), {})
        return stacked

    def _constant(self, like: str, array: Array) -> str:
        name = self._fresh(like)
        self._learn(name, array)
        return name

    def _fresh(self, like: str) -> str:
        return unused(like, self._taken)


def _attributes(node: Node) -> dict[str, Any]:
    return {a.name: helper.get_attribute_value(a) for a in node.attribute}


def _subgraphs(node: Node) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """Returns all names in a graph and its subgraphs."""
    yield from (value.name for value in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output, node.name)
        for inside in _subgraphs(node):
            yield from _names(inside)


def _read(node: Node) -> set[str]:
    """Returns the names that a node and its subgraphs read."""
    names = set(filter(None, node.input))
    for graph in _subgraphs(node):
        names.update(value.name for value in graph.output)
        for inside in graph.node:
            names |= _read(inside)
    return names


def _rename(node: Node, names: Mapping[str, str]) -> None:
    """Renames what a node and its subgraphs read."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for graph in _subgraphs(node):
        own = {value.name for value in (*graph.input, *graph.initializer)}
        own |= {name for inside in graph.node for name in inside.output}
        visible = {name: new for name, new in names.items() if name not in own}
        for inside in graph.node:
            _rename(inside, visible)
        for value in graph.output:
            value.name = visible.get(value.name, value.name)


def _without_graph(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a model with the same versions and metadata, and no graph."""
    copy = onnx.ModelProto(
        ir_version=model.ir_version, producer_name=model.producer_name, opset_import=model.opset_import,
        metadata_props=model.metadata_props, domain=model.domain, model_version=model.model_version,
    )  # fmt: skip
    copy.functions.extend(model.functions)
    return copy
