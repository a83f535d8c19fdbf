"""Folding keeps a network's outputs, by ONNX Runtime, and removes control flow that constants determine."""

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from autosched_tvm.compile.frontend import folding
from nets import model

onnxruntime = pytest.importorskip("onnxruntime")


def node(kind: str, inputs: str, outputs: str, **attributes: Any) -> Any:
    return helper.make_node(kind, inputs.split(" ") if inputs else [], outputs.split(), **attributes)


def constant(name: str, value: Any) -> Any:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), name))


def subgraph(nodes: list[Any], inputs: dict[str, int], outputs: str, weights: dict[str, Any] | None = None) -> Any:
    """Returns a graph; `inputs`: element types by name."""
    return helper.make_graph(
        nodes, "inside",
        [
            helper.make_tensor_value_info(name, kind, None if kind == TensorProto.FLOAT else [])
            for name, kind in inputs.items()
        ],
        [onnx.ValueInfoProto(name=name) for name in outputs.split()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()],
    )  # fmt: skip


def net(nodes: list[Any], shape: list[int], outputs: list[str], weights: dict[str, Any], opset: int = 17) -> Any:
    """Returns a network of one input, x; the types of its outputs are inferred."""
    made = model(nodes, {"x": list(shape)}, outputs, weights, opset)
    for value in made.graph.output:
        value.ClearField("type")
    return onnx.shape_inference.infer_shapes(made)


def outputs(made: Any, x: Any) -> list[Any]:
    return list(onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x}))


def folded(before: Any, seed: int = 0) -> Any:
    """Returns the folded network after a check of its outputs."""
    shape = [d.dim_value for d in before.graph.input[0].type.tensor_type.shape.dim]
    x = np.random.default_rng(seed).standard_normal(shape).astype("float32")
    after, _ = folding.fold(before)
    if all(value.type.tensor_type.HasField("shape") for value in after.graph.output):
        onnx.checker.check_model(after)
    for made, expected in zip(outputs(after, x), outputs(before, x), strict=True):
        np.testing.assert_array_equal(made, expected)
    return after


def kinds(made: Any) -> list[str]:
    return [one.op_type for one in made.graph.node]


def test_shapes_and_values_computed_from_them_become_constants() -> None:
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s last", "n"),
        node("Sub", "target n", "missing"),
        node("ConstantOfShape", "s", "zeros"),
        node("Concat", "nothing nothing nothing missing", "pads", axis=0),
        node("Pad", "x pads", "p"),
        node("Add", "x zeros", "z"),
    ]
    weights = {"last": np.array([1]), "target": np.array([9]), "nothing": np.array([0])}
    after = folded(net(nodes, [2, 5], ["p", "z"], weights))
    assert kinds(after) == ["Pad", "Add"]


def test_a_constant_output_stays_an_output() -> None:
    after = folded(net([node("Shape", "x", "s"), node("Relu", "x", "y")], [2, 5], ["s", "y"], {}))
    assert sorted(kinds(after)) == ["Identity", "Relu"]


def test_random_and_quantising_operators_are_not_computed() -> None:
    nodes = [
        node("RandomNormal", "", "r", shape=[2, 2], seed=1.0),
        node("DequantizeLinear", "q scale", "d"),
        node("Add", "x r", "a"),
        node("Add", "a d", "y"),
    ]
    before = net(nodes, [2, 2], ["y"], {"q": np.ones((2, 2), "int8"), "scale": np.float32(0.5)})
    after, _ = folding.fold(before)
    assert kinds(after) == ["RandomNormal", "DequantizeLinear", "Add", "Add"]


def test_a_constant_that_would_be_large_stays_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "COMPUTED_ELEMENTS_MAX", 50)
    nodes = [node("ConstantOfShape", "size", "zeros"), node("Add", "x zeros", "y")]
    after = folded(net(nodes, [8, 8], ["y"], {"size": np.array([8, 8])}))
    assert kinds(after) == ["ConstantOfShape", "Add"]


@pytest.mark.parametrize("size", [1, 4])
def test_an_if_whose_condition_the_shapes_decide_is_replaced_by_its_branch(size: int) -> None:
    inside = node("If", "again", "k", then_branch=subgraph([node("Exp", "x", "k")], {}, "k"),
                  else_branch=subgraph([node("Neg", "x", "k")], {}, "k"))  # fmt: skip
    nodes = [
        node("Size", "x", "n"),
        node("Equal", "n four", "again"),
        node("If", "again", "y",
             then_branch=subgraph([inside, node("Add", "k w", "v")], {}, "v", {"w": np.float32(2)}),
             else_branch=subgraph([node("Identity", "x", "v")], {}, "v")),
        node("Relu", "y", "z"),
    ]  # fmt: skip
    after = folded(net(nodes, [size], ["y", "z"], {"four": np.array(4)}))
    assert kinds(after) == (["Exp", "Add", "Identity", "Relu"] if size == 4 else ["Identity", "Relu"])


