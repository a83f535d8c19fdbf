"""autosched against stock TVM: same networks, same tasks, same trials, same search settings, same cores.

``python benchmarks/against_stock.py [--trials 64] [--seeds 3]`` prints one JSON object a seed, and the whole last:

- one network: wall time of the tuning (first select to last update) with autosched over stock's, for each seed;
- two networks: autosched with both at once over stock with one after the other (first seed);
- tuned end-to-end latency of both, re-measured alone, interleaved, on the device's cores: median over the seeds;
- where the time goes by stage, and how busy lane and device are while anybody waits for them.

Only ratios within one run count; absolute times depend on the machine.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from autosched import api, zoo
from autosched.api import on_demand
from autosched.api.connection import Daemon
from autosched.api.result_folder import collect
from autosched.errors import JobFailed
from autosched.protocol import Done, JobView, ListDevices, Shutdown, Span, UnitList

HERE = Path(__file__).parent
ROUND = ("select", "build", "profile", "update")
REMEASURED = 7
"""Number of alternating measurements of each module; their median counts."""


@dataclass
class Tuned:
    """One network as autosched tuned it."""

    view: JobView
    module: Path
    spans: list[Span]


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs=2, default=["rnet", "magika"])
    parser.add_argument("--trials", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument(
        "--quality", action="store_true", help="only the latencies, stock's builder spared its slow import"
    )
    return parser.parse_args()


def load(name: str) -> api.Model:
    """Returns a model of the zoo."""
    return api.load_model(zoo.fetch(name), zoo.catalogue()[name].shapes)


def main() -> None:
    """Runs everything and prints the result."""
    args = arguments()
    if args.quality:
        return quality()
    first, second = (load(name) for name in args.networks)
    told: dict[str, Any] = {"networks": args.networks, "trials": args.trials, "batch": args.batch, "seeds": []}
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        work = Path(folder)
        for seed in range(args.seeds):
            ours = asyncio.run(tune([first], args, seed, work / f"ours-{seed}"))[0]
            stock = run_stock(first, args, seed, work / f"stock-{seed}")
            ours_s, stock_s = remeasure([ours.module, work / f"stock-{seed}" / "stock.so"])
            told["seeds"].append(
                {
                    "wall_ratio": tuning_s([ours]) / stock["wall_s"],
                    "ours_wall_s": tuning_s([ours]),
                    "stock_wall_s": stock["wall_s"],
                    "latency_ratio": ours_s / stock_s,
                    "ours_latency_s": ours_s,
                    "stock_latency_s": stock_s,
                    "ours_stages_s": stages_s([ours]),
                    "stock_stages_s": stock["stages_s"],
                    "stock_trials": stock["trials"],
                    "busy_while_waited_for": busy([ours]),
                    "first_record_s": first_record_s(ours),
                }
            )
            say(told["seeds"][-1])
        both = asyncio.run(tune([first, second], args, 0, work / "both"))
        stock = run_stock(second, args, 0, work / "stock-second")
        stock_s = told["seeds"][0]["stock_wall_s"] + stock["wall_s"]
        told["two_networks"] = {
            "wall_ratio": tuning_s(both) / stock_s,
            "ours_wall_s": tuning_s(both),
            "stock_wall_s": stock_s,
            "busy_while_waited_for": busy(both),
            "ours_stages_s": stages_s(both),
        }
    told["wall_ratio"] = statistics.median(seed["wall_ratio"] for seed in told["seeds"])
    told["latency_ratio"] = statistics.median(seed["latency_ratio"] for seed in told["seeds"])
    say(told)


def say(what: Any) -> None:
    """Prints a result at once."""
    print(json.dumps(what), flush=True)


async def tune(models: Sequence[api.Model], args: argparse.Namespace, seed: int, output: Path) -> list[Tuned]:
    """Tunes all models at once, with a private daemon."""
    with own_state(output):
        async with on_demand.connected(None) as daemon:
            try:
                settings = [
                    api.Settings(
                        fresh=True,
                        trials=args.trials,
                        seed=seed,
                        options={"batch": args.batch},
                        output=output / model.name,
                    )
                    for model in models
                ]
                jobs = [
                    await api.submit(daemon, model, setting) for model, setting in zip(models, settings, strict=True)
                ]
                return [await finish(daemon, job, output) for job in jobs]
            finally:
                await daemon.link.call(Shutdown(), Done)


async def finish(daemon: Daemon, job: int, output: Path) -> Tuned:
    """Waits for a job and fetches its results. Raises JobFailed for a job without a module."""
    async for last in daemon.follow(job, wait_s=5.0):
        view = last
    result = await collect(daemon, view, output / view.name)
    if result.module is None:
        raise JobFailed(f"{view.name} has no module: {view.failure.message if view.failure else view.state}")
    await daemon.link.call(ListDevices(), UnitList)
    return Tuned(view, result.module, await daemon.spans())


@contextmanager
def own_state(folder: Path) -> Iterator[None]:
    """Runs the block with a private daemon."""
    state = folder / "state"
    state.mkdir(parents=True, exist_ok=True)
    before = os.environ.get("AUTOSCHED_STATE_DIR")
    os.environ["AUTOSCHED_STATE_DIR"] = str(state)
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("AUTOSCHED_STATE_DIR", None)
        else:
            os.environ["AUTOSCHED_STATE_DIR"] = before


def run_stock(model: api.Model, args: argparse.Namespace, seed: int, output: Path, *words: str) -> dict[str, Any]:
    """Runs stock TVM in a separate process."""
    command = [
        sys.executable,
        str(HERE / "stock.py"),
        str(model.path),
        "--trials",
        str(args.trials),
        "--seed",
        str(seed),
    ]
    command += ["--batch", str(args.batch), "--output", str(output), *words]
    for name, shape in model.shapes.items():
        command += ["--shape", f"{name}={','.join(map(str, shape))}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=7_200)
    if done.returncode != 0:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stderr[-4_000:]}")
    told: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return told


@contextmanager
def kept_state(folder: Path | None) -> Iterator[Path]:
    """Yields a folder for a private daemon: the given one, which stays, or one that is deleted at the end."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as temporary:
        chosen = folder or Path(temporary)
        with own_state(chosen):
            yield chosen


