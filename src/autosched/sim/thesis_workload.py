"""The load that the thesis measured: equal jobs, its mean stage times, under each policy.

Source: thesis, section 5: per iteration 8.3 s of build, 39.5 s of profiling, 44.0 s of update and selection, the latter
one stage on the client. On one lane and one device no policy can be faster than 91.8 / 52.3 = 1.755 times sequential.
"""

from msgspec import Struct

from autosched.core.policies.policy import INTERLEAVED, PREDICTIVE, SEQUENTIAL, SYNCHRONOUS, Policy
from autosched.sim.scenario import DEVICE, HOST, Scenario, ScenarioJob, Work, lower_bound_s, pools
from autosched.sim.simulation_result import SimulationResult
from autosched.sim.simulator import Simulator
from autosched.stages import BUILD, PROFILE, UPDATE
from autosched.text.gantt import Style, gantt

ROUND = (Work(BUILD, (HOST,), 8.3), Work(PROFILE, (DEVICE,), 39.5), Work(UPDATE, (HOST,), 44.0))
POLICIES = (SEQUENTIAL, SYNCHRONOUS, INTERLEAVED, PREDICTIVE)


class Row(Struct, frozen=True, kw_only=True):
    """One policy's outcome."""

    policy: str
    makespan_s: float
    mean_completion_s: float
    host_busy: float
    """Mean over the lanes, in [0, 1]."""
    device_busy: float
    speedup: float
    """Speed-up over `sequential` in the same table."""


class Table(Struct, frozen=True, kw_only=True):
    """All policies on one load, with the bound for all policies."""

    jobs: int
    iterations: int
    lanes: int
    devices: int
    rows: tuple[Row, ...]
    bound: float
    """Speed-up over `sequential` that no schedule can exceed."""
    reports: dict[str, SimulationResult]


def scenario(jobs: int, iterations: int = 50, lanes: int = 1, devices: int = 1) -> Scenario:
    """Scenario of equal jobs of one task each, all submitted at the start."""
    return Scenario(
        pools=pools(lanes, devices), jobs=(ScenarioJob(tasks=((ROUND,) * iterations,)),) * jobs, step_timeout_s=3600.0
    )


def run(policy: Policy, load: Scenario) -> SimulationResult:
    """One policy on one load."""
    return Simulator(load, policy).run()


def table(jobs: int = 4, iterations: int = 50, lanes: int = 1, devices: int = 1) -> Table:
    """Every policy on the thesis' load; takes a few hundred milliseconds."""
    load = scenario(jobs, iterations, lanes, devices)
    reports = {policy.name: run(policy, load) for policy in POLICIES}
    sequential_s = reports[SEQUENTIAL.name].makespan_s
    host, device = load.pools
    rows = tuple(
        Row(
            policy=name,
            makespan_s=report.makespan_s,
            mean_completion_s=report.mean_completion_s,
            host_busy=sum(report.busy[unit.name] for unit in host.units) / lanes,
            device_busy=sum(report.busy[unit.name] for unit in device.units) / devices,
            speedup=sequential_s / report.makespan_s,
        )
        for name, report in reports.items()
    )
    return Table(
        jobs=jobs,
        iterations=iterations,
        lanes=lanes,
        devices=devices,
        rows=rows,
        bound=sequential_s / lower_bound_s(load),
        reports=reports,
    )


def chart(table: Table, policy: str, *, width: int = 80, unicode: bool = True, style: Style | None = None) -> list[str]:
    """The first steps of a policy, as lines for a terminal: the time that one iteration of each job takes alone."""
    units = [f"host/{i}" for i in range(table.lanes)] + [f"cpu{i}" for i in range(table.devices)]
    end = table.jobs * sum(work.duration_s for work in ROUND)
    return gantt(table.reports[policy].spans, 0.0, end, units=units, width=width, unicode=unicode, style=style)
