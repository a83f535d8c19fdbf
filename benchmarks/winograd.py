"""How fast Winograd's algorithm is beside the direct convolution and ONNX Runtime, layer by layer.

``python benchmarks/winograd.py [--trials 16] [--core 1] [--only 56 ...]``

For each layer and each algorithm the best of so many configurations of its template, searched for as a job does, all on
one pinned core with one thread. The finalists are measured again in turn with ONNX Runtime; the fastest sample of each
counts, which other load disturbs least. All layers carry a bias and a ReLU. Prints a table.
"""

import argparse
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")
sys.path[:0] = [str(Path(__file__).parents[1] / "plugins"), str(Path(__file__).parent)]

import yardstick  # noqa: E402
from yardstick_layers import CHAIN, MIN_SAMPLE_S, Layer, _timed, onnxruntime  # noqa: E402

if TYPE_CHECKING:
    from autosched_tvm.compile.winograd.algebra import Algorithm

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
"""Filters of 3x3."""


@dataclass(frozen=True)
class Line:
    """A convolution along one axis, whose image stays as large as it is."""

    name: str
    channels: int
    filters: int
    image: tuple[int, int]
    taps: tuple[int, int]


LINES = (
    Line("1x3 64@1x1000", 64, 64, (1, 1000), (1, 3)),
    Line("1x3 128@1x500", 128, 128, (1, 500), (1, 3)),
    Line("1x3 256@1x250", 256, 256, (1, 250), (1, 3)),
    Line("1x3 32@76x32", 32, 32, (76, 32), (1, 3)),
    Line("3x1 64@76x16", 64, 64, (76, 16), (3, 1)),
    Line("3x1 96@38x8", 96, 96, (38, 8), (3, 1)),
    Line("1x5 64@1x1000", 64, 64, (1, 1000), (1, 5)),
    Line("5x1 128@512x1", 128, 128, (512, 1), (5, 1)),
    Line("1x7 64@1x1000", 64, 64, (1, 1000), (1, 7)),
)
"""Filters along one axis, as networks of sounds and texts have them."""
REPEAT = 7


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=16, help="configurations of each algorithm")
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    parser.add_argument("--only", nargs="*", default=[], help="parts of layers' names")
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    target = yardstick._target()
    print("layer              microseconds: direct, each algorithm, ONNX Runtime; best by direct, best by ONNX Runtime")
    for layer in (*LAYERS, *LINES):
        if not args.only or any(part in layer.name for part in args.only):
            measure(layer, target, args.trials)
    return 0


def measure(layer: Layer | Line, target: Any, trials: int) -> None:
    """Search for each algorithm, then measure the best of each and ONNX Runtime in turn."""
    from autosched_tvm.compile.winograd import algebra

    names, modules, benches = [], [], []
    taps = layer.taps if isinstance(layer, Line) else (layer.kernel, layer.kernel)
    for one in (None, *algebra.algorithms(taps)):
        module = workload(layer, target, one)
        bench = yardstick.Bench(module, target)
        benches.append(bench)
        modules.append(bench.build(searched(module, target, bench, layer, trials)))
        names.append(one.words if one else "direct")
    theirs = onnxruntime(layer) if isinstance(layer, Layer) else onnxruntime_line(layer)
    samples: list[list[float]] = [[] for _ in range(len(modules) + 1)]
    for _ in range(REPEAT):
        for bench, built, own in zip(benches, modules, samples, strict=False):
            own.append(bench.time(built, 1)[0])
        samples[-1].append(theirs())
    fastest = [min(own) for own in samples]
    said = "  ".join(f"{name} {seconds * 1e6:.0f}" for name, seconds in zip([*names, "ort"], fastest, strict=True))
    best = min(fastest[:-1])
    print(f"{layer.name:<16}  {said}   {best / fastest[0]:.2f} {best / fastest[-1]:.2f}", flush=True)


