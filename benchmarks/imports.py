"""What imports: ``python benchmarks/imports.py [--half training] [--build] [--json FILE] [NAME ...]``.

For each network of networks.toml: does autosched import it, how many tasks it has, how far the rewritten ONNX file and
(with --build) the compiled network without schedules are from ONNX Runtime, or the reason why it is refused. Each
network has a process of its own. A difference is given relative to the largest absolute value of the output.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import networks
import numpy as np
from networks import Network

SEEDS = 3
SCALE_MIN = 1e-2
"""Scale of an output whose values are all smaller than this."""
RIGHT_MAX = 1e-3
"""Largest difference of a right network, relative to the scale of its output."""
QUANTISED_MAX = 0.1
"""The same for a network with quantised operators, which are computed in float32."""
TIMEOUT_S = 900.0


def main() -> int:
    """Print the table; the exit status is 1 when a network that ONNX Runtime runs is refused, or is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--half", choices=("training", "test"))
    parser.add_argument("--build", action="store_true", help="compile without schedules and compare that too")
    parser.add_argument("--json", type=Path, help="write the table as JSON")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    chosen = networks.networks(*args.names, half=args.half)
    if args.one:
        print(json.dumps(examined(chosen[0], build=args.build)))
        return 0
    rows = []
    for network in chosen:
        network.fetch()
        rows.append(_in_process(network, build=args.build))
        print(_line(rows[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")
    imported = sum(row["imported"] for row in rows)
    print(f"{imported} of {len(rows)} import; {sum(row['runs'] for row in rows)} run with ONNX Runtime")
    return int(any(row["runs"] and not (row["imported"] and row["right"]) for row in rows))


def _in_process(network: Network, *, build: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", network.name, *(["--build"] if build else [])]
    empty = {"name": network.name, "half": network.half, "kind": network.kind, "imported": False, "right": False,
             "runs": True}  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        return empty | {"reason": f"not done after {TIMEOUT_S:.0f} s"}
    if done.returncode != 0:
        return empty | {"reason": f"exit status {done.returncode}: {done.stderr.strip()[-200:]}"}
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return row


def examined(network: Network, *, build: bool) -> dict[str, Any]:
    """One row of the table."""
    import onnx

    from autosched.errors import AutoschedError
    from autosched_tvm.commands.model_check import quiet
    from autosched_tvm.compile import intrinsics, onnx_import, task_extraction
    from autosched_tvm.compile.candidate_build import load_target
    from autosched_tvm.compile.frontend import input_ranges, preparation, standard_operators
    from autosched_tvm.compile.targets import resolve

    path = network.fetch()
    row: dict[str, Any] = {"name": network.name, "half": network.half, "kind": network.kind, "imported": False,
                           "right": False, "runs": False}  # fmt: skip
    began = time.monotonic()
    with quiet():
        intrinsics.install()
        text = resolve("auto", 1)
        target = load_target(text)
        try:
            ready = onnx_import.prepare(path, network.shapes)
            module = onnx_import.network(ready.model, target)
            extracted, _ = task_extraction.extract([module], target)
        except AutoschedError as error:
            row["reason"] = str(error)
            highs = {}
        else:
            highs = input_ranges.highs(ready.model)
            row |= {"imported": True, "tasks": len(extracted.tasks), "skipped": len(extracted.skipped)}
        row["import_s"] = round(time.monotonic() - began, 1)
        original = _session(path.read_bytes())
        if original is None:
            return row
        samples = [_inputs(network, original, highs, seed) for seed in range(SEEDS)]
        try:
            expected = [original.run(None, sample) for sample in samples]
        except Exception as error:  # made-up inputs that this network does not take
            row["reason"] = f"ONNX Runtime: {error}"[:200]
            return row
        row["runs"] = True
        if not row["imported"]:
            return row
        prepared = _session(ready.model.SerializeToString())
        names = [value.name for value in preparation.inputs_of(ready.model)]
        taken = [{name: sample[name] for name in names} for sample in samples]
        if prepared is not None:
            row["rewritten"] = _difference(expected, [prepared.run(None, sample) for sample in taken])
        worst = row.get("rewritten", 0.0)
        if build:
            run = _built(module, text, ready.model)
            row["built"] = _difference(expected, [run(sample) for sample in taken])
            worst = max(worst, row["built"])
        quantised = standard_operators.is_quantised(onnx.load(path))
        row["right"] = bool(worst < (QUANTISED_MAX if quantised else RIGHT_MAX))
    return row


def _session(data: bytes) -> Any | None:
    """ONNX Runtime's session on one core; None for a model that it refuses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def _inputs(network: Network, session: Any, highs: dict[str, int], seed: int) -> dict[str, Any]:
    """Made-up inputs: normal numbers, and whole numbers below what the network allows."""
    random = np.random.default_rng(seed)
    made: dict[str, Any] = {}
    for value in session.get_inputs():
        shape = network.shapes[value.name]
        match value.type:
            case "tensor(float)":
                made[value.name] = random.standard_normal(shape).astype("float32")
            case "tensor(bool)":
                made[value.name] = random.integers(0, 2, shape) > 0
            case _:
                dtype = "int32" if "32" in value.type else "int64"
                made[value.name] = random.integers(0, highs.get(value.name, 2), shape).astype(dtype)
        if value.name in network.values:
            made[value.name] = np.full_like(made[value.name], network.values[value.name])
    return made


def _built(module: Any, target: str, model: Any) -> Any:
    """A function that runs the network compiled without schedules."""
    import tvm
    from tvm import relax
    from tvm.s_tir import meta_schedule as ms

    from autosched_tvm.compile import model_sources, network_compiler

    with tempfile.TemporaryDirectory() as folder:
        who = network_compiler.SideName("net", "default")
        network_compiler.write_build(
            Path(folder) / "net", module, model_sources.OnnxSource(model), target, ms.database.MemoryDatabase(), who
        )
        machine = relax.VirtualMachine(tvm.runtime.load_module(f"{folder}/net.so"), tvm.cpu())
    names = [value.name for value in model.graph.input]

    def run(sample: dict[str, Any]) -> list[Any]:
        made = machine["main"](*(tvm.runtime.tensor(sample[name]) for name in names))
        return [made.numpy()] if hasattr(made, "numpy") else [one.numpy() for one in made]

    return run


def _difference(expected: list[list[Any]], made: list[list[Any]]) -> float:
    """The largest difference, relative to the largest absolute value of its output; infinity for other shapes."""
    worst = 0.0
    for wanted, given in zip(expected, made, strict=True):
        for one, other in zip(wanted, given, strict=True):
            if one.shape != other.shape or (np.isnan(one) != np.isnan(other)).any():
                return float("inf")
            gap = np.nanmax(np.abs(one.astype("float64") - other), initial=0.0)
            worst = max(worst, gap / max(float(np.nanmax(np.abs(one), initial=0.0)), SCALE_MIN))
    return float(f"{worst:.1e}")


def _line(row: dict[str, Any]) -> str:
    if not row["imported"]:
        said = "" if row["runs"] else "; ONNX Runtime does not run it either"
        return f"{row['name']:25} {row['half']:9} REFUSED  {row.get('reason', '')[:140]}{said}"
    found = [f"{row[key]:8.1e}" if key in row else "        " for key in ("rewritten", "built")]
    verdict = "ok   " if row["right"] else "WRONG" if row["runs"] else "?    "
    return f"{row['name']:25} {row['half']:9} {verdict} {row['tasks']:4} tasks {row['skipped']:4} skipped" \
           f"  rewritten {found[0]}  built {found[1]}  {row['import_s']:5.1f} s {row.get('reason', '')}"  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
