"""Measures rankers on networks that they have not seen: ``python benchmarks/zero_shot.py [--store FILE]``.

The records are those of `autosched experiment run experiments/zoo.toml`, by default in your own record store. For each
operator family, a ranker is trained with each network left out once. Writes NDCG@8 as JSON: of each family, and over
all families, where each network counts with the mean of its families.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec
from raw_results import origin

from autosched.api.local_daemon import existing_store
from autosched.recordstore.queries import Lookup
from autosched_tvm.commands.ranker_training import train
from autosched_tvm.ranking.ranker_choice import DRAWN

RESULTS = Path(__file__).parent / "results" / "zero_shot.json"


def main() -> int:
    """Trains and judges the ranker of each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="", help="record store; default: your own")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="number of settings (default: %(default)s)")
    parser.add_argument("--output", type=Path, default=RESULTS)
    args = parser.parse_args()
    with Lookup(existing_store(None, args.store)) as lookup:
        found = {}
        left_out: defaultdict[str, list[Sequence[float]]] = defaultdict(list)
        for _, choice in train(lookup, "autotvm", again=True, settings=args.drawn):
            found[choice.family.name] = {"quality": msgspec.to_builtins(choice.quality), "refused": choice.refused}
            print(choice.family.name, json.dumps(found[choice.family.name]), file=sys.stderr, flush=True)
            for name, row in choice.left_out.items():
                left_out[name].append(row)
    told = {**origin(), "families": found, "all": overall(left_out)}
    args.output.write_text(json.dumps(told, indent=1) + "\n")
    print(json.dumps(told["all"]))
    return 0


def overall(left_out: Mapping[str, Sequence[Sequence[float]]]) -> dict[str, float]:
    """Returns the means over networks, and their number."""
    networks = [[fmean(column) for column in zip(*rows, strict=True)] for rows in left_out.values()]
    means = (fmean(column) for column in zip(*networks, strict=True))
    return {"networks": len(networks), **dict(zip(("ranker", "random", "nearest", "linear"), means, strict=False))}


if __name__ == "__main__":
    sys.exit(main())
