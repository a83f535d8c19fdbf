"""A network in which no single layout is the best: few channels where the image is large, many where it is small.

Vectors of the first convolutions have to lie along the rows of the image, since four channels fill a quarter of a
register; those of the last ones along the channels, since rows of seven fill less than half of one. Its weights are
random.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

SIZE = 112
LAYERS = (*[(4, 3, 1)] * 4, (64, 4, 4), (256, 4, 4), *[(256, 3, 1)] * 2)
"""Of each convolution: output channels, kernel and stride."""


def write(path: Path) -> Path:
    """The network as an ONNX file."""
    random = np.random.default_rng(1)
    nodes, weights, value, channels, size = [], [], "image", LAYERS[0][0], SIZE
    for number, (filters, kernel, stride) in enumerate(LAYERS):
        pad = kernel // 2 if kernel % 2 else 0
        shape = (filters, channels, kernel, kernel)
        drawn = (random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)
        bias = random.standard_normal(filters).astype(np.float32)
        weights += [numpy_helper.from_array(drawn, f"w{number}"), numpy_helper.from_array(bias, f"b{number}")]
        inputs = [value, f"w{number}", f"b{number}"]
        nodes.append(helper.make_node("Conv", inputs, [f"c{number}"], strides=[stride] * 2, pads=[pad] * 4))
        nodes.append(helper.make_node("Relu", [f"c{number}"], [f"r{number}"]))
        value, channels, size = f"r{number}", filters, (size + 2 * pad - kernel) // stride + 1
    image = helper.make_tensor_value_info("image", TensorProto.FLOAT, (1, LAYERS[0][0], SIZE, SIZE))
    result = helper.make_tensor_value_info(value, TensorProto.FLOAT, (1, channels, size, size))
    graph = helper.make_graph(nodes, "pyramid", [image], [result], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
