"""Correct outputs by ONNX Runtime, and their spread."""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from autosched_tvm.evaluation.onnx_reference import Reference, perturbed_inputs, perturbed_model, scored_outputs
from autosched_tvm.evaluation.output_comparison import Tolerances
from nets import conv_net, model

onnxruntime = pytest.importorskip("onnxruntime")

IMAGE = np.random.default_rng(1).standard_normal((1, 16, 16, 16)).astype("float32")


def saved(net: Any, folder: Path) -> Path:
    onnx.save(net, folder / "net.onnx")
    return folder / "net.onnx"


def test_correct_results_differ_by_rounding_only(tmp_path: Path) -> None:
    found = Reference(saved(conv_net(), tmp_path), 1).expected({"x": IMAGE})
    scale = np.abs(found.outputs[0]).max()
    apart = [np.abs(other[0] - found.outputs[0]).max() / scale for other in found.others]
    assert len(apart) == 3
    assert 1e-8 < max(apart) < 1e-5


def test_a_quantised_value_between_two_steps_is_unstable(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Mul", ["c", "many"], ["m"]),
        helper.make_node("Round", ["m"], ["y"]),
    ]
    weights = {
        "w": np.random.default_rng(3).standard_normal((16, 16, 3, 3)).astype("float32"),
        "many": np.full((1,), 1e3, "float32"),
    }
    net = model(nodes, {"x": [1, 16, 16, 16]}, ["y"], weights)
    found = Reference(saved(net, tmp_path), 1).expected({"x": IMAGE})
    judge = Tolerances([found])
    assert all(judge.check([list(other)]).equal for other in found.others)
    wrong = found.outputs[0].copy()
    wrong[wrong == wrong.max()] = 0
    assert not judge.check([[wrong]]).equal


def test_a_changed_model_that_onnx_runtime_cannot_optimise_runs_unoptimised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, none = onnxruntime.InferenceSession, onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL

    def failing(given: Any, options: Any, **rest: Any) -> Any:
        if isinstance(given, bytes) and options.graph_optimization_level != none:
            raise RuntimeError("Attempt to replace the existing tensor")
        return session(given, options, **rest)

    monkeypatch.setattr(onnxruntime, "InferenceSession", failing)
    found = Reference(saved(conv_net(), tmp_path), 1).expected({"x": IMAGE})
    assert len(found.others) == 3


def test_sizes_and_exponents_are_not_perturbed() -> None:
    nodes = [
        helper.make_node("Pow", ["x", "p"], ["a"]),
        helper.make_node("Mul", ["a", "w"], ["b"]),
        helper.make_node("Add", ["b", "few"], ["y"]),
    ]
    weights = {
        "p": np.full(16, 2, "float32"),
        "w": np.linspace(1, 2, 16, dtype="float32"),
        "few": np.ones(1, "float32"),
    }
    net = model(nodes, {"x": [1, 16]}, ["y"], weights)
    changed = perturbed_model(net, np.random.default_rng(0))
    before, after = ({t.name: numpy_helper.to_array(t) for t in one.graph.initializer} for one in (net, changed))
    assert {name for name in before if not np.array_equal(before[name], after[name])} == {"w"}
    assert np.abs(after["w"] / before["w"] - 1).max() < 1e-6


def test_whole_numbers_are_not_perturbed() -> None:
    given = {"ids": np.arange(9), "x": np.ones(9, "float32")}
    moved = perturbed_inputs(given, np.random.default_rng(0))
    assert np.array_equal(moved["ids"], given["ids"])
    assert not np.array_equal(moved["x"], given["x"])


@pytest.mark.parametrize("after", [[], ["Cast"], ["Squeeze", "Identity"]])
def test_the_values_that_an_index_chooses_from_are_found(after: list[str], tmp_path: Path) -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("ArgMax", ["r"], ["i0"], axis=1, keepdims=1)]
    for number, kind in enumerate(after):
        words = {"to": onnx.TensorProto.INT64} if kind == "Cast" else {}
        nodes.append(helper.make_node(kind, [f"i{number}"], [f"i{number + 1}"], **words))
    net = model(nodes, {"x": [1, 16, 16, 16]}, [f"i{len(after)}"], {})
    net.graph.output[0].type.tensor_type.elem_type = onnx.TensorProto.INT64
    assert scored_outputs(net) == {0: ("r", 1)}
    found = Reference(saved(net, tmp_path), 1).expected({"x": IMAGE})
    assert np.array_equal(found.scores[0].values, np.maximum(IMAGE, 0))
    assert len(found.outputs) == 1


def test_an_index_changed_by_arithmetic_has_no_values() -> None:
    nodes = [helper.make_node("ArgMax", ["x"], ["i"], axis=1), helper.make_node("Add", ["i", "i"], ["y"])]
    assert scored_outputs(model(nodes, {"x": [1, 16]}, ["y"], {})) == {}
