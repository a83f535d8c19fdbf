"""The layers of the yardstick: as tasks for TVM, and as models for ONNX Runtime."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

LANES = 16
CHAIN = 8
MIN_SAMPLE_S = 0.02


@dataclass(frozen=True)
class Layer:
    """One operator with its epilogue."""

    name: str
    kind: str
    """conv, depthwise, dense or batch."""
    channels: int
    """Or columns summed."""
    filters: int
    """Or columns of the result."""
    size: int
    """Of the image; or rows of the result."""
    kernel: int = 1
    stride: int = 1
    batch: int = 1
    bar: float = 0.0
    """Share of sgemm's speed to reach; 0 for none."""

    @property
    def out(self) -> int:
        """Rows of the resulting image."""
        return (self.size + 2 * (self.kernel // 2) - self.kernel) // self.stride + 1

    @property
    def flops(self) -> float:
        """Multiplications and additions, without those of the epilogue."""
        if self.kind in ("dense", "batch"):
            return 2.0 * self.batch * self.size * self.channels * self.filters
        depth = 1 if self.kind == "depthwise" else self.channels
        return 2.0 * self.out**2 * self.filters * depth * self.kernel**2


LAYERS = (
    Layer("3x3 64@56", "conv", 64, 64, 56, 3, bar=0.95),
    Layer("3x3 128@28", "conv", 128, 128, 28, 3, bar=0.95),
    Layer("3x3 256@14", "conv", 256, 256, 14, 3, bar=0.95),
    Layer("3x3 512@7", "conv", 512, 512, 7, 3, bar=0.85),
    Layer("1x1 64@56", "conv", 64, 64, 56, bar=0.95),
    Layer("1x1 128@28", "conv", 128, 128, 28, bar=0.95),
    Layer("1x1 256@14", "conv", 256, 256, 14, bar=0.95),
    Layer("1x1 512@7", "conv", 512, 512, 7, bar=0.85),
    Layer("3x3/2 64-128@56", "conv", 64, 128, 56, 3, 2, bar=0.85),
    Layer("3x3/2 128-256@28", "conv", 128, 256, 28, 3, 2, bar=0.85),
    Layer("3x3/2 256-512@14", "conv", 256, 512, 14, 3, 2, bar=0.85),
    Layer("1x1/2 64-128@56", "conv", 64, 128, 56, 1, 2, bar=0.85),
    Layer("1x1/2 128-256@28", "conv", 128, 256, 28, 1, 2, bar=0.85),
    Layer("1x1/2 256-512@14", "conv", 256, 512, 14, 1, 2, bar=0.85),
    Layer("7x7/2 3-64@224", "conv", 3, 64, 224, 7, 2, bar=0.85),
    Layer("depthwise 3x3 32@112", "depthwise", 32, 32, 112, 3),
    Layer("depthwise 3x3/2 96@112", "depthwise", 96, 96, 112, 3, 2),
    Layer("depthwise 3x3 144@56", "depthwise", 144, 144, 56, 3),
    Layer("depthwise 3x3 576@14", "depthwise", 576, 576, 14, 3),
    Layer("depthwise 3x3 960@7", "depthwise", 960, 960, 7, 3),
    Layer("dense 1x512x1000", "dense", 512, 1000, 1),
    Layer("dense 128x768x768", "dense", 768, 768, 128),
    Layer("dense 128x768x3072", "dense", 768, 3072, 128),
    Layer("dense 128x3072x768", "dense", 3072, 768, 128),
    Layer("batch 12x128x64x128", "batch", 64, 128, 128, batch=12),
    Layer("batch 12x128x128x64", "batch", 128, 64, 128, batch=12),
)


def kernel(layer: Layer, target: Any, plain: str | None) -> Any:
    """The task of a layer: one PrimFunc "main"."""
    import tvm
    from tvm import te, topi

    with target:
        inputs, result, channel_axes = _result(layer, plain, te, topi)
        shape = [extent if axis in channel_axes else 1 for axis, extent in enumerate(result.shape)]
        bias = te.placeholder(tuple(shape), name="bias")
        output = topi.nn.relu(topi.add(result, bias))
        return tvm.IRModule({"main": te.create_prim_func([*inputs, bias, output])})


def _result(layer: Layer, plain: str | None, te: Any, topi: Any) -> tuple[list[Any], Any, tuple[int, ...]]:
    c, f, size, k, pad = layer.channels, layer.filters, layer.size, layer.kernel, layer.kernel // 2
    if layer.kind in ("dense", "batch"):
        before = (layer.batch,) if layer.kind == "batch" else ()
        left, right = te.placeholder((*before, size, c), name="left"), te.placeholder((*before, c, f), name="right")
        if layer.kind == "batch":
            return [left, right], topi.nn.batch_matmul(left, right, transpose_b=False), (2,)
        return [left, right], topi.matmul(left, right), (1,)
    if plain == "NHWC":
        depth = 1 if layer.kind == "depthwise" else c
        data, weights = (
            te.placeholder((1, size, size, c), name="data"),
            te.placeholder((k, k, depth, f), name="weights"),
        )
        how = (data, weights, layer.stride, pad, 1)
        result = topi.nn.group_conv2d_nhwc(*how, c) if depth == 1 else topi.nn.conv2d_nhwc(*how)
        return [data, weights], result, (3,)
    if plain == "NCHW":
        depth = 1 if layer.kind == "depthwise" else c
        data, weights = (
            te.placeholder((1, c, size, size), name="data"),
            te.placeholder((f, depth, k, k), name="weights"),
        )
        how = (data, weights, layer.stride, pad, 1)
        result = topi.nn.group_conv2d_nchw(*how, c) if depth == 1 else topi.nn.conv2d_nchw(*how)
        return [data, weights], result, (1,)
    block = LANES if c % LANES == 0 else 1
    data = te.placeholder((1, c // block, size, size, block), name="data")
    if layer.kind == "depthwise":
        weights = te.placeholder((c // block, 1, k, k, 1, block), name="weights")
        return [data, weights], _depthwise(data, weights, layer, te, topi), (1, 4)
    weights = te.placeholder((f // LANES, c // block, k, k, block, LANES), name="weights")
    names = f"NCHW{block}c", f"NCHW{LANES}c"
    return [data, weights], topi.nn.conv2d_NCHWc(data, weights, layer.stride, pad, 1, *names), (1, 4)


def _depthwise(data: Any, weights: Any, layer: Layer, te: Any, topi: Any) -> Any:
    pad, s = layer.kernel // 2, layer.stride
    padded = topi.nn.pad(data, (0, 0, pad, pad, 0), (0, 0, pad, pad, 0), name="data_pad")
    kh, kw = te.reduce_axis((0, layer.kernel), name="kh"), te.reduce_axis((0, layer.kernel), name="kw")
    return te.compute(
        (1, int(data.shape[1]), layer.out, layer.out, int(data.shape[4])),
        lambda n, c, h, w, i: te.sum(padded[n, c, h * s + kh, w * s + kw, i] * weights[c, 0, kh, kw, 0, i], [kh, kw]),
        name="depthwise_conv2d_NCHWc",
    )


def onnxruntime(layer: Layer) -> Callable[[], float]:
    """Seconds of the same layer in ONNX Runtime, a function to be called for one sample."""
    import onnxruntime as ort

    keeps = layer.channels == layer.filters and layer.size == layer.out and layer.kind in ("conv", "depthwise")
    one, chain = (_session(layer, count, ort) for count in (1, CHAIN if keeps else 1))
    return (lambda: (chain() - one()) / (CHAIN - 1)) if keeps else one


def _session(layer: Layer, count: int, ort: Any) -> Callable[[], float]:
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(_onnx(layer, count), options, providers=["CPUExecutionProvider"])
    generator = np.random.default_rng(0)
    feed = {i.name: generator.uniform(0.1, 1, i.shape).astype("float32") for i in session.get_inputs()}
    once_s = _timed(session, feed, 2)
    number = max(1, int(MIN_SAMPLE_S / once_s))
    return lambda: _timed(session, feed, number)


def _timed(session: Any, feed: dict[str, Any], number: int) -> float:
    session.run(None, feed)
    started = time.perf_counter()
    for _ in range(number):
        session.run(None, feed)
    return (time.perf_counter() - started) / number


def _onnx(layer: Layer, count: int) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    generator = np.random.default_rng(0)
    nodes, constants = [], []

    def constant(name: str, shape: tuple[int, ...]) -> str:
        constants.append(numpy_helper.from_array(generator.uniform(-0.05, 0.05, shape).astype("float32"), name))
        return name

    c, f, size, pad = layer.channels, layer.filters, layer.size, layer.kernel // 2
    image = layer.kind in ("conv", "depthwise")
    shape = [1, c, size, size] if image else [*([layer.batch] if layer.kind == "batch" else []), size, c]
    inputs = [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)]
    for i in range(count):
        if image:
            depth = 1 if layer.kind == "depthwise" else c
            weights = constant(f"w{i}", (f, depth, layer.kernel, layer.kernel))
            nodes.append(helper.make_node(
                "Conv", [f"x{i}", weights, constant(f"b{i}", (f,))], [f"y{i}"], kernel_shape=[layer.kernel] * 2,
                pads=[pad] * 4, strides=[layer.stride] * 2, group=c // depth,
            ))  # fmt: skip
        elif layer.kind == "dense":
            nodes.append(
                helper.make_node("Gemm", [f"x{i}", constant(f"w{i}", (c, f)), constant(f"b{i}", (f,))], [f"y{i}"])
            )
        else:
            inputs.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [layer.batch, c, f]))
            nodes.append(helper.make_node("MatMul", [f"x{i}", "r"], [f"m{i}"]))
            nodes.append(helper.make_node("Add", [f"m{i}", constant(f"b{i}", (f,))], [f"y{i}"]))
        nodes.append(helper.make_node("Relu", [f"y{i}"], [f"x{i + 1}"]))
    outputs = [helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "layer", inputs, outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())
