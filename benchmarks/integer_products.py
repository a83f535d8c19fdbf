"""Products of 8-bit numbers against the peak of the CPU's instruction: ``python benchmarks/integer_products.py``.

The peak is that of a C program whose operands stay in registers: of VPDPBUSD with AVX-512 VNNI, else of VPMADDWD and
VPADDD with AVX2. It needs gcc. It and the kernels take turns on one core, and of each the fastest run counts: a shared
machine is not equally fast all the time. A kernel is a product of a network, with the scale and the rest that is added
to each sum; of the schedules by rule and drawn the fastest counts. Prints the shares as JSON.
"""

import argparse
import json
import math
import os
import sys
from typing import Any

os.environ["TVM_NUM_THREADS"] = "1"  # a second thread on the same core would take as long as a small product

import numpy as np
import tvm
from roofline import peak
from tvm import te

from autosched_tvm.compile import kernel_sketches, lowering, targets
from autosched_tvm.compile.integers import dot_instructions, product, tile_instructions
from autosched_tvm.compile.integers.dot_instructions import PAIRS_256, VNNI_512, DotInstruction

Array = np.ndarray[Any, Any]

PROGRAM = r"""
#include <immintrin.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#ifdef __AVX512VNNI__
typedef __m512i vector;
enum { BYTES = 64, SUMS = 16, PRODUCTS = 64 };
#define ALL X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15)
#define ADDED(sums) _mm512_dpbusd_epi32(sums, data, weights)
#define ANY "v"
#else
typedef __m256i vector;
enum { BYTES = 32, SUMS = 10, PRODUCTS = 16 };
#define ALL X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9)
#define ADDED(sums) _mm256_add_epi32(sums, _mm256_madd_epi16(data, weights))
#define ANY "x"
#endif
static double now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec + 1e-9 * t.tv_nsec; }
static vector filled(char byte) {
    char all[BYTES];
    vector made;
    memset(all, byte, BYTES);
    memcpy(&made, all, BYTES);
    return made;
}
static int first(vector whole) {
    int number;
    memcpy(&number, &whole, sizeof number);
    return number;
}
int main(void) {
    vector data = filled(3), weights = filled(5);
#define X(number) vector sums##number = filled(number);
    ALL
#undef X
    double best = 0;
    for (int sample = 0; sample < 2000; sample++) {
        const long rounds = 10000;
        double started = now();
        for (long round = 0; round < rounds; round++) {
#define X(number) sums##number = ADDED(sums##number); \
    __asm__ volatile("" : "+" ANY(sums##number), "+" ANY(data), "+" ANY(weights));
            ALL
#undef X
        }
        double rate = 2.0 * PRODUCTS * SUMS * rounds / (now() - started);
        if (rate > best) best = rate;
    }
    int total = 0;
#define X(number) total += first(sums##number);
    ALL
    printf("%.6e %d\n", best, total);
    return 0;
}
"""
SHAPES = (
    (128, 384, 384), (128, 384, 1536), (128, 1536, 384), (257, 384, 1152), (257, 384, 1536), (400, 384, 1536),
    (40, 480, 120), (196, 512, 128), (784, 64, 256), (49, 1024, 256), (12, 1024, 4096),
)  # fmt: skip
"""Rows, depth and columns of products of transformers, readers of text and image networks."""
DRAWN = 12
"""Number of drawn schedules for each shape."""
ROUNDS = 3
"""Number of turns of the peak and all schedules of a shape."""
REPEATS = 30


