"""Simulates a recording as it was and with a change, and compares both with the recording.

Assumptions: a step takes its recorded time on any unit; each host has the same number of lanes; waiting is simulated
anew. A job makes its recorded rounds, whatever the number of its tasks in a round.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from autosched import policy_registry
from autosched.errors import NotFound
from autosched.model import HOST_POOL, Goal, JobId, Pool, PoolName
from autosched.sim.policy_benchmark import DEFAULT, simulate
from autosched.sim.scenario import Scenario
from autosched.sim.simulation_result import SimulationResult
from autosched.sim.workload_scenarios import AS_IT_WAS, Change, recorded_scenario, with_copies
from autosched.workloads.recordings import RecordedJob, Recording

FAR_OFF = 0.1
"""Maximum share by which a simulation of the recording may differ from it without a warning."""


class Outlook(Struct, frozen=True, kw_only=True):
    """One recorded or simulated course."""

    policy: str
    goal: Goal
    units: Mapping[PoolName, int]
    makespan_s: float
    """Seconds from the first job's arrival to the last step's end."""
    mean_completion_s: float
    busy: Mapping[PoolName, float]
    """Share of the makespan in which a unit of the pool was leased, in [0, 1]."""


class PlannedJob(Struct, frozen=True, kw_only=True):
    """A job from its arrival to its end, in seconds; a copy was not recorded."""

    job: JobId
    name: str
    copy: int
    """0: the recorded job itself."""
    arrived_s: float
    """Seconds after the first job's arrival."""
    recorded_s: float | None
    simulated_s: float | None
    planned_s: float


class Plan(Struct, frozen=True, kw_only=True):
    """The recorded, simulated and planned courses, with warnings."""

    recorded: Outlook
    simulated: Outlook
    """The same jobs on the same resources, in virtual time: its difference to `recorded` is the simulation's error."""
    planned: Outlook
    jobs: tuple[PlannedJob, ...]
    notes: tuple[str, ...]


def plan(
    recording: Recording, which: Sequence[JobId], change: Change, policy: str | None = None, goal: Goal | None = None
) -> Plan:
    """Raises NotFound for jobs that are not in the recording, RequestError for an invalid change."""
    return compare(recording, which, change, (policy,), goal)[0]


def compare(
    recording: Recording,
    which: Sequence[JobId],
    change: Change,
    wanted: Sequence[str | None],
    goal: Goal | None = None,
) -> list[Plan]:
    """Plan with each of these policies; None: the recorded one."""
    by_id = {job.job: job for job in recording.jobs}
    if missing := [job for job in which if job not in by_id]:
        raise NotFound(f"there is no job {missing[0]} in this recording; there are: {_numbers(by_id)}")
    jobs = [job for job in recording.jobs if job.job in which]
    notes = list[str]()
    before = recording.policy or DEFAULT
    if before not in policy_registry.installed():
        notes.append(f"policy {before!r} of the recording is not installed: {DEFAULT!r} stands in for it")
        before = DEFAULT
    as_it_was = recorded_scenario(recording, jobs)
    changed = recorded_scenario(recording, jobs, change)
    past = simulate(as_it_was, before, recording.goal)
    recorded = _recorded(recording, jobs, as_it_was)
    simulated = _outlook(past, as_it_was, before, recording.goal)
    notes += _doubts(jobs, recorded, simulated)
    plans = []
    for policy in wanted:
        future = simulate(changed, policy or before, goal or recording.goal)
        plans.append(
            Plan(
                recorded=recorded,
                simulated=simulated,
                planned=_outlook(future, changed, policy or before, goal or recording.goal),
                jobs=_planned_jobs(jobs, change, past, future),
                notes=tuple(notes),
            )
        )
    return plans


def _recorded(recording: Recording, jobs: Sequence[RecordedJob], load: Scenario) -> Outlook:
    start, end = min(job.arrived_at for job in jobs), max(job.ended_at for job in jobs)
    held_s = dict.fromkeys((pool.name for pool in load.pools), 0.0)
    for step in (step for job in jobs for step in job.steps()):
        for pool in step.pools:
            held_s[pool] += step.held_s
    return Outlook(
        policy=recording.policy or DEFAULT,
        goal=recording.goal,
        units=_units(load.pools),
        makespan_s=end - start,
        mean_completion_s=sum(job.ended_at - job.arrived_at for job in jobs) / len(jobs),
        busy={pool.name: held_s[pool.name] / len(pool.units) / ((end - start) or 1.0) for pool in load.pools},
    )


def _outlook(report: SimulationResult, load: Scenario, policy: str, goal: Goal) -> Outlook:
    return Outlook(
        policy=policy,
        goal=goal,
        units=_units(load.pools),
        makespan_s=report.makespan_s,
        mean_completion_s=report.mean_completion_s,
        busy={pool.name: sum(report.busy[unit.name] for unit in pool.units) / len(pool.units) for pool in load.pools},
    )


def _units(pools: Sequence[Pool]) -> Mapping[PoolName, int]:
    return {pool.name: len(pool.units) for pool in pools}


def _planned_jobs(
    jobs: Sequence[RecordedJob], change: Change, past: SimulationResult, future: SimulationResult
) -> tuple[PlannedJob, ...]:
    """The jobs; the simulator numbers them in the order of their arrival."""
    simulated = {job.job: past.completion_s[number] for number, job in enumerate(with_copies(jobs, AS_IT_WAS.added), 1)}
    copies: dict[JobId, int] = {}
    planned = list[PlannedJob]()
    for number, job in enumerate(with_copies(jobs, change.added), 1):
        copy = copies[job.job] = copies.get(job.job, -1) + 1
        planned.append(
            PlannedJob(
                job=job.job,
                name=job.spec.name,
                copy=copy,
                arrived_s=job.arrived_at - jobs[0].arrived_at,
                recorded_s=None if copy else job.ended_at - job.arrived_at,
                simulated_s=None if copy else simulated[job.job],
                planned_s=future.completion_s[number],
            )
        )
    return tuple(planned)


def _doubts(jobs: Sequence[RecordedJob], recorded: Outlook, simulated: Outlook) -> list[str]:
    notes = []
    if unfinished := [job.job for job in jobs if not job.complete]:
        notes.append(
            f"not complete in the recording, so only the steps that they made count: job {_numbers(unfinished)}"
        )
    if abs(simulated.makespan_s / (recorded.makespan_s or 1.0) - 1) > FAR_OFF:
        notes.append("the simulation of the past is far from what was recorded: trust its differences, not its values")
    if not any(step.pools == (HOST_POOL,) for job in jobs for step in job.steps()):
        notes.append("no step of these jobs uses a host lane: hosts and lanes make no difference")
    return notes


def _numbers(jobs: Sequence[JobId] | Mapping[JobId, object]) -> str:
    shown = list(jobs)[:20]
    return ", ".join(map(str, shown)) + (" and more" if len(jobs) > len(shown) else "")
