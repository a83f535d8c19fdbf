"""Measures trained networks against other engines: ``python benchmarks/trained_networks.py [NAME ...]``.

Each network of networks.toml is tuned with all defaults, on a device of one core and on one of two cores. Then the
tuned module is measured in turns with ONNX Runtime (the fastest of: the model as it is, with fixed shapes, simplified),
OpenVINO, ncnn and MNN, each in its own process, pinned to the device's cores, in an order drawn for each round. An
engine that is not installed or cannot run the network is left out, with the reason.

Nothing is tuned or developed on the networks of the half "test", whose means are reported.

Results are added to benchmarks/results/trained_networks.json after each network, and a network that is there is skipped
without --again. Prints the whole as JSON.
"""

import argparse
import asyncio
import json
import math
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import rival_engines
import roofline
from against_stock import finish
from networks import Network, networks
from private import answering, private_daemon
from raw_results import with_origin

from autosched import api
from autosched.api.result_folder import read_evaluation
from autosched.backend import EVALUATION, Lease
from autosched.errors import AutoschedError
from autosched.process.forked_workers import WorkerError, Workers, prepare
from autosched.protocol import Done, Shutdown
from autosched_tvm import worker_messages
from autosched_tvm.evaluation import model_forms
from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark, race
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Array

RESULTS = Path(__file__).parent / "results" / "trained_networks.json"
RACE_S = 15.0
"""Time for measuring all engines together, in seconds."""
OPERATORS_S = 3.0
"""Time for measuring the operators of the tuned module, in seconds."""
RACE_TIMEOUT_S = 900.0
"""Maximum time for loading, converting and measuring all engines of one network, in seconds."""
WORKER_CALLS_MAX = 100
INPUT_SEED = 0


