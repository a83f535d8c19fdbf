"""Small tasks for MetaSchedule's rules for GPUs."""

from collections.abc import Callable
from typing import Any

import tvm
from tvm import te, topi


def product(rows: int, columns: int, depth: int, dtype: str = "float32", sums: str = "float32") -> Any:
    left, right = (
        te.placeholder((rows, depth), dtype, name="left"),
        te.placeholder((depth, columns), dtype, name="right"),
    )
    step = te.reduce_axis((0, depth), name="k")
    result = te.compute(
        (rows, columns), lambda i, j: te.sum(left[i, step].astype(sums) * right[step, j].astype(sums), axis=step)
    )
    return tvm.IRModule({"main": te.create_prim_func([left, right, result])})


def convolution(
    channels: int = 16, filters: int = 32, size: int = 14, kernel: int = 3, stride: int = 1, *, relu: bool = True
) -> Any:
    data = te.placeholder((1, channels, size, size), name="data")
    weights = te.placeholder((filters, channels, kernel, kernel), name="weights")
    result = topi.nn.conv2d_nchw(data, weights, stride, kernel // 2, 1)
    return tvm.IRModule({"main": te.create_prim_func([data, weights, topi.nn.relu(result) if relu else result])})


def softmax(rows: int = 24, columns: int = 200) -> Any:
    data = te.placeholder((rows, columns), name="data")
    return tvm.IRModule({"main": te.create_prim_func([data, topi.nn.softmax(data)])})


TASKS: dict[str, dict[str, Callable[[], Any]]] = {
    "cuda": {
        "product": lambda: product(64, 96, 128),
        "product, odd sizes": lambda: product(33, 65, 127),
        "convolution": convolution,
        "convolution, strided": lambda: convolution(kernel=5, stride=2),
        "softmax": softmax,
    },
    "cuda-tensorcore": {"product of float16": lambda: product(128, 128, 128, "float16", "float16")},
}
