"""Lower bound of the time of float32 kernels without Winograd: ``python benchmarks/roofline.py NAME ...``.

The products of a network (convolutions, matrix products) need a fixed number of multiply-adds; a core completes a fixed
number of them in a second. The quotient bounds the latency of each engine that computes these products directly. If two
engines are both near the bound, neither can become much faster.

A C program of independent fused multiply-adds in vector registers measures the peak, which needs gcc. Conv,
ConvTranspose, Gemm and MatMul count, quantised or not, outside of loops, and LSTM, GRU and RNN with all their steps.
Prints one line for each network of networks.toml.
"""

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
from onnx import shape_inference

PROGRAM = r"""
#include <stdio.h>
#include <time.h>
#ifdef __AVX512F__
enum { LANES = 16, SUMS = 12 };
#elif defined(__AVX__)
enum { LANES = 8, SUMS = 10 };
#else
enum { LANES = 4, SUMS = 12 };
#endif
typedef float vector __attribute__((vector_size(4 * LANES)));
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
int main(void) {
    vector sums[SUMS], factor, term;
    for (int l = 0; l < LANES; l++) { factor[l] = 0.5f; term[l] = 1.0f; }
    for (int s = 0; s < SUMS; s++) sums[s] = term;
    double best = 0;
    for (int sample = 0; sample < 20; sample++) {
        const long rounds = 2000000;
        double started = now();
        for (long round = 0; round < rounds; round++) {
            #pragma GCC unroll 16
            for (int s = 0; s < SUMS; s++) sums[s] = sums[s] * factor + term;
        }
        double rate = 2.0 * LANES * SUMS * rounds / (now() - started);
        if (rate > best) best = rate;
    }
    float total = 0;
    for (int s = 0; s < SUMS; s++) total += sums[s][0];
    printf("%.6e %f\n", best, total);
    return 0;
}
"""
TIMEOUT_S = 60.0
"""Maximum time for compiling or running the program, in seconds."""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
"""Number of products of input and state in each step of a cell."""


def main() -> int:
    """Prints the bound of each named network."""
    from networks import networks

    from autosched_tvm.evaluation import model_forms

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml; default: all for training")
    args = parser.parse_args()
    rate = peak(max(os.sched_getaffinity(0)))
    print(f"peak of one core: {rate / 1e9:.1f} GFLOP/s")
    for network in networks(*args.names, half=None if args.names else "training"):
        with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
            written = model_forms.write(str(network.fetch(Path(folder))), network.shapes, folder)
            needed = operations(onnx.load(written[-1].path))
        print(f"{network.name:25} {needed / 1e9:8.3f} GFLOP, at least {1e3 * needed / rate:8.3f} ms")
    return 0


def peak(core: int, source: str = PROGRAM) -> float:
    """Returns operations per second of one core by a C program of fused multiply-adds. Raises OSError without gcc."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        program = Path(folder) / "peak"
        machine = "-mcpu=native" if os.uname().machine == "aarch64" else "-march=native"
        subprocess.run(
            ["gcc", "-O2", machine, "-ffp-contract=fast", "-x", "c", "-", "-o", str(program)],
            input=source, text=True, check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
        ran = subprocess.run(
            [sys.executable, "-c", "import os, sys; os.sched_setaffinity(0, {int(sys.argv[1])});"
             " os.execv(sys.argv[2], sys.argv[2:])", str(core), str(program)],
            capture_output=True, text=True, check=True, timeout=TIMEOUT_S,
        )  # fmt: skip
    return float(ran.stdout.split()[0])


def operations(model: Any) -> float:
    """Returns the floating-point operations of a model's products, two for each multiply-add. Its shapes must be
    fixed."""
    graph = shape_inference.infer_shapes(model).graph
    shapes = {
        value.name: tuple(extent.dim_value for extent in value.type.tensor_type.shape.dim)
        for value in (*graph.value_info, *graph.input, *graph.output)
    }
    shapes |= {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    return sum(2.0 * _multiply_adds(node, shapes) for node in graph.node)


def _multiply_adds(node: Any, shapes: Mapping[str, Sequence[int]]) -> int:
    given = [shapes.get(name, ()) for name in node.input]
    made = shapes.get(node.output[0], ())
    match node.op_type:
        case "Conv" | "ConvInteger" | "QLinearConv":
            kernel = given[3] if node.op_type == "QLinearConv" else given[1]
            return math.prod(made) * math.prod(kernel[1:])
        case "ConvTranspose":
            return math.prod(given[0]) * math.prod(given[1][1:])
        case "Gemm":
            turned = any(item.name == "transA" and item.i for item in node.attribute)
            return math.prod(made) * given[0][0 if turned else 1]
        case "MatMul" | "MatMulInteger" | "QLinearMatMul":
            return math.prod(made) * (given[0][-1] if given[0] else 0)
        case "LSTM" | "GRU" | "RNN":
            steps, batch, width = given[0]
            state = given[2][-1]
            return steps * batch * given[1][0] * GATES[node.op_type] * state * (width + state)
    return 0


if __name__ == "__main__":
    sys.exit(main())
