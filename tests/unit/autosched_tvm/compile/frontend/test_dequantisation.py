"""Quantised operators against ONNX Runtime, one by one and in small networks."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from autosched_tvm.compile.frontend import standard_operators

pytest.importorskip("onnxruntime")

from quantising import FLOAT, STEP, UINT8, network, operators, prove, rewritten, run

RANDOM = np.random.default_rng(5)
node = helper.make_node


def levels(*shape: int, kind: str = "uint8") -> Any:
    limits = np.iinfo(kind)
    return RANDOM.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)


def weights(*shape: int, kind: str = "int8") -> Any:
    """Returns 7-bit values: products of 8 bits saturate in ONNX Runtime on CPUs without VNNI."""
    return RANDOM.integers(-64, 63, shape, endpoint=True).astype(kind) if kind == "int8" else levels(*shape) // 2


def small(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


def scale(value: float) -> Any:
    return np.asarray(value, "float32")


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("opset", [10, 13, 19, 21])
def test_quantise_and_dequantise(kind: str, opset: int) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        node("Mul", ["d", "d"], ["y"]),
    ]
    constants = {"s": scale(STEP), "z": np.asarray(3, kind)}
    x = np.clip(small(4, 50) * 6, -8, 8).astype("float32")
    net = network(nodes, {"x": x}, {"d": FLOAT}, constants, opset)
    prove(net, {"x": x}, STEP)
    assert "Round" not in operators(rewritten(net))


@pytest.mark.parametrize("axis", [1, 3, -3])
def test_scales_and_zero_points_of_run_time_lie_along_their_axis(axis: int) -> None:
    x = {"q": levels(2, 5, 4, 3), "s": np.linspace(0.1, 0.5, (2, 5, 4, 3)[axis], dtype="float32")}
    x["z"] = levels((2, 5, 4, 3)[axis])
    net = network([node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=axis)], x, {"y": FLOAT}, {}, 13)
    for got, expected in zip(run(rewritten(net), x), run(net, x), strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-6)


def test_range_of_the_type_stays_a_bound() -> None:
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    net = network(nodes, {"x": small(3)}, {"y": FLOAT}, {"s": scale(0.1), "z": np.asarray(-128, "int8")})
    (y,) = run(rewritten(net), {"x": np.asarray([-5, 3.14, 99], "float32")})
    np.testing.assert_allclose(y, [0, 3.14, 25.5], rtol=1e-6)


def test_integer_output_is_rounded() -> None:
    net = network(
        [node("QuantizeLinear", ["x", "s", "z"], ["y"])],
        {"x": small(2, 40)},
        {"y": UINT8},
        {"s": scale(STEP), "z": np.asarray(100, "uint8")},
    )
    prove(net, {"x": small(2, 40)}, STEP)


def test_integer_input() -> None:
    nodes = [node("DequantizeLinear", ["x", "s", "z"], ["y"])]
    x = levels(2, 30)
    prove(network(nodes, {"x": x}, {"y": FLOAT}, {"s": scale(STEP), "z": np.asarray(7, "uint8")}), {"x": x}, 1e-6)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scale_per_channel(axis: int) -> None:
    count = (5, 6, 7)[axis]
    nodes = [
        node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=axis),
        node("Add", ["x", "d"], ["y"]),
        node("QuantizeLinear", ["y", "t", "z"], ["q"], axis=axis),
        node("DequantizeLinear", ["q", "t", "z"], ["back"], axis=axis),
    ]
    constants = {
        "w": levels(5, 6, 7, kind="int8"), "s": np.linspace(0.01, 0.03, count, dtype="float32"),
        "z": levels(count, kind="int8"), "t": np.linspace(0.9, 1, count, dtype="float32") * np.float32(STEP),
    }  # fmt: skip
    x = small(5, 6, 7)
    prove(network(nodes, {"x": x}, {"back": FLOAT}, constants), {"x": x}, STEP)


def test_scale_per_block() -> None:
    nodes = [node("DequantizeLinear", ["w", "s", "z"], ["d"], axis=0, block_size=4), node("MatMul", ["x", "d"], ["y"])]
    constants = {"w": levels(10, 6, kind="int8"), "s": np.abs(small(3, 6)), "z": levels(3, 6, kind="int8")}
    x = small(2, 10)
    prove(network(nodes, {"x": x}, {"y": FLOAT}, constants, 21), {"x": x}, 1e-3)


def test_weights_quantised_in_the_graph_are_rounded() -> None:
    nodes = [
        node("QuantizeLinear", ["w", "s", "z"], ["q"], axis=1),
        node("DequantizeLinear", ["q", "s", "z"], ["d"], axis=1),
        node("MatMul", ["x", "d"], ["y"]),
    ]
    constants = {"w": small(8, 5), "s": np.linspace(0.1, 0.3, 5, dtype="float32"), "z": np.zeros(5, "int8")}
    x = small(3, 8)
    net = network(nodes, {"x": x}, {"y": FLOAT}, constants)
    prove(net, {"x": x}, 1e-5)
    assert operators(rewritten(net)) == ["MatMul"]


@pytest.mark.parametrize(
    ("moving", "constants"),
    [
        (node("Reshape", ["q", "to"], ["m"]), {"to": np.asarray([8, 48], "int64")}),
        (node("Transpose", ["q"], ["m"], perm=[0, 2, 3, 1]), {}),
        (node("MaxPool", ["q"], ["m"], kernel_shape=[2, 2], strides=[2, 2]), {}),
        (node("Slice", ["q", "from", "to"], ["m"]), {"from": np.asarray([0, 1]), "to": np.asarray([2, 3])}),
        (node("Concat", ["q", "q"], ["m"], axis=1), {}),
        (node("Gather", ["q", "i"], ["m"], axis=1), {"i": np.asarray([2, 0])}),
        (node("Split", ["q"], ["m", "rest"], axis=1), {}),
        (
            node("Resize", ["q", "", "times"], ["m"], mode="nearest"),
            {"times": np.asarray([1, 1, 2, 2], "float32")},
        ),
        (
            node("Pad", ["q", "width", "fill"], ["m"]),
            {"width": np.asarray([0, 0, 1, 1, 0, 0, 1, 1]), "fill": np.asarray(9, "uint8")},
        ),
    ],
    ids=lambda value: getattr(value, "op_type", ""),
)  # fmt: skip
def test_moves_of_quantised_tensors(moving: Any, constants: dict[str, Any]) -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        moving,
        node("DequantizeLinear", ["m", "s", "z"], ["y"]),
    ]
    x = small(1, 4, 8, 12)
    net = network(
        nodes, {"x": x}, {"y": FLOAT}, {"s": scale(STEP), "z": np.asarray(120, "uint8"), **constants}
    )  # fmt: skip
    prove(net, {"x": x}, STEP)
    assert "Round" not in operators(rewritten(net))


def test_operator_that_wants_integers_gets_them() -> None:
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("ArgMax", ["q"], ["y"], axis=1)]
    x = small(6, 30)
    net = network(nodes, {"x": x}, {"y": TensorProto.INT64}, {"s": scale(1.5), "z": np.asarray(120, "uint8")})
    np.testing.assert_array_equal(run(rewritten(net), {"x": x})[0], run(net, {"x": x})[0])


def test_read_with_another_scale() -> None:
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "t", "z"], ["y"]),
    ]
    x = small(6, 30)
    constants = {"s": scale(STEP), "t": scale(STEP), "z": np.asarray(120, "uint8")}
    constants["t"] = constants["t"] * 2
    prove(network(nodes, {"x": x}, {"y": FLOAT}, constants), {"x": x}, 2 * STEP)


def dynamic(product: Any) -> list[Any]:
    """Returns a product with constant weights after ONNX Runtime's dynamic quantisation."""
    return [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        product,
        node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["qs", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_dynamic_product(kind: str, per_channel: bool) -> None:
    count = 12 if per_channel else 1
    constants = {
        "w": weights(20, 12, kind=kind), "ws": np.linspace(0.01, 0.02, count, dtype="float32"),
        "wz": levels(count, kind=kind) if per_channel else np.asarray(3, kind),
    }  # fmt: skip
    nodes = dynamic(node("MatMulInteger", ["q", "w", "qz", "wz"], ["p"]))
    x = small(2, 7, 20)
    net = network(nodes, {"x": x}, {"y": FLOAT}, constants)
    step = 20 * 128 * 0.02 * float(np.ptp(x)) / 255 / 2  # half a step of each input
    prove(net, {"x": x}, step)
    assert operators(rewritten(net)) == ["MatMul", "Identity"]


def test_dynamic_convolution() -> None:
    constants = {"w": levels(6, 4, 3, 3), "ws": scale(0.01), "wz": np.asarray(130, "uint8")}
    nodes = dynamic(node("ConvInteger", ["q", "w", "qz", "wz"], ["p"], pads=[1, 1, 1, 1]))
    x = small(1, 4, 9, 9)
    net = network(nodes, {"x": x}, {"y": FLOAT}, constants)
    prove(net, {"x": x}, 36 * 128 * 0.01 * float(np.ptp(x)) / 255 / 2)
    assert operators(rewritten(net)) == ["Conv", "Identity"]


def test_bias_that_is_made_an_integer_at_run_time() -> None:
    """Older quantisers of ONNX Runtime write a convolution with a bias in this form."""
    constants = {
        "w": weights(6, 4, 3, 3), "ws": scale(0.01), "wz": np.asarray(0, "int8"), "b": small(6),
        "shape": np.asarray([1, 6, 1, 1]),
    }  # fmt: skip
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        node("Mul", ["qs", "ws"], ["step"]),
        node("Div", ["b", "step"], ["levels"]),
        node("Floor", ["levels"], ["whole"]),
        node("Cast", ["whole"], ["bias"], to=TensorProto.INT32),
        node("ConvInteger", ["q", "w", "qz", "wz"], ["p"], pads=[1, 1, 1, 1]),
        node("Reshape", ["bias", "shape"], ["shaped"]),
        node("Add", ["p", "shaped"], ["sum"]),
        node("Cast", ["sum"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["qs", "ws"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    x = small(1, 4, 9, 9)
    net = network(nodes, {"x": x}, {"y": FLOAT}, constants)
    prove(net, {"x": x}, 36 * 64 * 0.01 * float(np.ptp(x)) / 255 / 2)
    assert operators(rewritten(net)) == ["Reshape", "Conv", "Add", "Identity"]


def test_dynamic_product_of_two_activations() -> None:
    nodes = [
        node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]),
        node("DynamicQuantizeLinear", ["v"], ["r", "rs", "rz"]),
        node("MatMulInteger", ["q", "r", "qz", "rz"], ["p"]),
        node("Cast", ["p"], ["f"], to=TensorProto.FLOAT),
        node("Mul", ["qs", "rs"], ["both"]),
        node("Mul", ["f", "both"], ["y"]),
    ]
    inputs = {"x": small(5, 20), "v": small(20, 6)}
    net = network(nodes, inputs, {"y": FLOAT}, {})
    prove(net, inputs, 20 * 3 * (6 / 255))
    assert operators(rewritten(net)) == ["MatMul", "Identity"]


def test_dynamic_quantisation_of_zeros() -> None:
    nodes = dynamic(node("MatMulInteger", ["q", "w", "qz"], ["p"]))
    net = network(nodes, {"x": small(2, 3)}, {"y": FLOAT}, {"w": levels(3, 2), "ws": scale(1)})
    for rounded in (False, True):
        (y,) = run(rewritten(net, rounded=rounded), {"x": np.zeros((2, 3), "float32")})
        np.testing.assert_array_equal(y, np.zeros((2, 2)))


def test_product_whose_scale_is_used_otherwise() -> None:
    """The integers themselves are an output, and are made by rounding."""
    nodes = [node("DynamicQuantizeLinear", ["x"], ["q", "qs", "qz"]), node("MatMulInteger", ["q", "w", "qz"], ["p"])]
    x = small(3, 8)
    net = network(nodes, {"x": x}, {"p": TensorProto.INT32, "qs": FLOAT}, {"w": weights(8, 5)})
    expected, found = run(net, {"x": x}), run(rewritten(net, rounded=True), {"x": x})
    np.testing.assert_allclose(found[0], expected[0], atol=1)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)


def test_integer_products_of_integer_inputs_are_exact() -> None:
    x = levels(3, 40)
    constants = {"w": weights(40, 5), "xz": np.asarray(9, "uint8"), "wz": np.asarray(-4, "int8")}
    net = network([node("MatMulInteger", ["x", "w", "xz", "wz"], ["y"])], {"x": x}, {"y": TensorProto.INT32}, constants)
    np.testing.assert_array_equal(run(rewritten(net), {"x": x})[0], run(net, {"x": x})[0])


def test_branches_of_if_are_rewritten_too() -> None:
    def branch(name: str, zero: str) -> Any:
        nodes = [
            node("QuantizeLinear", ["x", "s", zero], [f"{name}q"]),
            node("DequantizeLinear", [f"{name}q", "s", zero], [f"{name}d"]),
        ]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(f"{name}d", FLOAT, None)])

    nodes = [
        node("ReduceMax", ["x"], ["most"], keepdims=0),
        node("Greater", ["most", "s"], ["large"]),
        node("If", ["large"], ["y"], then_branch=branch("a", "z"), else_branch=branch("b", "z")),
    ]
    x = small(3, 8)
    net = network(nodes, {"x": x}, {"y": FLOAT}, {"s": scale(STEP), "z": np.asarray(128, "uint8")})
    prove(net, {"x": x}, STEP)


def test_float_models_are_left_alone() -> None:
    net = network([node("Relu", ["x"], ["y"])], {"x": small(3)}, {"y": FLOAT}, {})
    before = net.SerializeToString()
    assert not standard_operators.rewrite(net)
    assert not standard_operators.is_quantised(net)
    assert net.SerializeToString() == before


def test_signed_types_of_16_bits() -> None:
    nodes = [node("QuantizeLinear", ["x", "s", "z"], ["q"]), node("DequantizeLinear", ["q", "s", "z"], ["y"])]
    x = small(3, 8)
    prove(network(nodes, {"x": x}, {"y": FLOAT}, {"s": scale(1e-4), "z": np.asarray(0, "int16")}, 21), {"x": x}, 1e-4)


def test_types_that_are_not_rewritten_stay() -> None:
    net = network(
        [node("QuantizeLinear", ["x", "s", "z"], ["y"])], {"x": small(3)}, {"y": TensorProto.FLOAT8E4M3FN}, {}, 19
    )
    net.graph.initializer.append(helper.make_tensor("s", FLOAT, [], [1.0]))
    net.graph.initializer.append(helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, [], [0.0]))
    standard_operators.rewrite(net)
    assert operators(net) == ["QuantizeLinear"]
