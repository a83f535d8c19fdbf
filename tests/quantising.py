"""Compares a model with its rewritten forms in ONNX Runtime."""

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from autosched_tvm.compile.frontend import standard_operators
from autosched_tvm.compile.frontend.dequantisation import Form
from autosched_tvm.evaluation.quantised_reference import make_weights_unsigned

if TYPE_CHECKING:  # it needs TVM
    from autosched_tvm.compile.integers.convolution import Window

STEP = 0.05
"""Scale of each quantised result in these tests."""
PRODUCTS_SHAPE = (2, 9, 24)
"""Input of `two_products`: two axes of rows whose number is no multiple of a tile."""


def network(
    nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, int], constants: dict[str, Any], opset: int = 13
) -> Any:
    """Returns a model. `inputs`: example arrays, which give shapes and types; `outputs`: ONNX element types."""
    graph = helper.make_graph(
        nodes,
        "net",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=8)


def run(model: Any, inputs: dict[str, Any]) -> list[Any]:
    """Returns the outputs in ONNX Runtime, operator by operator. Its products of 8-bit weights saturate on CPUs without
    VNNI, but for `ConvInteger`."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, inputs))


def rewritten(model: Any, *, rounded: bool = False, integers: bool = False) -> Any:
    """Returns a copy in standard float operators, and with `integers` those on 8-bit integers; fails where another
    operator is left."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    assert standard_operators.rewrite(copy, Form.ROUNDED if rounded else Form.INTEGERS if integers else Form.REAL)
    left = standard_operators.is_quantised(copy, integers=integers)
    assert not left, [node.op_type for node in copy.graph.node]
    assert {node.domain for node in copy.graph.node if not (integers and standard_operators.stays(node))} <= {
        "",
        "ai.onnx",
    }
    return copy


def operators(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def prove(model: Any, inputs: dict[str, Any], step: float, ties: float = 0.01) -> None:
    """Checks that the rounded form has ONNX Runtime's result, except for a share of ties; the other forms stay within a
    step."""
    expected = run(model, inputs)
    exact, real = (run(rewritten(model, rounded=rounded), inputs) for rounded in (True, False))
    integers = rewritten(model, integers=True)
    make_weights_unsigned(integers)
    whole = run(integers, inputs)
    for want, tie, near, number in zip(expected, exact, real, whole, strict=True):
        assert want.dtype == tie.dtype == near.dtype == number.dtype
        assert want.shape == tie.shape == near.shape == number.shape
        size = 1.0 if want.dtype.kind in "iu" else step
        off = np.abs(want.astype("float64") - tie.astype("float64"))
        assert off.max(initial=0) <= size * 1.001
        assert (off > size / 100).mean() <= ties
        for other in (near, number):
            assert np.abs(want.astype("float64") - other.astype("float64")).max(initial=0) <= size * 1.001
        assert want.size <= 4 or want.std() > 0  # otherwise the comparison proves nothing


FLOAT, UINT8 = TensorProto.FLOAT, TensorProto.UINT8


def convolution_network(
    *, channels: int = 3, filters: int = 20, zero: int = 37, image: tuple[int, int] = (11, 14), **attributes: Any
) -> Any:
    """Returns a 3x3 convolution of integers in ONNX."""
    depth = channels // attributes.get("group", 1)
    weights = np.random.default_rng(1).integers(-128, 128, (filters, depth, 3, 3)).astype("int8")
    node = helper.make_node("ConvInteger", ["x", "w", "z"], ["y"], **attributes)
    constants = {"w": weights, "z": np.asarray(zero, "uint8")}
    return network([node], {"x": np.zeros((1, channels, *image), "uint8")}, {"y": TensorProto.INT32}, constants)


def convolution_sums(data: Any, weights: Any, how: "Window") -> Any:
    """Returns NCHW sums of NCHW integers and OIHW weights."""
    top, left, bottom, right = how.border
    around = ((0, 0), (0, 0), (top, bottom), (left, right))
    image = np.pad(data.astype("int64"), around, constant_values=how.border_value)
    (down, across), (tall, wide) = how.strides, how.dilation
    rows = (image.shape[2] - (weights.shape[2] - 1) * tall - 1) // down + 1
    columns = (image.shape[3] - (weights.shape[3] - 1) * wide - 1) // across + 1
    sums = np.zeros((len(data), len(weights), rows, columns), "int64")
    for y, x in np.ndindex(*weights.shape[2:]):
        part = image[:, :, y * tall :: down, x * wide :: across][:, :, :rows, :columns]
        sums += np.einsum("oc,nchw->nohw", weights[:, :, y, x].astype("int64"), part)
    return sums


def two_products(signed: bool) -> Any:
    """Returns two products, each with a bias and a clip; the columns of the second one fill no vector."""
    random = np.random.default_rng(0)
    kind, zero = ("int8", -20) if signed else ("uint8", 100)
    constants = {
        "xs": np.asarray(0.03, "float32"), "xz": np.asarray(zero, kind), "hs": np.asarray(0.1, "float32"),
        "hz": np.asarray(zero, kind),
    }  # fmt: skip
    for name, (rows, columns) in {"v": (24, 32), "w": (32, 20)}.items():
        constants[name] = random.integers(-128, 128, (rows, columns)).astype("int8")
        constants[f"{name}s"] = np.linspace(0.005, 0.02, columns, dtype="float32")
        constants[f"{name}z"] = np.zeros(columns, "int8")
        constants[f"{name}b"] = np.linspace(-1, 1, columns, dtype="float32")
    nodes = []
    for value, weights, scale, output in (("x", "v", "x", "h"), ("r", "w", "h", "y")):
        nodes += [
            helper.make_node("QuantizeLinear", [value, f"{scale}s", f"{scale}z"], [f"{value}q"]),
            helper.make_node("DequantizeLinear", [f"{value}q", f"{scale}s", f"{scale}z"], [f"{value}d"]),
            helper.make_node("DequantizeLinear", [weights, f"{weights}s", f"{weights}z"], [f"{weights}d"], axis=1),
            helper.make_node("MatMul", [f"{value}d", f"{weights}d"], [f"{output}p"]),
            helper.make_node("Add", [f"{output}p", f"{weights}b"], [output]),
        ]
        if output == "h":
            nodes.append(helper.make_node("Relu", ["h"], ["r"]))
    return network(nodes, {"x": np.zeros(PRODUCTS_SHAPE, "float32")}, {"y": TensorProto.FLOAT}, constants)
