"""Layer normalisations that an export has written out become one operator; similar patterns stay."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

from autosched_tvm.compile.frontend import rewrites
from nets import model

onnxruntime = pytest.importorskip("onnxruntime")
SIZE = 6


def written_out(*, square: str = "Pow", axis: int = -1, twice: bool = False, exponent: float = 2.0) -> Any:
    """Returns mean, difference, square, mean, sum, root, quotient, product and sum."""
    numerator = "d2" if twice else "d"
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["m"], axes=[axis]),
        helper.make_node("Sub", ["x", "m"], ["d"]),
        *([helper.make_node("Sub", ["x", "m"], ["d2"])] if twice else []),
        helper.make_node("Pow", ["d", "p"], ["q"]) if square == "Pow" else helper.make_node("Mul", ["d", "d"], ["q"]),
        helper.make_node("ReduceMean", ["q"], ["v"], axes=[axis]),
        helper.make_node("Add", ["v", "e"], ["t"]),
        helper.make_node("Sqrt", ["t"], ["r"]),
        helper.make_node("Div", [numerator, "r"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["s"]),
        helper.make_node("Add", ["bias", "s"], ["y"]),
    ]
    numbers = np.random.default_rng(0).standard_normal((2, SIZE)).astype("float32")
    constants = {
        "p": np.array(exponent, "float32"), "e": np.array(1e-3, "float32"), "scale": numbers[0], "bias": numbers[1],
    }  # fmt: skip
    return model(nodes, {"x": [2, SIZE, SIZE]}, ["y"], constants)


def outputs(net: Any, x: Any) -> Any:
    return onnxruntime.InferenceSession(net.SerializeToString()).run(None, {"x": x})[0]


def operators(net: Any) -> list[str]:
    return [node.op_type for node in net.graph.node]


@pytest.mark.parametrize("given", [{}, {"square": "Mul"}, {"axis": 2}, {"twice": True}], ids=str)
def test_each_way_to_write_it_out_becomes_one_operator(given: dict[str, Any]) -> None:
    net = written_out(**given)
    x = np.random.default_rng(1).standard_normal((2, SIZE, SIZE)).astype("float32")
    before = outputs(net, x)
    assert rewrites.apply(net)["normalisation recognised"] == 1
    assert operators(net) == ["LayerNormalization"]
    np.testing.assert_allclose(outputs(net, x), before, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", [{"axis": 1}, {"exponent": 3.0}], ids=str)
def test_another_computation_stays(given: dict[str, Any]) -> None:
    net = written_out(**given)
    assert rewrites.apply(net)["normalisation recognised"] == 0
    assert "LayerNormalization" not in operators(net)


def test_a_chain_with_an_intermediate_result_that_is_an_output_stays_whole() -> None:
    net = written_out()
    net.graph.output.append(helper.make_tensor_value_info("v", 1, [2, SIZE, 1]))
    assert rewrites.apply(net)["normalisation recognised"] == 0


@pytest.mark.parametrize("inverse", [None, "Reciprocal", "Div"])
def test_normalisations_by_the_root_of_the_mean_square_become_one_operator(inverse: str | None) -> None:
    scale = np.random.default_rng(0).standard_normal(SIZE).astype("float32")
    ends = [helper.make_node("Div", ["x", "r"], ["n"])]
    if inverse:
        ends = [
            helper.make_node(inverse, ["r"] if inverse == "Reciprocal" else ["one", "r"], ["i"]),
            helper.make_node("Mul", ["x", "i"], ["n"]),
        ]
    nodes = [
        helper.make_node("Mul", ["x", "x"], ["q"]),
        helper.make_node("ReduceMean", ["q"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["t"]),
        helper.make_node("Sqrt", ["t"], ["r"]),
        *ends,
        helper.make_node("Mul", ["scale", "n"], ["y"]),
    ]
    constants = {"e": np.array(1e-3, "float32"), "scale": scale, "one": np.array(1, "float32")}
    net = model(nodes, {"x": [2, SIZE, SIZE]}, ["y"], constants)
    assert rewrites.apply(net)["normalisation recognised"] == 1
    assert operators(net) == ["RMSNormalization"]
    assert [a.f for a in net.graph.node[0].attribute if a.name == "epsilon"] == [pytest.approx(1e-3)]


def test_a_root_of_another_value_stays() -> None:
    nodes = [
        helper.make_node("Mul", ["z", "z"], ["q"]),
        helper.make_node("ReduceMean", ["q"], ["v"], axes=[-1]),
        helper.make_node("Add", ["v", "e"], ["t"]),
        helper.make_node("Sqrt", ["t"], ["r"]),
        helper.make_node("Div", ["x", "r"], ["n"]),
        helper.make_node("Mul", ["n", "scale"], ["y"]),
    ]
    constants = {"e": np.array(1e-3, "float32"), "scale": np.ones(SIZE, "float32")}
    net = model(nodes, {"x": [2, SIZE], "z": [2, SIZE]}, ["y"], constants)
    assert rewrites.apply(net)["normalisation recognised"] == 0
