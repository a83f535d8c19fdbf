"""ONNX's shape inference, extended to the operators of ONNX Runtime that stay in a model."""

import math
from typing import Any

import onnx
from onnx import defs, helper, shape_inference

MICROSOFT = "com.microsoft"
LAYER, FEW_BITS = "DynamicQuantizeLSTM", "MatMulNBits"
"""Names of these operators: a recurrent layer with 8-bit weights, and a product with weights of few bits."""
_NUMBERS = {"F": ["tensor(float)"], "Q": ["tensor(int8)", "tensor(uint8)"], "L": ["tensor(int32)"]}
_OF_INPUTS = "FQQFLFFFFQFQ"
"""Types of the layer's inputs, as letters of `_NUMBERS`."""
SHAPE_ELEMENTS_MAX = 1_024
"""Maximum number of elements of a constant whose values may matter to shapes, such as the target of a Reshape."""


def inferred(model: onnx.ModelProto) -> onnx.GraphProto:
    """Returns the model's graph with the shapes and types of all values that it computes, and without its large
    constants; the model's own graph where ONNX cannot infer them."""
    _register()
    try:
        found = shape_inference.infer_shapes(_without_weights(model)).graph
    except (shape_inference.InferenceError, ValueError):  # the model is incomplete
        return model.graph
    del found.input[len(model.graph.input) :]
    return found


def values(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Returns the values that the network computes, its inputs and its outputs, with their types and shapes as far as
    ONNX can infer them."""
    graph = inferred(model)
    return [*graph.value_info, *graph.input, *graph.output]


def contradicts(model: onnx.ModelProto) -> bool:
    """Returns whether the shapes of the inputs contradict the network."""
    _register()
    try:
        graph = shape_inference.infer_shapes(_without_weights(model), strict_mode=True, data_prop=True).graph
    except (shape_inference.InferenceError, ValueError):
        return True
    sizes = {}
    for value in (*graph.value_info, *graph.input, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            sizes[value.name] = math.prod(dim.dim_value for dim in dims)
    return any(  # ONNX does not compare them
        sizes.get(node.input[0]) != sizes.get(node.output[0])
        for node in graph.node
        if node.op_type == "Reshape" and node.input[0] in sizes and node.output[0] in sizes
    )


def _without_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a copy that has large constants as further inputs: ONNX copies the whole model three times."""
    graph = model.graph
    small = [tensor for tensor in graph.initializer if math.prod(tensor.dims) <= SHAPE_ELEMENTS_MAX]
    given = {value.name for value in graph.input} | {tensor.name for tensor in small}
    weights = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in given
    ]
    light = helper.make_graph(
        graph.node, graph.name, [*graph.input, *weights], graph.output, small, value_info=graph.value_info,
        sparse_initializer=graph.sparse_initializer,
    )  # fmt: skip
    return helper.make_model(
        light, ir_version=model.ir_version, opset_imports=model.opset_import, functions=model.functions
    )


def schema_of(node: onnx.NodeProto, opset: int) -> Any | None:
    """Returns the definition of an operator; None for one of another domain. Raises onnx.defs.SchemaError where the
    opset lacks it."""
    _register()
    if node.domain in ("", "ai.onnx"):
        return defs.get_schema(node.op_type, opset, "")
    known = node.domain == MICROSOFT and node.op_type in (LAYER, FEW_BITS)
    return defs.get_schema(node.op_type, 1, MICROSOFT) if known else None


def _register() -> None:
    """Registers the operators with ONNX in this process."""
    for name, schema in ((LAYER, _layer), (FEW_BITS, _few_bits)):
        if not defs.has(name, MICROSOFT):
            defs.register_schema(schema())


def _layer() -> Any:
    kind = defs.OpSchema
    option = kind.FormalParameterOption.Optional
    made = kind(
        LAYER, MICROSOFT, 1, doc="An LSTM with 8-bit weights.",
        inputs=[kind.FormalParameter(f"input_{i}", of, param_option=option) for i, of in enumerate(_OF_INPUTS)],
        outputs=[kind.FormalParameter(name, "F", param_option=option) for name in ("Y", "Y_h", "Y_c")],
        type_constraints=[(name, types, "") for name, types in _NUMBERS.items()],
        attributes=[
            kind.Attribute(name, of, required=False)
            for name, of in {
                "activation_alpha": kind.AttrType.FLOATS, "activation_beta": kind.AttrType.FLOATS,
                "activations": kind.AttrType.STRINGS, "clip": kind.AttrType.FLOAT, "direction": kind.AttrType.STRING,
                "hidden_size": kind.AttrType.INT, "input_forget": kind.AttrType.INT,
            }.items()
        ],
    )  # fmt: skip
    made.set_type_and_shape_inference_function(_infer_layer)
    return made


def _few_bits() -> Any:
    kind = defs.OpSchema
    types = {"F": ["tensor(float)", "tensor(float16)"], "B": ["tensor(uint8)"], "Z": ["tensor(uint8)", "tensor(float)"]}
    inputs = [("A", "F"), ("B", "B"), ("scales", "F"), ("zero_points", "Z"), ("g_idx", "tensor(int32)"), ("bias", "F")]
    made = kind(
        FEW_BITS, MICROSOFT, 1, doc="A product with weights of few bits.",
        inputs=[
            kind.FormalParameter(
                name, of, param_option=getattr(kind.FormalParameterOption, "Single" if i < 3 else "Optional")
            )
            for i, (name, of) in enumerate(inputs)
        ],
        outputs=[kind.FormalParameter("Y", "F")],
        type_constraints=[(name, several, "") for name, several in types.items()],
        attributes=[
            kind.Attribute(name, kind.AttrType.INT, required=False)
            for name in ("K", "N", "bits", "block_size", "accuracy_level")
        ],
    )  # fmt: skip
    made.set_type_and_shape_inference_function(_infer_few_bits)
    return made


def _infer_few_bits(context: Any) -> None:
    """Infers the shape of a product."""
    data, columns = context.get_input_type(0), context.get_attribute("N")
    if data is None or columns is None:
        return
    shape = [size.dim_value or None for size in data.tensor_type.shape.dim]
    if shape:
        kind = data.tensor_type.elem_type
        context.set_output_type(0, helper.make_tensor_type_proto(kind, [*shape[:-1], columns.i]))


def _infer_layer(context: Any) -> None:
    """Infers the shapes of all hidden states, and of the last hidden and cell state."""
    weights = context.get_input_type(2) if context.get_num_inputs() > 2 else None
    inputs = context.get_input_type(0)
    if inputs is None or weights is None:
        return
    x, r = (of.tensor_type.shape.dim for of in (inputs, weights))
    if len(x) != 3 or len(r) != 3:
        return
    state = [r[0].dim_value or None, x[1].dim_value or None, r[1].dim_value or None]
    for number, shape in enumerate(([x[0].dim_value or None, *state], state, state)):
        if number < context.get_num_outputs():
            context.set_output_type(number, helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape))
