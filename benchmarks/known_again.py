"""Tunes a known network again: ``python benchmarks/known_again.py`` prints one JSON object.

Tunes SqueezeNet with the backend's trials, and then again with ``--trials 0`` in the same daemon, through the record
store. Measures both compiled networks in turns. --state: a folder that stays, with which an interrupted run continues.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from against_stock import finish, kept_state, load, remeasure, say

from autosched import api
from autosched.api import on_demand
from autosched.api.connection import Daemon
from autosched.model import JobState, Purpose, Record
from autosched.protocol import Done, JobList, JobView, ListJobs, Shutdown


def main() -> None:
    """Tunes twice, measures, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="squeezenet", help="a name of the zoo (default: %(default)s)")
    parser.add_argument("--trials", type=int, help="of the first job (default: the backend's)")
    parser.add_argument("--state", type=Path)
    args = parser.parse_args()
    with kept_state(args.state) as folder:
        jobs, modules = asyncio.run(tuned(args.network, args.trials, folder))
        latencies_s = remeasure(modules)
    first, again = jobs
    say(
        {
            "network": args.network,
            "first": {**first, "latency_s": latencies_s[0]},
            "again": {**again, "latency_s": latencies_s[1]},
            "latency_ratio": latencies_s[1] / latencies_s[0],
            "time_ratio": again["seconds"] / first["seconds"],
        }
    )


async def tuned(network: str, trials: int | None, folder: Path) -> tuple[list[dict[str, Any]], list[Path]]:
    """Runs both jobs; returns their costs and their compiled networks."""
    model, told, modules = load(network), [], []
    async with on_demand.connected(None) as daemon:
        try:
            views = (await daemon.link.call(ListJobs(limit=2, state=JobState.DONE), JobList)).jobs
            there = sorted(view.job for view in views)
            for number, count in enumerate((trials, 0)):
                settings = api.Settings(trials=count)
                job = there[number] if number < len(there) else await api.submit(daemon, model, settings)
                done = await finish(daemon, job, folder / f"result{number}")
                told.append(await cost(daemon, done.view))
                modules.append(done.module)
        finally:
            await daemon.link.call(Shutdown(), Done)
    return told, modules


async def cost(daemon: Daemon, view: JobView) -> dict[str, Any]:
    """Returns numbers of records of a job by purpose, and its duration."""
    records = await daemon.records(view.job)
    purposes = [record.purpose for record in records]
    assert view.ended_at is not None
    return {
        "seconds": view.ended_at - view.submitted_at,
        "tasks": len(view.tasks),
        "tasks_from_store": sum(bool(task.came_from) for task in view.tasks),
        **code_counts(records),
        **{purpose.value: purposes.count(purpose) for purpose in Purpose},
    }


def code_counts(records: Sequence[Record]) -> dict[str, int]:
    """Returns the numbers of trials that were not measured since their object code was known, and of those measured
    although it was."""
    known: set[str] = set()
    copied = again = 0
    for record in records:
        if record.purpose is Purpose.TRIAL and record.latency_s:
            copied += record.copied
            again += not record.copied and record.code in known
        if record.code and record.latency_s and not record.disturbed:
            known.add(record.code)
    return {"copied": copied, "measured_twice": again}


if __name__ == "__main__":
    main()
