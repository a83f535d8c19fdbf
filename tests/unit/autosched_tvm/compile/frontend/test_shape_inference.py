import numpy as np
import onnx
import pytest
from onnx import helper

from autosched_tvm.compile.frontend import preparation
from autosched_tvm.compile.frontend.shape_inference import SHAPE_ELEMENTS_MAX, inferred
from nets import model, small_net


def test_values_have_the_shapes_that_onnx_infers_with_all_constants() -> None:
    net = small_net()
    del net.graph.value_info[:]
    whole = onnx.shape_inference.infer_shapes(net).graph
    found = inferred(net)
    assert {one.name: one.type for one in found.value_info} == {one.name: one.type for one in whole.value_info}
    assert found.value_info and [one.name for one in found.input] == ["x"]
    assert not any(np.prod(tensor.dims) > SHAPE_ELEMENTS_MAX for tensor in found.initializer)


@pytest.mark.parametrize("width", [64, 2 * SHAPE_ELEMENTS_MAX])
def test_weights_and_targets_of_a_reshape_are_known(width: int) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Reshape", ["p", "to"], ["y"])]
    constants = {"w": np.zeros((8, width), "float32"), "to": np.array([4, -1])}
    net = model(nodes, {"x": [2, 8]}, ["y"], constants)
    del net.graph.value_info[:]
    net.graph.output[0].type.tensor_type.ClearField("shape")
    found = inferred(net)
    dims = {value.name: preparation.dims_of(value) for value in (*found.value_info, *found.output)}
    assert dims == {"p": [2, width], "y": [4, width // 2]}
    assert len(net.graph.input) == 1 and len(net.graph.initializer) == 2


def test_values_of_a_network_with_unknown_operators_stay_unknown() -> None:
    net = helper.make_model(
        helper.make_graph(
            [helper.make_node("Nothing", ["x"], ["y"], domain="unknown.domain")], "net",
            [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])],
            [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)],
        )
    )  # fmt: skip
    assert [one.name for one in inferred(net).input] == ["x"]
