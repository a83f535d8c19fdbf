"""The float form of a quantised model as the reference for builds."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("onnxruntime")

from autosched_tvm.compile.frontend import dequantisation
from autosched_tvm.evaluation.onnx_reference import Reference
from autosched_tvm.evaluation.output_comparison import Expected, Tolerances
from autosched_tvm.evaluation.quantised_reference import fidelity, float_form, make_weights_unsigned
from quantising import FLOAT, network, rewritten, run

RANDOM = np.random.default_rng(2)


def layered(kind: int = FLOAT) -> Any:
    """Three products with 7-bit weights, each followed by a quantisation; the last quantised one is an output."""
    constants: dict[str, Any] = {"z": np.asarray(0, "int8")}
    nodes = []
    name = "x"
    for layer in range(3):
        constants |= {
            f"w{layer}": RANDOM.integers(-64, 64, (16, 16)).astype("int8"),
            f"s{layer}": np.asarray(0.02, "float32"), f"ws{layer}": np.asarray(0.006, "float32"),
        }  # fmt: skip
        nodes += [
            helper.make_node("QuantizeLinear", [name, f"s{layer}", "z"], [f"q{layer}"]),
            helper.make_node("DequantizeLinear", [f"q{layer}", f"s{layer}", "z"], [f"d{layer}"]),
            helper.make_node("DequantizeLinear", [f"w{layer}", f"ws{layer}", "z"], [f"v{layer}"]),
            helper.make_node("MatMul", [f"d{layer}", f"v{layer}"], [f"p{layer}"]),
        ]
        name = f"p{layer}"
    if kind != FLOAT:
        nodes.append(helper.make_node("QuantizeLinear", [name, "s0", "z"], ["y"]))
    else:
        nodes.append(helper.make_node("Identity", [name], ["y"]))
    return network(nodes, sample(), {"y": kind}, constants)


def sample() -> dict[str, Any]:
    return {"x": np.random.default_rng(9).standard_normal((4, 16)).astype("float32")}


@pytest.mark.parametrize("zero", [None, -3], ids=["without", "with"])
def test_sums_of_the_reference_do_not_saturate_on_any_cpu(zero: int | None) -> None:
    """Run without optimisations, in which ONNX Runtime would do the same."""
    data = RANDOM.integers(0, 256, (20, 64)).astype("uint8")
    weights = RANDOM.integers(-128, 128, (64, 24)).astype("int8")
    constants: dict[str, Any] = {"w": weights} | ({} if zero is None else {"z": np.asarray(zero, "int8")})
    inputs = ["x", "w"] if zero is None else ["x", "w", "", "z"]
    net = network(
        [helper.make_node("MatMulInteger", inputs, ["y"])], {"x": data}, {"y": TensorProto.INT32}, constants
    )  # fmt: skip
    make_weights_unsigned(net)
    (found,) = run(net, {"x": data})
    np.testing.assert_array_equal(found, data.astype("int32") @ (weights.astype("int32") - (zero or 0)))


def test_products_may_share_their_weights() -> None:
    data = RANDOM.integers(0, 256, (20, 64)).astype("uint8")
    weights = RANDOM.integers(-128, 128, (64, 24)).astype("int8")
    starts = [["x", "w"], ["x", "w", "", "a"], ["x", "w", "", "b"]]
    nodes = [helper.make_node("MatMulInteger", inputs, [f"y{number}"]) for number, inputs in enumerate(starts)]
    constants = {"w": weights, "a": np.asarray(5, "int8"), "b": np.asarray(-9, "int8")}
    net = network(nodes, {"x": data}, {f"y{number}": TensorProto.INT32 for number in range(3)}, constants)
    make_weights_unsigned(net)
    for zero, found in zip((0, 5, -9), run(net, {"x": data}), strict=True):
        np.testing.assert_array_equal(found, data.astype("int32") @ (weights.astype("int32") - zero))


def test_signed_weights_that_the_network_computes_are_left_alone() -> None:
    data, weights = np.zeros((2, 4), "uint8"), np.zeros((4, 3), "int8")
    nodes = [helper.make_node("MatMulInteger", ["x", "w"], ["y"])]
    net = network(nodes, {"x": data, "w": weights}, {"y": TensorProto.INT32}, {})
    make_weights_unsigned(net)
    assert list(net.graph.node[0].input) == ["x", "w"]
    assert not net.graph.initializer


def test_the_float_form_is_the_reference_of_a_quantised_model(tmp_path: Any) -> None:
    net = layered()
    onnx.save(net, tmp_path / "net.onnx")
    reference = Reference(tmp_path / "net.onnx", 1)
    expected = reference.expected(sample())
    np.testing.assert_allclose(expected.outputs[0], run(rewritten(net), sample())[0], rtol=1e-5, atol=1e-6)
    assert np.abs(expected.outputs[0] - run(net, sample())[0]).max() > 1e-3
    assert len(reference.notes) == 1
    assert "do not round activations" in reference.notes[0]
    limits = Tolerances([expected]).common[0]
    assert limits.absolute < 1e-4 * np.abs(expected.outputs[0]).max(), "as of a float network"


def test_the_reference_of_builds_with_integers_rounds_what_they_round(tmp_path: Any) -> None:
    net = layered()
    onnx.save(net, tmp_path / "net.onnx")
    reference = Reference(tmp_path / "net.onnx", 1, integers=True)
    expected = reference.expected(sample())
    step = 0.02 * 64 * 0.006  # one level of the last product's data, times the largest weight; ties may differ
    np.testing.assert_allclose(expected.outputs[0], run(net, sample())[0], atol=step)
    assert "multiply 8-bit numbers" in reference.notes[0]
    tolerances = Tolerances([expected])
    assert tolerances.check([run(rewritten(net, integers=True), sample())]).equal
    assert not tolerances.check([run(rewritten(net), sample())]).equal, "the float form is another network"


def test_a_wrong_rewrite_is_found_and_not_the_reference(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(array: Any, scale: Any, zero: Any, axis: int, block: int = 0) -> Any:
        return np.roll(right(array, scale, zero, axis, block), 1)

    right = dequantisation.dequantised
    monkeypatch.setattr(dequantisation, "dequantised", wrong)
    net = layered()
    onnx.save(net, tmp_path / "net.onnx")
    reference = Reference(tmp_path / "net.onnx", 1)
    expected = reference.expected(sample())
    assert "more than rounding explains" in reference.notes[0]
    step = 0.02  # ties may round differently
    np.testing.assert_allclose(expected.outputs[0], run(net, sample())[0], atol=step)


def test_float_models_have_no_float_form() -> None:
    net = network([helper.make_node("Relu", ["x"], ["y"])], sample(), {"y": FLOAT}, {})
    assert float_form(net) is None


def test_the_distance_of_a_correct_form_is_explained() -> None:
    net = layered()
    form = float_form(net)
    found = fidelity(net, form, lambda model: run(model, sample()))
    assert found.explained
    assert "%" in found.note


def test_levels_may_be_one_off(tmp_path: Any) -> None:
    net = layered(TensorProto.INT8)
    onnx.save(net, tmp_path / "net.onnx")
    expected = Reference(tmp_path / "net.onnx", 1).expected(sample())
    assert expected.levels == {0}
    moved = expected.outputs[0].copy()
    moved[0, 0] += 1
    assert Tolerances([expected]).check([[moved]]).equal
    moved[0, 0] += 1
    assert not Tolerances([expected]).check([[moved]]).equal
    plain = Expected(expected.outputs)
    assert not Tolerances([plain]).check([[expected.outputs[0] + 1]]).equal
