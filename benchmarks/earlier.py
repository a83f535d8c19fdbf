"""Whether a network that learns from the job of another one needs half of the trials to come as far.

``python benchmarks/earlier.py [--pairs rnet:onet ...] [--seeds 3]`` tunes the first network of each pair; then the
second one untaught with all trials, with half of them, and with half of them after learning from the first
(`--learn-from`). Measures the compiled networks in turns, and prints one JSON object.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import resnet18
from against_stock import finish, load, own_state, remeasure, say

from autosched import api
from autosched.api import on_demand
from autosched.protocol import Done, Shutdown

TRIALS = {"rnet": 96, "onet": 160, "resnet18": 256, "resnet50": 400}
OWN = {"resnet18": resnet18.write}
"""Networks that the zoo does not have."""


def main() -> None:
    """Tune, measure, tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", default=["rnet:onet"], metavar="TEACHER:LEARNER", help=", ".join(TRIALS))
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    told = []
    for pair in args.pairs:
        teacher, _, learner = pair.partition(":")
        told += [compared(teacher, learner, seed) for seed in range(args.seeds)]
    say({"pairs": told})


def compared(teacher: str, learner: str, seed: int) -> dict[str, Any]:
    """One network after another, with one seed."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder, own_state(Path(folder)):
        tuned = asyncio.run(tune(teacher, learner, seed, Path(folder)))
        latencies_s = remeasure(list(tuned.values()))
    found = dict(zip(tuned, latencies_s, strict=True))
    told = {
        "teacher": teacher,
        "learner": learner,
        "seed": seed,
        "trials": TRIALS[learner],
        "latency_s": found,
        "half_taught_over_all": found["half taught"] / found["all"],
        "half_over_all": found["half"] / found["all"],
    }
    say(told)
    return told


async def tune(teacher: str, learner: str, seed: int, folder: Path) -> dict[str, Path]:
    """The learner's compiled network, by how it was tuned; one job after the other."""
    first, second = (
        api.load_model(OWN[name](folder / f"{name}.onnx"), {}) if name in OWN else load(name)
        for name in (teacher, learner)
    )
    trials = TRIALS[learner]
    async with on_demand.connected(None) as daemon:
        try:
            taught_by = await api.submit(daemon, first, api.Settings(fresh=True, trials=TRIALS[teacher], seed=seed))
            await finish(daemon, taught_by, folder / "teacher")
            found: dict[str, Path] = {}
            for name, count, learn_from in (
                ("all", trials, ()), ("half", trials // 2, ()), ("half taught", trials // 2, (taught_by,)),
            ):  # fmt: skip
                settings = api.Settings(fresh=True, trials=count, seed=seed, learn_from=learn_from)
                done = await finish(daemon, await api.submit(daemon, second, settings), folder / name)
                found[name] = done.module
        finally:
            await daemon.link.call(Shutdown(), Done)
    return found


if __name__ == "__main__":
    main()
