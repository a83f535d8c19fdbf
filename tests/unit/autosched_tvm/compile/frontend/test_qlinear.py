"""Operators of quantised tensors against ONNX Runtime, one by one."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

from quantising import FLOAT, network, operators, prove, rewritten

KINDS = {"uint8": TensorProto.UINT8, "int8": TensorProto.INT8}
MICROSOFT = "com.microsoft"
RANDOM = np.random.default_rng(6)


def levels(*shape: int, kind: str = "uint8") -> Any:
    limits = np.iinfo(kind)
    return RANDOM.integers(limits.min, limits.max, shape, endpoint=True).astype(kind)


def proved(operator: str, inputs: list[Any], kind: str, constants: dict[str, Any], **given: Any) -> Any:
    """Proves an operator with one quantised output. `inputs`: names, arrays, or scales and zero points."""
    names, known, examples = [], dict(constants), {}
    for number, value in enumerate(inputs):
        if isinstance(value, str):
            names.append(value)
            continue
        names.append(f"in{number}")
        if isinstance(value, np.ndarray) and value.ndim:
            examples[names[-1]] = value
        else:
            known[names[-1]] = np.asarray(value, "float32") if isinstance(value, float) else value
    domain = "" if operator in ("QLinearConv", "QLinearMatMul") and "channels_last" not in given else MICROSOFT
    node = helper.make_node(operator, names, ["y"], domain=domain, **given)
    net = network([node], examples, {"y": KINDS[kind]}, known)
    prove(net, examples, 1.0)
    return net


def weights(*shape: int) -> Any:
    """Returns 7-bit values: products of 8 bits saturate in ONNX Runtime on CPUs without VNNI."""
    return RANDOM.integers(-64, 63, shape, endpoint=True).astype("int8")


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("group", [1, 2])
def test_convolution(kind: str, per_channel: bool, group: int) -> None:
    count = 6 if per_channel else 1
    constants = {
        "w": weights(6, 4 // group, 3, 3), "ws": np.linspace(0.005, 0.01, count, dtype="float32"),
        "wz": np.zeros(count, "int8"), "b": RANDOM.integers(-5000, 5000, 6).astype("int32"),
    }  # fmt: skip
    x, zero = levels(1, 4, 8, 8, kind=kind), np.asarray(4, kind)
    inputs = [x, 0.1, zero, "w", "ws", "wz", 0.5, zero, "b"]
    net = proved("QLinearConv", inputs, kind, constants, pads=[1, 1, 1, 1], group=group)
    assert "Conv" in operators(rewritten(net))


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_product(kind: str, per_channel: bool) -> None:
    count = 5 if per_channel else 1
    shape = (count,) if per_channel else ()
    constants = {
        "w": weights(12, 5), "ws": np.linspace(0.005, 0.01, count, dtype="float32").reshape(shape),
        "wz": np.zeros(shape, "int8"),
    }  # fmt: skip
    x, zero = levels(2, 7, 12, kind=kind), np.asarray(4, kind)
    proved("QLinearMatMul", [x, 0.1, zero, "w", "ws", "wz", 0.3, zero], kind, constants)


@pytest.mark.parametrize("alpha", [1.0, 0.5])
@pytest.mark.parametrize("transposed", [0, 1])
def test_gemm(alpha: float, transposed: int) -> None:
    constants = {
        "w": levels(*((5, 12) if transposed else (12, 5)), kind="uint8"), "wz": np.asarray(100, "uint8"),
        "b": RANDOM.integers(-5000, 5000, 5).astype("int32"),
    }  # fmt: skip
    x, zero = levels(7, 12), np.asarray(90, "uint8")
    inputs = [x, 0.1, zero, "w", 0.005, "wz", "b", 0.3, zero]
    proved("QGemm", inputs, "uint8", constants, alpha=alpha, transB=transposed)


def test_gemm_with_a_float_result() -> None:
    constants = {
        "w": levels(12, 5), "z": np.asarray(100, "uint8"), "s": np.asarray(0.01, "float32"),
        "b": RANDOM.integers(-5000, 5000, 5).astype("int32"),
    }  # fmt: skip
    node = helper.make_node("QGemm", ["x", "s", "z", "w", "s", "z", "b"], ["y"], domain=MICROSOFT)
    x = levels(7, 12)
    prove(network([node], {"x": x}, {"y": FLOAT}, constants), {"x": x}, 1e-4)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
@pytest.mark.parametrize("operator", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_by_element(operator: str, kind: str) -> None:
    zero = np.asarray(10, kind)
    inputs = [levels(2, 6, 5, kind=kind), 0.02, zero, levels(6, 1, kind=kind), 0.031, zero, 0.0617, zero]
    proved(operator, inputs, kind, {})


@pytest.mark.parametrize(
    ("operator", "given", "step"),
    [
        ("QLinearSigmoid", {}, 1 / 256),
        ("QLinearLeakyRelu", {"alpha": 0.2}, 0.05),
        ("QLinearSoftmax", {"axis": -1, "opset": 13}, 1 / 256),
        ("QLinearSoftmax", {"axis": 1, "opset": 13}, 1 / 256),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, 0.05),
        ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2], "channels_last": 1}, 0.05),
        ("QLinearGlobalAveragePool", {}, 0.01),
        ("QLinearGlobalAveragePool", {"channels_last": 1}, 0.01),
    ],
)
def test_functions_of_one_tensor(operator: str, given: dict[str, Any], step: float) -> None:
    zero = np.asarray(0 if step < 0.004 else 99, "uint8")
    proved(operator, [levels(2, 4, 6, 6), 0.04, np.asarray(100, "uint8"), step, zero], "uint8", {}, **given)


def test_concatenation_of_different_scales() -> None:
    zero = np.asarray(100, "uint8")
    inputs = [0.05, zero, levels(1, 3, 4), 0.02, zero, levels(1, 5, 4), 0.06, np.asarray(80, "uint8")]
    proved("QLinearConcat", inputs, "uint8", {}, axis=1)


def test_product_of_integers_with_a_float_result() -> None:
    constants = {
        "w": weights(12, 5), "xs": np.asarray(0.02, "float32"),
        "ws": np.linspace(0.005, 0.01, 5, dtype="float32"), "xz": np.asarray(100, "uint8"), "wz": np.zeros(5, "int8"),
        "b": np.linspace(-1, 1, 5, dtype="float32"),
    }  # fmt: skip
    node = helper.make_node(
        "MatMulIntegerToFloat", ["x", "w", "xs", "ws", "xz", "wz", "b"], ["y"], domain=MICROSOFT
    )  # fmt: skip
    x = levels(7, 12)
    prove(network([node], {"x": x}, {"y": FLOAT}, constants), {"x": x}, 1e-4)


def test_product_that_quantises_its_operand() -> None:
    constants = {
        "w": weights(12, 5), "ws": np.linspace(0.005, 0.01, 5, dtype="float32"),
        "wz": np.zeros(5, "int8"), "b": np.linspace(-1, 1, 5, dtype="float32"),
    }  # fmt: skip
    node = helper.make_node("DynamicQuantizeMatMul", ["x", "w", "ws", "wz", "b"], ["y"], domain=MICROSOFT)
    x = RANDOM.standard_normal((7, 12)).astype("float32")
    step = 12 * 128 * 0.01 * float(np.ptp(x)) / 255 / 2
    net = network([node], {"x": x}, {"y": FLOAT}, constants)
    prove(net, {"x": x}, step)
    assert operators(rewritten(net)) == ["MatMul", "Add"]


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_lstm(direction: str, per_channel: bool) -> None:
    both, size, hidden = (2 if direction == "bidirectional" else 1), 6, 8
    shape = (both, 4 * hidden) if per_channel else (both,)
    constants = {
        "w": weights(both, size, 4 * hidden), "r": weights(both, hidden, 4 * hidden),
        "b": RANDOM.standard_normal((both, 8 * hidden)).astype("float32"),
        "ws": np.full(shape, 0.004, "float32"), "wz": np.zeros(shape, "int8"),
    }  # fmt: skip
    node = helper.make_node(
        "DynamicQuantizeLSTM", ["x", "w", "r", "b", "", "", "", "", "ws", "wz", "ws", "wz"], ["y", "h"],
        domain=MICROSOFT, hidden_size=hidden, direction=direction,
    )  # fmt: skip
    x = RANDOM.standard_normal((9, 1, size)).astype("float32")
    net = network([node], {"x": x}, {"y": FLOAT, "h": FLOAT}, constants)
    prove(net, {"x": x}, 0.05, ties=1.0)  # the operator rounds the hidden state in each step
    assert operators(rewritten(net)) == ["LSTM"]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("with_zeros", [False, True])
def test_weights_of_few_bits(bits: int, with_zeros: bool) -> None:
    size, outputs, block = 40, 6, 16
    blocks = 3
    constants = {
        "w": levels(outputs, blocks, block * bits // 8),
        "s": RANDOM.uniform(0.01, 0.02, outputs * blocks).astype("float32"),
    }
    if with_zeros:
        constants["z"] = levels(outputs * ((blocks * bits + 7) // 8))
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s", *(["z"] if with_zeros else [])], ["y"], domain=MICROSOFT,
        K=size, N=outputs, bits=bits, block_size=block,
    )  # fmt: skip
    x = RANDOM.standard_normal((3, size)).astype("float32")
    net = network([node], {"x": x}, {"y": FLOAT}, constants)
    prove(net, {"x": x}, 1e-3)
    assert operators(rewritten(net)) == ["MatMul"]


@pytest.mark.parametrize("mask", [False, True])
def test_attention(mask: bool) -> None:
    hidden = 16
    constants = {
        "w": weights(hidden, 3 * hidden), "b": RANDOM.standard_normal(3 * hidden).astype("float32"),
        "xs": np.asarray(0.02, "float32"), "ws": np.asarray(0.004, "float32"),
        "xz": np.asarray(120, "uint8"), "wz": np.asarray(0, "int8"),
    }  # fmt: skip
    examples: dict[str, Any] = {"x": levels(2, 7, hidden)}
    if mask:
        examples["m"] = np.asarray([[1] * 7, [1] * 4 + [0] * 3], "int32")
    node = helper.make_node(
        "QAttention", ["x", "w", "b", "xs", "ws", "m" if mask else "", "xz", "wz"], ["y"], domain=MICROSOFT, num_heads=4
    )
    net = network([node], examples, {"y": FLOAT}, constants)
    prove(net, examples, 1e-4)
    assert "MatMulInteger" in operators(rewritten(net, integers=True))