def main() -> int:
    """Measures the named networks, or all of one half."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="networks of networks.toml")
    parser.add_argument("--half", choices=("training", "test"), default="test", help="when no network is named")
    parser.add_argument("--cores", type=int, nargs="+", default=[1, 2], metavar="N", help="cores of the device")
    parser.add_argument("--trials", type=int, help="maximum number of trials; default: the backend's")
    parser.add_argument("--again", action="store_true", help="measure networks again that were measured before")
    args = parser.parse_args()
    told: dict[str, Any] = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"networks": {}}
    for network in networks(*args.names, half=None if args.names else args.half):
        for cores in args.cores:
            key = f"{network.name}, {cores} core" + "s" * (cores > 1)
            if key in told["networks"] and not args.again:
                continue
            print(f"== {key}", file=sys.stderr, flush=True)
            told["networks"][key] = with_origin(measure(network, cores, args.trials))
            RESULTS.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told))
    return 0


def measure(network: Network, cores: int, trials: int | None) -> dict[str, Any]:
    """Tunes a network on a device with this number of cores, then races it. The row names failures."""
    usable = sorted(os.sched_getaffinity(0))
    device = tuple(usable[-cores:])
    row: dict[str, Any] = {
        "name": network.name, "kind": network.kind, "half": network.half, "quantised": network.quantised,
        "cores": cores,
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as temporary:
        folder = Path(temporary)
        model = network.fetch(folder)
        try:
            module, tuned = asyncio.run(tune(network.shapes, model, device, trials, folder))
        except AutoschedError as error:
            return {**row, "failed": str(error)}
        row |= tuned | _race(network, model, module, device, folder)
    return row


async def tune(
    shapes: Mapping[str, Sequence[int]], model: Path, device: tuple[int, ...], trials: int | None, folder: Path
) -> tuple[Path, dict[str, Any]]:
    """Returns the tuned module of a network with these input shapes, and the cost of tuning. Raises AutoschedError."""
    settings = f'[[device]]\nname = "cpu0"\nkind = "cpu"\ncores = {list(device)}\n'
    with private_daemon(folder, settings) as process:
        daemon = await answering(f"unix:{folder}/api.sock", psutil.Process(process.pid))
        try:
            loaded = api.load_model(model, shapes)
            job = await api.submit(daemon, loaded, api.Settings(fresh=True, trials=trials))
            done = await finish(daemon, job, folder / "out")
            artifact = next(a for a in await daemon.artifacts(job) if a.name == EVALUATION)
            evaluation = read_evaluation((await daemon.download(artifact, folder)).read_bytes())
        finally:
            await daemon.link.call(Shutdown(), Done)
            daemon.close()
    view = done.view
    return done.module, {
        "tasks": len(view.tasks),
        "trials": view.trials,
        "took_s": (view.ended_at or view.now) - view.submitted_at,
        "faster_after_s": view.comparison.faster_after_s if view.comparison is not None else None,
        "published": evaluation.published,
        "outputs_equal": evaluation.outputs_equal,
        "notes": list(evaluation.notes),
    }


def _race(network: Network, model: Path, module: Path, device: tuple[int, ...], folder: Path) -> dict[str, Any]:
    """Returns the latencies of all engines in one race, and the largest differences of their outputs from ONNX
    Runtime's."""
    prepare(worker_messages.PRELOAD)
    written = model_forms.write(str(model), network.shapes, str(folder / "forms"))
    left_out: dict[str, str] = {}
    errors: dict[str, float] = {}
    versions: dict[str, str] = {}
    lease = Lease("evaluate", (), device, RACE_TIMEOUT_S)
    with EngineBenchmark(Workers(folder / "logs", recycle_after=WORKER_CALLS_MAX), lease) as contest:
        ours, side = contest.module("autosched", module)
        inputs = random_inputs(side.inputs, INPUT_SEED)
        for name, value in network.values.items():
            inputs[name] = np.full_like(inputs[name], value)
        ours.bind(inputs)
        operators = ours.operators(OPERATORS_S)
        rival = contest.rival(written, inputs)
        if isinstance(rival, str):
            return {"left_out": {"onnxruntime": rival}}
        versions["onnxruntime"] = rival.version
        errors["autosched"] = difference(rival.expected, ours.run(inputs))
        racers = [ours, rival.contestant]
        for name in rival_engines.RIVALS:
            for form in reversed(written):  # the simplified form first: converters support few operators
                try:
                    arguments = (name, form.path, dict(inputs), len(device))
                    contestant, versions[name] = contest.enter(name, rival_engines.LOAD, *arguments)
                    errors[name] = difference(rival.expected, contestant.run(inputs))
                except WorkerError as error:
                    left_out[name] = str(error)[:200]
                    continue
                left_out.pop(name, None)
                racers.append(contestant)
                break
        found = race(racers, RACE_S)
    return {
        "median_s": {timing.name: timing.median_s for timing in found.timings},
        "interval_s": {timing.name: [timing.low_s, timing.high_s] for timing in found.timings},
        "operators_over_whole": operators.sum_s / operators.whole_s,
        "products_s": roofline.operations(onnx.load(written[-1].path)) / len(device) / roofline.peak(device[-1]),
        "form": rival.form,
        "forms_s": {timing.name: timing.median_s for timing in rival.forms},
        "versions": versions,
        "difference": errors,
        "left_out": left_out | found.lost,
    }


def difference(expected: Sequence[Array], got: Sequence[Array]) -> float:
    """Returns the largest difference of any output, relative to that output's largest value.

    Infinite where the shapes differ by more than dimensions of one.
    """
    if len(expected) != len(got):
        return math.inf
    worst = 0.0
    for left, right in zip(map(np.squeeze, expected), map(np.squeeze, got), strict=True):
        if left.shape != right.shape:
            return math.inf
        scale = float(np.max(np.abs(left.astype("float64")), initial=0.0)) or 1.0
        worst = max(worst, float(np.max(np.abs(left.astype("float64") - right), initial=0.0)) / scale)
    return worst


if __name__ == "__main__":
    sys.exit(main())
