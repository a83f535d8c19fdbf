"""Tunes networks without a search, with half of one, and with all of one: ``python benchmarks/zero_shot_tuning.py``.

Each job has a daemon and a record store of its own. The store of the first two jobs contains the rankers of --store
and no measurements; that of the last one is empty, as is that of a fourth job, which has schedules by rule only. The
networks are of the test half, none of which --store may contain. The compiled networks are measured in turns.
Networks that the output has already are not tuned again.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import geometric_mean
from typing import Any

from against_stock import Tuned, finish, own_state, remeasure
from networks import Network, networks
from raw_results import with_origin

from autosched import api
from autosched.api import on_demand
from autosched.api.local_daemon import existing_store, own_store
from autosched.errors import RequestError
from autosched.protocol import Done, JobView, Shutdown
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import StoredRanker
from autosched.recordstore.store import RecordStore

RESULTS = Path(__file__).parent / "results" / "zero_shot_tuning.json"
NETWORKS = (
    "captcha-crnn", "craft-refiner", "dnsmos", "mtcnn-pnet", "open-nsfw", "oskut", "ppocrv4-rec", "wakeword-vad",
)  # fmt: skip
WHOLE, HALF, ZERO, RULE = "whole", "half", "zero", "rule"


def main() -> int:
    """Tunes and measures what the output lacks; prints the ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NETWORKS, metavar="NAME", help="networks of the test half")
    parser.add_argument("--store", default="", help="record store with the rankers; default: your own")
    parser.add_argument("--trials", type=int, help="of the whole search (default: the backend's)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    chosen = networks(*args.names)
    rankers = rankers_of(args.store, chosen)
    told = json.loads(args.output.read_text()) if args.output.exists() else {"networks": {}}
    for network in chosen:
        if network.name not in told["networks"]:
            told["networks"][network.name] = with_origin(measure(network, rankers, args.trials))
            told["ratios"] = ratios(told["networks"])
            args.output.write_text(json.dumps(told, indent=1) + "\n")
            print(network.name, json.dumps(told["networks"][network.name]), file=sys.stderr, flush=True)
    print(json.dumps(told["ratios"]))
    return 0


def stored_rankers(store: str) -> list[StoredRanker]:
    """Returns the rankers of a store. Raises RequestError if it has none."""
    with Lookup(existing_store(None, store)) as lookup:
        found = [lookup.ranker(one.family, one.device) for one in lookup.rankers()]
    if not found:
        raise RequestError("the store has no rankers. Train some:  autosched models train")
    return [one for one in found if one is not None]


def rankers_of(store: str, chosen: Sequence[Network]) -> list[StoredRanker]:
    """Returns the rankers of a store. Raises RequestError if it has none, or knows one of the networks."""
    found = stored_rankers(store)
    with Lookup(existing_store(None, store)) as lookup:
        known = {one.job.network.removesuffix(".onnx") for _, one in lookup.everything()}
    if learned := known & {one.name for one in chosen}:
        raise RequestError(f"the rankers have learned from {', '.join(sorted(learned))}: choose other networks")
    return found


def measure(network: Network, rankers: Sequence[StoredRanker], trials: int | None) -> dict[str, Any]:
    """Runs the four jobs of a network; returns the seconds, the trials and the latency of each."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        whole = asyncio.run(tuned(network, trials, (), Path(folder) / WHOLE))
        budget = whole.view.trials_total or 0
        half = asyncio.run(tuned(network, budget // 2, rankers, Path(folder) / HALF))
        zero = asyncio.run(tuned(network, 0, rankers, Path(folder) / ZERO))
        rule = asyncio.run(tuned(network, 0, (), Path(folder) / RULE))
        jobs = {WHOLE: whole, HALF: half, ZERO: zero, RULE: rule}
        latencies_s = dict(zip(jobs, remeasure([job.module for job in jobs.values()]), strict=True))
    return {
        name: {"latency_s": latencies_s[name], "trials": job.view.trials, "seconds": seconds(job.view)}
        for name, job in jobs.items()
    }


def seconds(view: JobView) -> float:
    """Returns the duration of an ended job."""
    assert view.ended_at is not None
    return view.ended_at - view.submitted_at


async def tuned(network: Network, trials: int | None, rankers: Sequence[StoredRanker], folder: Path) -> Tuned:
    """Runs one job with a daemon and a store of its own."""
    with own_state(folder):
        with closing(RecordStore(own_store(None, ""))) as store:
            for ranker in rankers:
                store.put_ranker(ranker)
        model = api.load_model(network.fetch(), network.shapes)
        async with on_demand.connected(None) as daemon:
            try:
                job = await api.submit(daemon, model, api.Settings(trials=trials))
                return await finish(daemon, job, folder / "result")
            finally:
                await daemon.link.call(Shutdown(), Done)


def ratios(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, float]:
    """Returns geometric means over networks."""

    def mean(one: str, other: str, field: str) -> float:
        return geometric_mean(row[one][field] / row[other][field] for row in rows.values())

    return {
        "zero / whole, latency": mean(ZERO, WHOLE, "latency_s"), "zero / whole, seconds": mean(ZERO, WHOLE, "seconds"),
        "half / whole, latency": mean(HALF, WHOLE, "latency_s"), "half / whole, seconds": mean(HALF, WHOLE, "seconds"),
        "zero / rule, latency": mean(ZERO, RULE, "latency_s"), "whole / rule, latency": mean(WHOLE, RULE, "latency_s"),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
