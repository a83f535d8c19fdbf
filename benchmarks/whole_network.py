"""One network from end to end with the default budget: default, tuned and ONNX Runtime latency, and the duration.

``python benchmarks/whole_network.py [NAME]`` prints one JSON object. NAME: resnet18, or one of ``autosched.zoo``.
operators.py measures the times of operators in the tuned network and in ONNX Runtime, which are printed with the rest.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import resnet18
from against_stock import finish, own_state, stages_s

from autosched import api, zoo
from autosched.api import on_demand
from autosched.api.result_folder import read_evaluation
from autosched.backend import EVALUATION
from autosched.protocol import Done, Shutdown

OPERATORS_TIMEOUT_S = 600.0


def main() -> None:
    """Tunes and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("network", nargs="?", default="squeezenet")
    parser.add_argument("--backend", default=api.Settings().backend)
    parser.add_argument("--layout", default="", help="of convolutions; none: the backend's default")
    parser.add_argument("--trials", type=int, default=None)
    args = parser.parse_args()
    options = {"layout": args.layout} if args.layout else {}
    settings = api.Settings(fresh=True, backend=args.backend, trials=args.trials, options=options)
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder, own_state(Path(folder)):
        print(json.dumps(asyncio.run(measure(args.network, settings, Path(folder))), indent=1))


async def measure(network: str, settings: api.Settings, folder: Path) -> dict[str, Any]:
    """Runs with a private daemon."""
    if network == "resnet18":
        model = api.load_model(resnet18.write(folder / "resnet18.onnx"))
    else:
        model = api.load_model(zoo.fetch(network), zoo.catalogue()[network].shapes)
    async with on_demand.connected(None) as daemon:
        try:
            done = await finish(daemon, await api.submit(daemon, model, settings), folder / "out")
            artifact = next(a for a in await daemon.artifacts(done.view.job) if a.name == EVALUATION)
            evaluation = read_evaluation((await daemon.download(artifact, folder)).read_bytes())
        finally:
            await daemon.link.call(Shutdown(), Done)
    rows = operators(done.module, model.path, evaluation.cores[-1])
    by_name = {timing.name: timing for timing in evaluation.timings}
    took_s = (done.view.ended_at or done.view.now) - done.view.submitted_at
    return {
        "network": network,
        "backend": settings.backend,
        "options": dict(settings.options),
        "notes": evaluation.notes,
        "tasks": len(done.view.tasks),
        "trials": done.view.trials,
        "failures": done.view.failures,
        "took_s": took_s,
        "stages_s": stages_s([done]),
        "median_s": {name: timing.median_s for name, timing in by_name.items()},
        "interval_s": {name: [timing.low_s, timing.high_s] for name, timing in by_name.items()},
        "speedup": by_name["default"].median_s / by_name["tuned"].median_s,
        "over_onnxruntime": by_name["tuned"].median_s / by_name["onnxruntime"].median_s,
        "outputs_equal": evaluation.outputs_equal,
        "max_abs_error": evaluation.max_abs_error,
        "operators": rows,
    }


def operators(module: Path, model: Path, core: int) -> list[dict[str, Any]]:
    """Measures each operator in the tuned network and in ONNX Runtime, in a separate process."""
    command = [
        sys.executable,
        str(Path(__file__).parent / "operators.py"),
        str(module),
        str(model),
        "--core",
        str(core),
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=OPERATORS_TIMEOUT_S)
    rows: list[dict[str, Any]] = json.loads(done.stdout)
    return rows


if __name__ == "__main__":
    main()
