"""ONNX Runtime's fused float operators, in their standard forms, against ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

from quantising import FLOAT, network, operators, rewritten, run

RANDOM = np.random.default_rng(8)
MICROSOFT = "com.microsoft"


def normal(*shape: int) -> Any:
    return RANDOM.standard_normal(shape).astype("float32")


def equal(
    operator: str, inputs: dict[str, Any], constants: dict[str, Any], order: list[str], outputs: int = 1,
    opset: int = 13, domain: str = MICROSOFT, **given: Any,
) -> Any:  # fmt: skip
    """Returns the operator's outputs after a comparison of both forms."""
    names = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, order, names, domain=domain, **given)
    net = network([node], inputs, dict.fromkeys(names, FLOAT), constants, opset)
    changed = rewritten(net)
    for want, found in zip(run(net, inputs), run(changed, inputs), strict=True):
        assert want.shape == found.shape
        np.testing.assert_allclose(found, want, rtol=2e-5, atol=2e-5)
    return changed


@pytest.mark.parametrize("operator", ["Gelu", "FastGelu", "QuickGelu"])
def test_activations(operator: str) -> None:
    equal(operator, {"x": normal(4, 9) * 3}, {}, ["x"])


@pytest.mark.parametrize("operator", ["BiasGelu", "FastGelu"])
def test_activations_with_a_bias(operator: str) -> None:
    equal(operator, {"x": normal(4, 9) * 3}, {"b": normal(9)}, ["x", "b"])


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [("Relu", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.5]), ("HardSigmoid", [0.3, 0.4]), ("Tanh", [])],
)
@pytest.mark.parametrize("added", [False, True])
def test_convolution_with_an_activation(activation: str, parameters: list[float], added: bool) -> None:
    given: dict[str, Any] = {"activation": activation, "pads": [1, 1, 1, 1]}
    if parameters:
        given["activation_params"] = parameters
    inputs = {"x": normal(1, 3, 8, 8)} | ({"z": normal(1, 4, 8, 8)} if added else {})
    order = ["x", "w", "b", *(["z"] if added else [])]
    equal("FusedConv", inputs, {"w": normal(4, 3, 3, 3), "b": normal(4)}, order, **given)


def test_gemm_with_an_activation() -> None:
    given = {"activation": "LeakyRelu", "activation_alpha": 0.3, "transB": 1, "alpha": 0.5}
    equal("FusedGemm", {"x": normal(4, 6)}, {"w": normal(5, 6), "b": normal(5)}, ["x", "w", "b"], **given)


@pytest.mark.parametrize(
    ("given", "a", "b"),
    [
        ({"alpha": 0.25}, (2, 3, 4), (2, 4, 5)),
        ({"transA": 1}, (2, 4, 3), (2, 4, 5)),
        ({"transB": 1, "alpha": 2.0}, (2, 3, 4), (2, 5, 4)),
        ({"transBatchA": 1}, (3, 2, 4), (2, 4, 5)),
    ],
)
def test_product_of_transposed_operands(given: dict[str, Any], a: Any, b: Any) -> None:
    equal("FusedMatMul", {"a": normal(*a), "b": normal(*b)}, {}, ["a", "b"], **given)


@pytest.mark.parametrize("opset", [13, 17])
@pytest.mark.parametrize("bias", [False, True])
def test_skip_layer_normalization(opset: int, bias: bool) -> None:
    inputs = {"x": normal(2, 5, 8), "s": normal(2, 5, 8)}
    constants = {"g": normal(8), "h": normal(8)} | ({"b": normal(8)} if bias else {})
    order = ["x", "s", "g", "h", *(["b"] if bias else [])]
    equal("SkipLayerNormalization", inputs, constants, order, opset=opset, epsilon=1e-5)


