"""Measures microseconds of `Scheduler.handle`, by policy and number of waiting steps.

``python benchmarks/decision_cost.py`` prints one JSON object. Each event ends a step, from which the core learns, and
queues the next stage of its task (`noting`); the decision starts steps on the free units (`deciding`). In the daemon
both happen in one call (`both`). 100 hosts with a pool each, 76 devices in one pool, four tasks per job. CPU time;
looking ahead is left out, since it runs in separate small pieces.
"""

import argparse
import gc
import json
import statistics
import time
from random import Random
from typing import Any

from autosched.core.events import ClientAttached, DeadlineReached, Event, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.core.policies.policy import POLICIES
from autosched.core.scheduler import Scheduler
from autosched.model import JobLoad, JobSpec, Outcome, Pool, Step, TaskLoad, Unit

WAITING = (10, 100, 1_000, 10_000)
TASKS = 4
HOSTS, DEVICES = 100, 76
FOLLOWING = {"build": "profile", "profile": "update", "update": "build"}
DEVICE = ("device:cpu",)


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--policies", nargs="+", default=["interleaved", "predictive"], choices=list(POLICIES))
    parser.add_argument("--waiting", nargs="+", type=int, default=WAITING)
    parser.add_argument("--decisions", type=int, default=5_000)
    args = parser.parse_args()
    told = {p: {str(n): cost_us(p, n, args.decisions) for n in args.waiting} for p in args.policies}
    print(json.dumps(told, indent=1))


def cost_us(policy: str, waiting: int, decisions: int) -> dict[str, Any]:
    """Measures a number of decisions with a number of waiting steps."""
    rng, core = Random(waiting), crowd(policy, waiting)
    took_s: dict[str, list[float]] = {"both": [], "noting": [], "deciding": []}
    gc.collect()
    gc.freeze()
    for number in range(2 * decisions):
        event, now, apart = end(rng.choice(list(core.state.steps.values()))), core.state.now + 0.01, number % 2 == 1
        started_at = time.thread_time()
        core.handle(now, event, more=apart)
        noted_at = time.thread_time()
        if apart:
            core.handle(now, DeadlineReached())
            took_s["deciding"].append(time.thread_time() - noted_at)
        took_s["noting" if apart else "both"].append(noted_at - started_at)
    gc.unfreeze()
    core.state.check_all()
    return {
        "waiting": sum(queue.waiting for queue in core.state.queues.values()),
        **{name: spread_us(seconds) for name, seconds in took_s.items()},
    }


def spread_us(seconds: list[float]) -> dict[str, float]:
    """Returns median, mean and 99 % quantile."""
    ordered = sorted(seconds)
    found = {
        "median": ordered[len(ordered) // 2],
        "mean": statistics.fmean(seconds),
        "p99": ordered[len(ordered) * 99 // 100],
    }
    return {name: round(value * 1e6, 1) for name, value in found.items()}


def crowd(policy: str, waiting: int) -> Scheduler:
    """Returns a scheduler with all units leased, and a number of waiting tasks."""
    core = Scheduler(POLICIES[policy])
    hosts = (Pool(f"host{i}", (Unit(f"host{i}/0"),)) for i in range(HOSTS))
    devices = Pool(DEVICE[0], tuple(Unit(f"cpu{i}") for i in range(DEVICES)))
    core.handle(0.0, ResourcesDeclared((*hosts, devices), 600.0, 60.0))
    for job in range(1, (waiting + HOSTS + DEVICES) // TASKS + 2):
        core.handle(core.state.now, JobSubmitted(job, JobSpec(name="x", model="0" * 64)))
        tasks = tuple(TaskLoad(task=t, stage_next="build", resources_next=home(job)) for t in range(1, TASKS + 1))
        core.handle(core.state.now + 0.01, ClientAttached(job, JobLoad(tasks=tasks, rounds_left=50)))
    for _ in range(3 * (HOSTS + DEVICES)):
        core.handle(core.state.now + 0.01, end(next(iter(core.state.steps.values()))))
    return core


def home(job: int) -> tuple[str]:
    """Returns the pool in which the job builds."""
    return (f"host{job % HOSTS}",)


def end(step: Step) -> Event:
    """Returns the end of a step, whose task continues."""
    stage = FOLLOWING[step.stage]
    load = TaskLoad(task=step.task, stage_next=stage, resources_next=DEVICE if stage == "profile" else home(step.job))
    return StepEnded(step.id, Outcome.DONE, JobLoad(tasks=(load,), rounds_left=50))


if __name__ == "__main__":
    main()
