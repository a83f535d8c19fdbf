"""Nodes that TVM's converters misread, written with other operators: equal to ONNX Runtime, and gone."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import decomposition, folding

onnxruntime = pytest.importorskip("onnxruntime")
TYPES = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "int32": TensorProto.INT32, "bool": TensorProto.BOOL}


def net(node: Any, inputs: dict[str, Any], outputs: dict[str, str], weights: dict[str, Any], opset: int) -> Any:
    """Returns a network of one node; `inputs` are examples, `outputs` types."""
    graph = helper.make_graph(
        [node], "net",
        [helper.make_tensor_value_info(n, TYPES[str(a.dtype)], a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info(n, TYPES[kind], None) for n, kind in outputs.items()],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in weights.items()],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    return onnx.shape_inference.infer_shapes(made)


def rewritten(before: Any, inputs: dict[str, Any]) -> set[str]:
    """Returns the operators of the rewritten network, whose outputs are as before."""
    after, _ = folding.fold(before)
    decomposition.rewrite(after)
    onnx.checker.check_model(after)

    def run(model: Any) -> list[Any]:
        return list(onnxruntime.InferenceSession(model.SerializeToString()).run(None, inputs))

    for got, expected in zip(run(after), run(before), strict=True):
        assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    return {node.op_type for node in after.graph.node}


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_the_statistics_of_a_layer_normalisation(axis: int) -> None:
    x = {"x": normal(2, 3, 4)}
    size = [2, 3, 4][axis:] if axis >= 0 else [4]
    node = helper.make_node("LayerNormalization", ["x", "scale"], ["y", "mean", "spread"], axis=axis)
    outputs = dict.fromkeys(("y", "mean", "spread"), "float32")
    made = rewritten(net(node, x, outputs, {"scale": np.full(size, 0.5, "float32")}, 17), x)
    assert {"ReduceMean", "Reciprocal", "LayerNormalization"} <= made
    only = helper.make_node("LayerNormalization", ["x", "scale"], ["y"], axis=axis)
    weights = {"scale": np.ones(size, "float32")}
    assert rewritten(net(only, x, {"y": "float32"}, weights, 17), x) == {"LayerNormalization"}


def test_the_mask_of_a_dropout_is_true() -> None:
    x = {"x": normal(2, 3)}
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    assert "Dropout" not in rewritten(net(node, x, {"y": "float32", "mask": "bool"}, {}, 13), x)


@pytest.mark.parametrize(("positive", "negative"), [(1, 0), (0, 1), (1, 1)])
def test_infinities_of_one_sign(positive: int, negative: int) -> None:
    x = {"x": np.array([1, np.inf, -np.inf, np.nan, 0], "float32")}
    node = helper.make_node("IsInf", ["x"], ["y"], detect_positive=positive, detect_negative=negative)
    made = rewritten(net(node, x, {"y": "bool"}, {}, 10), x)
    assert made == {"IsInf"} if positive and negative else "IsInf" not in made


@pytest.mark.parametrize(
    "given",
    [
        {"output_shape": [10, 8]}, {"output_shape": [10, 8], "auto_pad": "SAME_LOWER"}, {"auto_pad": "SAME_UPPER"},
        {"output_shape": [7, 5], "output_padding": [1, 1]},
    ],
)  # fmt: skip
def test_a_transposed_convolution_whose_padding_follows_from_its_output(given: dict[str, Any]) -> None:
    x = {"x": normal(1, 2, 3, 3)}
    node = helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[3, 2], **given)
    model = net(node, x, {"y": "float32"}, {"w": normal(2, 4, 3, 3)}, 11)
    assert rewritten(model, x) == {"ConvTranspose"}
    after, _ = folding.fold(model)
    decomposition.rewrite(after)
    names = {attribute.name for attribute in after.graph.node[0].attribute}
    assert not names & {"output_shape", "auto_pad"}


@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot(axis: int) -> None:
    x = {"x": np.array([[0, 2], [-1, 3]])}
    node = helper.make_node("OneHot", ["x", "depth", "values"], ["y"], axis=axis)
    weights = {"depth": np.int64(4), "values": np.array([2, 5], "float32")}
    assert "OneHot" not in rewritten(net(node, x, {"y": "float32"}, weights, 11), x)


@pytest.mark.parametrize(("base", "exponent"), [("int64", "float32"), ("float32", "int64"), ("int32", "int32")])
@pytest.mark.parametrize("power", [1, 2, 3, 5])
def test_powers_of_other_types(base: str, exponent: str, power: int) -> None:
    x = {"x": np.array([1, 2, 3, 7], base)}
    node = helper.make_node("Pow", ["x", "power"], ["y"])
    rewritten(net(node, x, {"y": base}, {"power": np.array(power, exponent)}, 13), x)


MODES = ("nearest", "linear", "cubic")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("scales", [[1, 1, 1.7, 0.6], [1, 2, 3, 1]])
@pytest.mark.parametrize("sampling", ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"])
def test_a_resize_by_odd_scales_or_other_axes(mode: str, scales: list[float], sampling: str) -> None:
    if sampling == "align_corners" and scales[1] == 1:
        return  # refused: see below
    x = {"x": normal(2, 3, 5, 7)}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, coordinate_transformation_mode=sampling)
    model = net(node, x, {"y": "float32"}, {"scales": np.array(scales, "float32")}, 13)
    if mode == "nearest" or scales[1] == 1:  # ONNX Runtime interpolates along two axes
        assert "Resize" not in rewritten(model, x)


def test_a_resize_of_which_runtimes_make_different_things_is_refused() -> None:
    x = {"x": normal(1, 1, 5, 7)}
    given = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], **given)
    model = net(node, x, {"y": "float32"}, {"scales": np.array([1, 1, 1.7, 0.6], "float32")}, 13)
    with pytest.raises(ModelRejected, match="runtimes differ"):
        decomposition.rewrite(model)


@pytest.mark.parametrize("mode", MODES)
def test_a_resize_that_tvm_reads_stays(mode: str) -> None:
    x = {"x": normal(1, 3, 4, 6)}
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    model = net(node, x, {"y": "float32"}, {"scales": np.array([1, 1, 2, 2], "float32")}, 13)
    assert rewritten(model, x) == {"Resize"}


def test_sizes_that_keep_the_aspect_ratio() -> None:
    x = {"x": normal(1, 1, 4, 6)}
    node = helper.make_node("Resize", ["x", "", "", "sizes"], ["y"], axes=[2, 3], keep_aspect_ratio_policy="not_larger")
    model = net(node, x, {"y": "float32"}, {"sizes": np.array([7, 8])}, 18)
    assert "Resize" not in rewritten(model, x)