def test_sum_of_a_skip_layer_normalization_is_an_output() -> None:
    inputs = {"x": normal(2, 5, 8), "s": normal(2, 5, 8)}
    node = helper.make_node(
        "SkipLayerNormalization", ["x", "s", "g", "h"], ["y", "", "", "total"], domain=MICROSOFT, epsilon=1e-5
    )
    net = network([node], inputs, {"y": FLOAT, "total": FLOAT}, {"g": normal(8), "h": normal(8)})
    for want, found in zip(run(net, inputs), run(rewritten(net), inputs), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


def test_simplified_layer_normalizations() -> None:
    inputs = {"x": normal(2, 5, 8), "s": normal(2, 5, 8)}
    equal("SkipSimplifiedLayerNormalization", inputs, {"g": normal(8)}, ["x", "s", "g"], epsilon=1e-5)
    equal("SimplifiedLayerNormalization", {"x": normal(2, 8)}, {"g": normal(8)}, ["x", "g"], domain="", epsilon=1e-5)


def test_layer_normalization_before_onnx_had_it() -> None:
    changed = equal(
        "LayerNormalization", {"x": normal(2, 5, 8)}, {"g": normal(8), "h": normal(8)}, ["x", "g", "h"], domain="",
        opset=13, axis=-1,
    )  # fmt: skip
    assert "LayerNormalization" not in operators(changed)


@pytest.mark.parametrize("segments", [False, True])
def test_embedding(segments: bool) -> None:
    inputs: dict[str, Any] = {"words": RANDOM.integers(0, 20, (2, 6)).astype("int32")}
    constants: dict[str, Any] = {"table": normal(20, 8), "places": normal(10, 8), "g": normal(8), "h": normal(8)}
    if segments:
        inputs["segments"] = RANDOM.integers(0, 2, (2, 6)).astype("int32")
        constants["kinds"] = normal(2, 8)
    inputs["mask"] = np.asarray([[1] * 6, [1] * 4 + [0] * 2], "int32")
    order = [
        "words", "segments" if segments else "", "table", "places", "kinds" if segments else "", "g", "h", "mask",
    ]  # fmt: skip
    node = helper.make_node("EmbedLayerNormalization", order, ["y", "index"], domain=MICROSOFT, epsilon=1e-5)
    net = network([node], inputs, {"y": FLOAT, "index": TensorProto.INT32}, constants)
    for want, found in zip(run(net, inputs), run(rewritten(net), inputs), strict=True):
        np.testing.assert_allclose(found, want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("mask", ["", "lengths", "keys", "pairs"])
@pytest.mark.parametrize("causal", [0, 1])
def test_attention(mask: str, causal: int) -> None:
    inputs: dict[str, Any] = {"x": normal(2, 6, 16)}
    if mask == "lengths":
        inputs["m"] = np.asarray([6, 4], "int32")
    elif mask:
        keys = np.asarray([[1] * 6, [1] * 4 + [0] * 2], "int32")
        inputs["m"] = keys if mask == "keys" else np.repeat(keys[:, None], 6, 1)
    constants = {"w": normal(16, 48), "b": normal(48)}
    order = ["x", "w", "b", *(["m"] if mask else [])]
    equal("Attention", inputs, constants, order, num_heads=4, unidirectional=causal)


def test_attention_with_a_past() -> None:
    inputs = {"x": normal(2, 3, 16), "past": normal(2, 2, 4, 5, 4)}
    constants = {"w": normal(16, 48), "b": normal(48)}
    equal("Attention", inputs, constants, ["x", "w", "b", "", "past"], outputs=2, num_heads=4, unidirectional=1)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("added", [False, True])
def test_multi_head_attention(bias: bool, added: bool) -> None:
    inputs = {"q": normal(2, 3, 16), "k": normal(2, 6, 16), "v": normal(2, 6, 16)}
    constants = {"b": normal(48)} if bias else {}
    order = ["q", "k", "v", "b" if bias else ""]
    if added:
        inputs["a"] = normal(2, 4, 3, 6)
        order += ["", "a"]
    equal("MultiHeadAttention", inputs, constants, order, num_heads=4)


def test_multi_head_attention_with_a_mask_of_keys() -> None:
    inputs = {"q": normal(2, 3, 16), "k": normal(2, 6, 16), "v": normal(2, 6, 16)}
    inputs["m"] = np.asarray([[1] * 6, [1] * 4 + [0] * 2], "int32")
    equal("MultiHeadAttention", inputs, {}, ["q", "k", "v", "", "m"], num_heads=4)


def test_half_precision_stays() -> None:
    x = normal(4, 9).astype("float16")
    node = helper.make_node("FastGelu", ["x"], ["y"], domain=MICROSOFT)
    net = network([node], {"x": x}, {"y": TensorProto.FLOAT16}, {})
    (want,), (found,) = run(net, {"x": x}), run(rewritten(net), {"x": x})
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, want, rtol=1e-2, atol=1e-2)


def test_shapes_are_known_behind_a_rewritten_operator() -> None:
    """The second product's rank is known only once the first one is a standard operator."""
    nodes = [
        helper.make_node("FusedMatMul", ["x", "x"], ["a"], domain=MICROSOFT, transB=1),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("FusedMatMul", ["b", "b"], ["y"], domain=MICROSOFT, transA=1),
    ]
    x = normal(2, 3, 4)
    net = network(nodes, {"x": x}, {"y": FLOAT}, {})
    np.testing.assert_allclose(run(rewritten(net), {"x": x})[0], run(net, {"x": x})[0], rtol=1e-5)
