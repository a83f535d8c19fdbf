"""Single tasks for comparisons of search methods: layers of ResNet-18, SqueezeNet, a mobile network and BERT, batch 1.

The layers of ResNet-50 that ResNet-18 lacks test transfer between networks.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import te, topi

from autosched.model import TaskInfo
from autosched_tvm.compile.task_extraction import hash_of

LANES = 16
"""Number of channels in a block of the blocked layout."""
Stage = Callable[[], list[Any]]


@dataclass(frozen=True)
class Layer:
    """One operator with its epilogue."""

    name: str
    family: str
    flops: float
    tensors: Stage

    def workload(self, target: Any) -> Any:
        """Returns the workload of a task."""
        with target:
            function = te.create_prim_func(self.tensors())
        return tvm.IRModule({"main": function.with_attr("global_symbol", "main").with_attr("tirx.noalias", True)})

    def info(self, workload: Any) -> TaskInfo:
        """Returns the task's description for the scheduler."""
        return TaskInfo(task=1, name=self.name, workload=hash_of(workload), weight=1, flops=self.flops, shape=self.name)


def conv(channels: int, size: int, out: int, kernel: int, stride: int, family: str, layout: str) -> Layer:
    """Returns a convolution with bias and ReLU; `size`: size of the image before it; `layout`: nchw, nhwc or
    blocked."""
    pad = kernel // 2
    after = (size + 2 * pad - kernel) // stride + 1
    flops = 2.0 * channels * out * kernel * kernel * after * after
    shape = f"{channels}x{size}x{size}-{out}-{kernel}x{kernel}" + (f"/{stride}" if stride > 1 else "")

    def plain() -> list[Any]:
        data, weight = te.placeholder((1, channels, size, size)), te.placeholder((out, channels, kernel, kernel))
        bias = te.placeholder((1, out, 1, 1))
        found = topi.nn.conv2d_nchw(data, weight, stride, pad, 1)
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    def blocks() -> list[Any]:
        inner = math.gcd(channels, LANES)
        data = te.placeholder((1, channels // inner, size, size, inner))
        weight = te.placeholder((out // LANES, channels // inner, kernel, kernel, inner, LANES))
        bias = te.placeholder((1, out // LANES, 1, 1, LANES))
        found = topi.nn.conv2d_NCHWc(data, weight, stride, pad, 1, f"NCHW{inner}c", f"NCHW{LANES}c")
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    def last() -> list[Any]:
        data, weight = te.placeholder((1, size, size, channels)), te.placeholder((kernel, kernel, channels, out))
        bias = te.placeholder((1, 1, 1, out))
        found = topi.nn.conv2d_nhwc(data, weight, stride, pad, 1)
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    stages = {"nchw": plain, "nhwc": last, "blocked": blocks}[layout]
    return Layer(f"conv {shape} {layout}", family, flops, stages)


def depthwise(channels: int, size: int, stride: int, family: str, layout: str) -> Layer:
    """Returns a depthwise 3x3 convolution with bias and ReLU; `layout`: nchw, nhwc or blocked."""
    after = (size - 1) // stride + 1

    def plain() -> list[Any]:
        data, weight = te.placeholder((1, channels, size, size)), te.placeholder((channels, 1, 3, 3))
        bias = te.placeholder((1, channels, 1, 1))
        found = topi.nn.depthwise_conv2d_nchw(data, weight, stride, 1, 1)
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    def blocks() -> list[Any]:
        outer, kh, kw = channels // LANES, te.reduce_axis((0, 3), "kh"), te.reduce_axis((0, 3), "kw")
        data, weight = te.placeholder((1, outer, size, size, LANES)), te.placeholder((outer, 1, 3, 3, 1, LANES))
        bias = te.placeholder((1, outer, 1, 1, LANES))
        padded = topi.nn.pad(data, (0, 0, 1, 1, 0), (0, 0, 1, 1, 0))
        found = te.compute(
            (1, outer, after, after, LANES),
            lambda n, c, h, w, b: te.sum(
                padded[n, c, h * stride + kh, w * stride + kw, b] * weight[c, 0, kh, kw, 0, b], [kh, kw]
            ),
        )
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    def last() -> list[Any]:
        data, weight = te.placeholder((1, size, size, channels)), te.placeholder((3, 3, channels, 1))
        bias = te.placeholder((1, 1, 1, channels))
        found = topi.nn.depthwise_conv2d_nhwc(data, weight, stride, 1, 1)
        return [data, weight, bias, topi.nn.relu(topi.add(found, bias))]

    name = f"depthwise {channels}x{size}x{size}" + (f"/{stride}" if stride > 1 else "")
    stages = {"nchw": plain, "nhwc": last, "blocked": blocks}[layout]
    return Layer(f"{name} {layout}", family, 2.0 * 9 * channels * after * after, stages)


def matmul(rows: int, inner: int, columns: int, family: str, *, batch: int = 0) -> Layer:
    """Returns a matrix product with bias; for a batch of `batch` pairs of matrices, without."""

    def tensors() -> list[Any]:
        k = te.reduce_axis((0, inner), "k")
        if batch:
            a, b = te.placeholder((batch, rows, inner)), te.placeholder((batch, inner, columns))
            return [a, b, te.compute((batch, rows, columns), lambda n, i, j: te.sum(a[n, i, k] * b[n, k, j], k))]
        a, b, bias = te.placeholder((rows, inner)), te.placeholder((inner, columns)), te.placeholder((columns,))
        product = te.compute((rows, columns), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="matmul")
        return [a, b, bias, te.compute((rows, columns), lambda i, j: product[i, j] + bias[j])]

    size = f"{rows}x{inner} by {inner}x{columns}"
    name = f"batch matmul {batch} of {size}" if batch else f"matmul {size}"
    return Layer(name, family, 2.0 * max(1, batch) * rows * inner * columns, tensors)


def layers() -> dict[str, Layer]:
    """Returns all layers by name."""
    found: list[Layer] = []
    resnet = [
        (3, 224, 64, 7, 2), (64, 56, 64, 3, 1), (64, 56, 64, 1, 1), (64, 56, 128, 3, 2), (64, 56, 128, 1, 2),
        (128, 28, 128, 3, 1), (128, 28, 256, 3, 2), (256, 14, 256, 3, 1), (256, 14, 512, 3, 2), (512, 7, 512, 3, 1),
    ]  # fmt: skip
    squeezenet = [(64, 55, 16, 1, 1), (16, 55, 64, 3, 1), (32, 27, 128, 3, 1), (48, 13, 192, 3, 1), (64, 13, 256, 1, 1)]
    deeper = [(64, 56, 256, 1, 1), (512, 28, 128, 1, 1), (256, 14, 1024, 1, 1), (1024, 14, 512, 1, 2)]
    for family, shapes in (("resnet", resnet), ("resnet50", deeper), ("squeezenet", squeezenet)):
        found += [conv(*shape, family, layout) for shape in shapes for layout in ("nchw", "blocked")]
    found.append(matmul(1, 512, 1000, "resnet"))
    mobile = ((32, 112, 1), (96, 112, 2), (144, 56, 1), (384, 14, 1), (960, 7, 1))
    found += [depthwise(*shape, "mobile", layout) for shape in mobile for layout in ("nchw", "blocked")]
    found += [conv(*shape, "last", "nhwc") for shape in ((64, 56, 64, 3, 1), (64, 56, 64, 1, 1), (128, 28, 128, 3, 1))]
    found += [depthwise(*shape, "last", "nhwc") for shape in ((144, 56, 1), (384, 14, 1))]
    found += [matmul(*shape, "bert") for shape in ((128, 768, 768), (128, 768, 3072), (128, 3072, 768))]
    found += [matmul(128, 64, 128, "bert", batch=12), matmul(128, 128, 64, "bert", batch=12)]
    return {layer.name: layer for layer in found}


QUICK = ("conv 64x56x56-64-1x1 blocked", "matmul 128x768 by 768x768")
CORE = (
    "conv 64x56x56-64-3x3 nchw", "conv 64x56x56-64-3x3 blocked", "conv 128x28x28-128-3x3 blocked",
    "conv 256x14x14-256-3x3 blocked", "conv 16x55x55-64-3x3 nchw", "depthwise 144x56x56 blocked",
    "matmul 128x768 by 768x768",
)  # fmt: skip
"""One of each sort."""
BLOCKED = (
    "conv 64x56x56-64-3x3 blocked", "conv 256x14x14-256-3x3 blocked", "conv 64x56x56-64-1x1 blocked",
    "conv 512x7x7-512-3x3 blocked", "conv 48x13x13-192-3x3 blocked",
)  # fmt: skip
"""Convolutions whose template has models."""
