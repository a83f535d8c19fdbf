"""Compares the times of operators in a tuned network and in ONNX Runtime.

``python benchmarks/operators.py MODULE MODEL.onnx [--core 1]`` prints a table to stderr and a JSON object. Both run the
whole network on one core, in turns. ONNX Runtime's times are those of its own profile; ours are taken around each
kernel in the network, with caches and memory as in use. Operators that are fused into a kernel (bias, sum, ReLU) count
with it, on both sides. Equal operators (kind, kernel and result) are summed.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TVM_NUM_THREADS"):
    os.environ.setdefault(variable, "1")
os.environ.setdefault("TVM_BIND_THREADS", "0")

TURNS, IN_A_ROW = 40, 5
"""Number of turns, and of inferences in a turn, the first of which is left out, since the caches hold the other
network."""
KINDS = {
    "conv": "conv", "fusedconv": "conv", "matmul": "dense", "gemm": "dense", "dense": "dense", "max_pool": "max pool",
    "maxpool": "max pool", "avg_pool": "mean", "averagepool": "mean", "globalaveragepool": "mean", "mean": "mean",
    "concat": "concat", "softmax": "softmax", "reorder": "move", "layout_transform": "move",
}  # fmt: skip
"""Beginning or part of a name, and the word for it in the table."""
Shape = tuple[int, ...]


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--core", type=int, default=max(os.sched_getaffinity(0)))
    args = parser.parse_args()
    os.sched_setaffinity(0, {args.core})
    rows = compared(args.module, args.model)
    for row in rows:
        print(f"{row['operator']:<40} {row['ours_us']:9.1f} {row['onnxruntime_us']:9.1f}", file=sys.stderr)
    print(json.dumps(rows))


def compared(module: Path, model: Path) -> list[dict[str, Any]]:
    """Returns a row for each kind of operator, ordered by our loss."""
    import msgspec

    from autosched_tvm.compile.side_file import SideFile
    from autosched_tvm.generated_inputs import random_inputs

    side = msgspec.json.decode(module.with_suffix(".json").read_bytes(), type=SideFile)
    inputs = random_inputs(side.inputs)
    ours = Ours(module, list(inputs.values()))
    with tempfile.TemporaryDirectory() as folder:
        theirs = Theirs(model, inputs, Path(folder))
        for _ in range(TURNS):
            for _ in range(IN_A_ROW):
                ours.run()
            for _ in range(IN_A_ROW):
                theirs.run()
        sides = {"ours_us": ours.medians_us(), "onnxruntime_us": theirs.medians_us()}
    calls: dict[str, dict[str, int]] = {name: {} for name in sides}
    rows: defaultdict[str, dict[str, float]] = defaultdict(lambda: dict.fromkeys(sides, 0.0))
    for name, times in sides.items():
        for operator, median_us in times:
            rows[operator][name] += median_us
            calls[name][operator] = calls[name].get(operator, 0) + 1
    told = [
        {"operator": operator, "calls": max(each.get(operator, 0) for each in calls.values()), **times}
        for operator, times in rows.items()
    ]
    return sorted(told, key=lambda row: float(row["onnxruntime_us"]) - float(row["ours_us"]))


class Ours:
    """The tuned network, with a clock around each of its kernels."""

    def __init__(self, module: Path, inputs: Sequence[Any]) -> None:
        from autosched_tvm.device.loaded_module import LoadedModule

        loaded = LoadedModule(module)
        self._machine = loaded.machine()
        self._machine.set_instrument(self._around)
        self._inputs = loaded.tensors(inputs)
        self._names: list[str] = []
        self._runs: list[list[float]] = []
        self._since = 0.0

    def run(self) -> None:
        """Runs one inference."""
        self._runs.append([])
        self._machine["main"](*self._inputs)

    def medians_us(self) -> list[tuple[str, float]]:
        """Returns the times of all kernels, in order."""
        counted = [run for number, run in enumerate(self._runs) if number % IN_A_ROW]
        return [
            (name, 1e6 * statistics.median(samples))
            for name, samples in zip(self._names, zip(*counted, strict=True), strict=True)
        ]

    def _around(self, _function: Any, name: str, before: bool, _value: Any, *args: Any) -> None:
        if name.startswith("vm."):
            return
        if before:
            self._since = time.perf_counter()
            return
        self._runs[-1].append(time.perf_counter() - self._since)
        if len(self._runs) == 1:
            shapes = [tuple(int(size) for size in arg.shape) for arg in args if hasattr(arg, "shape")]
            self._names.append(told(name, shapes[1] if len(shapes) > 2 else (), shapes[-1]))


class Theirs:
    """The model in ONNX Runtime, with its profile."""

    def __init__(self, model: Path, inputs: Mapping[str, Any], folder: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4
        options.enable_profiling = True
        options.profile_file_prefix = str(folder / "profile")
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._inputs = dict(inputs)

    def run(self) -> None:
        """Runs one inference."""
        self._session.run(None, self._inputs)

    def medians_us(self) -> list[tuple[str, float]]:
        """Returns the times of all kernels, in order."""
        events = json.loads(Path(self._session.end_profiling()).read_text())
        kernels = [event for event in events if event["name"].endswith("_kernel_time")]
        found: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for event in sorted(kernels, key=lambda event: int(event["ts"])):
            found[event["name"]].append(event)
        return [
            (self._told(own[0]["args"]), statistics.median(e["dur"] for n, e in enumerate(own) if n % IN_A_ROW))
            for own in found.values()
        ]

    def _told(self, args: Mapping[str, Any]) -> str:
        shapes = [tuple(next(iter(entry.values()))) for entry in args["input_type_shape"]]
        result = tuple(next(iter(args["output_type_shape"][0].values())))
        return told(args["op_name"], shapes[1] if len(shapes) > 1 else (), result)


def told(name: str, weights: Shape, result: Shape) -> str:
    """Returns the name of an operator in the table: its kind, kernel and result in any layout. A convolution may write
    into a part of a larger tensor, so its weights give the number of channels."""
    lowered = name.lower()
    kind = next((kind for part, kind in KINDS.items() if part in lowered), lowered)
    channels, image = result[1:2], result[2:4]
    if len(result) == 5:
        channels = (result[1] * result[4],)
    if kind == "conv":
        inside, outside = weights[4:] if len(weights) == 6 else (1, 1)
        channels = (weights[0] * outside,)
        kind = f"conv {'x'.join(map(str, weights[2:4]))} of {weights[1] * inside}"
    return f"{kind} to {channels[0] if channels else 1}" + (f" x {'x'.join(map(str, image))}" if image else "")


if __name__ == "__main__":
    main()
