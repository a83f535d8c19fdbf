"""Networks of opsets 1 to 6, raised to opset 7, compute in ONNX Runtime what the old operators say."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend import old_operators

onnxruntime = pytest.importorskip("onnxruntime")


def floats(*shape: int) -> Any:
    return np.random.default_rng(sum(shape)).standard_normal(shape).astype("float32")


X, A, B, C = floats(2, 3, 4, 5), floats(4, 5), floats(5, 3), floats(3)
SCALE, SHIFT, MEAN, SPREAD = floats(3) + 1, floats(3), floats(3), np.abs(floats(3)) + 0.5
ALIGNED = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide}


def network(nodes: list[Any], inputs: dict[str, Any], opset: int) -> Any:
    """Returns a network whose first input is given and whose others are constants, listed as inputs as of old."""
    kinds = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in inputs.items()}
    weights = [numpy_helper.from_array(array, name) for name, array in list(inputs.items())[1:]]
    graph = helper.make_graph(
        nodes, "old", [helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in inputs.items()],
        [helper.make_value_info("y", onnx.TypeProto())], weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=3)


def given(old: Any, x: Any) -> Any:
    before = old.SerializeToString()
    made = old_operators.raised(old)
    assert old.SerializeToString() == before
    assert [one.version for one in made.opset_import] == [7]
    onnx.checker.check_model(onnx.shape_inference.infer_shapes(made))
    return onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})[0]


def one(operator: str, inputs: list[Any], opset: int, **attributes: Any) -> Any:
    """Returns the output of a raised network of one operator."""
    arrays = {"x": np.asarray(inputs[0])} | {f"i{n}": np.asarray(array) for n, array in enumerate(inputs[1:])}
    if opset < 6 and operator not in (
        "Concat",
        "Gemm",
        "Tile",
        "Upsample",
        "Cast",
        "And",
        "Equal",
        "Greater",
        "LpPool",
    ):
        attributes["consumed_inputs"] = [0]
    return given(network([helper.make_node(operator, list(arrays), ["y"], **attributes)], arrays, opset), arrays["x"])


def same(got: Any, expected: Any) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("opset", [1, 5, 6])
@pytest.mark.parametrize("operator", ALIGNED)
def test_operands_are_aligned_at_an_axis_or_at_the_end(operator: str, opset: int) -> None:
    compute = ALIGNED[operator]
    for shape, axis, full in (
        ((3,), 1, (3, 1, 1)), ((3, 4), 1, (3, 4, 1)), ((2,), 0, (2, 1, 1, 1)), ((4,), -2, (4, 1)), ((5,), None, (5,)),
        ((4, 5), None, (4, 5)), ((1, 1), None, (1, 1)), ((), None, ()),
    ):  # fmt: skip
        other = floats(*shape) + 3
        at = {} if axis is None else {"axis": axis}
        same(one(operator, [X, other], opset, broadcast=1, **at), compute(X, other.reshape(full)))


def test_comparisons_are_aligned_too() -> None:
    assert np.array_equal(one("Greater", [X, C], 6, broadcast=1, axis=1), C[:, None, None] < X)
    assert np.array_equal(one("And", [X > 0, C > 0], 1, broadcast=1, axis=1), (X > 0) & (C > 0)[:, None, None])
    numbers = np.array([[1, 2, 3], [3, 2, 1]], "int32")
    assert np.array_equal(one("Equal", [numbers, np.array([1, 2, 1], "int32")], 5, broadcast=1), numbers == [1, 2, 1])


@pytest.mark.parametrize("opset", [1, 6])
def test_operators_whose_attributes_changed(opset: int) -> None:
    slopes = C[:, None, None]
    same(one("PRelu", [X, C], opset), np.where(X < 0, X * slopes, X))
    same(one("PRelu", [floats(4, 3), C], opset), np.where(floats(4, 3) < 0, floats(4, 3) * C, floats(4, 3)))
    same(one("Concat", [X, X], opset, **({} if opset < 4 else {"axis": 1})), np.concatenate([X, X], 1))
    same(one("Gemm", [A, B, C], opset, broadcast=1), A @ B + C)
    same(one("Dropout", [X], opset, is_test=1), X)
    normal = (X - MEAN[:, None, None]) / np.sqrt(SPREAD[:, None, None] + 1e-5) * SCALE[:, None, None]
    same(one("BatchNormalization", [X, SCALE, SHIFT, MEAN, SPREAD], opset, is_test=1), normal + SHIFT[:, None, None])
    to: Any = "INT32" if opset < 6 else 6
    assert np.array_equal(one("Cast", [X * 3], opset, to=to), (X * 3).astype("int32"))
    same(one("Selu", [X], 1), 1.0507 * np.where(X < 0, 1.6732 * (np.exp(X) - 1), X))


def test_attributes_that_became_inputs() -> None:
    same(one("Reshape", [X], 1, shape=[0, -1, 5]), X.reshape(2, 12, 5))
    same(one("Tile", [X, np.float32(2), np.float32(1)], 1), np.concatenate([X, X], 1))
    same(one("Pad", [X], 1, paddings=[0, 0, 1, 0, 0, 0, 2, 1]), np.pad(X, ((0, 0), (0, 0), (1, 2), (0, 1))))
    same(one("Upsample", [X], 1, height_scale=2.0, width_scale=3.0), X.repeat(2, 2).repeat(3, 3))
    squares = sum(X[:, :, i : i + 3, j : j + 4] ** 2 for i in (0, 1) for j in (0, 1))
    same(one("LpPool", [X], 1, kernel_shape=[2, 2], p=2.0), np.sqrt(squares))


@pytest.mark.parametrize("opset", [1, 6])
def test_ranks_are_known_through_operators_without_inference(opset: int) -> None:
    """ONNX infers no shapes for the operators of opset 1."""
    node = helper.make_node
    nodes = [
        node("Relu", ["x"], ["a"]), node("Conv", ["a", "w"], ["b"], kernel_shape=[1, 1]), node("Tanh", ["b"], ["c"]),
        node("Add", ["c", "bias"], ["d"], broadcast=1, axis=1), node("Sigmoid", ["d"], ["e"]),
        node("Mul", ["e", "bias"], ["y"], broadcast=1, axis=1),
    ]  # fmt: skip
    weights = floats(3, 3, 1, 1)
    got = given(network(nodes, {"x": X, "w": weights, "bias": C}, opset), X)
    inner = np.tanh(np.einsum("nchw,oc->nohw", np.maximum(X, 0), weights[:, :, 0, 0])) + C[:, None, None]
    same(got, C[:, None, None] / (1 + np.exp(-inner)))


def test_a_later_opset_stays_and_an_alignment_of_unknown_values_is_refused() -> None:
    late = network([helper.make_node("Relu", ["x"], ["y"])], {"x": X}, 9)
    assert old_operators.raised(late) is late
    nodes = [helper.make_node("Foo", ["x"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"], broadcast=1, axis=1)]
    odd = network(nodes, {"x": X, "b": C}, 6)
    with pytest.raises(ModelRejected, match="export the model with a later opset"):
        old_operators.raised(odd)
