"""Tiny tasks for searches, and invented measurements."""

import json
import zlib
from typing import Any

from autosched.model import TaskInfo
from autosched_tvm.tuning.search_method import Search, SearchContext

Measured = tuple[bytes, list[float]]


def matmul(seed: int, size: int = 16, target: dict[str, Any] | None = None) -> SearchContext:
    """Returns a square matrix product."""
    import tvm
    from tvm import te

    # Names of their own: TVM puts the features of equally large buffers of one name in the order of their addresses.
    a, b = te.placeholder((size, size), name="A"), te.placeholder((size, size), name="B")
    k = te.reduce_axis((0, size), "k")
    product = te.compute((size, size), lambda i, j: te.sum(a[i, k] * b[k, j], k), name="matmul")
    function = te.create_prim_func([a, b, product]).with_attr("global_symbol", "main")
    info = TaskInfo(task=1, name="matmul", workload=f"{255:016x}", weight=1, flops=2.0 * size**3, shape="")
    where = tvm.target.Target(target or {"kind": "llvm", "mcpu": "x86-64-v3", "num-cores": 1})
    return SearchContext(info, tvm.IRModule({"main": function}), where, seed, 1)


def timed(candidate: bytes) -> list[float]:
    """Returns a latency that depends on the decisions only."""
    return [1e-3 * (1 + zlib.crc32(json.dumps(json.loads(candidate)[1]).encode()) % 97)]


def rounds(live: Search, count: int, size: int = 4) -> list[Measured]:
    """Returns selections of a search, measured by `timed`."""
    history: list[Measured] = []
    for _ in range(count):
        measured = [(candidate, timed(candidate)) for candidate in live.select(size)]
        live.update(measured)
        history += measured
    return history
