"""Costs of the daemon and the command line, and the time to a job's first record.

``python benchmarks/daemon_costs.py`` prints one JSON object: CPU seconds of `autosched jobs` (median of 11, 50 jobs
of history), resident memory of the daemon after them, time from submit to the first record of a real network, and
the part of a lease in which its stage did not run (order, report, fsync, decision).
"""

import argparse
import asyncio
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from against_stock import own_state

from autosched import api, zoo
from autosched.api import on_demand
from autosched.model import JobState
from autosched.protocol import Done, ListSpans, Shutdown, Span, SpanList

HISTORY = 50
RUNS = 11


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", default="rnet")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder, own_state(Path(folder)):
        print(json.dumps(asyncio.run(measure(args.network)), indent=1))


async def measure(network: str) -> dict[str, Any]:
    """Measures everything with one daemon."""
    path = zoo.fetch(network)
    model = api.load_model(path, zoo.catalogue()[network].shapes)
    async with on_demand.connected(None) as daemon:
        try:
            options = {"tasks": 4, "build_s": 0.002, "profile_s": 0.002}
            history = [
                await api.submit(daemon, model, api.Settings(fresh=True, backend="mock", trials=32, options=options))
                for _ in range(HISTORY)
            ]
            for job in history:
                async for _ in daemon.follow(job, wait_s=5.0):
                    pass
            spans = await all_spans(daemon)
            listing = await asyncio.to_thread(cpu_s_of_jobs)
            rss = (await daemon.info()).rss_bytes
            return {
                "jobs_cpu_s": listing,
                "daemon_rss_mb": rss / 1e6,
                "overhead_ms": overhead_ms(spans),
                "first_record_s": await first_record_s(daemon, model),
            }
        finally:
            await daemon.link.call(Shutdown(), Done)


async def all_spans(daemon: Any) -> list[Span]:
    """Returns the daemon's steps."""
    assert (await daemon.link.call(ListSpans(after=0), SpanList)).spans
    spans: list[Span] = await daemon.spans()
    return spans


def cpu_s_of_jobs() -> float:
    """Returns the CPU seconds of one `autosched jobs`, user and system."""
    times = []
    for _ in range(RUNS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "autosched", "jobs"], stdout=subprocess.DEVNULL, check=True, env=os.environ
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        times.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(times)


def overhead_ms(spans: list[Span]) -> dict[str, float]:
    """Returns the part of a lease in which its stage did not run (order, report, fsync and decision): p50 and p99."""
    gaps = sorted(
        1000 * (s.ended_at - s.started_at - s.worked_s) for s in spans if s.ended_at and s.worked_s is not None
    )
    return {"p50": gaps[len(gaps) // 2], "p99": gaps[int(len(gaps) * 0.99)], "count": float(len(gaps))}


async def first_record_s(daemon: Any, model: api.Model) -> float:
    """Returns the seconds from submit to the first trial in the daemon."""
    loop = asyncio.get_running_loop()
    started = loop.time()
    job = await api.submit(daemon, model, api.Settings(fresh=True, trials=16))
    async for view in daemon.follow(job, wait_s=1.0):
        if view.trials or JobState(view.state).ended:
            took_s = loop.time() - started
            await daemon.cancel(job)
            return took_s
    raise AssertionError("a job ends before it is over")


if __name__ == "__main__":
    main()
