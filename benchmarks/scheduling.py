"""Distance of the policies from the optimum, in simulated time with the shipped core and policies.

``python benchmarks/scheduling.py`` prints one JSON object: the thesis' case, the 26 instances that come with autosched,
as many generated ones of the same kinds that were not used for tuning, jobs that arrive one by one, and 1,000 jobs at
once. `over_interleaved` is the makespan, `completion` the mean completion time, relative to `interleaved` on the same
load; `own_worst` is the worst value of the goal: completion for latency, the makespan for the others. `of_kinds` are
the means of makespan and completion in which each kind of load counts once, whatever its number of seeds.
"""

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from statistics import fmean
from typing import Any

from autosched.model import Goal
from autosched.sim import thesis_workload
from autosched.sim.estimate_quality import parse
from autosched.sim.policy_benchmark import Row, SimulationRun, run
from autosched.workloads import generator, instances
from autosched.workloads.instances import Instance

SETTINGS = (
    (Goal.MAKESPAN, "perfect"), (Goal.MAKESPAN, "learned"),
    (Goal.BALANCED, "perfect"), (Goal.BALANCED, "wrong:0"), (Goal.BALANCED, "learned"), (Goal.LATENCY, "learned"),
    (Goal.MAKESPAN, "wrong:1.0"), (Goal.BALANCED, "wrong:1.0"), (Goal.LATENCY, "wrong:1.0"),
)  # fmt: skip
"""`wrong:0` tells the true means of every job: what `learned` falls behind that is lost by not knowing them."""
HELD_OUT = (
    *(f"noisy:4-1-1:{seed}" for seed in (11, 12, 13)),
    *(f"het:8-{place}:{seed}" for place in ("1-1", "2-1", "2-2") for seed in (11, 12, 13)),
    *(f"het:12-4-3:{seed}" for seed in (11, 12, 13)),
    *(f"heavy:{place}:{seed}" for place in ("12-1-1", "12-2-2", "24-4-3") for seed in (11, 12, 13)),
)
ARRIVALS = tuple(
    (f"{kind}:{jobs}-{place}:1", load)
    for kind in ("het", "heavy")
    for place in ("1-1", "2-1", "4-3")
    for load in (0.7, 0.9)
    for jobs in (400,)
)
LARGE = ("het:1000-100-76:1", "heavy:1000-100-76:1")


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=None)
    parts = ("thesis", "instances", "held_out", "arrivals", "large")
    parser.add_argument("--parts", nargs="+", default=parts, choices=parts)
    goals = [goal.value for goal in Goal]
    parser.add_argument("--goals", nargs="+", default=goals, choices=goals, help="in the parts instances and held_out")
    args = parser.parse_args()
    with ProcessPoolExecutor(args.processes) as pool:
        makers: dict[str, Callable[[], Any]] = {
            "thesis": thesis_case,
            "instances": lambda: batch(pool, instances.standard(), args.goals),
            "held_out": lambda: batch(
                pool, [generator.generate(generator.parse(text)) for text in HELD_OUT], args.goals
            ),
            "arrivals": lambda: arriving(pool),
            "large": lambda: large(pool),
        }
        told = {}
        for part in args.parts:
            told[part] = makers[part]()
            print(f"{part}: done", file=sys.stderr, flush=True)
    print(json.dumps(told, indent=1))


def thesis_case() -> dict[str, float]:
    """Returns the speed-up over sequential of two equal jobs, one lane, one device, 50 iterations."""
    table = thesis_workload.table(jobs=2, iterations=50)
    return {"bound": round(table.bound, 3), **{row.policy: round(row.speedup, 3) for row in table.rows}}


def batch(pool: ProcessPoolExecutor, loads: Sequence[Instance], goals: Sequence[str]) -> list[dict[str, Any]]:
    """Simulates these goals on loads that are complete from the start."""
    base = _rows(pool, loads, "interleaved", Goal.BALANCED, "learned")
    rows = [summary(base, base, "interleaved", "")]
    for goal, estimates in SETTINGS:
        if goal.value in goals:
            rows.append(summary(_rows(pool, loads, "predictive", goal, estimates), base, goal.value, estimates))
    return rows


