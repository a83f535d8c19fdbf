"""``python -m autosched_tvm.commands.ranker_training``: trains rankers on the records of a store.

The environment names the store (`AUTOSCHED_RECORDS`), so that no password stands in the list of processes. Rankers are
trained again when a fifth more schedules are known. The answer on stdout is JSON, with the quality of each operator
family. Lines of JSON before it tell when a family is begun, and its quality as soon as it is known.
"""

import argparse
import json
import os
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from autosched import backend
from autosched.errors import AutoschedError, RequestError
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import RANKER_GROWTH, StoredRanker
from autosched.recordstore.store import RecordStore
from autosched_tvm.commands.model_check import quiet
from autosched_tvm.commands.stored_workloads import stored_workloads
from autosched_tvm.ranking.measured_task import Family, MeasuredTask
from autosched_tvm.ranking.ranker import encode_ranker, version_of
from autosched_tvm.ranking.ranker_choice import DRAWN, Choice, choose
from autosched_tvm.tuning.tvm_backend import TvmBackend

STORE = "AUTOSCHED_RECORDS"
"""Environment variable with the URL of the store."""


class Group(Struct, frozen=True):
    """Operator family on one device model."""

    family: Family
    device: str


def main(argv: Sequence[str] | None = None) -> int:
    """Trains what is due; returns 0 if nothing failed."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.ranker_training", description=__doc__)
    parser.add_argument("--backend", default="autotvm")
    parser.add_argument("--all", action="store_true", help="also where no fifth of schedules is new")
    parser.add_argument("--settings", type=int, default=DRAWN, help="number of settings to begin with")
    parser.add_argument("--cores", default="", metavar="0,1", help="cores on which it runs; default: any")
    args = parser.parse_args(argv)
    if args.cores:
        os.sched_setaffinity(0, tuple(map(int, args.cores.split(","))))
    try:
        with quiet() as out, closing(RecordStore(os.environ[STORE])) as store, Lookup(os.environ[STORE]) as lookup:

            def tell(words: dict[str, Any]) -> None:
                print(json.dumps(words), file=out)

            trained = []
            for ranker, choice in train(lookup, args.backend, again=args.all, settings=args.settings, tell=tell):
                if ranker is not None:
                    store.put_ranker(ranker)
                trained.append(_told(choice))
                tell(trained[-1])
        answer: dict[str, Any] = {"ok": True, "trained": trained}
    except AutoschedError as error:
        answer = {"ok": False, "code": error.code, "error": str(error)}
    print(json.dumps(answer))
    return 0 if answer["ok"] else 1


def train(
    lookup: Lookup, name: str, *, again: bool, settings: int, tell: Callable[[dict[str, Any]], None] = lambda _: None
) -> Iterator[tuple[StoredRanker | None, Choice]]:
    """Yields each ranker that is due, or None with the reason. Raises RequestError for a backend without features.

    `tell`: called with the number of workloads that cannot be read, if any, and before each training.
    """
    known = {(one.family, one.device, one.version): one for one in lookup.rankers()}
    found, unreadable = measured(lookup, name)
    if unreadable:
        tell({"unreadable": unreadable})
    for group, tasks in sorted(found.items(), key=lambda item: msgspec.structs.astuple(item[0])):
        schedules = sum(map(len, tasks))
        before = known.get((group.family.name, group.device, version_of(group.family)))
        if before is not None and not again and schedules < RANKER_GROWTH * before.schedules:
            continue
        networks = frozenset[str]().union(*(task.networks for task in tasks))
        tell({
            "begun": group.family.name, "device": group.device, "schedules": schedules, "networks": len(networks)
        })  # fmt: skip
        choice = choose(group.family, tasks, drawn=settings)
        ranker = None
        if choice.ranker is not None and choice.quality is not None:
            ranker = StoredRanker(
                group.family.name, group.device, version_of(group.family), schedules, datetime.now(UTC).timestamp(),
                msgspec.to_builtins(choice.quality), encode_ranker(choice.ranker),
            )  # fmt: skip
        yield ranker, choice


def measured(lookup: Lookup, name: str) -> tuple[dict[Group, list[MeasuredTask]], int]:
    """Returns the measured tasks of a store that a backend can rank, and the number of workloads that this version of
    TVM cannot read. Raises RequestError."""
    ranks = backend.load(name)
    if not isinstance(ranks, TvmBackend):
        raise RequestError(f"backend {name!r} does not work on TVM: there are no rankers for it")
    found: defaultdict[Group, list[MeasuredTask]] = defaultdict(list)
    unreadable: list[str] = []
    for one in stored_workloads(lookup, unreadable.append):
        made = ranks.measured_task(one.hash, one.module, one.target, one.networks, one.latencies_s)
        if made is not None:
            found[Group(made[0], one.device)].append(made[1])
    return dict(found), len(unreadable)


def _told(choice: Choice) -> dict[str, Any]:
    return {
        "family": choice.family.name, "refused": choice.refused, "quality": msgspec.to_builtins(choice.quality),
        "settings": None if choice.ranker is None else msgspec.to_builtins(choice.ranker.settings),
    }  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
