"""Exports schedules to TVM and imports them again: ``python benchmarks/round_trip.py`` prints one JSON object.

Tunes a network with Ansor's method, whose traces TVM understands, writes the record store as a database of
MetaSchedule, imports that into another store, and writes it again. A process with TVM only compiles the best schedule
of each workload; its kernels and ours are measured in turns. --state: a folder that stays, with which an interrupted
run continues.
"""

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import tvm
from against_stock import finish, kept_state, load, say
from tvm.s_tir.meta_schedule.arg_info import ArgInfo

from autosched import api
from autosched.api import on_demand
from autosched.model import JobState
from autosched.protocol import Done, JobList, ListJobs, Shutdown
from autosched.recordstore import opening
from autosched.recordstore.queries import Lookup
from autosched.recordstore.store import RecordStore
from autosched_tvm.compile import candidate_build, intrinsics
from autosched_tvm.compile.task_extraction import hash_of
from autosched_tvm.record_formats import metaschedule

TURNS = 21
"""Number of measurements of each kernel, in turns with its twin."""
MEASURED_MS = 20
"""Minimum duration of one measurement in milliseconds."""
COMPILE_S = 1_200.0
"""Maximum duration of the program with TVM only, in seconds."""


def main() -> None:
    """Tunes, writes, reads, writes, compiles, measures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="squeezenet", help="a name of the zoo (default: %(default)s)")
    parser.add_argument("--trials", type=int, default=400, help="(default: %(default)s)")
    parser.add_argument("--state", type=Path)
    args = parser.parse_args()
    with kept_state(args.state) as folder, tempfile.TemporaryDirectory(prefix="autosched-bench-") as temporary:
        asyncio.run(tuned(args.network, args.trials, folder))
        scratch = Path(temporary)
        first, second = scratch / "first", scratch / "second"
        told = written(folder / "state" / "records.db", first)
        with contextlib.closing(RecordStore(opening.file_url(scratch / "copy.db"))) as store:
            taken = metaschedule.read(first, store, lambda number, why: print(number, why, file=sys.stderr))
        written(scratch / "copy.db", second)
        kernels, equal = compared(first, scratch), traces(first) == traces(second)
    ratios = [one["tvm_us"] / one["ours_us"] for one in kernels]
    total = sum(one["tvm_us"] for one in kernels) / sum(one["ours_us"] for one in kernels)
    say(
        {
            "network": args.network, "records": told.records, "workloads": told.workloads, "left_out": dict(told.left),
            "read_back": taken.new, "wrong": taken.wrong, "traces_equal": equal,
            "kernels": kernels, "ratio": statistics.median(ratios), "ratio_min": min(ratios), "ratio_max": max(ratios),
            "total_ratio": total,
        }
    )  # fmt: skip


async def tuned(network: str, trials: int, folder: Path) -> None:
    """Tunes the network, unless it is tuned, and waits until the store has all records."""
    model = load(network)
    async with on_demand.connected(None) as daemon:
        try:
            views = (await daemon.link.call(ListJobs(limit=2, state=JobState.DONE), JobList)).jobs
            if not views:
                settings = api.Settings(trials=trials, backend="ansor")
                await finish(daemon, await api.submit(daemon, model, settings), folder / "result")
            if len(views) < 2:
                settings = api.Settings(trials=0, backend="ansor")
                await finish(daemon, await api.submit(daemon, model, settings), folder / "again")
        finally:
            await daemon.link.call(Shutdown(), Done)


def written(store: Path, folder: Path) -> metaschedule.Written:
    """Writes a store as a database."""
    folder.mkdir()
    with contextlib.closing(Lookup(opening.file_url(store))) as lookup:
        return metaschedule.write(lookup.everything, lookup.programs, folder)


def traces(folder: Path) -> list[bytes]:
    """Returns the traces of a database, as they are written there."""
    lines = (folder / metaschedule.RECORDS).read_bytes().splitlines()
    return sorted(bytes(msgspec.json.decode(line, type=tuple[int, tuple[msgspec.Raw, ...]])[1][0]) for line in lines)


def compared(database: Path, scratch: Path) -> list[dict[str, Any]]:
    """Compiles the best schedules with TVM only, and as this project does; measures both."""
    alone, ours = scratch / "alone", scratch / "ours"
    alone.mkdir()
    ours.mkdir()
    program = [sys.executable, str(Path(__file__).with_name("tvm_alone.py")), str(database), str(alone)]
    done = subprocess.run(program, stdout=subprocess.PIPE, timeout=COMPILE_S, check=True)
    told: dict[str, float] = json.loads(done.stdout)
    intrinsics.install()
    core = min(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    found = []
    for module, target, trace, mean_s in best_of(database):
        name = hash_of(module)
        assert abs(told[name] - mean_s) < 1e-9
        task, library = ours / f"{name}.json", ours / f"{name}.so"
        task.write_text(tvm.ir.save_json(module))
        candidate_build.build(str(task), json.dumps(target), trace, str(library))
        latencies_us = in_turns(module, [library, alone / f"{name}.so"])
        found.append({"workload": name, "ours_us": latencies_us[0], "tvm_us": latencies_us[1]})
    return found


def best_of(database: Path) -> list[tuple[Any, Any, bytes, float]]:
    """Returns module, target, trace and mean latency in seconds of the best record of each workload."""
    lines = (database / metaschedule.WORKLOADS).read_bytes().splitlines()
    best: dict[int, tuple[float, bytes, Any]] = {}
    for line in (database / metaschedule.RECORDS).read_bytes().splitlines():
        number, (trace, seconds, target, *_) = msgspec.json.decode(line, type=tuple[int, tuple[msgspec.Raw, ...]])
        samples = json.loads(bytes(seconds))
        mean_s = sum(samples) / len(samples) if samples else float("inf")
        if number not in best or mean_s < best[number][0]:
            best[number] = mean_s, bytes(trace), json.loads(bytes(target))
    return [
        (metaschedule.module_of(lines[number]), target, trace, mean_s)
        for number, (mean_s, trace, target) in sorted(best.items())
    ]


def in_turns(module: Any, libraries: list[Path]) -> list[float]:
    """Returns the median latency of each library, in microseconds."""
    infos = ArgInfo.from_entry_func(module, remove_preproc=True)
    generator = np.random.default_rng(7)
    arguments = []
    for info in infos:
        values = generator.random([int(size) for size in info.shape])
        arguments.append(tvm.runtime.tensor(values.astype(str(info.dtype))))
    timers = [
        tvm.runtime.load_module(str(library)).time_evaluator("main", tvm.cpu(), number=1, min_repeat_ms=MEASURED_MS)
        for library in libraries
    ]
    samples: list[list[float]] = [[] for _ in libraries]
    for turn in range(TURNS):
        for number in range(len(timers))[:: -1 if turn % 2 else 1]:
            samples[number].append(1e6 * timers[number](*arguments).mean)
    return [statistics.median(some) for some in samples]


if __name__ == "__main__":
    main()
