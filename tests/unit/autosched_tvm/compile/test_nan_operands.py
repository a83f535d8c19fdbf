"""NaN and infinities go through relu, clip and the operators that choose a value, as in ONNX Runtime."""

import json
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from nets import model

tvm = pytest.importorskip("tvm")

from tvm import te, topi  # noqa: E402

from autosched_tvm.compile import lowering, nan_operands, onnx_import, targets  # noqa: E402
from compiled_networks import outputs  # noqa: E402

pytestmark = pytest.mark.tvm
TARGET = tvm.target.Target(json.loads(targets.resolve("auto", 2)))
X = np.array([[np.nan, -np.inf, np.inf, -1.5, 0.0, 2.5, 7.0, np.nan, 0.25, -3.0, 1.0, 2.0]], "float32")
ROW = np.array([[0.5, 0.5, 0.5, 0.5, 0.5, np.nan, 0.5, 0.5, 0.5, 0.5, np.inf, -np.inf]], "float32")
NUMBERS = {"low": np.float32(-2), "high": np.float32(6), "row": np.linspace(-1, 1, 12, dtype="float32")[None]}


def run(operator: str, *names: str, by_rule: bool = False, **attributes: Any) -> Any:
    """The output of one operator for X, of constants, and of ROW as a second input."""
    shapes = {name: list(X.shape) for name in names if name not in NUMBERS}
    constants = {name: NUMBERS[name] for name in names if name in NUMBERS}
    net = model([helper.make_node(operator, list(names), ["y"], **attributes)], shapes, ["y"], constants)
    return outputs(onnx_import.network(net, TARGET), TARGET, [X, ROW][: len(shapes)], by_rule=by_rule)[0]


@pytest.mark.parametrize("by_rule", [False, True])
@pytest.mark.parametrize(
    ("operator", "names", "expected"),
    [
        ("Relu", ["x"], np.maximum(X, 0)),
        ("Clip", ["x", "low", "high"], np.clip(X, -2, 6)),
        ("Clip", ["x", "", "high"], np.minimum(X, 6)),
        ("Max", ["x", "low"], np.maximum(X, -2)),
        ("Max", ["low", "x"], np.maximum(X, -2)),
        ("Min", ["x", "row"], np.minimum(X, NUMBERS["row"])),
        ("Min", ["row", "x", "high"], np.minimum(np.minimum(X, NUMBERS["row"]), 6)),
        ("Max", ["x", "other"], np.maximum(X, ROW)),
        ("Min", ["x", "other", "low"], np.minimum(np.minimum(X, ROW), -2)),
        ("Sign", ["x"], np.sign(X)),
    ],
)
def test_nan_stays(operator: str, names: list[str], expected: Any, by_rule: bool) -> None:
    np.testing.assert_array_equal(run(operator, *names, by_rule=by_rule), expected)


def test_a_threshold_makes_numbers_of_infinities() -> None:
    assert run("ThresholdedRelu", "x", alpha=1.0).tolist() == [[0, 0, np.inf, 0, 0, 2.5, 7, 0, 0, 0, 0, 2]]


def test_an_index_made_of_nan_stays_in_its_table() -> None:
    nodes = [
        helper.make_node("Clip", ["x", "zero", "last"], ["bounded"]),
        helper.make_node("Cast", ["bounded"], ["index"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "index"], ["y"]),
    ]
    table = np.arange(10, 15, dtype="float32")
    constants = {"zero": np.float32(0), "last": np.float32(4), "table": table}
    net = model(nodes, {"x": list(X.shape)}, ["y"], constants)
    (made,) = outputs(onnx_import.network(net, TARGET), TARGET, [X])
    assert set(made.reshape(-1)) <= set(table)


def assembly(target: dict[str, Any], dtype: str = "float32") -> str:
    x = te.placeholder((64,), dtype, "x")
    clipped = topi.clip(x, 0.0, 6.0) if dtype == "float32" else topi.clip(x, 0, 6)
    function = te.create_prim_func([x, clipped])
    built = tvm.tirx.build(function, target=tvm.target.Target(target), pipeline=lowering.install())
    return str(built.inspect_source("asm"))


def test_aarch64_has_one_instruction_for_it() -> None:
    made = assembly({"kind": "llvm", "mtriple": "aarch64-linux-gnu", "mattr": ["+neon"]})
    assert "fmax\t" in made and "fmin\t" in made
    assert "fmaxnm" not in made and "fcm" not in made


def test_x86_compares_the_constant_with_the_value() -> None:
    x = te.placeholder((64,), "float32", "x")
    function = te.create_prim_func([x, topi.nn.relu(x)]).with_attr("target", tvm.target.Target({"kind": "llvm"}))
    assert nan_operands.are_lost(function)
    assert not nan_operands.are_lost(nan_operands.kept(function))


def test_whole_numbers_are_left_alone() -> None:
    x = te.placeholder((64,), "int32", "x")
    assert not nan_operands.are_lost(te.create_prim_func([x, topi.clip(x, 0, 6)]))
