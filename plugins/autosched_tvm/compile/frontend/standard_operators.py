"""Rewrites quantised operators, and ONNX Runtime's own operators, in standard float operators. Changes the model in
place."""

from collections import Counter
from collections.abc import Callable

import onnx

from autosched_tvm.compile.frontend import (
    dequantisation,
    few_bits,
    fused_operators,
    integer_convolutions,
    integer_products,
    qattention,
    qlinear,
)
from autosched_tvm.compile.frontend.dequantisation import MICROSOFT, STANDARD, Dequantiser, Form
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, opset_of, subgraphs
from autosched_tvm.compile.frontend.shape_inference import inferred

PASSES_MAX = 100
"""Maximum number of passes over the graph. Each pass provides the next with the shapes of the rewritten nodes."""

_QUANTISED = frozenset({
    "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "ConvInteger", "MatMulInteger",
    *qlinear.STANDARD_RULES, *qlinear.MICROSOFT_RULES, *qattention.MICROSOFT_RULES,
})  # fmt: skip
"""Operators that mark a network as quantised."""
_FUSED_IN = {MICROSOFT: fused_operators.MICROSOFT_RULES} | dict.fromkeys(STANDARD, fused_operators.STANDARD_RULES)
_QUANTISED_IN = {
    MICROSOFT: qlinear.MICROSOFT_RULES
    | qattention.MICROSOFT_RULES
    | {name: dequantisation.RULES[name] for name in ("QuantizeLinear", "DequantizeLinear")}
} | dict.fromkeys(
    STANDARD, dequantisation.RULES | qlinear.STANDARD_RULES | integer_products.RULES | integer_convolutions.RULES
)


def is_quantised(model: onnx.ModelProto, *, integers: bool = False) -> bool:
    """Returns whether the model has operators on quantised numbers, at any depth. `integers`: ignore those that are
    compiled as they are."""
    return any(node.op_type in _QUANTISED and not (integers and stays(node)) for node in _nodes(model.graph))


def stays(node: Node) -> bool:
    """Returns whether the node computes with 8-bit integers and is compiled as it is."""
    if node.op_type == "DynamicQuantizeLSTM":
        return True
    return integer_products.stays(node) or integer_convolutions.stays(node) or few_bits.stays(node)


def rewrite(model: onnx.ModelProto, form: Form = Form.REAL) -> list[str]:
    """Rewrites the model in place; returns the changes made, in words."""
    integers = form is Form.INTEGERS
    done: Counter[str] = Counter()
    opset = opset_of(model)
    for _ in range(PASSES_MAX):
        before = _left(model, opset, integers=integers)
        if not before:
            break
        _learn_shapes(model)
        found: Counter[str] = Counter()
        _rewrite_graph(model.graph, NodeBuilder(model.graph, opset), form, found)
        done += found
        if _left(model, opset, integers=integers) >= before:
            break
    kept = sum(map(stays, _nodes(model.graph))) if integers else 0
    words = "rounded" if integers else "bounded but not rounded"
    return _told(done, words) + ([f"operators on 8-bit numbers kept ({kept})"] if kept else [])


def _left(model: onnx.ModelProto, opset: int, *, integers: bool) -> int:
    """Returns the number of nodes that are to be rewritten."""
    return sum(_wanted(node, opset) and not (integers and stays(node)) for node in _nodes(model.graph))


def _told(done: Counter[str], activations: str) -> list[str]:
    told = []
    if count := sum(count for name, count in done.items() if name in _QUANTISED):
        told.append(f"quantised operators made float ({count}): weights dequantised, activations {activations}")
    fused = {name: count for name, count in sorted(done.items()) if name not in _QUANTISED}
    if fused:
        words = ", ".join(f"{name} ({count})" for name, count in fused.items())
        told.append(f"fused operators of ONNX Runtime made standard ones: {words}")
    return told


def _wanted(node: Node, opset: int) -> bool:
    """Returns whether a node is to be rewritten."""
    if node.op_type in _QUANTISED:
        return node.domain in (*STANDARD, MICROSOFT)
    if node.op_type == "LayerNormalization" and opset >= 17:
        return False
    return node.op_type in _FUSED_IN.get(node.domain, {})


def _nodes(graph: onnx.GraphProto) -> list[Node]:
    nodes = []
    for node in graph.node:
        nodes.append(node)
        for inner in subgraphs(node):
            nodes += _nodes(inner)
    return nodes


def _learn_shapes(model: onnx.ModelProto) -> None:
    """Writes the inferred types and shapes into the model, as far as its operators are known."""
    found = list(inferred(model).value_info)
    del model.graph.value_info[:]
    model.graph.value_info.extend(found)


def _rewrite_graph(graph: onnx.GraphProto, emit: NodeBuilder, form: Form, done: Counter[str]) -> None:
    state = Dequantiser(emit, form)
    for node in list(graph.node):
        emit.about(node)
        for inner in subgraphs(node):
            _rewrite_graph(inner, NodeBuilder(inner, emit.opset, emit), form, done)
        rule = _rule(state, node)
        written = len(emit.nodes)
        try:
            _check_inputs(node, emit.opset)
            rule(node)
        except Unknown:
            del emit.nodes[written:]
            state.forget(node)
            emit.keep(node)
        else:
            done[node.op_type] += _wanted(node, emit.opset) and not (form is Form.INTEGERS and stays(node))
    emit.finish()


def _check_inputs(node: Node, opset: int) -> None:
    """Raises Unknown for a standard operator that lacks inputs; the import reports it later."""
    if node.domain in STANDARD and onnx.defs.has(node.op_type, ""):
        try:
            least = onnx.defs.get_schema(node.op_type, opset, "").min_input
        except onnx.defs.SchemaError:  # a later opset has it, or ONNX Runtime had it before ONNX
            return
        if len(node.input) < least:
            raise Unknown(f"it has {len(node.input)} inputs and needs {least}")


def _rule(state: Dequantiser, node: Node) -> Callable[[Node], None]:
    fused = _FUSED_IN.get(node.domain, {}).get(node.op_type)
    if fused is not None:
        return lambda node: fused(state.emit, node)
    rule = _QUANTISED_IN.get(node.domain, {}).get(node.op_type)
    if rule is not None:
        return lambda node: rule(state, node)
    return state.emit.keep
