"""Networks of 16-bit floats are computed in float32; what they take and give stays as it is."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend.half_floats import HALVES, compute_in_float32

onnxruntime = pytest.importorskip("onnxruntime")
HALF = TensorProto.FLOAT16


def value(name: str, *shape: int, kind: int = HALF) -> object:
    return helper.make_tensor_value_info(name, kind, shape)


def network(
    nodes: list[object], inputs: list[object], outputs: list[object], weights: dict[str, object]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes, "net", inputs, outputs, [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def types_inside(model: onnx.ModelProto) -> set[int]:
    found = onnx.shape_inference.infer_shapes(model, strict_mode=True, check_type=True).graph.value_info
    return {one.type.tensor_type.elem_type for one in found}


def test_the_sum_of_many_products_keeps_its_digits() -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])]
    rng = np.random.default_rng(0)
    w = rng.random((512, 4)).astype("float16")
    model = network(nodes, [value("x", 2, 512)], [value("y", 2, 4)], {"w": w})
    before = onnx.ModelProto.FromString(model.SerializeToString())
    assert compute_in_float32(model)
    onnx.checker.check_model(model)
    assert types_inside(model) == {TensorProto.FLOAT}
    x = rng.random((2, 512)).astype("float16")
    got, old = (onnxruntime.InferenceSession(m.SerializeToString()).run(None, {"x": x})[0] for m in (model, before))
    assert got.dtype == old.dtype
    exact = x.astype("float64") @ w.astype("float64")
    np.testing.assert_allclose(got, exact, rtol=2**-11)


def test_types_in_attributes_branches_and_tensors_are_widened() -> None:
    def branch(name: str, number: float) -> object:
        constant = numpy_helper.from_array(np.full((2,), number, "float16"))
        nodes = [helper.make_node("Constant", [], [f"{name}_c"], value=constant)]
        nodes.append(helper.make_node("Add", ["x", f"{name}_c"], [name]))
        return helper.make_graph(nodes, name, [], [value(name, 2)])

    nodes = [
        helper.make_node("If", ["b"], ["h"], then_branch=branch("t", 1.0), else_branch=branch("e", 2.0)),
        helper.make_node("Cast", ["n"], ["m"], to=HALF), helper.make_node("Mul", ["h", "m"], ["y"]),
    ]  # fmt: skip
    inputs = [value("x", 2), value("b", kind=TensorProto.BOOL), value("n", 2, kind=TensorProto.INT64)]
    model = network(nodes, inputs, [value("y", 2), value("h", 2)], {})
    assert compute_in_float32(model)
    onnx.checker.check_model(model)
    assert not types_inside(model) & HALVES
    given = {"x": np.array([1, 2], "float16"), "b": np.array(True), "n": np.array([3, 4])}
    y, h = onnxruntime.InferenceSession(model.SerializeToString()).run(None, given)
    assert (y.tolist(), h.tolist(), y.dtype, h.dtype) == ([6, 12], [2, 3], "float16", "float16")


def test_bfloat16_too_and_an_input_that_is_an_output() -> None:
    kind = TensorProto.BFLOAT16
    model = network(
        [helper.make_node("Neg", ["x"], ["y"])], [value("x", 2, kind=kind)],
        [value("y", 2, kind=kind), value("x", 2, kind=kind)], {},
    )  # fmt: skip
    assert compute_in_float32(model)
    x = np.array([1, -2], ml_dtypes.bfloat16)
    y, same = ReferenceEvaluator(model).run(None, {"x": x})
    assert (y.dtype, y.tolist(), same.tolist()) == (x.dtype, [-1, 2], [1, -2])


@pytest.mark.parametrize(
    ("operator", "kind"), [("Neg", TensorProto.FLOAT), ("Neg", TensorProto.DOUBLE), ("BitCast", HALF)]
)
def test_other_networks_stay_and_those_that_read_bits(operator: str, kind: int) -> None:
    attributes = {"to": TensorProto.UINT16} if operator == "BitCast" else {}
    model = network(
        [helper.make_node(operator, ["x"], ["y"], **attributes)],
        [value("x", 2, kind=kind)],
        [value("y", 2, kind=kind)],
        {},
    )
    before = model.SerializeToString()
    assert not compute_in_float32(model)
    assert model.SerializeToString() == before
