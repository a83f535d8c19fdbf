"""Measures rankers on networks that they have not seen: ``python benchmarks/zero_shot.py [--store FILE]``.

The records are those of `autosched experiment run experiments/zoo.toml`, by default in your own record store. For each
operator family, a ranker is trained with each network left out once. Prints NDCG@8 as JSON.
"""

import argparse
import json
import sys

import msgspec

from autosched.api.local_daemon import existing_store
from autosched.recordstore.queries import Lookup
from autosched_tvm.commands.ranker_training import train
from autosched_tvm.ranking.ranker_choice import DRAWN


def main() -> int:
    """Trains and judges the ranker of each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", default="", help="record store; default: your own")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="number of settings (default: %(default)s)")
    args = parser.parse_args()
    with Lookup(existing_store(None, args.store)) as lookup:
        found = {}
        for _, choice in train(lookup, "autotvm", again=True, settings=args.drawn):
            found[choice.family] = {"quality": msgspec.to_builtins(choice.quality), "refused": choice.refused}
            print(choice.family, json.dumps(found[choice.family]), file=sys.stderr, flush=True)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
