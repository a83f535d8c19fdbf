"""Measures rankers on networks that they have not seen: ``python benchmarks/zero_shot.py [--store FILE ...]``.

The records are those of `autosched experiment run experiments/zoo.toml`, by default in your own record store. For each
operator family, a ranker is trained with each network left out once. Prints NDCG@8 as JSON.
"""

import argparse
import json
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import msgspec
import tvm

from autosched.api.local_daemon import existing_store
from autosched.model import Program
from autosched.recordstore.keys import Environment, join_target
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Standing, judge
from autosched_backend_autotvm.stored_tasks import measured_task
from autosched_tvm.compile import workload_program
from autosched_tvm.ranking.measured_task import MeasuredTask
from autosched_tvm.ranking.ranker_choice import DRAWN, choose


def main() -> int:
    """Trains and judges the ranker of each family."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", nargs="+", default=[""], help="record stores; default: your own")
    parser.add_argument("--family", nargs="*", help="only these operator families")
    parser.add_argument("--drawn", type=int, default=DRAWN, help="number of settings (default: %(default)s)")
    args = parser.parse_args()
    found = {}
    for family, tasks in sorted(families(args.store).items()):
        if args.family and family not in args.family:
            continue
        started = time.perf_counter()
        choice = choose(family, tasks, drawn=args.drawn)
        found[family] = {
            "quality": msgspec.to_builtins(choice.quality), "refused": choice.refused,
            "settings": msgspec.to_builtins(choice.ranker.settings) if choice.ranker is not None else None,
            "took_s": round(time.perf_counter() - started, 1),
        }  # fmt: skip
        print(family, json.dumps(found[family]), file=sys.stderr, flush=True)
    print(json.dumps(found))
    return 0


def families(stores: Sequence[str]) -> dict[str, list[MeasuredTask]]:
    """Returns the measured tasks of stores, by operator family."""
    found: defaultdict[str, list[MeasuredTask]] = defaultdict(list)
    for store in stores:
        with Lookup(existing_store(None, store)) as lookup:
            for family, task in _tasks(lookup):
                found[family].append(task)
    return found


def _tasks(lookup: Lookup) -> list[tuple[str, MeasuredTask]]:
    latencies: defaultdict[tuple[str, Environment], dict[bytes, float | None]] = defaultdict(dict)
    networks: defaultdict[str, set[str]] = defaultdict(set)
    for _, one in lookup.everything():
        standing, latency_s = judge(one.record)
        if standing >= Standing.SEARCHED and one.record.candidate:
            latencies[one.workload.hash, one.environment][one.record.candidate] = latency_s
            networks[one.workload.hash].add(one.job.network)
    programs = lookup.programs(networks)
    found = []
    for (workload, environment), own in latencies.items():
        if workload in programs:
            module, target = _module(programs[workload]), join_target(environment.target, environment.threads)
            task = measured_task(
                workload, module, tvm.target.Target(json.loads(target)), frozenset(networks[workload]), own
            )
            found += [task] if task is not None else []
    return found


def _module(program: Program) -> Any:
    return workload_program.module_of(workload_program.text_of(program))


if __name__ == "__main__":
    sys.exit(main())
