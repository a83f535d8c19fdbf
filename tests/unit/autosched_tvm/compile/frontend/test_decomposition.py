"""Operators rewritten as others keep the network's outputs, by ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autosched_tvm.compile.frontend import decomposition, folding
from nets import model

onnxruntime = pytest.importorskip("onnxruntime")


def rewritten(before: Any, *without: str, x: Any) -> Any:
    """Returns the rewritten network, which has none of these operators, after a check of its outputs."""
    after, _ = folding.fold(before)
    decomposition.rewrite(after)
    onnx.checker.check_model(after)
    assert not set(without) & {node.op_type for node in after.graph.node}

    def outputs(net: Any) -> list[Any]:
        return list(onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x}))

    for made, expected in zip(outputs(after), outputs(before), strict=True):
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)
    return after


def normal(*shape: int) -> Any:
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize(("time", "batch"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("rest", [(), (3,)])
def test_reverse_sequence(time: int, batch: int, rest: tuple[int, ...], constant: bool) -> None:
    x = normal(4, 4, *rest)
    nodes = [helper.make_node("ReverseSequence", ["x", "lengths"], ["y"], time_axis=time, batch_axis=batch)]
    if not constant:
        nodes.insert(0, helper.make_node("Add", ["given", "zeros"], ["lengths"]))
        nodes.insert(0, helper.make_node("Cast", ["flat"], ["zeros"], to=7))
        nodes.insert(0, helper.make_node("Slice", ["zero", "from", "to"], ["flat"]))
        nodes.insert(0, helper.make_node("Reshape", ["nought", "minus"], ["zero"]))
        nodes.insert(0, helper.make_node("Sub", ["x", "x"], ["nought"]))
    weights = {
        "lengths" if constant else "given": np.array([1, 4, 2, 3]),
        "from": np.array([0]), "to": np.array([4]), "minus": np.array([-1]),
    }  # fmt: skip
    rewritten(model(nodes, {"x": list(x.shape)}, ["y"], weights, 17), "ReverseSequence", x=x)


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("opset", [13, 18])
def test_lp_normalization(p: int, axis: int, opset: int) -> None:
    x = normal(2, 3, 4)
    node = helper.make_node("LpNormalization", ["x"], ["y"], p=p, axis=axis)
    rewritten(model([node], {"x": [2, 3, 4]}, ["y"], {}, opset), "LpNormalization", x=x)


@pytest.mark.parametrize("window", [True, False])
@pytest.mark.parametrize("onesided", [0, 1])
def test_short_time_fourier_transform(onesided: int, window: bool) -> None:
    x = normal(2, 50, 1)
    node = helper.make_node("STFT", ["x", "step", "window" if window else "", "length"], ["y"], onesided=onesided)
    weights = {"step": np.array(7), "length": np.array(16), "window": np.hanning(16).astype("float32")}
    rewritten(model([node], {"x": [2, 50, 1]}, ["y"], weights, 17), "STFT", x=x)


def test_a_signal_without_the_last_dimension_and_the_default_of_one_side() -> None:
    """Preprocessors of speech recognition contain them: ONNX Runtime runs them, ONNX's own inference refuses them."""
    x = normal(2, 50)
    nodes = [
        helper.make_node("STFT", ["x", "step", "window"], ["s"]), helper.make_node("Shape", ["s"], ["shape"]),
        helper.make_node("Gather", ["shape", "axis"], ["bins"]), helper.make_node("Cast", ["bins"], ["b"], to=1),
        helper.make_node("Mul", ["s", "b"], ["y"]),
    ]  # fmt: skip
    weights = {"step": np.array(7), "window": np.hanning(16).astype("float32"), "axis": np.array(2)}
    folded, _ = folding.fold(model(nodes, {"x": [2, 50]}, ["y"], weights, 17))
    assert [node.op_type for node in folded.graph.node] == ["STFT", "Mul"]
    rewritten(folded, "STFT", x=x)


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize(("parts", "inverse", "onesided"), [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0)])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("length", [None, 6, 11])
def test_fourier_transform(axis: int, parts: int, inverse: int, onesided: int, length: int | None, opset: int) -> None:
    x = normal(8, 9, parts)
    names = ["x", "length" if length else ""]
    attributes: dict[str, Any] = {"inverse": inverse, "onesided": onesided}
    if opset < 20:
        attributes["axis"] = axis
    else:
        names.append("axis")
    weights = {"length": np.array(length or 0), "axis": np.array(axis)}
    node = helper.make_node("DFT", names, ["y"], **attributes)
    rewritten(model([node], {"x": [8, 9, parts]}, ["y"], weights, opset), "DFT", x=x)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize(
    ("by", "coordinates"),
    [("scales", "half_pixel"), ("scales", "asymmetric"), ("sizes", "half_pixel"), ("sizes", "align_corners")],
)
def test_resize_with_antialiasing(coordinates: str, by: str, mode: str) -> None:
    x = normal(1, 2, 12, 10)
    inputs = ["x", "", "scales"] if by == "scales" else ["x", "", "", "sizes"]
    node = helper.make_node("Resize", inputs, ["y"], antialias=1, mode=mode, coordinate_transformation_mode=coordinates)
    weights = {"scales": np.array([1, 1, 0.5, 0.75], "float32"), "sizes": np.array([1, 2, 5, 7])}
    rewritten(model([node], {"x": list(x.shape)}, ["y"], weights, 18), "Resize", x=x)


def test_an_operator_that_the_standard_defines_by_others_is_written_that_way() -> None:
    node = helper.make_node("Celu", ["x"], ["y"], alpha=2.0)
    before = model([node], {"x": [2, 3]}, ["y"], {}, 13)
    after, names = decomposition.expand_functions(before, lambda nodes: [n for n in nodes if n.op_type == "Celu"])
    assert names == ["Celu"]
    rewritten(after, "Celu", x=normal(2, 3))


def test_operators_that_no_rule_can_write_stay() -> None:
    node = helper.make_node("STFT", ["x", "step", "", "length"], ["y"])
    net = model([node], {"x": [2, 50, 2]}, ["y"], {"step": np.array(7), "length": np.array(16)}, 17)
    assert decomposition.rewrite(net) == {}
    assert [n.op_type for n in net.graph.node] == ["STFT"]


@pytest.mark.parametrize("masked", [True, False])
def test_attention_of_the_standard_is_expanded_with_omitted_inputs_and_default_attributes(masked: bool) -> None:
    q, kv = normal(1, 2, 3, 8), normal(1, 2, 5, 8)
    node = helper.make_node(
        "Attention", ["x", "k", "v", "mask" if masked else "", "", "past"][: 4 if masked else 3], ["y"]
    )
    weights = {"k": kv, "v": kv * 0.5} | ({"mask": np.tril(np.ones((3, 5), bool))} if masked else {})
    before = model([node], {"x": list(q.shape)}, ["y"], weights, 23)
    after, names = decomposition.expand_functions(before, lambda nodes: [n for n in nodes if n.op_type == "Attention"])
    assert names == ["Attention"]
    rewritten(after, "Attention", x=q)


def test_functions_in_functions_are_expanded() -> None:
    nodes = [helper.make_node("SwiGLU", ["x", "b"], ["y"])]
    before = model(nodes, {"x": [2, 4]}, ["y"], {"b": normal(2, 4)}, 28)
    lacking = ("SwiGLU", "Swish")
    after, names = decomposition.expand_functions(before, lambda nodes: [n for n in nodes if n.op_type in lacking])
    assert names == list(lacking)
    assert {node.op_type for node in after.graph.node} & set(lacking) == set()
