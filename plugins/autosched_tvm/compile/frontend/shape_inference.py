"""ONNX's inference of shapes, for one operator of ONNX Runtime too: a recurrent layer that stays in a model."""

from typing import Any

import onnx
from onnx import defs, helper, shape_inference

MICROSOFT = "com.microsoft"
LAYER = "DynamicQuantizeLSTM"
"""The operator."""
_NUMBERS = {"F": ["tensor(float)"], "Q": ["tensor(int8)", "tensor(uint8)"], "L": ["tensor(int32)"]}
_OF_INPUTS = "FQQFLFFFFQFQ"
"""Type of each input, as a letter of `_NUMBERS`."""


def inferred(model: Any) -> Any:
    """The model with the shapes and types of all that it computes; as it is where ONNX cannot infer them."""
    _register()
    try:
        return shape_inference.infer_shapes(model)
    except (shape_inference.InferenceError, ValueError):  # too large, or not whole
        return model


def schema_of(node: Any, opset: int) -> Any | None:
    """The definition of an operator; None for one of another domain. Raises onnx.defs.SchemaError for one of ONNX's
    domain that the opset lacks."""
    _register()
    if node.domain in ("", "ai.onnx"):
        return defs.get_schema(node.op_type, opset, "")
    return defs.get_schema(LAYER, 1, MICROSOFT) if (node.domain, node.op_type) == (MICROSOFT, LAYER) else None


def _register() -> None:
    """Make the operator known to ONNX in this process."""
    if not defs.has(LAYER, MICROSOFT):
        defs.register_schema(_schema())


def _schema() -> Any:
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
    made.set_type_and_shape_inference_function(_infer)
    return made


def _infer(context: Any) -> None:
    """Shapes of the results: of all hidden states, and of the last hidden and cell state."""
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
