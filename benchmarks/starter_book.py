"""Kernels by the starter book beside those by rule: ``python benchmarks/starter_book.py [--target CPU] [NAME ...]``.

For each task of a network that has a template, the rule's kernel and those of the book's configurations are built, and
measured in turns. A network's ratio is the sum of its kernels' times by the fastest of all, over the sum by rule; also
with the first configuration of the book alone. The networks are of the test half: no book was made from them. Prints
one JSON object.
"""

import argparse
import json
import math
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from networks import Network, networks
from raw_results import origin
from zero_shot_tuning import NETWORKS

from autosched.backend import Lease
from autosched.model import JobSpec
from autosched_backend_autotvm import AutoTvmBackend
from autosched_backend_autotvm.make_starter_book import CONFIGS_MAX
from autosched_tvm import worker_messages

RESULTS = Path(__file__).parent / "results"
TIMEOUT_S = 600.0


def main() -> int:
    """Measures what the output lacks; prints the ratios as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NETWORKS, metavar="NAME", help="networks of the test half")
    parser.add_argument("--target", default="auto", help="CPU to compile for, such as x86-64-v3 (default: this one)")
    parser.add_argument("--output", type=Path, help="default: results/starter_book_CPU.json")
    args = parser.parse_args()
    output = args.output or RESULTS / f"starter_book_{args.target}.json"
    told: dict[str, Any] = {**origin(), "target": args.target, "networks": {}}
    if output.exists():
        told = json.loads(output.read_text())
    if (target := told.get("target")) != args.target:
        parser.error(f"{output} has rows of the target {target!r}: name another --output")
    for network in networks(*args.names):
        if network.name not in told["networks"]:
            told["networks"][network.name] = row = compared(network, args.target)
            output.write_text(json.dumps(told, indent=1) + "\n")
            print(network.name, json.dumps(row), file=sys.stderr, flush=True)
    rows = [row for row in told["networks"].values() if row["tasks"]]
    if not rows:
        parser.error("no starter book has a template of these networks for this CPU")
    told |= {key: statistics.geometric_mean(row[key] for row in rows) for key in ("ratio", "first_ratio")}
    output.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps({key: told[key] for key in ("ratio", "first_ratio")}))
    return 0


def compared(network: Network, target: str) -> dict[str, Any]:
    """Returns the ratios of a network, the number of its tasks with a template, and for each of those the speeds of the
    book's configurations relative to the rule."""
    core = min(os.sched_getaffinity(0))

    def lease(stage: str) -> Lease:
        return Lease(stage, (f"cpu{core}",), (core,), TIMEOUT_S)

    speeds, rule_s, first_s, best_s = [], 0.0, 0.0, 0.0
    with tempfile.TemporaryDirectory(prefix="autosched-book-") as temporary:
        spec = JobSpec(name="net", model="0" * 64, target=target, shapes=network.shapes)
        session: Any = AutoTvmBackend().open(
            spec, network.fetch(), Path(temporary) / "work", Path(temporary) / "out", 1
        )
        for task in session.import_network(lease("import")).tasks:
            candidates = session.ranked(task, lease("select"), CONFIGS_MAX)
            if candidates:
                by_rule_s, *by_book_s = latencies_s(session.tuner(task, 1), candidates, lease)
                speeds.append([round(by_rule_s / one_s, 3) for one_s in by_book_s])
                rule_s += by_rule_s * task.weight
                first_s += min(by_rule_s, by_book_s[0]) * task.weight
                best_s += min(by_rule_s, *by_book_s) * task.weight
        session.kill()
    ratios = {"ratio": best_s / rule_s, "first_ratio": first_s / rule_s} if speeds else {}
    return {"tasks": len(speeds), **ratios, "speeds": speeds}


def latencies_s(tuner: Any, candidates: Sequence[bytes], lease: Any) -> list[float]:
    """Returns the seconds of the schedule by rule and of each candidate, measured in turns; infinity for a failure."""
    built = tuner.build([worker_messages.UNTUNED, *candidates], lease("build"))
    found = tuner.compare(built, lease("profile"))
    return [statistics.median(one.latency_s) if one.latency_s else math.inf for one in found]


if __name__ == "__main__":
    sys.exit(main())
