"""Compares attention as one kernel with attention as three, both tuned: ``python benchmarks/attention.py [NAME ...]``.

Each size is a network of one attention, as an exporter writes it: heads behind the rows, a scale. The variant with the
weights as a second output keeps its three kernels, since the weights must be written then. Both are tuned with the same
number of trials on one core, and measured in turns. Prints the ratio of their latencies as JSON.
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from trained_networks import WORKER_CALLS_MAX, tune

from autosched.backend import Lease
from autosched.process.forked_workers import Workers, prepare
from autosched_tvm import worker_messages
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, race
from autosched_tvm.generated_inputs import random_inputs

RACE_S = 10.0
"""Time for measuring both in turns, in seconds."""
RACE_TIMEOUT_S = 300.0
INPUT_SEED = 0


class Size(NamedTuple):
    """Sizes of one attention."""

    rows: int
    heads: int
    depth: int


SIZES = {
    "ViT-S/14": Size(257, 6, 64),
    "ViT-B/16": Size(197, 12, 64),
    "Whisper tiny encoder": Size(1500, 6, 64),
    "MiniLM, 128 words": Size(128, 12, 32),
}


def main() -> int:
    """Measures the named sizes, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*SIZES, []], metavar="NAME", help=", ".join(SIZES))
    parser.add_argument("--trials", type=int, default=96, help="for each network")
    args = parser.parse_args()
    rows = {name: measure(SIZES[name], args.trials) for name in args.names or SIZES}
    print(json.dumps({"trials": args.trials, "sizes": rows}, indent=1))
    return 0


def network(size: Size, *, weights: bool) -> Any:
    """Returns the attention. `weights`: they are an output, too."""
    make = helper.make_node
    shape = (1, size.rows, size.heads * size.depth)
    parts = {"heads": np.array([1, size.rows, size.heads, size.depth]), "joined": np.array(shape)}
    nodes = [make("Reshape", [name, "heads"], [f"{name}_heads"]) for name in "qkv"]
    nodes += [
        make("Transpose", ["q_heads"], ["q_first"], perm=[0, 2, 1, 3]),
        make("Transpose", ["k_heads"], ["k_first"], perm=[0, 2, 3, 1]),
        make("Transpose", ["v_heads"], ["v_first"], perm=[0, 2, 1, 3]),
        make("MatMul", ["q_first", "k_first"], ["products"]),
        make("Mul", ["products", "scale"], ["scores"]),
        make("Softmax", ["scores"], ["weights"], axis=-1),
        make("MatMul", ["weights", "v_first"], ["mixed"]),
        make("Transpose", ["mixed"], ["rows_first"], perm=[0, 2, 1, 3]),
        make("Reshape", ["rows_first", "joined"], ["y"]),
    ]
    outputs = {"y": shape} | ({"weights": (1, size.heads, size.rows, size.rows)} if weights else {})
    constants = {name: value.astype("int64") for name, value in parts.items()}
    constants["scale"] = np.asarray(size.depth**-0.5, "float32")
    graph = helper.make_graph(
        nodes, "attention", [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "qkv"],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def measure(size: Size, trials: int) -> dict[str, Any]:
    """Tunes both forms on one core, then measures them in turns."""
    device = (sorted(os.sched_getaffinity(0))[-1],)
    row: dict[str, Any] = size._asdict()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as temporary:
        folder = Path(temporary)
        modules = {}
        for name, weights in (("one kernel", False), ("three kernels", True)):
            own = folder / name.replace(" ", "-")
            own.mkdir()
            onnx.save(network(size, weights=weights), own / "attention.onnx")
            modules[name], tuned = asyncio.run(tune({}, own / "attention.onnx", device, trials, own))
            row[name] = {"tasks": tuned["tasks"], "took_s": tuned["took_s"]}
        prepare(worker_messages.PRELOAD)
        lease = Lease("evaluate", (), device, RACE_TIMEOUT_S)
        with EngineBenchmark(Workers(folder / "logs", recycle_after=WORKER_CALLS_MAX), lease) as contest:
            racers = []
            for name, module in modules.items():
                racer, side = contest.module(name, module)
                racer.bind(random_inputs(side.inputs, INPUT_SEED))
                racers.append(racer)
            found = race(racers, RACE_S)
    for timing in found.timings:
        row[timing.name]["median_s"] = timing.median_s
    row["ratio"] = row["one kernel"]["median_s"] / row["three kernels"]["median_s"]
    print(json.dumps(row), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    sys.exit(main())
