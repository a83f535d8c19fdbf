"""Tables of few bits are stored in 8 bits where they are moved before they are dequantised."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from autosched_tvm.compile.frontend.few_bits import widen_moved

N = helper.make_node


def network(nodes: list[Any], kind: int, *, zero: bool) -> Any:
    low, high = {TensorProto.INT4: (-8, 8), TensorProto.UINT4: (0, 16), TensorProto.INT2: (-2, 2)}[kind]
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    levels = np.random.default_rng(0).integers(low, high, (20, 6)).astype(dtype)
    weights = {"table": levels, "scale": np.float32(0.1), "axis": np.array([1])}
    weights |= {"zero": np.array(1).astype(dtype)} if zero else {}
    graph = helper.make_graph(
        nodes, "net", [helper.make_tensor_value_info("ids", TensorProto.INT64, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )  # fmt: skip
    opset = 25 if kind == TensorProto.INT2 else 23
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("moves", [1, 2])
def test_a_table_of_embeddings_becomes_one_of_8_bits(moves: int, kind: int, zero: bool) -> None:
    last = "g" if moves == 1 else "u"
    nodes = [N("Gather", ["table", "ids"], ["g"]), N("Unsqueeze", ["g", "axis"], ["u"])][:moves]
    nodes.append(N("DequantizeLinear", [last, "scale", "zero"][: 3 if zero else 2], ["y"]))
    net = network(nodes, kind, zero=zero)
    given = {"ids": np.array([[0, 3, 19], [7, 7, 1]])}
    before = ReferenceEvaluator(net).run(None, given)[0]
    assert widen_moved(net) == (2 if zero else 1)
    onnx.shape_inference.infer_shapes(net, check_type=True, strict_mode=True)
    np.testing.assert_array_equal(ReferenceEvaluator(net).run(None, given)[0], before)


def test_weights_that_are_dequantised_at_once_stay() -> None:
    nodes = [N("DequantizeLinear", ["table", "scale", "zero"], ["w"]), N("Gather", ["w", "ids"], ["y"])]
    net = network(nodes, TensorProto.INT4, zero=True)
    before = net.SerializeToString()
    assert widen_moved(net) == 0
    assert net.SerializeToString() == before
