"""What fusing depthwise with pointwise convolutions could gain: ``python benchmarks/fused_pairs.py [--core 1]``.

A fused kernel would keep what the depthwise convolution makes in the nearest cache, where the pointwise convolution
reads it. At best, it saves the difference between the depthwise convolution of all channels, as it runs in a network,
and as many depthwise convolutions of one block of channels, whose input and output stay in the nearest cache. The
pointwise convolution of a network reads from the second-level cache in order, at nearly the core's peak; its rate is
printed beside the peak. Kernels are those by rule, with a bias and a ReLU, on one core. Prints a table.
"""

import argparse
import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")

import numpy as np  # noqa: E402  (reads the number of threads when it is imported)
import onnx  # noqa: E402
import roofline  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

BLOCK = 16
"""Channels of a block."""
COPIES = 4
"""Pairs in a network, one after the other."""
SECONDS = 2.0
"""For timing the operators of one network."""


@dataclass(frozen=True)
class Pair:
    """A depthwise convolution and the pointwise one after it, both with as many channels as they are given."""

    channels: int
    height: int
    width: int
    kernel: int

    def network(self, channels: int, *, pointwise: bool) -> Any:
        """The pairs, or only their depthwise convolutions, one after the other, with so many channels."""
        generator = np.random.default_rng(0)
        nodes, weights, last = [], [], "x"
        for copy in range(COPIES):
            kinds = [("depthwise", (channels, 1, self.kernel, self.kernel), channels)]
            kinds += [("pointwise", (channels, channels, 1, 1), 1)] * pointwise
            for kind, shape, groups in kinds:
                name, padding = f"{kind}{copy}", shape[2] // 2
                weights += [
                    numpy_helper.from_array(generator.standard_normal(shape, "float32") / 9, f"{name}_w"),
                    numpy_helper.from_array(generator.standard_normal(channels, "float32"), f"{name}_b"),
                ]
                nodes += [
                    helper.make_node(
                        "Conv", [last, f"{name}_w", f"{name}_b"], [f"{name}_y"], group=groups, pads=[padding] * 4
                    ),
                    helper.make_node("Relu", [f"{name}_y"], [name]),
                ]
                last = name
        image = [1, channels, self.height, self.width]
        ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, image) for name in ("x", last)]
        graph = helper.make_graph(nodes, "pairs", ends[:1], ends[1:], initializer=weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


PAIRS = (
    Pair(32, 112, 112, 3), Pair(64, 56, 56, 3), Pair(128, 28, 28, 3), Pair(256, 14, 14, 3), Pair(512, 7, 7, 3),
    Pair(64, 20, 80, 3), Pair(128, 10, 80, 3), Pair(256, 5, 80, 5), Pair(512, 3, 80, 5), Pair(96, 80, 80, 5),
)  # fmt: skip


def main() -> int:
    """Measure all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    args = parser.parse_args()
    peak = roofline.peak(args.core)
    os.sched_setaffinity(0, {args.core})
    print("channels x height x width, kernel   depthwise  in the nearest cache  pointwise (us; of peak)  gain at most")
    for pair in PAIRS:
        depthwise_s, pointwise_s = times(pair.network(pair.channels, pointwise=True))
        block_s, _ = times(pair.network(BLOCK, pointwise=False))
        near_s = block_s * pair.channels / BLOCK
        operations = 2.0 * pair.channels**2 * pair.height * pair.width
        gain = max(0.0, depthwise_s - near_s) / (depthwise_s + pointwise_s)
        name = f"{pair.channels}x{pair.height}x{pair.width}, {pair.kernel}x{pair.kernel}"
        print(
            f"{name:34} {1e6 * depthwise_s:10.1f} {1e6 * near_s:21.1f} {1e6 * pointwise_s:10.1f}"
            f" {operations / pointwise_s / peak:10.0%} {gain:20.1%}",
            flush=True,
        )
    return 0


def times(network: Any) -> tuple[float, float]:
    """Mean seconds of a depthwise and of a pointwise convolution in this network; 0 where it has none."""
    from autosched_tvm.compile import network_compiler
    from autosched_tvm.compile.targets import resolve
    from autosched_tvm.device.loaded_module import LoadedModule
    from autosched_tvm.device.operator_profiling import measured
    from autosched_tvm.generated_inputs import random_inputs
    from autosched_tvm.worker_messages import Compilation

    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        onnx.save(network, f"{folder}/net.onnx")
        network_compiler.compile_network(
            Compilation(f"{folder}/net.onnx", resolve("auto", 1), folder, "net", "nchwc"), []
        )
        module = LoadedModule(Path(folder) / "tuned")
        rows = measured(module, module.bind(random_inputs(module.info.inputs)), SECONDS).rows
    found = {"depthwise": 0.0, "conv2d": 0.0}
    for row in rows:
        kind = next((kind for kind in found if row.name.startswith(kind)), None)
        if kind is not None:
            found[kind] += row.time_s / COPIES
    return found["depthwise"], found["conv2d"]


if __name__ == "__main__":
    sys.exit(main())