def remeasure(modules: Sequence[Path]) -> list[float]:
    """Returns the median latency of each module, measured in turns on an idle machine."""
    samples: dict[Path, list[float]] = defaultdict(list)
    for _ in range(REMEASURED):
        for module in modules:
            samples[module].append(api.load_module(module).evaluate(budget_s=1.0).median_s)
    return [statistics.median(samples[module]) for module in modules]


def tuning_s(tuned: Sequence[Tuned]) -> float:
    """Returns the time from the first select to the end of the last update, over all networks."""
    spans = [span for span in tuned[-1].spans if span.stage in ROUND]
    return max(span.ended_at or 0.0 for span in spans) - min(span.started_at for span in spans)


def stages_s(tuned: Sequence[Tuned]) -> dict[str, float]:
    """Returns the seconds of leases by stage."""
    total: defaultdict[str, float] = defaultdict(float)
    for span in tuned[-1].spans:
        total[span.stage] += (span.ended_at or span.started_at) - span.started_at
    return dict(total)


def busy(tuned: Sequence[Tuned]) -> dict[str, float]:
    """Returns, for each unit, the share of the time with a waiting task in which the unit was leased.

    A step waits from `queued_at` to `started_at`. Of a lease only the part counts in which the stage ran, by the
    client's own clock: the hand-over is idle time.
    """
    spans = [span for span in tuned[-1].spans if span.ended_at is not None]
    result = {}
    for unit in dict.fromkeys(unit for span in spans for unit in span.units):
        mine = [span for span in spans if unit in span.units]
        edges = sorted({t for span in mine for t in (span.queued_at, span.started_at, span.ended_at or 0.0)})
        waited = used = 0.0
        for begin, end in pairwise(edges):
            middle = (begin + end) / 2
            if any(span.queued_at <= middle < span.started_at for span in mine):
                waited += end - begin
                used += (end - begin) * sum(worked(s) for s in mine if s.started_at <= middle < (s.ended_at or 0.0))
        result[unit] = used / waited if waited else 1.0
    return result


def worked(span: Span) -> float:
    """Returns the share of a lease in which the stage ran."""
    lease_s = (span.ended_at or span.started_at) - span.started_at
    return min(1.0, (span.worked_s or 0.0) / lease_s) if lease_s else 1.0


def first_record_s(tuned: Tuned) -> float:
    """Returns the time from submit to the end of the first profile step, which ends after its records: an upper
    bound."""
    ends = [s.ended_at for s in tuned.spans if s.job == tuned.view.job and s.stage == "profile" and s.ended_at]
    return min(ends) - tuned.view.submitted_at


def quality() -> None:
    """Compares only the latencies that both find, over more seeds than stock's own builder allows in reasonable
    time."""
    args = arguments()
    first = load(args.networks[0])
    pairs = []
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        for seed in range(args.seeds):
            work = Path(folder) / str(seed)
            ours = asyncio.run(tune([first], args, seed, work / "ours"))[0]
            run_stock(first, args, seed, work / "stock", "--helped-builder")
            pairs.append(remeasure([ours.module, work / "stock" / "stock.so"]))
            say({"seed": seed, "ours_latency_s": pairs[-1][0], "stock_latency_s": pairs[-1][1]})
    medians = [statistics.median(pair[side] for pair in pairs) for side in (0, 1)]
    ratios = [ours_s / stock_s for ours_s, stock_s in pairs]
    say(
        {
            "network": args.networks[0],
            "trials": args.trials,
            "pairs_s": pairs,
            "median_of_ratios": statistics.median(ratios),
            "ratio_of_medians": medians[0] / medians[1],
        }
    )


if __name__ == "__main__":
    main()
