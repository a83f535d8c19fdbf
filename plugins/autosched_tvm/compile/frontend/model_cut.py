"""Cuts an ONNX network in two: a part that can be tuned, and the rest, which ONNX Runtime runs."""

from collections.abc import Callable, Sequence
from typing import Any

import onnx
from msgspec import Struct
from onnx import helper

from autosched.errors import ModelRejected, RequestError
from autosched_tvm.compile.frontend import shape_inference
from autosched_tvm.compile.frontend.node_builder import Node, read_inside
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, computed_from, first_output

CUTS_MAX = 20
"""Maximum number of times that the cut moves towards the inputs, each after one import."""


class Cut(Struct, frozen=True):
    """The two parts of a network, and why it was cut there."""

    head: onnx.ModelProto
    rest: onnx.ModelProto
    why: str
    """Refusal of the whole network; empty if the cut was asked for."""


def before_refused(model: onnx.ModelProto, refusal: Callable[[Any], ModelRejected | None]) -> Cut:
    """Cuts a network with fixed shapes before the operators for which it is refused.

    `refusal`: why a network cannot be tuned; None if it can. Raises ModelRejected where no cut helps.
    """
    head, why, after = model, "", list[Node]()
    for _ in range(CUTS_MAX):
        error = refusal(head)
        if error is None:
            break
        why = why or str(error)
        found = _blamed(model, error) if isinstance(error, OperatorRejected) else []
        more = _with_readers(model, [*after, *found])
        if len(more) == len(after):
            raise ModelRejected(f"no cut makes a network that can be tuned: {error}") from error
        after = more
        head = _head(model, after)
    if not after:
        raise RequestError("the network can be tuned as it is; --at TENSOR cuts it nevertheless")
    return _parts(model, after, why)


def at(model: onnx.ModelProto, names: Sequence[str]) -> Cut:
    """Cuts a network behind these values. Raises RequestError for names that no operator makes."""
    made = [name for node in model.graph.node for name in node.output if name]
    for name in names:
        if name not in made:
            import difflib

            near = ", ".join(difflib.get_close_matches(name, made, 3))
            raise RequestError(
                f"no operator makes {name!r}{f'; did you mean {near}?' if near else ''} onnx.printer.to_text shows the"
                " names of all values"
            )
    after = computed_from(model.graph.node, names)
    if not {value.name for value in model.graph.output}.intersection(name for node in after for name in node.output):
        raise RequestError(f"no output is computed from {', '.join(names)}: there is nothing to cut off")
    return _parts(model, after, "")


def _parts(model: onnx.ModelProto, after: Sequence[Node], why: str) -> Cut:
    head = _head(model, after)
    given = [value.name for value in head.graph.output]
    inputs = [value.name for value in model.graph.input]
    read = {name for node in after for name in (*node.input, *read_inside(node))}
    made = {name for node in after for name in node.output}
    outputs = [value.name for value in model.graph.output if value.name in made]
    rest = _extracted(model, [name for name in (*inputs, *given) if name in read], outputs)
    return Cut(head, rest, why)


def _blamed(model: onnx.ModelProto, error: OperatorRejected) -> list[Node]:
    """The model's own nodes that a refusal means: the import renames values, and adds others."""
    makers = {name: node for node in model.graph.node for name in node.output if name}
    found = []
    for results in error.results:
        own = next((makers[name] for name in results if name in makers), None)
        named = next((makers[start] for name in results if (start := name.partition("__")[0]) in makers), None)
        found += [node for node in (own or named,) if node is not None]
    return found


def _with_readers(model: onnx.ModelProto, nodes: Sequence[Node]) -> list[Node]:
    """These nodes and all that is computed from them, in the network's order."""
    own = {name for node in nodes for name in node.output if name}
    own |= {first_output(node) for node in computed_from(model.graph.node, own)}
    return [node for node in model.graph.node if first_output(node) in own]


def _head(model: onnx.ModelProto, after: Sequence[Node]) -> onnx.ModelProto:
    """The part that needs none of these nodes, with what they read of it as outputs. Raises ModelRejected."""
    gone = set(map(first_output, after))
    before = [node for node in model.graph.node if first_output(node) not in gone]
    varying = computed_from(before, [value.name for value in model.graph.input])
    made = {name for node in varying for name in node.output if name}
    read = {name for node in after for name in (*node.input, *read_inside(node))}
    wanted = [value.name for value in model.graph.output if value.name in made]
    wanted += [name for node in varying for name in node.output if name in read and name not in wanted]
    if not wanted:
        raise ModelRejected("no cut makes a network that can be tuned: nothing is computed before the first operator")
    return _extracted(model, [value.name for value in model.graph.input], wanted, only_needed=True)


def _extracted(
    model: onnx.ModelProto, inputs: Sequence[str], outputs: Sequence[str], *, only_needed: bool = False
) -> onnx.ModelProto:
    """The part of a network from these values to those. The onnx package's own function leaves out what subgraphs
    read."""
    known = {value.name: value for value in shape_inference.values(model)}
    if untyped := [name for name in (*inputs, *outputs) if name not in known]:
        raise ModelRejected(f"the network cannot be cut at {untyped[0]!r}: ONNX cannot infer its type")
    wanted, nodes = set(outputs) - set(inputs), list[Node]()
    for node in reversed(model.graph.node):
        if not wanted.isdisjoint(node.output):
            nodes.insert(0, node)
            wanted |= {name for name in (*node.input, *read_inside(node)) if name not in inputs}
    read = {name for node in nodes for name in (*node.input, *read_inside(node))}
    given = [name for name in inputs if name in read] if only_needed else inputs
    part = onnx.ModelProto()
    part.CopyFrom(model)
    graph = helper.make_graph(
        nodes, model.graph.name, [known[name] for name in given], [known[name] for name in outputs],
        [tensor for tensor in model.graph.initializer if tensor.name in wanted],
        sparse_initializer=[sparse for sparse in model.graph.sparse_initializer if sparse.values.name in wanted],
    )  # fmt: skip
    part.graph.CopyFrom(graph)
    return part
