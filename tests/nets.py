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


def squeezenet(size: int = 32) -> Any:
    """Returns SqueezeNet 1.1 (Iandola et al., 2016) for small images, with its channels and random weights."""
    random = np.random.default_rng(5)
    nodes: list[Any] = []
    weights: dict[str, Any] = {}

    def convolution(name: str, source: str, given: int, filters: int, kernel: int, **more: Any) -> str:
        weights[f"{name}.w"] = random.normal(0, (given * kernel * kernel) ** -0.5, (filters, given, kernel, kernel))
        weights[f"{name}.b"] = random.normal(0, 0.1, filters)
        weights.update({key: value.astype("float32") for key, value in weights.items()})
        nodes.append(helper.make_node("Conv", [source, f"{name}.w", f"{name}.b"], [f"{name}.c"], **more))
        nodes.append(helper.make_node("Relu", [f"{name}.c"], [name]))
        return name

    def pool(name: str, source: str) -> str:
        nodes.append(helper.make_node("MaxPool", [source], [name], kernel_shape=[3, 3], strides=[2, 2]))
        return name

    here, channels = pool("pool1", convolution("conv1", "x", 3, 64, 3, strides=[2, 2], pads=[1, 1, 1, 1])), 64
    for number, (squeezed, expanded) in enumerate(
        [(16, 64), (16, 64), (32, 128), (32, 128), (48, 192), (48, 192), (64, 256), (64, 256)], start=2
    ):
        if number in (4, 6):
            here = pool(f"pool{number}", here)
        name = f"fire{number}"
        inner = convolution(f"{name}.squeeze", here, channels, squeezed, 1)
        parts = [
            convolution(f"{name}.one", inner, squeezed, expanded, 1),
            convolution(f"{name}.three", inner, squeezed, expanded, 3, pads=[1, 1, 1, 1]),
        ]
        nodes.append(helper.make_node("Concat", parts, [name], axis=1))
        here, channels = name, 2 * expanded
    convolution("classes", here, channels, 100, 1)
    nodes.append(helper.make_node("GlobalAveragePool", ["classes"], ["mean"]))
    nodes.append(helper.make_node("Flatten", ["mean"], ["flat"]))
    nodes.append(helper.make_node("Softmax", ["flat"], ["y"], axis=1))
    return model(nodes, {"x": [1, 3, size, size]}, ["y"], weights)


def transformer(width: int = 32, rows: int = 12, heads: int = 2) -> Any:
    """Returns one block of a transformer: attention, and two dense layers."""
    random = np.random.default_rng(6)

    def normal(*shape: int) -> Any:
        return (random.standard_normal(shape) / np.sqrt(shape[0])).astype("float32")

    nodes = [
        *(helper.make_node("MatMul", ["x", f"w{n}"], [f"p{n}"]) for n in "qkv"),
        *(helper.make_node("Reshape", [f"p{n}", "split"], [f"s{n}"]) for n in "qkv"),
        helper.make_node("Transpose", ["sq"], ["q"], perm=[0, 2, 1, 3]),
        helper.make_node("Transpose", ["sk"], ["k"], perm=[0, 2, 3, 1]),
        helper.make_node("Transpose", ["sv"], ["v"], perm=[0, 2, 1, 3]),
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["shares"], axis=-1),
        helper.make_node("MatMul", ["shares", "v"], ["mixed"]),
        helper.make_node("Transpose", ["mixed"], ["t"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["t", "join"], ["flat"]),
        helper.make_node("Add", ["flat", "x"], ["sum"]),
        helper.make_node("LayerNormalization", ["sum", "scale", "shift"], ["n"], axis=-1),
        helper.make_node("MatMul", ["n", "w1"], ["wide"]),
        helper.make_node("Relu", ["wide"], ["active"]),
        helper.make_node("MatMul", ["active", "w2"], ["narrow"]),
        helper.make_node("Add", ["narrow", "n"], ["y"]),
    ]
    weights = {
        **{f"w{n}": normal(width, width) for n in "qkv"}, "w1": normal(width, 4 * width),
        "w2": normal(4 * width, width), "scale": normal(width) + 1, "shift": normal(width),
        "split": np.array([1, rows, heads, width // heads]),
        "join": np.array([1, rows, width]),
    }  # fmt: skip
    return model(nodes, {"x": [1, rows, width]}, ["y"], weights, opset=17)


def quantised(channels: int = 16, size: int = 12) -> Any:
    """Returns two convolutions with weights and activations of 8 bits, in QDQ form."""
    random = np.random.default_rng(8)
    nodes: list[Any] = []
    weights: dict[str, Any] = {"zero": np.int8(0), "middle": np.uint8(128), "step": np.float32(0.05)}
    here, given = "x", 3
    for number in range(2):
        weights[f"w{number}"] = random.integers(-100, 100, (channels, given, 3, 3), np.int8)
        weights[f"s{number}"] = np.float32(0.004)
        nodes += [
            helper.make_node("QuantizeLinear", [here, "step", "middle"], [f"q{number}"]),
            helper.make_node("DequantizeLinear", [f"q{number}", "step", "middle"], [f"d{number}"]),
            helper.make_node("DequantizeLinear", [f"w{number}", f"s{number}", "zero"], [f"v{number}"]),
            helper.make_node("Conv", [f"d{number}", f"v{number}"], [f"c{number}"], pads=[1, 1, 1, 1]),
            helper.make_node("Relu", [f"c{number}"], [f"r{number}"]),
        ]
        here, given = f"r{number}", channels
    nodes += [
        helper.make_node("QuantizeLinear", [here, "step", "middle"], ["qy"]),
        helper.make_node("DequantizeLinear", ["qy", "step", "middle"], ["y"]),
    ]
    return model(nodes, {"x": [1, 3, size, size]}, ["y"], weights)
