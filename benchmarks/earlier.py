"""Tests whether a network that is tuned after a similar one needs half of the trials for the same latency.

``python benchmarks/earlier.py [--pairs rnet:onet ...] [--seeds 3] [--state FOLDER]`` tunes the first network of each
pair, then the second one with half of the trials, warm-started from the jobs that the daemon finds similar. For
comparison the second one is tuned from nothing (`--fresh`), with all trials and with half of them. Measures the
compiled networks in turns, and prints one JSON object. With `--state` it continues an interrupted run.
"""

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import mobilenets
import resnet18
from against_stock import finish, kept_state, load, remeasure, say

from autosched import api
from autosched.api import on_demand
from autosched.protocol import Done, Shutdown

TRIALS = {
    "rnet": 96,
    "onet": 160,
    "resnet18": 256,
    "resnet50": 400,
    "mobilenet_v1": 320,
    "mobilenet_v2": 480,
}
OWN = {"resnet18": resnet18.write, "mobilenet_v1": mobilenets.write_v1, "mobilenet_v2": mobilenets.write_v2}
"""Networks that the zoo lacks."""
TAUGHT = "half taught"


def main() -> None:
    """Tunes, measures, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", default=["rnet:onet"], metavar="TEACHER:LEARNER", help=", ".join(TRIALS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--state", type=Path, help="folder for all that is tuned; default: a temporary one")
    args = parser.parse_args()
    told = []
    for pair in args.pairs:
        teacher, _, learner = pair.partition(":")
        for seed in range(args.seeds):
            folder = args.state and args.state / f"{teacher}-{learner}-{seed}"
            with kept_state(folder) as chosen:
                told.append(compared(teacher, learner, seed, chosen))
            say(told[-1])
    say({"pairs": told})


def compared(teacher: str, learner: str, seed: int, folder: Path) -> dict[str, Any]:
    """Tunes one network after another, with one seed."""
    result = folder / "result.json"
    if result.exists():
        return dict(json.loads(result.read_text()))
    modules = asyncio.run(tune(teacher, learner, seed, folder))
    latencies_s = remeasure(list(modules.values()))
    found = dict(zip(modules, latencies_s, strict=True))
    told = {
        "teacher": teacher,
        "learner": learner,
        "seed": seed,
        "trials": TRIALS[learner],
        "latency_s": found,
        "half_taught_over_all": found[TAUGHT] / found["all"],
        "half_over_all": found["half"] / found["all"],
    }
    result.write_text(json.dumps(told))
    return told


async def tune(teacher: str, learner: str, seed: int, folder: Path) -> dict[str, Path]:
    """Returns the learner's compiled networks, by the way of tuning; one job after the other. The job that may learn
    comes before those from which it could take over schedules."""
    trials = TRIALS[learner]
    jobs = {
        "teacher": (teacher, api.Settings(fresh=True, trials=TRIALS[teacher], seed=seed)),
        TAUGHT: (learner, api.Settings(trials=trials // 2, seed=seed)),
        "all": (learner, api.Settings(fresh=True, trials=trials, seed=seed)),
        "half": (learner, api.Settings(fresh=True, trials=trials // 2, seed=seed)),
    }
    tuned = folder / "tuned.json"
    done: dict[str, str] = json.loads(tuned.read_text()) if tuned.exists() else {}
    async with on_demand.connected(None) as daemon:
        try:
            for name, (network, settings) in jobs.items():
                if name not in done:
                    own = OWN.get(network)
                    model = load(network) if own is None else api.load_model(own(folder / f"{network}.onnx"), {})
                    module = (await finish(daemon, await api.submit(daemon, model, settings), folder / name)).module
                    tuned.write_text(json.dumps(done := {**done, name: str(module)}))
        finally:
            await daemon.link.call(Shutdown(), Done)
    return {name: Path(done[name]) for name in (TAUGHT, "all", "half")}


if __name__ == "__main__":
    main()
