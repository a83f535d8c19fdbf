"""Reductions by maximum and minimum are those of NumPy, also for infinities, without and with schedules by rule."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import helper

from nets import model

tvm = pytest.importorskip("tvm")

from autosched_tvm.compile import onnx_import, targets  # noqa: E402
from compiled_networks import outputs  # noqa: E402


@pytest.fixture(scope="module")
def target() -> Any:
    return tvm.target.Target(json.loads(targets.resolve("auto", 2)))


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize(("operator", "function"), [("ReduceMax", np.max), ("ReduceMin", np.min)])
@pytest.mark.parametrize("axes", [(0,), (2,), (0, 1), (1, 2), None])
@pytest.mark.parametrize("kept", [0, 1])
def test_infinities(
    operator: str, function: Callable[..., Any], axes: tuple[int, ...] | None, kept: int, by_rule: bool, target: Any
) -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 40)).astype("float32")
    x[0], x[1, 1], x[:, :, 3] = -np.inf, np.inf, -np.inf
    given = {} if axes is None else {"axes": list(axes)}
    net = model([helper.make_node(operator, ["x"], ["y"], keepdims=kept, **given)], {"x": [2, 3, 40]}, ["y"], {}, 13)
    (made,) = outputs(onnx_import.network(net, target), target, [x], by_rule=by_rule)
    np.testing.assert_array_equal(made, function(x, axis=axes, keepdims=bool(kept)))


def test_whole_numbers_are_reduced_as_before(target: Any) -> None:
    net = model([helper.make_node("ReduceMax", ["x"], ["y"], axes=[1], keepdims=0)], {"x": [2, 3]}, ["y"], {}, 13)
    for value in (*net.graph.input, *net.graph.output):
        value.type.tensor_type.elem_type = 7
    (made,) = outputs(onnx_import.network(net, target), target, [np.array([[1, 5, 2], [-7, -9, -8]])])
    assert made.tolist() == [5, -7]
