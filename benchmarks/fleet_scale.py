"""A fleet in simulated time, with the shipped core: 100 hosts of 10 devices each, which come and go.

``python benchmarks/fleet_scale.py`` prints one JSON object. Stages take what the thesis measured (table 5.2), times a
random factor. Each job has 4 tasks, which take its rounds as they are idle, and helpers on other hosts where that pays.
10,000 jobs have as much work as 1,000.
Now and then a host is cut off for some minutes: what ran there is lost, and is done again elsewhere.

`over_bound` is the makespan over the time that all devices which are there need for all measurements, with a build
before and an update after them.
`event_us`: processor time of an event; `decision_us`: the part of it in which is decided who starts.
"""

import argparse
import gc
import json
import time
from collections.abc import Callable, Iterator
from heapq import heappop, heappush
from math import inf
from random import Random
from statistics import fmean
from typing import Any, cast
from unittest.mock import patch

from autosched.core.actions import Action, Decision
from autosched.core.events import Event
from autosched.core.policies.policy import POLICIES
from autosched.core.scheduler import Scheduler
from autosched.model import Goal, JobState, Pool, Unit, host_of, lent_by
from autosched.sim.scenario import DEVICE, HOST, HostPlan, Scenario, ScenarioJob, Work, pools
from autosched.sim.simulation_result import SimulationResult
from autosched.sim.simulator import Entry, Simulator

HOSTS, LANES, DEVICES = 100, 16, 10
BUILD_S, PROFILE_S, UPDATE_S = 8.3, 39.5, 44.0
"""Mean times of the thesis, in seconds."""
SPREAD = 0.3
"""Standard deviation of the logarithm of a stage's time."""
TASKS = 4
ROUNDS = 800_000
"""Rounds of all jobs: some six thousand trials for each of a thousand."""
CUT_HOSTS = 0.2
"""Share of the hosts that are cut off once."""
CUT_S = (30.0, 900.0)
START_S = 2.0
"""Start time of a client in seconds."""


class Timed:
    """Scheduler of a simulation, with the CPU time of each event and of each decision."""

    def __init__(self, scheduler: Scheduler) -> None:
        self.events_s: list[float] = []
        self.decisions_s: list[float] = []
        self._scheduler, self._handle, self._start = scheduler, scheduler.handle, scheduler._start

    def run(self, work: Callable[[], SimulationResult]) -> SimulationResult:
        """Runs the work with a timed scheduler."""
        with (
            patch.object(self._scheduler, "handle", self.handle),
            patch.object(self._scheduler, "_start", self.start),
        ):
            return work()

    def handle(self, now: float, event: Event, **words: Any) -> Decision:
        """See `Scheduler.handle`."""
        began = time.thread_time()
        decision = self._handle(now, event, **words)
        self.events_s.append(time.thread_time() - began)
        return decision

    def start(self) -> Iterator[Action]:
        """Times the part of it that starts steps."""
        began = time.thread_time()
        actions = list(self._start())
        self.decisions_s.append(time.thread_time() - began)
        return iter(actions)


class Count:
    """Counts events, which would fill the memory as a history."""

    def __init__(self) -> None:
        self._count = 0

    def append(self, _: object) -> None:
        """Counts one more."""
        self._count += 1

    def __len__(self) -> int:
        return self._count


def spread_us(seconds: list[float]) -> dict[str, float]:
    """Returns mean and quantiles."""
    ordered = sorted(1e6 * value for value in seconds)
    found = {
        "mean": fmean(ordered), "median": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100],
        "max": ordered[-1],
    }  # fmt: skip
    return {name: round(value, 1) for name, value in found.items()}


