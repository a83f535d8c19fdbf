"""How fast Winograd's algorithm is beside the direct convolution and ONNX Runtime, layer by layer.

``python benchmarks/winograd.py [--trials 16] [--core 1] [--only 56 ...]``

For each layer and each algorithm the best of so many configurations of its template, searched for as a job does, all on
one pinned core with one thread. The finalists are measured again in turn with ONNX Runtime; the fastest sample of each
counts, which other load disturbs least. All layers carry a bias and a ReLU. Prints a table.
"""

import argparse
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
sys.path[:0] = [str(Path(__file__).parents[1] / "plugins"), str(Path(__file__).parent)]

import yardstick  # noqa: E402
from yardstick_layers import Layer, onnxruntime  # noqa: E402

LAYERS = (
    Layer("64@56", "conv", 64, 64, 56, 3),
    Layer("128@28", "conv", 128, 128, 28, 3),
    Layer("256@14", "conv", 256, 256, 14, 3),
    Layer("512@7", "conv", 512, 512, 7, 3),
    Layer("16-64@55", "conv", 16, 64, 55, 3),
    Layer("64-256@13", "conv", 64, 256, 13, 3),
    Layer("24@104", "conv", 24, 24, 104, 3),
    Layer("64@104", "conv", 64, 64, 104, 3),
    Layer("96@52", "conv", 96, 96, 52, 3),
    Layer("96@26", "conv", 96, 96, 26, 3),
    Layer("192@13", "conv", 192, 192, 13, 3),
)
REPEAT = 7


@dataclass
class Found:
    """The best of an algorithm."""

    seconds: float
    config: dict[str, Any]


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16, help="configurations of each algorithm")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="*", default=[], help="parts of layers' names")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    target = yardstick._target()
    print("layer         direct  F(2x2)  F(4x4)  ONNX Runtime (us)   best / ONNX Runtime")
    for layer in LAYERS:
        if not args.only or any(part in layer.name for part in args.only):
            measure(layer, target, args.trials)
    return 0


def measure(layer: Layer, target: Any, trials: int) -> None:
    """Search for each algorithm, then measure the best of each and ONNX Runtime in turn."""
    modules, configs, benches = [], [], []
    for size in (0, 2, 4):
        module = workload(layer, target, size)
        bench = yardstick.Bench(module, target)
        best = searched(module, target, bench, layer, trials)
        benches.append(bench)
        modules.append(bench.build(best))
        configs.append(json.loads(best)[2]["config"])
    theirs = onnxruntime(layer)
    samples: list[list[float]] = [[] for _ in range(4)]
    for _ in range(REPEAT):
        for bench, module, own in zip(benches, modules, samples, strict=False):
            own.append(bench.time(module, 1)[0])
        samples[3].append(theirs())
    fastest = [min(own) for own in samples]
    numbers = "  ".join(f"{seconds * 1e6:6.0f}" for seconds in fastest)
    print(f"{layer.name:<12}  {numbers}   {min(fastest[:3]) / fastest[3]:22.2f}   {configs[2]}", flush=True)


def searched(module: Any, target: Any, bench: Any, layer: Layer, trials: int) -> bytes:
    """The best candidate of so many."""
    from autosched_backend_autotvm import match

    found = match.find(module, target)
    if found.template is None:
        raise SystemExit(f"{layer.name}: {found.why_not}")
    search = yardstick._search("xgb", module, target, found.template, layer, 0)
    tried: dict[bytes, float] = {}
    while len(tried) < trials and (batch := search.select(min(8, trials - len(tried)))):
        measured = []
        for candidate in batch:
            latency_s = bench.latency(candidate, yardstick.FIRST_REPEAT, min(tried.values(), default=float("inf")))
            tried[candidate] = latency_s or float("inf")
            measured.append((candidate, [latency_s] if latency_s else []))
        search.update(measured)
    return min(tried, key=lambda candidate: tried[candidate])


def workload(layer: Layer, target: Any, size: int) -> Any:
    """The task of a layer in blocks of a vector's length. `size`: rows of a tile of results; 0: directly."""
    import tvm
    from tvm import te, topi

    from autosched.tvm.layouts import network
    from autosched.tvm.winograd import workload as winograd
    from autosched.tvm.winograd.algebra import ALGORITHMS

    lanes = network.lanes(target)
    inside, outside = layer.channels // lanes, layer.filters // lanes
    data = te.placeholder((1, inside, layer.size, layer.size, lanes), name="data")
    if size:
        packed = (outside, ALGORITHMS[size].products, layer.channels, lanes)
        weights = te.placeholder(packed, name="weights")
        result = winograd.convolution(data, weights, size, (1, 1, 1, 1))
    else:
        weights = te.placeholder((outside, inside, 3, 3, lanes, lanes), name="weights")
        with target:
            names = f"NCHW{lanes}c", f"NCHW{lanes}c"
            result = topi.nn.conv2d_NCHWc(data, weights, (1, 1), (1, 1), (1, 1), *names, "float32")
    bias = te.placeholder((1, outside, 1, 1, lanes), name="bias")
    return tvm.IRModule({"main": te.create_prim_func([data, weights, bias, topi.nn.relu(topi.add(result, bias))])})


if __name__ == "__main__":
    sys.exit(main())
