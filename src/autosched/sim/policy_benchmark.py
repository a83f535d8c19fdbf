"""Instances under policies: one row for each, with the makespan relative to the best known one."""

from statistics import fmean

from msgspec import Struct

from autosched import policy_registry
from autosched.config import SchedulerConfig
from autosched.errors import RequestError
from autosched.model import Goal, JobState
from autosched.sim.estimate_quality import LEARNED, EstimateQuality
from autosched.sim.scenario import Scenario
from autosched.sim.simulation_result import SimulationResult
from autosched.sim.simulator import Simulator
from autosched.sim.workload_scenarios import instance_scenario
from autosched.workloads.bounds import lower_bound_s, own_work_s
from autosched.workloads.instances import Instance

DEFAULT = SchedulerConfig().policy
"""The daemon's default policy."""


class SimulationRun(Struct, frozen=True, kw_only=True):
    """Parameters of a simulation."""

    instance: Instance
    policy: str
    goal: Goal = Goal.BALANCED
    estimates: EstimateQuality = LEARNED


class Row(Struct, frozen=True, kw_only=True):
    """Result of a simulation."""

    name: str
    policy: str
    goal: Goal
    estimates: str
    jobs: int
    hosts: int
    devices: int
    steps: int
    makespan_s: float
    mean_completion_s: float
    """Mean seconds from a job's arrival to its end."""
    bound_s: float
    """Lower bound of all schedules."""
    best_known_s: float | None
    ratio: float
    """Makespan relative to the best known one, or to the bound if none is known."""
    mean_slowdown: float
    """Mean of a job's completion time divided by its own work: 1 if it never waits."""
    max_slowdown: float
    hosts_busy: float
    """Mean over the hosts, share of the makespan, in [0, 1]."""
    devices_busy: float


def simulate(
    scenario: Scenario, policy: str, goal: Goal, estimates: EstimateQuality = LEARNED, *, name: str = "the recording"
) -> SimulationResult:
    """Raises NotFound for an unknown policy, RequestError if it lets a job wait for ever."""
    report = Simulator(scenario, policy_registry.load(policy), goal=goal, estimates=estimates).run()
    if stuck := len(scenario.jobs) - sum(state is JobState.DONE for state in report.states.values()):
        raise RequestError(
            f"under policy {policy!r} {stuck} of the {len(scenario.jobs)} jobs of {name} never end; choose another one"
        )
    return report


def run(trial: SimulationRun) -> Row:
    """Simulate one instance. Raises RequestError if it does not end."""
    instance = trial.instance
    load = instance_scenario(instance)
    report = simulate(load, trial.policy, trial.goal, trial.estimates, name=instance.name)
    bound_s = instance.lower_bound_s or lower_bound_s(instance)
    in_order = sorted(instance.jobs, key=lambda job: job.arrival_s)  # as the simulator numbers them
    slowdowns = [report.completion_s[number] / own_work_s(job) for number, job in enumerate(in_order, start=1)]
    busy = list(report.busy.values())
    return Row(
        name=instance.name,
        policy=trial.policy,
        goal=trial.goal,
        estimates=str(trial.estimates),
        jobs=len(instance.jobs),
        hosts=instance.hosts,
        devices=instance.devices,
        steps=len(report.spans),
        makespan_s=report.makespan_s,
        mean_completion_s=report.mean_completion_s,
        bound_s=bound_s,
        best_known_s=instance.best_known_s,
        ratio=report.makespan_s / (instance.best_known_s or bound_s),
        mean_slowdown=fmean(slowdowns),
        max_slowdown=max(slowdowns),
        hosts_busy=fmean(busy[: instance.hosts]),
        devices_busy=fmean(busy[instance.hosts :]),
    )


def attempt(trial: SimulationRun) -> Row | RequestError:
    """Like `run`, with the error as a value that can be sent between processes."""
    try:
        return run(trial)
    except RequestError as error:
        return error
