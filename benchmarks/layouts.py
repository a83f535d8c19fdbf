"""Whether `--layout auto` is as fast as the better single layout, from end to end and within the same budget.

``python benchmarks/layouts.py [--networks rnet ...]`` tunes each network in each single layout and with `auto`, with
the same trials and seed, measures the compiled networks in turns, and prints one JSON object.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pyramid
from against_stock import finish, load, own_state, remeasure, say

from autosched import api
from autosched.api import on_demand
from autosched.protocol import Done, Shutdown

LAYOUTS = ("nchw", "nhwc", "nchwc", "auto")
TRIALS = {"rnet": 96, "pyramid": 96, "onet": 240, "shufflenet": 600, "squeezenet": 600}


def main() -> None:
    """Tune, measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=["rnet", "onet"], choices=TRIALS)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    told = []
    for network in args.networks:
        for seed in range(args.seeds):
            told.append(compared(network, seed))
            say(told[-1])
    say({"networks": told})


def compared(network: str, seed: int) -> dict[str, Any]:
    """One network with one seed in all layouts."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder, own_state(Path(folder)):
        tuned = asyncio.run(tune(network, seed, Path(folder)))
        latencies_s = remeasure([module for module, _ in tuned.values()])
    found = dict(zip(tuned, latencies_s, strict=True))
    single_s = min(latency_s for layout, latency_s in found.items() if layout != "auto")
    return {
        "network": network,
        "seed": seed,
        "trials": TRIALS[network],
        "latency_s": found,
        "tasks": {layout: tasks for layout, (_, tasks) in tuned.items()},
        "over_better": found["auto"] / single_s,
    }


async def tune(network: str, seed: int, folder: Path) -> dict[str, tuple[Path, int]]:
    """The compiled network and its number of tasks, by layout; one job after the other."""
    found = {}
    model = api.load_model(pyramid.write(folder / "pyramid.onnx"), {}) if network == "pyramid" else load(network)
    async with on_demand.connected(None) as daemon:
        try:
            for layout in LAYOUTS:
                settings = api.Settings(fresh=True, trials=TRIALS[network], seed=seed, options={"layout": layout})
                done = await finish(daemon, await api.submit(daemon, model, settings), folder / layout)
                found[layout] = done.module, len(done.view.tasks)
        finally:
            await daemon.link.call(Shutdown(), Done)
    return found


if __name__ == "__main__":
    main()
