"""Small workloads for the templates, and a check of schedules against them."""

from typing import Any

import numpy as np
import tvm
from tvm import te, topi
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched_tvm.compile.winograd import workload
from autosched_tvm.compile.winograd.algebra import Algorithm

CPU = tvm.target.Target({"kind": "llvm", "num-cores": 1})
GPU = tvm.target.Target("nvidia/nvidia-h100")


def finish(inputs: list[Any], result: Any, channels: tuple[int, ...], epilogue: bool) -> Any:
    """Adds bias, residual and ReLU to the task."""
    if epilogue:
        bias = te.placeholder(
            [extent if axis in channels else 1 for axis, extent in enumerate(result.shape)], name="bias"
        )
        residual = te.placeholder(result.shape, name="residual")
        inputs = [*inputs, bias, residual]
        result = topi.nn.relu(topi.add(topi.add(result, bias), residual))
    return tvm.IRModule({"main": te.create_prim_func([*inputs, result])})


def blocked(
    channels: int = 16, filters: int = 16, size: int = 6, kernel: int = 3, stride: int = 1, *,
    block: int = 8, inner: int = 8, epilogue: bool = False, dilation: int = 1,
) -> Any:  # fmt: skip
    pad = dilation * (kernel // 2)
    data = te.placeholder((1, channels // inner, size, size, inner), name="data")
    weights = te.placeholder((filters // block, channels // inner, kernel, kernel, inner, block), name="weights")
    with CPU:
        names = f"NCHW{inner}c", f"NCHW{block}c"
        result = topi.nn.conv2d_NCHWc(data, weights, stride, pad, dilation, *names)
        return finish([data, weights], result, (1, 4), epilogue)


def blocked_depthwise(channels: int = 16, size: int = 6, stride: int = 1, *, epilogue: bool = False) -> Any:
    data = te.placeholder((1, channels // 8, size, size, 8), name="data")
    weights = te.placeholder((channels // 8, 1, 3, 3, 1, 8), name="weights")
    padded = topi.nn.pad(data, (0, 0, 1, 1, 0), (0, 0, 1, 1, 0))
    kh, kw = te.reduce_axis((0, 3)), te.reduce_axis((0, 3))
    out = (size - 1) // stride + 1
    result = te.compute(
        (1, channels // 8, out, out, 8),
        lambda n, c, h, w, i: te.sum(
            padded[n, c, h * stride + kh, w * stride + kw, i] * weights[c, 0, kh, kw, 0, i], [kh, kw]
        ),
    )
    return finish([data, weights], result, (1, 4), epilogue)


def winograd(one: Algorithm, channels: int = 16, filters: int = 24, height: int = 9, width: int = 7) -> Any:
    data = te.placeholder((1, channels // 8, height, width, 8), name="data")
    weights = te.placeholder((filters // 8, one.products, channels, 8), name="weights")
    tall, wide = (taps // 2 for taps in one.taps)
    return finish(
        [data, weights], workload.convolution(data, weights, one, (tall, wide, tall, wide)), (1, 4), epilogue=True
    )


def plain(
    layout: str, channels: int = 8, filters: int = 16, size: int = 6, kernel: int = 3, stride: int = 1, *,
    groups: int = 1, images: int = 1, epilogue: bool = False,
) -> Any:  # fmt: skip
    first = layout == "NCHW"
    depth = channels // groups
    data = te.placeholder((images, channels, size, size) if first else (images, size, size, channels), name="data")
    weights = te.placeholder(
        (filters, depth, kernel, kernel) if first else (kernel, kernel, depth, filters), name="weights"
    )
    how = (data, weights, stride, kernel // 2, 1)
    if groups == 1:
        result = topi.nn.conv2d_nchw(*how) if first else topi.nn.conv2d_nhwc(*how)
    else:
        result = topi.nn.group_conv2d_nchw(*how, groups) if first else topi.nn.group_conv2d_nhwc(*how, groups)
    return finish([data, weights], result, (1 if first else 3,), epilogue)


def product(
    m: int = 6, n: int = 16, k: int = 12, batch: tuple[int, ...] = (), *, shared: bool = False,
    transposed: bool = False, epilogue: bool = False, block: int = 0,
) -> Any:  # fmt: skip
    """`shared`: one right factor for the whole batch; `block`: number of columns in a block of it."""
    left = te.placeholder((*batch, m, k), name="left")
    matrix = (-(-n // block), k, block) if block else (n, k) if transposed else (k, n)
    right = te.placeholder((*(() if shared else batch), *matrix), name="right")
    step = te.reduce_axis((0, k), name="k")

    def element(*index: Any) -> Any:
        before = () if shared else index[:-2]
        last = (index[-1], step) if transposed else (step, index[-1])
        last = (index[-1] // block, step, index[-1] % block) if block else last
        return te.sum(left[(*index[:-1], step)] * right[(*before, *last)], axis=step)

    result = te.compute((*batch, m, n), element, name="product")
    return finish([left, right], result, (len(batch) + 1,), epilogue)


class Judge:
    """Outputs of a workload on fixed inputs."""

    def __init__(self, workload: Any) -> None:
        infos = ArgInfo.from_entry_func(workload, remove_preproc=True)
        generator = np.random.default_rng(0)
        self._inputs = [generator.uniform(0.1, 1, [int(d) for d in i.shape]).astype(str(i.dtype)) for i in infos]
        self._expected = self._run(workload)

    def _run(self, module: Any) -> Any:
        buffers = [tvm.runtime.tensor(array) for array in self._inputs]
        tvm.tirx.build(module, target=CPU)["main"](*buffers)
        return buffers[-1].numpy()

    def check(self, module: Any, share: float = 0.0) -> None:
        """`share`: maximum difference relative to the largest result, where rounded sums cancel."""
        most = share * float(np.abs(self._expected).max())
        np.testing.assert_allclose(self._run(module), self._expected, rtol=1e-4, atol=most)
