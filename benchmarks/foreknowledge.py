"""What learning costs the goal `balanced`, and what no learning could bring: the 26 instances, known in three ways.

``python benchmarks/foreknowledge.py`` prints one JSON object. `learned` knows what its steps have shown, as the daemon
does. `early` is told a stage's true mean as soon as one step of it has ended in a job: more than anybody can learn.
`told` knows all means from the beginning. Each is measured as shipped, and looking ahead with four times the effort for
the makespan and so many times the mean completion time, in seconds: the bars lie beyond what such a frontier reaches,
or they do not. Each row: mean makespan over the best known, mean completion and worst makespan over those of
`interleaved`; then the same for loads of at most 12 jobs with each kind counting once, as the bars' source counts.
"""

import argparse
import json
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from statistics import fmean

from scheduling import of_kinds

from autosched.core.estimates import SURE_COUNT, Estimates
from autosched.core.policies.lookahead import Forecast, Search
from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE, Policy
from autosched.core.policies.predictive import plan
from autosched.core.state import State
from autosched.model import JobId, TaskIndex
from autosched.sim.scenario import Scenario
from autosched.sim.simulator import Simulator
from autosched.sim.workload_scenarios import instance_scenario
from autosched.workloads import instances
from autosched.workloads.instances import Instance

KNOWING = ("learned", "early", "told")
WEIGHTS = (0.0, 0.7, 1.0, 1.5)
"""Of mean completion, beside the makespan; 0: as shipped."""
EFFORT = 4
SMALL = 12
Outcome = tuple[float, float]
"""Makespan and mean completion time, seconds."""


@dataclass(slots=True)
class Foreknowing(Estimates):
    """Estimates that are told the truth about a job's stage, from the beginning or after its first step."""

    early: bool = False
    means: dict[tuple[JobId, str], float] = field(default_factory=dict)

    def of_job(self, job: JobId, stage: str, *, typical: bool = False) -> tuple[float | None, float]:
        """The true mean, where it may be known."""
        if (job, stage) in self.means and (not self.early or stage in self.jobs[job].stages):
            return self.means[job, stage], SURE_COUNT
        return Estimates.of_job(self, job, stage, typical=typical)

    def narrow(self, job_s: float | None, job: JobId, of: tuple[TaskIndex, str], claim_s: float | None) -> float | None:
        """What is true of the job is true of its tasks: here they are one."""
        return job_s

    def are_wrong(self) -> bool:
        """They are right, whatever noise says."""
        return False


def main() -> None:
    """Measure and tell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=None)
    parser.add_argument("--knowing", nargs="+", default=KNOWING, choices=KNOWING)
    parser.add_argument("--weights", nargs="+", type=float, default=WEIGHTS)
    args = parser.parse_args()
    loads = instances.standard()
    told = []
    with ProcessPoolExecutor(args.processes) as pool:
        base = list(pool.map(partial(simulate, policy=INTERLEAVED), loads))
        for knowing, weight in product(args.knowing, args.weights):
            found = list(pool.map(partial(played, knowing=knowing, weight=weight), loads))
            told.append({"knowing": knowing, "weight": weight, **summary(loads, found, base)})
    print(json.dumps({"rows": told}, indent=1))


def played(instance: Instance, knowing: str, weight: float) -> Outcome:
    """One load under `predictive` with this foreknowledge and weight of mean completion."""
    policy = replace(PREDICTIVE, plan=partial(weighing, weight=weight)) if weight else PREDICTIVE
    return simulate(instance, policy, knowing)


def weighing(state: State, weight: float) -> Search | None:
    """As shipped, but harder, and for makespan and mean completion in seconds."""
    jobs = len(state.active)

    def score(forecast: Forecast, reference: Forecast) -> float:
        return forecast.makespan_s + weight * forecast.completion_s / jobs

    if (search := plan(state)) is None or len(search.rules) == 1:
        return search
    return replace(search, score=score, moves=EFFORT * search.moves, moves_first=EFFORT * search.moves_first)


def simulate(instance: Instance, policy: Policy, knowing: str = "learned") -> Outcome:
    """One load."""
    scenario = instance_scenario(instance)
    world = Simulator(scenario, policy)
    if knowing != "learned":
        world.scheduler.state.estimates = Foreknowing(early=knowing == "early", means=true_means(scenario))
    report = world.run()
    return report.makespan_s, report.mean_completion_s


def true_means(scenario: Scenario) -> dict[tuple[JobId, str], float]:
    """Of the stages of each job, as the simulator numbers them: seconds."""
    taken: dict[tuple[JobId, str], list[float]] = {}
    for job, job_plan in enumerate(scenario.jobs, start=1):
        for work in job_plan.works():
            taken.setdefault((job, work.stage), []).append(work.duration_s)
    return {stage: fmean(all_s) for stage, all_s in taken.items()}


def summary(loads: Sequence[Instance], found: Sequence[Outcome], base: Sequence[Outcome]) -> dict[str, list[float]]:
    """The figures of a row, in the order of this file's first words."""
    makespan = [one[0] / _best_known_s(load) for load, one in zip(loads, found, strict=True)]
    over = [one[0] / other[0] for one, other in zip(found, base, strict=True)]
    completion = [one[1] / other[1] for one, other in zip(found, base, strict=True)]
    small = [number for number, load in enumerate(loads) if len(load.jobs) <= SMALL]
    few = [loads[number] for number in small]
    return {
        "all": [round(figure, 4) for figure in (fmean(makespan), fmean(completion), max(over))],
        "by_kind": [
            of_kinds(few, [makespan[number] for number in small]),
            of_kinds(few, [completion[number] for number in small]),
            round(max(over[number] for number in small), 4),
        ],
    }


def _best_known_s(load: Instance) -> float:
    assert load.best_known_s is not None, f"nobody knows how short {load.name} can be"
    return load.best_known_s


if __name__ == "__main__":
    main()
