"""ResNet-18 as a file (He et al., "Deep Residual Learning", 2016), which no small PyPI package contains.

Normalisations are folded into the convolutions, as exporters do it for inference. Weights are random, since the time of
a layer does not depend on them. Each block's last convolution is scaled down, which keeps the size of the values.
"""

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

STAGES = ((64, 1), (128, 2), (256, 2), (512, 2))
"""Number of filters, and stride of the first of the two blocks."""
IMAGE, CLASSES = (1, 3, 224, 224), 1000


class Drawing:
    """The graph, built node by node."""

    def __init__(self, seed: int) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self._generator = np.random.default_rng(seed)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        """Adds an operator; returns its output's name."""
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def weight(self, scale: float, *shape: int) -> str:
        """Adds a constant of normal numbers; returns its name."""
        name = f"weight{len(self.weights)}"
        values = (scale * self._generator.standard_normal(shape)).astype("float32")
        self.weights.append(numpy_helper.from_array(values, name))
        return name

    def number(self, value: float) -> str:
        """Adds a constant number; returns its name."""
        name = f"number{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.float32(value), name))
        return name

    def conv(self, data: str, channels: int, filters: int, kernel: int, stride: int, gain: float = 2.0) -> str:
        """Adds a convolution with bias; `gain`: gain of the variance."""
        weight = self.weight((gain / (channels * kernel * kernel)) ** 0.5, filters, channels, kernel, kernel)
        return self._conv(data, weight, filters, kernel, stride)

    def depthwise(self, data: str, channels: int, kernel: int, stride: int, gain: float = 2.0) -> str:
        """Adds a depthwise convolution with bias."""
        weight = self.weight((gain / (kernel * kernel)) ** 0.5, channels, 1, kernel, kernel)
        return self._conv(data, weight, channels, kernel, stride, group=channels)

    def classifier(self, data: str, channels: int, path: Path) -> Path:
        """Writes the network with a classifier on this output, under the name of the file."""
        data = self.node("Flatten", self.node("GlobalAveragePool", data))
        data = self.node("Gemm", data, self.weight(channels**-0.5, channels, CLASSES), self.weight(0.01, CLASSES))
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("image", TensorProto.FLOAT, IMAGE)],
            [helper.make_tensor_value_info(data, TensorProto.FLOAT, (1, CLASSES))],
            self.weights,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        path.write_bytes(model.SerializeToString())
        return path

    def _conv(self, data: str, weight: str, filters: int, kernel: int, stride: int, **group: int) -> str:
        shape = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, **group}
        return self.node("Conv", data, weight, self.weight(0.01, filters), **shape)


def write(path: Path, seed: int = 0) -> Path:
    """Writes the model."""
    draw = Drawing(seed)
    data = draw.node("Relu", draw.conv("image", 3, 64, 7, 2))
    data = draw.node("MaxPool", data, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for filters, first_stride in STAGES:
        for stride in (first_stride, 1):
            inner = draw.node("Relu", draw.conv(data, channels, filters, 3, stride))
            inner = draw.conv(inner, filters, filters, 3, 1, gain=0.2)
            same = channels == filters and stride == 1
            skip = data if same else draw.conv(data, channels, filters, 1, stride, gain=1.0)
            data = draw.node("Relu", draw.node("Add", inner, skip))
            channels = filters
    return draw.classifier(data, channels, path)