def onnxruntime_line(line: Line) -> Callable[[], float]:
    """Seconds of a layer in ONNX Runtime: of one among several in a row, so that copies at the ends do not count."""
    import numpy as np
    import onnxruntime as ort
    from onnx import TensorProto, helper, numpy_helper

    def session(count: int) -> Callable[[], float]:
        random, nodes, constants = np.random.default_rng(0), [], []
        for i in range(count):
            weights = random.uniform(-0.05, 0.05, (line.filters, line.channels, *line.taps)).astype("float32")
            bias = random.uniform(-0.05, 0.05, line.filters).astype("float32")
            constants += [numpy_helper.from_array(weights, f"w{i}"), numpy_helper.from_array(bias, f"b{i}")]
            pads = [extent // 2 for extent in line.taps] * 2
            nodes.append(helper.make_node("Conv", [f"x{i}", f"w{i}", f"b{i}"], [f"y{i}"], pads=pads))
            nodes.append(helper.make_node("Relu", [f"y{i}"], [f"x{i + 1}"]))
        shape = [1, line.channels, *line.image]
        source = helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)
        sink = helper.make_tensor_value_info(f"x{count}", TensorProto.FLOAT, None)
        graph = helper.make_graph(nodes, "line", [source], [sink], constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        options = ort.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        run = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        feed = {"x0": random.uniform(0.1, 1, shape).astype("float32")}
        number = max(1, int(MIN_SAMPLE_S / _timed(run, feed, 2)))
        return lambda: _timed(run, feed, number)

    one, chain = session(1), session(CHAIN)
    return lambda: (chain() - one()) / (CHAIN - 1)


def searched(module: Any, target: Any, bench: Any, layer: Layer | Line, trials: int) -> bytes:
    """The best candidate of so many."""
    from autosched_backend_autotvm import template_matching

    found = template_matching.find(module, target)
    if found.template is None:
        raise SystemExit(f"{layer.name}: {found.why_not}")
    task = (
        layer if isinstance(layer, Layer) else Layer(layer.name, "conv", layer.channels, layer.filters, layer.image[1])
    )
    search = yardstick._search("xgb", module, target, found.template, task, 0)
    tried: dict[bytes, float] = {}
    while len(tried) < trials and (batch := search.select(min(8, trials - len(tried)))):
        measured = []
        for candidate in batch:
            latency_s = bench.latency(candidate, yardstick.FIRST_REPEAT, min(tried.values(), default=float("inf")))
            tried[candidate] = latency_s or float("inf")
            measured.append((candidate, [latency_s] if latency_s else []))
        search.update(measured)
    return min(tried, key=lambda candidate: tried[candidate])


def workload(layer: Layer | Line, target: Any, one: "Algorithm | None") -> Any:
    """The task of a layer in blocks of a vector's length, by an algorithm or directly."""
    import tvm
    from tvm import te, topi

    from autosched_tvm.compile.layouts import layout_assignment
    from autosched_tvm.compile.winograd import workload as winograd

    lanes = layout_assignment.lanes(target)
    image, taps = (layer.image, layer.taps) if isinstance(layer, Line) else ((layer.size,) * 2, (layer.kernel,) * 2)
    tall, wide = (extent // 2 for extent in taps)
    inside, outside = layer.channels // lanes, layer.filters // lanes
    data = te.placeholder((1, inside, *image, lanes), name="data")
    if one:
        weights = te.placeholder((outside, one.products, layer.channels, lanes), name="weights")
        result = winograd.convolution(data, weights, one, (tall, wide, tall, wide))
    else:
        weights = te.placeholder((outside, inside, *taps, lanes, lanes), name="weights")
        with target:
            names = f"NCHW{lanes}c", f"NCHW{lanes}c"
            how = (1, 1), (tall, wide, tall, wide), (1, 1)
            result = topi.nn.conv2d_NCHWc(data, weights, *how, *names, "float32")
    bias = te.placeholder((1, outside, 1, 1, lanes), name="bias")
    return tvm.IRModule({"main": te.create_prim_func([data, weights, bias, topi.nn.relu(topi.add(result, bias))])})


if __name__ == "__main__":
    sys.exit(main())