def arriving(pool: ProcessPoolExecutor) -> list[dict[str, Any]]:
    """Simulates jobs that arrive one by one; estimates are learned from nothing."""
    loads = [generator.generate(generator.parse(text, load=load)) for text, load in ARRIVALS]
    base = _rows(pool, loads, "interleaved", Goal.BALANCED, "learned")
    told = []
    for goal in (Goal.BALANCED, Goal.LATENCY):
        rows = _rows(pool, loads, "predictive", goal, "learned")
        told.append(
            {
                "goal": goal.value,
                "loads": len(loads),
                "completion_mean_of_ratios": _completion(rows, base),
                "completion_ratio_of_means": round(
                    fmean(row.mean_completion_s for row in rows) / fmean(row.mean_completion_s for row in base), 3
                ),
                "worst_slowdown_over_interleaved": round(
                    max(a.max_slowdown / b.max_slowdown for a, b in _pairs(rows, base)), 3
                ),
            }
        )
    return told


def large(pool: ProcessPoolExecutor) -> list[dict[str, Any]]:
    """Simulates 1,000 jobs on 100 hosts and 76 devices."""
    loads = [generator.generate(generator.parse(text)) for text in LARGE]
    base = _rows(pool, loads, "interleaved", Goal.BALANCED, "learned")
    told = []
    for goal in (Goal.MAKESPAN, Goal.BALANCED):
        rows = _rows(pool, loads, "predictive", goal, "learned")
        for row, other in _pairs(rows, base):
            told.append(
                {
                    "load": row.name,
                    "goal": goal.value,
                    "over_bound": round(row.makespan_s / row.bound_s, 4),
                    "interleaved_over_bound": round(other.makespan_s / other.bound_s, 4),
                    "completion": round(row.mean_completion_s / other.mean_completion_s, 3),
                }
            )
    return told


def _rows(pool: ProcessPoolExecutor, loads: Sequence[Instance], policy: str, goal: Goal, estimates: str) -> list[Row]:
    return list(
        pool.map(run, [SimulationRun(instance=i, policy=policy, goal=goal, estimates=parse(estimates)) for i in loads])
    )


def summary(rows: Sequence[Row], base: Sequence[Row], goal: str, estimates: str) -> dict[str, Any]:
    """Returns one line of a table: these rows against those of `interleaved`."""
    completion_worst = round(max(_completions(rows, base)), 4)
    makespan_worst = round(max(a.makespan_s / b.makespan_s for a, b in _pairs(rows, base)), 4)
    return {
        "goal": goal,
        "estimates": estimates,
        "loads": len(rows),
        "ratio_mean": _mean(row.ratio for row in rows),
        "ratio_worst": round(max(row.ratio for row in rows), 4),
        "completion": _completion(rows, base),
        "of_kinds": [of_kinds(rows, [row.ratio for row in rows]), of_kinds(rows, _completions(rows, base))],
        "completion_worst": completion_worst,
        "over_interleaved_worst": makespan_worst,
        "own_worst": completion_worst if goal == Goal.LATENCY else makespan_worst,
    }


def of_kinds(rows: Sequence[Row | Instance], values: Sequence[float]) -> float:
    """Returns the mean in which each kind of load counts once, whatever its number of seeds."""
    kinds: dict[str, list[float]] = {}
    for row, value in zip(rows, values, strict=True):
        kinds.setdefault(row.name.rpartition("-s")[0], []).append(value)
    return _mean(map(fmean, kinds.values()))


def _completion(rows: Sequence[Row], base: Sequence[Row]) -> float:
    return _mean(_completions(rows, base))


def _completions(rows: Sequence[Row], base: Sequence[Row]) -> list[float]:
    return [a.mean_completion_s / b.mean_completion_s for a, b in _pairs(rows, base)]


def _pairs(rows: Sequence[Row], base: Sequence[Row]) -> Iterable[tuple[Row, Row]]:
    return zip(rows, base, strict=True)


def _mean(values: Iterable[float]) -> float:
    return round(fmean(values), 4)


if __name__ == "__main__":
    main()
