"""Rewrites standard operators that TVM lacks or misreads as other standard operators. Shapes must be fixed and
folded."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import onnx
from onnx import defs, helper, inliner

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import misread_operators, missing_operators
from autosched_tvm.compile.frontend.misread_operators import Rule
from autosched_tvm.compile.frontend.node_builder import Node, NodeBuilder, Unknown, opset_of
from autosched_tvm.compile.frontend.refused_operators import OperatorRejected, first_output

_STANDARD = ("", "ai.onnx")


def expand_functions(
    model: onnx.ModelProto, unsupported: Callable[[Iterable[Any]], list[Any]]
) -> tuple[Any, list[str]]:
    """Returns the model with unsupported operators replaced by their function bodies in the standard, and their
    names. A body may have such operators itself.

    Nodes that TVM can import stay, even if they have the same name.
    """
    done: list[str] = []
    for _ in range(NESTED_MAX):
        found = [node for node in unsupported(model.graph.node) if _is_function(node) and node.op_type not in RULES]
        if not found:
            break
        names = sorted({node.op_type for node in found})
        for node in found:
            _fill_defaults(node, model)
        model = _inlined(model, found)
        done += names
    return model, list(dict.fromkeys(done))


_INLINED = "autosched.inlined"
"""Domain of the bodies, until they are inlined."""
STABLE_SINCE = 18
"""Opset from which on the operators in the bodies have kept their form."""
NESTED_MAX = 4
"""Maximum depth of functions in functions that are expanded."""


def _fill_defaults(node: Node, model: onnx.ModelProto) -> None:
    """Writes the default values of a node's attributes out. The inliner drops them."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset_of(model), "").attributes.items():
        if name not in given and attribute.default_value is not None and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _inlined(model: onnx.ModelProto, nodes: list[Node]) -> onnx.ModelProto:
    """Returns the model with the bodies of nodes, each made for the types of its node's inputs."""
    opset = opset_of(model)
    types: dict[str, Any] = {}
    with contextlib.suppress(Exception):  # without types, some bodies can still be made
        model_types = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        types = {value.name: value.type for value in (*model_types.value_info, *model_types.input)}
    types |= {
        tensor.name: helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims))
        for tensor in model.graph.initializer
    }
    for number, node in enumerate(nodes):
        schema = defs.get_schema(node.op_type, opset, "")
        if not (schema.has_function or schema.has_context_dependent_function):
            schema = defs.get_schema(node.op_type, "")  # the operator was written as others later
        if schema.has_context_dependent_function:
            inputs = [types.get(name, onnx.TypeProto()).SerializeToString() for name in node.input]
            version = _version(schema.context_dependent_function_opset_versions, opset)
            made = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), inputs)
        else:
            made = schema.get_function_with_opset_version(_version(schema.function_opset_versions, opset))
        body = onnx.FunctionProto.FromString(made) if isinstance(made, bytes) else made
        for one in body.opset_import:
            if one.domain in _STANDARD and one.version >= STABLE_SINCE:
                one.version = opset  # the inliner's converter needs types, which a body has none of
        body.domain, body.name = _INLINED, f"{node.op_type}_{number}"
        node.domain, node.op_type = body.domain, body.name
        model.functions.append(body)
    model.opset_import.append(helper.make_opsetid(_INLINED, 1))
    model = inliner.inline_local_functions(model, True)
    kept = [one for one in model.opset_import if one.domain != _INLINED]
    del model.opset_import[:]
    model.opset_import.extend(kept)
    return model


def _version(versions: Iterable[int], opset: int) -> int:
    """Returns the last version of a body for an opset; the first one if all are later."""
    return max((one for one in versions if one <= opset), default=min(versions))


def _is_function(node: Node) -> bool:
    if node.domain not in _STANDARD or not defs.has(node.op_type, ""):
        return False
    schema = defs.get_schema(node.op_type, "")
    return bool(schema.has_function or schema.has_context_dependent_function)


def rewrite(model: onnx.ModelProto, reasons: dict[str, str] | None = None) -> dict[str, int]:
    """Rewrites the model in place; returns the number of rewritten nodes by operator. `reasons` gets the reason why a
    node stays, by its first output."""
    if not any(node.op_type in RULES and node.domain in _STANDARD for node in model.graph.node):
        return {}
    opset = opset_of(model)
    emit, done = NodeBuilder(model.graph, opset), Counter[str]()
    for node in list(model.graph.node):
        emit.about(node)
        rule = RULES.get(node.op_type) if node.domain in _STANDARD else None
        if rule is None:
            emit.nodes.append(node)
            continue
        written = len(emit.nodes)
        try:
            rule(emit, node)
        except Unknown as error:
            if reasons is not None:
                reasons[first_output(node)] = str(error)
            del emit.nodes[written:]
            emit.nodes.append(node)
        except ModelRejected as error:
            raise OperatorRejected(str(error), model.graph, [node]) from error
        else:
            done[node.op_type] += 1
    emit.finish()
    return dict(done)


RULES: dict[str, Rule] = missing_operators.RULES | misread_operators.RULES
"""Rewrite by operator. A node that its rewrite cannot handle stays, and the import refuses it."""
