from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from autosched_tvm.compile.frontend import rewrites
from nets import model, small_net

onnxruntime = pytest.importorskip("onnxruntime")


def outputs(net: Any, **inputs: Any) -> list[Any]:
    return list(onnxruntime.InferenceSession(net.SerializeToString()).run(None, inputs))


def operators(net: Any) -> list[str]:
    return [node.op_type for node in net.graph.node]


def test_outputs_stay_the_same() -> None:
    net = small_net()
    x = np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype("float32")
    before = outputs(net, x=x)
    used = rewrites.apply(net)
    onnx.checker.check_model(net, full_check=True)
    np.testing.assert_allclose(outputs(net, x=x)[0], before[0], rtol=1e-5, atol=1e-6)
    for other in ("normalisation recognised", "one-dimensional convolutions made two-dimensional"):
        assert used.pop(other) == 0
    assert all(count == 1 for count in used.values()), used
    assert not {"Sum", "Dropout", "Gemm", "BatchNormalization"} & set(operators(net))


def test_unused_constants_are_removed() -> None:
    net = small_net()
    rewrites.apply(net)
    used = {name for node in net.graph.node for name in node.input}
    assert {tensor.name for tensor in net.graph.initializer} <= used


def test_a_dropout_whose_mask_is_used_stays() -> None:
    nodes = [helper.make_node("Dropout", ["x"], ["d", "mask"]), helper.make_node("Where", ["mask", "d", "x"], ["y"])]
    net = model(nodes, {"x": [2, 3]}, ["y"], {})
    rewrites.apply(net)
    assert operators(net) == ["Dropout", "Where"]


def test_a_dropout_that_is_an_output_stays() -> None:
    net = model([helper.make_node("Dropout", ["x"], ["y"])], {"x": [2, 3]}, ["y"], {})
    rewrites.apply(net)
    assert operators(net) == ["Dropout"]


def test_a_sum_of_one_stays() -> None:
    net = model([helper.make_node("Sum", ["x"], ["y"])], {"x": [2, 3]}, ["y"], {})
    rewrites.apply(net)
    assert operators(net) == ["Sum"]


@pytest.mark.parametrize("given", [{}, {"transB": 1}, {"alpha": 0.25}, {"beta": 3.0}])
def test_gemm_in_all_its_forms(given: dict[str, Any]) -> None:
    random = np.random.default_rng(1)
    weights = {"w": random.standard_normal((4, 4)).astype("float32"), "b": random.standard_normal(4).astype("float32")}
    net = model([helper.make_node("Gemm", ["x", "w", "b"], ["y"], **given)], {"x": [2, 4]}, ["y"], weights)
    x = random.standard_normal((2, 4)).astype("float32")
    before = outputs(net, x=x)
    rewrites.apply(net)
    assert operators(net) == ["MatMul", "Add"]
    np.testing.assert_allclose(outputs(net, x=x)[0], before[0], rtol=1e-5)


def test_layers_that_share_weights_share_the_transposed_ones() -> None:
    weights = {"w": np.random.default_rng(0).standard_normal((4, 4)).astype("float32"), "b": np.ones(4, "float32")}
    nodes = [
        helper.make_node("Gemm", ["x", "w", "b"], ["h"], transB=1),
        helper.make_node("Gemm", ["h", "w", "b"], ["y"], transB=1),
    ]
    net = model(nodes, {"x": [2, 4]}, ["y"], weights)
    rewrites.apply(net)
    assert operators(net) == ["MatMul", "Add", "MatMul", "Add"]
    assert len(net.graph.initializer) == 2


def test_equal_bytes_of_different_types_are_different_constants() -> None:
    state = rewrites.Graph(model([helper.make_node("Relu", ["x"], ["y"])], {"x": [2]}, ["y"], {}))
    values = [np.zeros(4, "float32"), np.zeros(4, "int32"), np.zeros((2, 2), "float32"), np.zeros(4, "float32")]
    names = [state.constant("c", value) for value in values]
    assert len(set(names)) == 3 and names[0] == names[3]


def test_gemm_of_two_inputs_stays() -> None:
    net = model([helper.make_node("Gemm", ["x", "w"], ["y"])], {"x": [2, 4], "w": [4, 4]}, ["y"], {})
    rewrites.apply(net)
    assert operators(net) == ["Gemm"]
