"""Compiled networks in the runtime beside ONNX Runtime: time to the first result, cost of a call, memory. Prints JSON.

``python benchmarks/deploy.py [NAME ...]`` or ``make bench-deploy``; without names: the networks of the half "test".
Each process sees NumPy and one of both engines alone. Networks are compiled once, without a search. Results are added
to benchmarks/results/deploy.json after each network, and a network that is there is skipped without --again.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
from networks import Network, networks
from raw_results import with_origin
from tvm import relax

from autosched import user_folders
from compiled_networks import compiled

RESULTS = Path(__file__).parent / "results" / "deploy.json"
CACHE = user_folders.cache() / "autosched" / "deployed"
LIMIT_S = 300.0
STARTS = 7
"""Processes of each engine whose time to the first result is measured, from where NumPy is there; the median counts."""
TURNS = 4
"""Processes in which the latency of a session is measured, and as many for `autosched evaluate`."""
ENGINES = {"runtime": "autosched_runtime", "onnxruntime": "onnxruntime"}
"""Package of each engine."""
SHARED = ("numpy", "numpy.libs", "ml_dtypes")
ADDITION = "addition"
"""A network of one addition of 16 numbers."""

SESSION = """
import json, sys, time
import numpy as np
made = np.random.default_rng(0)  # NumPy loads this part of itself late
began = time.perf_counter()
import ENGINE as ort
options = ort.SessionOptions()
options.intra_op_num_threads = 1
session = ort.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
shapes = json.loads(sys.argv[2])
types = {"tensor(float)": "float32", "tensor(double)": "float64"}
feed = {}
for one in session.get_inputs():
    kind = types.get(one.type, one.type[7:-1])
    size = shapes.get(one.name) or [n if isinstance(n, int) and n > 0 else 1 for n in one.shape]
    feed[one.name] = np.zeros(size, kind) if "float" not in kind else made.random(size).astype(kind)
"""
START = "session.run(None, feed)\nprint(json.dumps({'seconds': time.perf_counter() - began}))\n"
CALLS = """
best = 1e9
for _ in range(200):
    started = time.perf_counter()
    for _ in range(CALLS):
        session.run(None, feed)
    best = min(best, (time.perf_counter() - started) / CALLS)
print(json.dumps({"seconds": best}))
"""
LATENCY = """
import os, statistics
os.sched_setaffinity(0, {int(sys.argv[3])})
def timed(number):
    started = time.perf_counter()
    for _ in range(number):
        session.run(None, feed)
    return (time.perf_counter() - started) / number
timed(1)
number = max(1, int(0.02 / timed(1)))
until, times = time.perf_counter() + 1.0, []
while len(times) < 3 or time.perf_counter() < until:
    times.append(timed(number))
