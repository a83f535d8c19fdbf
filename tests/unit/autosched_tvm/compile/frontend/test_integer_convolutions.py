"""Quantised convolutions kept in 8-bit integers, beside ONNX Runtime on the quantised model."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autosched_tvm.compile.frontend.integer_convolutions import joined_groups
from quantising import FLOAT, STEP, UINT8, network, operators, prove, rewritten, run

RANDOM = np.random.default_rng(0)


def quantised(name: str, output: str) -> list[Any]:
    """Returns nodes that quantise and dequantise a float tensor."""
    return [
        helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}_q"]),
        helper.make_node("DequantizeLinear", [f"{name}_q", "s", "z"], [output]),
    ]


def constants(kind: str) -> dict[str, Any]:
    """Returns scale and zero point of activations, and 7-bit weights of eight filters with a scale each: products of 8
    bits saturate in ONNX Runtime on CPUs without VNNI."""
    zero = 100 if kind == "uint8" else -20
    return {
        "s": np.asarray(STEP, "float32"), "z": np.asarray(zero, kind),
        "w": RANDOM.integers(-64, 64, (8, 8, 3, 3)).astype("int8"),
        "ws": np.linspace(0.001, 0.002, 8, dtype="float32"), "wz": np.zeros(8, "int8"),
        "b": np.linspace(-1, 1, 8, dtype="float32"),
    }  # fmt: skip


WEIGHTS = helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wf"], axis=0)


def example(rows: int = 9) -> dict[str, Any]:
    return {"x": RANDOM.standard_normal((1, 8, rows, 7)).astype("float32")}


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("bias", [False, True])
def test_a_convolution_between_quantise_and_dequantise_is_computed_in_integers(kind: str, bias: bool) -> None:
    """The branch around the convolution reads the integers, too; they are made once."""
    nodes = [
        *quantised("x", "xd"), WEIGHTS,
        helper.make_node("Conv", ["xd", "wf", *(["b"] if bias else [])], ["c"], pads=[1, 1, 1, 1]),
        *quantised("c", "cd"),
        helper.make_node("Add", ["cd", "xd"], ["sum"]), helper.make_node("Relu", ["sum"], ["r"]), *quantised("r", "y"),
    ]  # fmt: skip
    used = {name: value for name, value in constants(kind).items() if name != "b" or bias}
    net = network(nodes, example(), {"y": FLOAT}, used)
    prove(net, example(), 3 * STEP)
    given = example()
    (wanted,), (found,) = run(net, given), run(rewritten(net, integers=True), given)
    assert np.mean(np.abs(wanted - found) > STEP / 100) < 0.01, "it rounds where the network rounds"
    whole = operators(rewritten(net, integers=True))
    assert whole.count("ConvInteger") == 1
    assert "Conv" not in whole
    assert whole.count("Round") == 3, "the quantised tensors"


def test_operators_that_move_data_move_integers() -> None:
    nodes = [
        *quantised("x", "xd"), helper.make_node("MaxPool", ["xd"], ["m"], kernel_shape=[2, 2], strides=[1, 1]),
        *quantised("m", "md"), WEIGHTS, helper.make_node("Conv", ["md", "wf"], ["y"], strides=[2, 2]),
    ]  # fmt: skip
    net = network(nodes, example(), {"y": FLOAT}, {k: v for k, v in constants("uint8").items() if k != "b"})
    prove(net, example(), STEP)
    whole = rewritten(net, integers=True)
    assert operators(whole).count("Round") == 1, "the same scale: nothing is rounded again"
    pool = next(node for node in whole.graph.node if node.op_type == "MaxPool")
    assert next(node.op_type for node in whole.graph.node if pool.input[0] in node.output) == "Cast"


def test_the_operator_of_onnx_runtime_is_computed_in_integers() -> None:
    used = constants("uint8") | {"b": np.arange(8, dtype="int32") * 100, "ys": np.asarray(STEP, "float32")}
    node = helper.make_node(
        "QLinearConv", ["x", "s", "z", "w", "ws", "wz", "ys", "z", "b"], ["y"], pads=[0, 1, 2, 1]
    )  # fmt: skip
    given = {"x": RANDOM.integers(0, 256, (1, 8, 6, 6)).astype("uint8")}
    net = network([node], given, {"y": UINT8}, used)
    prove(net, given, STEP)
    assert "ConvInteger" in operators(rewritten(net, integers=True))


@pytest.mark.parametrize(
    ("shape", "groups", "lanes", "channels"),
    [
        ((32, 8, 3, 3), 1, 16, 8),
        ((32, 8, 3, 3), 2, 16, 8),
        ((64, 4, 1, 1), 16, 16, 16),
        ((64, 4, 1, 1), 16, 8, 8),
        ((20, 3, 1), 2, 16, 6),
        ((32, 1, 3, 3), 16, 16, None),
        ((64, 3, 3, 3), 64, 16, None),
    ],
)
def test_groups_are_joined_until_they_fill_vectors(
    shape: tuple[int, ...], groups: int, lanes: int, channels: int | None
) -> None:
    weights = RANDOM.integers(-9, 9, shape).astype("int8")
    joined = joined_groups(weights, groups, lanes)
    assert (joined is None) == (channels is None)
    if joined is not None:
        assert joined.shape == (shape[0], channels, *shape[2:])
        data = RANDOM.integers(0, 9, (shape[1] * groups,))

        def sums(factors: Any) -> Any:
            groups = data.size // factors.shape[1]
            of_groups = np.split(factors.astype("int64"), groups), np.split(data, groups)
            return np.concatenate([np.tensordot(one, part, (1, 0)) for one, part in zip(*of_groups, strict=True)])

        assert np.array_equal(sums(joined), sums(weights))


@pytest.mark.parametrize("reason", ["weights of 9 bits", "a scale for each channel of the data"])
def test_other_convolutions_stay_float(reason: str) -> None:
    used = constants("uint8")
    del used["b"]
    if reason == "weights of 9 bits":
        used |= {"w": RANDOM.integers(0, 256, (8, 8, 3, 3)).astype("uint8"), "wz": np.full(8, 90, "uint8")}
    if reason.startswith("a scale"):
        used |= {"s": np.linspace(0.02, 0.05, 8, dtype="float32"), "z": np.full(8, 100, "uint8")}
    conv = helper.make_node("Conv", ["xd", "wf"], ["y"])
    net = network([*quantised("x", "xd"), WEIGHTS, conv], example(), {"y": FLOAT}, used)
    prove(net, example(), STEP)
    assert "ConvInteger" not in operators(rewritten(net, integers=True))


def dynamic(*, taps: tuple[int, ...] = (3, 3), kind: str = "int8", zero: int = 0, **attributes: Any) -> Any:
    """Returns a convolution of data quantised by their own range, as dynamic quantisation writes it."""
    low, high = (0, 256) if kind == "uint8" else (-128, 128)
    weights = RANDOM.integers(low, high, (8, 8 // attributes.get("group", 1), *taps))
    used = {
        "w": weights.astype(kind), "wz": np.asarray(zero, kind), "ws": np.asarray(0.002, "float32"),
        "b": np.linspace(-1, 1, 8, dtype="float32").reshape(1, 8, *[1] * len(taps)),
    }  # fmt: skip
    nodes = [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
        helper.make_node("ConvInteger", ["q", "w", "z", "wz"], ["sums"], **attributes),
        helper.make_node("Cast", ["sums"], ["real"], to=FLOAT),
        helper.make_node("Mul", ["s", "ws"], ["step"]),
        helper.make_node("Mul", ["real", "step"], ["product"]),
        helper.make_node("Add", ["product", "b"], ["y"]),
    ]
    return network(nodes, {"x": np.zeros((1, 8, 9, 7)[: 2 + len(taps)], "float32")}, {"y": FLOAT}, used)


@pytest.mark.parametrize(
    "options",
    [
        {"pads": [1, 0, 2, 1]},
        {"kind": "uint8", "zero": 128, "strides": [2, 1], "auto_pad": "SAME_UPPER"},
        {"group": 8, "pads": [1, 1, 1, 1], "dilations": [1, 2]},
        {"group": 2, "pads": [1, 1, 1, 1]},
        {"taps": (3,), "pads": [2, 1], "strides": [2]},
    ],
    ids=str,
)
def test_data_quantised_by_their_own_range(options: dict[str, Any]) -> None:
    net = dynamic(**options)
    shape = [size.dim_value for size in net.graph.input[0].type.tensor_type.shape.dim]
    given = {"x": np.random.default_rng(3).standard_normal(shape).astype("float32")}
    whole = rewritten(net, integers=True)
    assert operators(whole).count("ConvInteger") == 1
    assert "Conv" not in operators(whole)
    (wanted,), (found,) = run(net, given), run(whole, given)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_dynamic_data_with_weights_of_9_bits_stay_float() -> None:
    assert "ConvInteger" not in operators(rewritten(dynamic(kind="uint8", zero=90), integers=True))