@pytest.mark.parametrize("seed", range(4))
def test_an_if_that_the_inputs_decide_becomes_a_selection(seed: int) -> None:
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=1),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "a b",
             then_branch=subgraph([node("Exp", "x", "k"), node("Identity", "sum", "m")], {}, "k m"),
             else_branch=subgraph([node("Neg", "x", "k"), node("Neg", "sum", "m")], {}, "k m")),
    ]  # fmt: skip
    after = folded(net(nodes, [3, 1], ["a", "b"], {"zero": np.float32(0)}), seed)
    assert "If" not in kinds(after)
    assert kinds(after).count("Where") == 2


def test_an_if_whose_branches_have_different_shapes_stays() -> None:
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "y", then_branch=subgraph([node("Concat", "x x", "k", axis=0)], {}, "k"),
             else_branch=subgraph([node("Neg", "x", "k")], {}, "k")),
    ]  # fmt: skip
    assert "If" in kinds(folded(net(nodes, [3], ["y"], {"zero": np.float32(0)})))


LOOP = {"i": TensorProto.INT64, "go": TensorProto.BOOL, "s": TensorProto.FLOAT}


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("steps", [1, 3])
def test_a_loop_with_a_constant_trip_count_is_unrolled(steps: int, opset: int) -> None:
    body = subgraph(
        [node("Cast", "i", "f", to=1), node("Mul", "s w", "m"), node("Add", "m f", "t"), node("Add", "t x", "u"),
         node("Identity", "go", "go2")],
        LOOP, "go2 u t", {"w": np.float32(0.5)},
    )  # fmt: skip
    weights = {"n": np.array(steps), "true": np.array(True), "start": np.zeros((2, 2), "float32")}
    after = folded(net([node("Loop", "n true start", "last all", body=body)], [2, 2], ["last", "all"], weights, opset))
    assert "Loop" not in kinds(after)
    assert kinds(after).count("Mul") == steps - 1  # the first step starts from a constant


@pytest.mark.parametrize("count", ["", "n"])
def test_a_loop_ends_when_its_condition_does(count: str) -> None:
    body = subgraph(
        [node("Less", "i two", "go2"), node("Exp", "s", "u")], LOOP, "go2 u", {"two": np.array(2)},
    )  # fmt: skip
    weights = {"true": np.array(True), "n": np.array(50)}
    after = folded(net([node("Loop", f"{count} true x", "y", body=body)], [2], ["y"], weights))
    assert kinds(after).count("Exp") == 3
    assert "Loop" not in kinds(after)


def test_a_loop_that_the_inputs_end_stays() -> None:
    body = subgraph(
        [node("ReduceMax", "s", "m", keepdims=0), node("Less", "m two", "go2"), node("Add", "s two", "u")],
        LOOP, "go2 u", {"two": np.float32(2)},
    )  # fmt: skip
    weights = {"true": np.array(True), "n": np.array(50)}
    assert "Loop" in kinds(folded(net([node("Loop", "n true x", "y", body=body)], [2], ["y"], weights)))


def test_a_loop_that_would_be_too_long_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "UNROLLED_NODES_MAX", 20)
    body = subgraph([node("Exp", "s", "u"), node("Identity", "go", "go2")], LOOP, "go2 u")
    weights = {"n": np.array(30), "true": np.array(True)}
    assert kinds(folded(net([node("Loop", "n true x", "y", body=body)], [2], ["y"], weights))) == ["Loop"]


@given(axis=st.integers(0, 1), out_axis=st.integers(0, 1), turned=st.booleans(), out_turned=st.booleans())
@settings(max_examples=16, deadline=None)
def test_a_scan_is_unrolled_along_any_axis_in_any_direction(
    axis: int, out_axis: int, turned: bool, out_turned: bool
) -> None:
    body = subgraph(
        [node("Add", "s part", "t"), node("Tanh", "t", "out")], dict.fromkeys(("s", "part"), TensorProto.FLOAT), "t out"
    )
    scan = node(
        "Scan", "start x", "last all", body=body, num_scan_inputs=1, scan_input_axes=[axis],
        scan_input_directions=[int(turned)], scan_output_axes=[out_axis], scan_output_directions=[int(out_turned)],
    )  # fmt: skip
    after = folded(net([scan], [3, 3], ["last", "all"], {"start": np.zeros(3, "float32")}))
    assert "Scan" not in kinds(after)


def test_names_inside_branches_do_not_collide() -> None:
    """Both branches and the graph use the same names."""
    branch = [node("Exp", "x", "k"), node("Neg", "k", "v")]
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Greater", "sum zero", "positive"),
        node("If", "positive", "a", then_branch=subgraph(branch, {}, "v"),
             else_branch=subgraph([*branch[:1], node("Abs", "k", "v")], {}, "v")),
        node("If", "positive", "b", then_branch=subgraph(branch, {}, "v"), else_branch=subgraph(branch, {}, "k")),
        node("Add", "a b", "y"),
    ]  # fmt: skip
    assert "If" not in kinds(folded(net(nodes, [4], ["y"], {"zero": np.float32(0)})))
