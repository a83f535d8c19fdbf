"""Tests jobs with a latency goal: ``python benchmarks/latency_goals.py --state DIR`` prints one JSON object.

Tunes each network once, which makes its best latency known. Then requests 1.3, 1.1 and 1.0 times that latency, each
with a deadline, and measures the module of each job three more times later, on an idle machine. A claim is wrong if a
job reports that its goal is met and a later measurement misses it. --state: a folder that stays, with which an
interrupted run continues.
"""

import argparse
import asyncio
import json
import time
from pathlib import Path
from typing import Any

from against_stock import finish, kept_state, load, say

from autosched import api
from autosched.api import on_demand
from autosched.client.plan.latency_goal import reached
from autosched.network_status import GoalReached
from autosched.protocol import Done, GetJob, JobView, Shutdown
from autosched.wire.whereabouts import WHEREABOUTS

NETWORKS = ("squeezenet", "rnet", "onet", "magika", "shufflenet")
FACTORS = (1.3, 1.1, 1.0)
LATER = 3
"""Number of later measurements of each module."""
DEADLINE_S = 180.0
"""Deadline of each job with a goal, in seconds."""


def main() -> None:
    """Tunes, requests, measures, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", nargs="+", default=NETWORKS, help="names of the zoo")
    parser.add_argument("--trials", type=int, help="of the first job (default: the backend's)")
    parser.add_argument("--state", type=Path)
    args = parser.parse_args()
    with kept_state(args.state) as folder:
        networks = [one_network(name, args.trials, folder) for name in args.networks]
    jobs = [job for network in networks for job in network["jobs"]]
    say(
        {
            "deadline_s": DEADLINE_S,
            "networks": networks,
            "met_without_search": sum(job["reached"] == "met" and not job["trials"] for job in jobs),
            "met": sum(job["reached"] == "met" for job in jobs),
            "wrong_claims": sum("missed" in job["later"] for job in jobs if job["reached"] == "met"),
            "jobs": len(jobs),
        }
    )


def one_network(name: str, trials: int | None, folder: Path) -> dict[str, Any]:
    """Returns the results for a network, from the folder where they exist."""
    kept = folder / f"{name}.json"
    if kept.exists():
        found: dict[str, Any] = json.loads(kept.read_text())
        return found
    result = asyncio.run(asked(name, trials, folder))
    until_gone(folder / "state" / WHEREABOUTS)
    for job in result["jobs"]:
        module, goal_s = api.load_module(job.pop("module")), job["goal_ms"] / 1e3
        timings = [module.evaluate(budget_s=2.0) for _ in range(LATER)]
        job["later"] = [reached(goal_s, timing).value for timing in timings]
        job["later_ms"] = [1e3 * timing.median_s for timing in timings]
    kept.write_text(json.dumps(result))
    return result


def until_gone(file: Path) -> None:
    """Waits until an ending daemon has deleted its file."""
    for _ in range(100):
        if not file.exists():
            return
        time.sleep(0.1)


async def asked(name: str, trials: int | None, folder: Path) -> dict[str, Any]:
    """Tunes a network, and then requests a latency."""
    model, jobs = load(name), list[dict[str, Any]]()
    async with on_demand.connected(None) as daemon:
        try:
            first = await finish(
                daemon, await api.submit(daemon, model, api.Settings(trials=trials)), folder / name / "first"
            )
            best_s = first.view.result_s
            assert best_s is not None
            for factor in FACTORS:
                goal_ms = 1e3 * factor * best_s
                settings = api.Settings(target_ms=goal_ms, deadline_s=DEADLINE_S)
                job = await api.submit(daemon, model, settings)
                done = await finish(daemon, job, folder / name / f"{factor}")
                view = await daemon.link.call(GetJob(job=job), JobView)
                assert view.ended_at is not None
                goal = view.goal
                jobs.append(
                    {
                        "factor": factor, "goal_ms": goal_ms, "trials": view.trials,
                        "seconds": view.ended_at - view.submitted_at,
                        "reached": (goal.reached if goal is not None else GoalReached.UNCLEAR).value,
                        "ended": goal.ended if goal is not None else "no build was measured",
                        "latency_ms": 1e3 * (view.result_s or 0.0), "module": str(done.module),
                    }
                )  # fmt: skip
        finally:
            await daemon.link.call(Shutdown(), Done)
    return {"network": name, "best_ms": 1e3 * best_s, "jobs": jobs}


if __name__ == "__main__":
    main()