print(json.dumps({"seconds": statistics.median(times)}))
"""
EVALUATED = """
import json, os, sys
from pathlib import Path
os.sched_setaffinity(0, {int(sys.argv[2])})
from autosched_tvm.device.loaded_module import LoadedModule
print(json.dumps({"seconds": LoadedModule(Path(sys.argv[1]), threads=1).evaluate(budget_s=1.0).median_s}))
"""
"""The measurement of `autosched evaluate`, on one core."""
MEMORY = """
import json, re, sys
from pathlib import Path
import numpy as np
import autosched_runtime.session
def resident():
    return 1024 * int(re.search(r"VmRSS:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
before = resident()
one = autosched_runtime.load(sys.argv[1])
after = resident()
other = autosched_runtime.load(sys.argv[1])
print(json.dumps({"loaded_bytes": after - before, "second_bytes": resident() - after}))
"""
IDLE = """
import json, sys, threading, time
import numpy as np
import autosched_runtime
network = autosched_runtime.load(sys.argv[1], threads=2)
network.run([np.zeros(one.shape, one.dtype) for one in network.description.inputs])
before = time.process_time()
threading.Event().wait(1.0)
print(json.dumps({"seconds": time.process_time() - before}))
"""


def main() -> int:
    """Measures the named networks, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml")
    parser.add_argument("--again", action="store_true", help="measure networks again that were measured before")
    args = parser.parse_args()
    told: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"networks": {}}
    with tempfile.TemporaryDirectory(prefix="autosched-deploy-") as temporary:
        places = Places(Path(temporary))
        if args.again or ADDITION not in told:
            told[ADDITION] = with_origin(addition(places))
        chosen = networks(*args.names, half=None if args.names else "test")
        for network in chosen:
            if network.name in told["networks"] and not args.again:
                continue
            print(f"== {network.name}", file=sys.stderr, flush=True)
            with compiled([network.name], CACHE) as made:
                told["networks"][network.name] = with_origin(measured(network, made[network.name], places))
            RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return 0


class Places:
    """A folder for each engine, in which a process finds it and NumPy."""

    def __init__(self, folder: Path) -> None:
        """Installs the runtime's wheel, and measures its size."""
        self._folder, installed = folder, Path(sysconfig.get_path("purelib"))
        for engine in ENGINES:
            (folder / engine).mkdir()
            for package in SHARED:
                if (installed / package).exists():
                    (folder / engine / package).symlink_to(installed / package)
        (folder / "onnxruntime" / "onnxruntime").symlink_to(installed / "onnxruntime")
        words = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), "runtime"]
        subprocess.run(words, check=True, cwd=Path(__file__).parents[1], stdout=sys.stderr, timeout=LIMIT_S)
        (wheel,) = folder.glob("*.whl")
        self.wheel_bytes = wheel.stat().st_size
        words = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target"]
        subprocess.run([*words, str(folder / "runtime"), str(wheel)], check=True, timeout=LIMIT_S)

    def run(self, engine: str, program: str, *words: str) -> dict[str, Any]:
        """Returns what a program prints that sees an engine. NumPy has no threads of its own there: they are busy for
        some 20 ms after it is imported."""
        done = subprocess.run(
            [sys.executable, "-S", "-c", program.replace("ENGINE", ENGINES[engine]), *words],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(self._folder / engine), "OPENBLAS_NUM_THREADS": "1"},
            stdout=subprocess.PIPE, check=True, timeout=LIMIT_S,
        )  # fmt: skip
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def evict(self, engine: str, *files: Path) -> None:
        """Takes files, and those of an engine and NumPy, out of the file cache. Source: posix_fadvise(2)."""
        for path in (*files, *(self._folder / engine).glob("*/**/*")):
            if path.is_file():
                with path.open("rb") as file:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def measured(network: Network, library: Path, places: Places) -> dict[str, Any]:
    """Returns the figures of one network."""
    files = {"runtime": library, "onnxruntime": network.fetch()}
    shapes = json.dumps({name: list(shape) for name, shape in network.shapes.items() if shape})
    starts: dict[str, list[float]] = {engine: [] for engine in files}
    for _ in range(STARTS):
        for engine, file in files.items():
            places.evict(engine, file)
            starts[engine].append(places.run(engine, SESSION + START, str(file), shapes)["seconds"])
    return {
        "start_s": {engine: statistics.median(found) for engine, found in starts.items()},
        "latency_s": latencies(library, shapes, places),
        "library_bytes": library.stat().st_size,
        **places.run("runtime", MEMORY, str(library)),
        "idle_s": places.run("runtime", IDLE, str(library))["seconds"],
    }


def latencies(library: Path, shapes: str, places: Places) -> dict[str, float]:
    """Returns the latency of a session, and that which `autosched evaluate` finds, in turns: the least of each."""
    core = str(max(os.sched_getaffinity(0)))
    found: dict[str, list[float]] = {"session": [], "evaluate": []}
    for _ in range(TURNS):
        told = places.run("runtime", SESSION + LATENCY, str(library), shapes, core)
        found["session"].append(told["seconds"])
        done = subprocess.run(
            [sys.executable, "-c", EVALUATED, str(library), core], stdout=subprocess.PIPE, check=True, timeout=LIMIT_S
        )
        found["evaluate"].append(json.loads(done.stdout)["seconds"])
    return {name: min(times) for name, times in found.items()}


def addition(places: Places) -> dict[str, Any]:
    """Returns the cost of a call of a network of one addition, in turns, and the size of the wheel."""
    with added() as files:
        rounds = [
            {engine: places.run(engine, SESSION + CALLS.replace("CALLS", "500"), str(file), "{}")["seconds"]
             for engine, file in files.items()}
            for _ in range(STARTS)
        ]  # fmt: skip
    return {
        "call_s": {engine: min(one[engine] for one in rounds) for engine in ENGINES},
        "wheel_bytes": places.wheel_bytes,
    }


@contextmanager
def added() -> Iterator[Mapping[str, Path]]:
    """Yields files of the addition for both engines."""
    import onnx

    shape = [1, 16]
    names: Sequence[str] = ("x", "y")
    given = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in (*names, "z")]
    graph = onnx.helper.make_graph([onnx.helper.make_node("Add", list(names), ["z"])], "add", given[:2], given[2:])
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType(tuple(shape), "float32")) for name in names)
    with builder.function("main", [x, y]):
        builder.emit_func_output(builder.emit(relax.op.add(x, y)))
    tensors = [{"name": name, "shape": shape, "dtype": "float32"} for name in (*names, "z")]
    side = {"name": "add", "inputs": tensors[:2], "outputs": tensors[2:], "target": {"kind": "llvm"}}
    with tempfile.TemporaryDirectory(prefix="autosched-addition-") as temporary:
        folder = Path(temporary)
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
        onnx.save(model, folder / "add.onnx")
        module = relax.transform.LegalizeOps()(builder.get())
        tvm.compile(module, target=tvm.target.Target({"kind": "llvm"})).export_library(str(folder / "add.so"))
        (folder / "add.json").write_text(json.dumps(side))
        yield {"runtime": folder / "add.so", "onnxruntime": folder / "add.onnx"}


if __name__ == "__main__":
    sys.exit(main())
