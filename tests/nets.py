"""Small ONNX networks."""

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


def model(
    nodes: list[Any], inputs: dict[str, list[Any]], outputs: list[str], weights: dict[str, Any], opset: int = 13
) -> Any:
    """Returns an ONNX model of float inputs; weights are arrays."""
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return onnx.shape_inference.infer_shapes(made)


def small_net(batch: int | str = 1, height: int | str = 12) -> Any:
    """Returns a network with convolution, normalisation, sum, dropout, pooling and dense layer: one of each rewritten
    operator."""
    random = np.random.default_rng(7)

    def normal(*shape: int) -> Any:
        return random.standard_normal(shape).astype("float32") / 4

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], name="first", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Concat", ["r1", "x"], ["joined"], axis=1),
        helper.make_node("BatchNormalization", ["joined", "scale", "shift", "mean", "var"], ["n1"], epsilon=1e-3),
        helper.make_node("Sum", ["n1", "joined", "n1"], ["s1"]),
        helper.make_node("Dropout", ["s1"], ["d1"]),
        helper.make_node("GlobalAveragePool", ["d1"], ["p1"]),
        helper.make_node("Flatten", ["p1"], ["f1"]),
        helper.make_node("Gemm", ["f1", "w2", "b2"], ["y"], transB=1, alpha=0.5, beta=2.0),
    ]
    weights = {
        "w1": normal(8, 3, 3, 3), "b1": normal(8), "scale": normal(11) + 1, "shift": normal(11), "mean": normal(11),
        "var": np.abs(normal(11)) + 1, "w2": normal(5, 11), "b2": normal(5),
    }  # fmt: skip
    return model(nodes, {"x": [batch, 3, height, 12]}, ["y"], weights)


def conv_net(channels: int = 16, size: int = 16) -> Any:
    """Returns one convolution with a bias and an activation: a single task."""
    random = np.random.default_rng(3)
    weights = {
        "w": random.standard_normal((channels, channels, 3, 3)).astype("float32") / 12,
        "b": random.standard_normal(channels).astype("float32"),
    }
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="only", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["y"]),
    ]
    return model(nodes, {"x": [1, channels, size, size]}, ["y"], weights)
