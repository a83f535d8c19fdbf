"""Cost and speed of the record store: ``python benchmarks/records.py`` prints one JSON object.

A store is filled with a million made-up records of 4,000 workloads, as daemons fill it, and is then asked at random.
--url: an empty database of a server that runs, or a file (sqlite:////PATH), that stays. Each percentile is over
--queries calls of one query; times include the making of the rows that the caller gets.
"""

import argparse
import contextlib
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from autosched.model import Failure, Identity, Purpose, Record
from autosched.recordstore.keys import Environment, environment, measurement_id
from autosched.recordstore.queries import Lookup
from autosched.recordstore.rows import Measurement, Origin, SourceJob, Workload
from autosched.recordstore.store import RecordStore

ORIGIN = Origin("made up")
DEVICES = ("AMD EPYC", "Xeon E5-2650 v3", "Neoverse N1")
BATCH = 1_000
WARM_UP = 200
"""Number of calls of each query before those that count: a daemon queries for days."""


def main() -> None:
    """Fills, queries and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--workloads", type=int, default=4_000)
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--url", default="")
    parser.add_argument("--filled", action="store_true", help="ask only: the database of --url was filled before")
    parser.add_argument(
        "--postgresql", action="store_true", help="also with a server of its own, where it is installed"
    )
    args = parser.parse_args()
    stores = []
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        stores.append(measure(args.url or f"sqlite:///{folder}/records.db", args))
        stores[0]["file_MB"] = round(sum(path.stat().st_size for path in Path(folder).iterdir()) / 1e6)
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    postgres: Any = import_module("postgres")
    if args.postgresql and postgres.programs() is not None:
        with postgres.server() as server:
            stores.append(measure(server.database(), args))
    print(json.dumps({"records": args.records, "workloads": args.workloads, "stores": stores}, indent=1))


def measure(url: str, args: argparse.Namespace) -> dict[str, Any]:
    """Fills and queries one store."""
    told: dict[str, Any] = {"store": "SQLite" if url.startswith("sqlite") else "PostgreSQL"}
    if not args.filled:
        with contextlib.closing(RecordStore(url)) as store:
            told |= fill(store, args.records, args.workloads)
    with contextlib.closing(Lookup(url)) as lookup:
        return told | ask(lookup, args.workloads, args.queries)


def workload(number: int) -> Workload:
    """Returns one of the invented workloads: convolutions with common sizes."""
    chance = random.Random(number)
    ins, outs, side = (chance.choice((16, 24, 32, 48, 64, 96, 128, 256, 512)) for _ in range(3))
    return Workload(f"{number:016x}", "conv2d", f"conv2d {ins}x{side}x{side} -> {outs}x{side}x{side}, 3x3", 1e6)


def circumstances(device: str) -> Environment:
    """Returns the environment of a device."""
    target = json.dumps({"kind": "llvm", "mcpu": device.split()[0].lower(), "num-cores": 1})
    return environment(Identity(target, device, "tvm 0.27.0, llvm 22", "autotvm 0.1.0"), "autotvm")


def measurements(records: int, workloads: int) -> Iterator[Measurement]:
    """Yields records of jobs that tune eight tasks each, in rounds, on three devices."""
    chance = random.Random(0)
    known = [circumstances(device) for device in DEVICES]
    for number in range(records):
        job = number // 2_048
        task = random.Random(job).randrange(workloads) + number // 64 % 8
        latency_s = chance.lognormvariate(-7, 0.5)
        record = Record(
            task=1 + number // 64 % 8,
            number=number % 2_048,
            candidate=chance.randbytes(400),
            latency_s=() if number % 20 == 0 else (latency_s, latency_s * 1.01, latency_s * 1.02),
            failure=Failure.BUILD_ERROR if number % 20 == 0 else None,
            purpose=Purpose.TRIAL,
            measured_at=1.7e9 + number,
        )
        work = workload(task % workloads)
        source = SourceJob(job, f"job {job}", "net.onnx", "", "lab")
        where = known[number % len(known)]
        yield Measurement(measurement_id(ORIGIN.name, job, work.hash, record), source, work, where, record)


def fill(store: RecordStore, records: int, workloads: int) -> dict[str, Any]:
    """Returns the time that the store took, without generating the records."""
    took_s = 0.0
    source = measurements(records, workloads)
    for number, batch in enumerate(iter(lambda: list(islice(source, BATCH)), [])):
        began_at = time.perf_counter()
        store.add(ORIGIN, batch)
        took_s += time.perf_counter() - began_at
        if number % 50 == 0:
            print(f"{(number + 1) * BATCH} records, {took_s:.1f} s", file=sys.stderr, flush=True)
    return {"fill_s": round(took_s, 1), "rows_per_s": round(records / took_s)}


def ask(lookup: Lookup, workloads: int, queries: int) -> dict[str, Any]:
    """Returns percentiles of the time of each query, in milliseconds."""
    chance = random.Random(1)
    known = [circumstances(device) for device in DEVICES]
    kinds: dict[str, Callable[[Workload, Environment], list[Any]]] = {
        "best_10": lambda work, where: lookup.best(work.hash, where, 10),
        "hints_10": lambda work, where: lookup.hints(work.hash, where, 10),
        "all": lambda work, where: lookup.all(work.hash),
        "other_devices": lambda work, where: lookup.other_devices(work.hash),
        "nearest_5": lambda work, where: lookup.nearest(work, 5),
    }
    told: dict[str, Any] = {}
    for name, query in kinds.items():
        times_s, rows = [], 0
        for number in range(queries + WARM_UP):
            work, where = workload(chance.randrange(workloads)), chance.choice(known)
            began_at = time.perf_counter()
            found = query(work, where)
            took_s = time.perf_counter() - began_at
            if number >= WARM_UP:
                rows += len(found)
                times_s.append(took_s)
        times_s.sort()
        told[name] = {
            "p50_ms": round(1e3 * times_s[queries // 2], 3),
            "p99_ms": round(1e3 * times_s[int(queries * 0.99)], 3),
            "rows": round(rows / queries, 1),
        }
    return told


if __name__ == "__main__":
    main()