def main() -> int:
    """Measures all shapes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drawn", type=int, default=DRAWN, help="schedules that are drawn for each product")
    args = parser.parse_args()
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    target = tvm.target.Target(json.loads(targets.resolve("auto", 1)))
    instruction = next((one for one in (VNNI_512, PAIRS_256) if one in dot_instructions.available(target)), None)
    if instruction is None:
        print("No peak is known here: this machine has neither AVX-512 VNNI nor AVX2.", file=sys.stderr)
        return 1
    rows = []
    for shape in SHAPES:
        row = measured(shape, target, instruction, core, args.drawn)
        print(json.dumps(row), file=sys.stderr, flush=True)
        rows.append(row)
    shares = [row["vectors"] for row in rows]
    mean = math.exp(sum(map(math.log, shares)) / len(shares))
    print(json.dumps({"geometric_mean": mean, "least": min(shares), "products": rows}, indent=1))
    return 0


def measured(
    shape: tuple[int, int, int], target: Any, instruction: DotInstruction, core: int, drawn: int
) -> dict[str, Any]:
    """Returns the share of the peak of the fastest schedules: on vectors and, where possible, on tiles."""
    ways = {"vectors": product.product}
    if tile_instructions.available(target):
        ways["tiles"] = product.tiled_product
    kernels = {name: built(shape, way, target, instruction, drawn) for name, way in ways.items()}
    inputs = arguments(shape, instruction)
    best, fastest_s = 0.0, dict.fromkeys(ways, math.inf)
    for _ in range(ROUNDS):
        best = max(best, peak(core, PROGRAM))
        for name, made in kernels.items():
            for kernel in made:
                times = kernel.time_evaluator("main", tvm.cpu(), number=3, repeat=REPEATS)(*inputs).results
                fastest_s[name] = min(fastest_s[name], *times)
    operations = 2.0 * math.prod(shape)
    shares = {name: round(operations / fastest / best, 3) for name, fastest in fastest_s.items()}
    return {"shape": shape, "peak_gops": round(best / 1e9), **shares}


def built(shape: tuple[int, int, int], way: Any, target: Any, instruction: DotInstruction, drawn: int) -> list[Any]:
    """Returns a product's kernels, one for each schedule that compiles."""
    rows, depth, columns = shape
    lanes, group = instruction.lanes, instruction.group
    blocks = -(-columns // lanes)
    data = te.placeholder((rows, depth), instruction.data, name="data")
    weights = te.placeholder((blocks, depth // group, lanes, group), instruction.weights, name="weights")
    scale, rest = (te.placeholder((blocks * lanes,), "float32", name=name) for name in ("scale", "rest"))
    sums = way(data, weights)
    real = te.compute(sums.shape, lambda i, j: sums[i, j].astype("float32") * scale[j] + rest[j], name="real")
    function = te.create_prim_func([data, weights, scale, rest, real])
    workload = tvm.IRModule({"main": function})
    schedules = [kernel_sketches.sampled(workload, seed) for seed in range(1, drawn + 1)]
    by_rule = kernel_sketches.by_rule(function, targets.vector_registers(target))
    functions = [by_rule, *(one.mod["main"] for one in schedules if one is not None)]
    with target, tvm.transform.PassContext(opt_level=3):
        return [
            tvm.tirx.build(
                tvm.IRModule({"main": one.with_attr("global_symbol", "main")}), target=target,
                pipeline=lowering.install(),
            )
            for one in functions if one is not None
        ]  # fmt: skip


def arguments(shape: tuple[int, int, int], instruction: DotInstruction) -> list[Any]:
    """Returns data, packed weights, scales, addends, and a buffer for the results."""
    rows, depth, columns = shape
    drawn = np.random.default_rng(0)
    weights = product.pack(drawn.integers(-128, 128, (depth, columns)).astype("int8"), instruction)
    wide = len(weights) * instruction.lanes
    arrays: list[Array] = [
        drawn.integers(0, 256, (rows, depth)).astype(instruction.data), weights, np.ones(wide, "float32"),
        np.zeros(wide, "float32"), np.zeros((rows, wide), "float32"),
    ]  # fmt: skip
    return [tvm.runtime.tensor(array) for array in arrays]


if __name__ == "__main__":
    sys.exit(main())