def main() -> None:
    """Simulates and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--policy", default="predictive", choices=list(POLICIES))
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    print(
        json.dumps({str(jobs): row(fleet(jobs, args.rounds, args.seed), args.policy) for jobs in args.jobs}, indent=1)
    )


def fleet(jobs: int, rounds: int, seed: int) -> Scenario:
    """Returns the hosts, and jobs that share a number of rounds."""
    rng = Random(f"fleet/{seed}")

    def stage(name: str, pool: str, mean_s: float) -> Work:
        factor = rng.lognormvariate(-SPREAD * SPREAD / 2, SPREAD)
        return Work(name, (pool,), round(mean_s * factor, 3))

    def one() -> tuple[Work, ...]:
        return stage("build", HOST, BUILD_S), stage("profile", DEVICE, PROFILE_S), stage("update", HOST, UPDATE_S)

    def job() -> ScenarioJob:
        """Returns a job whose idle tasks take its rounds one after the other."""
        pool = tuple(one() for _ in range(rounds // jobs))
        return ScenarioJob(tasks=((),) * TASKS, pool=pool, client_start_s=START_S)

    plans = tuple(job() for _ in range(jobs))
    whole_s = rounds * PROFILE_S / (HOSTS * DEVICES)
    hosts = []
    for number in range(HOSTS):
        at = rng.uniform(0.05, 0.9) * whole_s
        cuts = ((at, at + rng.uniform(*CUT_S)),) if rng.random() < CUT_HOSTS else ()
        hosts.append(HostPlan(f"lab{number}", lent_by(f"lab{number}", pools(LANES, DEVICES)), 0.0, cuts))
    return Scenario(
        pools=(Pool(HOST, (Unit("host/0", (0,)),)),), jobs=plans, seed=seed, client_stop_s=0.1, hosts=tuple(hosts),
        movable=("build", "profile"), divisible=("profile",), attach_timeout_s=600.0,
    )  # fmt: skip


def bound_s(scenario: Scenario) -> float:
    """Returns the time that the present devices need for all measurements, plus the shortest build before and the
    shortest update after them."""
    shortest_s = {"build": inf, "update": inf}
    for work in (work for job in scenario.jobs for work in job.works()):
        if work.stage in shortest_s:
            shortest_s[work.stage] = min(shortest_s[work.stage], work.duration_s)
    left_s = sum(work.duration_s for job in scenario.jobs for work in job.works() if work.stage == "profile")
    changes: list[tuple[float, int]] = []
    for host in scenario.hosts:
        heappush(changes, (host.joins_at, DEVICES))
        for cut_at, back_at in host.cuts:
            heappush(changes, (cut_at, -DEVICES))
            heappush(changes, (back_at, DEVICES))
    now, there = sum(shortest_s.values()), 0
    while changes:
        at, more = heappop(changes)
        if there and left_s <= there * (at - now):
            break
        left_s -= there * max(0.0, at - now)
        now, there = max(now, at), there + more
    return now + left_s / there


def row(scenario: Scenario, policy: str) -> dict[str, Any]:
    """Simulates the scenario; returns a row."""
    world = Simulator(scenario, POLICIES[policy], goal=Goal.MAKESPAN)
    world.history = cast("list[Entry]", Count())
    timed = Timed(world.scheduler)
    gc.disable()
    report = timed.run(world.run)
    gc.enable()
    assert set(report.states.values()) == {JobState.DONE}, "some jobs have not ended well"
    least_s = bound_s(scenario)
    clients = {(span.job, host_of(span.units[0])) for span in report.spans}
    shares = sum(1 for group in _together(report.spans) if group > 1)
    return {
        "jobs": len(scenario.jobs), "clients": len(clients), "steps": len(report.spans), "events": len(timed.events_s),
        "lost_steps": sum(span.outcome == "lost" for span in report.spans), "shared": shares,
        "makespan_s": round(report.makespan_s, 1), "bound_s": round(least_s, 1),
        "over_bound": round(report.makespan_s / least_s, 4),
        "event_us": spread_us(timed.events_s), "decision_us": spread_us(timed.decisions_s),
    }  # fmt: skip


def _together(spans: Any) -> Iterator[int]:
    """Yields, for each measurement, the number of steps that shared it."""
    open_until: dict[tuple[int, int], tuple[float, int]] = {}
    for span in sorted((span for span in spans if span.stage == "profile"), key=lambda span: span.started_at):
        until, count = open_until.get((span.job, span.task), (0.0, 0))
        if span.started_at >= until:
            if count:
                yield count
            until, count = 0.0, 0
        open_until[span.job, span.task] = max(until, span.ended_at or 0.0), count + 1
    yield from (count for _, count in open_until.values())


if __name__ == "__main__":
    main()
