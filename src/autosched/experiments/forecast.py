"""Predicts the duration of an experiment's jobs from earlier jobs. Pure.

A job is predicted from the most similar earlier jobs: leases of lanes, leases of devices, and its time without other
jobs. Jobs that run together take as long as the largest of these, the bound that a good schedule meets.
"""

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from statistics import median

from msgspec import Struct

from autosched.experiments.parameters import Value, value_of
from autosched.experiments.plan import AT_ONCE, Plan
from autosched.experiments.rows import Row
from autosched.model import JobState
from autosched.recordstore.catalogue import MeasuredJob
from autosched.stages import BASELINE, COMPILE, EVALUATE, IMPORT

ALIKE = ("model", "backend", "layout", "settings", "trials")
"""Parameters that decide the duration of a job, the most important first."""
OF_HOST, OF_DEVICE = (IMPORT, COMPILE), (BASELINE, EVALUATE)
"""Stages of the network, independent of the number of trials."""
FIXED_S, TRIAL_HOST_S, TRIAL_DEVICE_S = 25.0, 0.25, 0.15
"""Without any measured job: seconds of a job besides its trials, and of a trial on a lane and on a device. From small
networks on two cores."""
TASK_TRIALS = 2
"""Number of trials that take as long as the rest of a task's rounds: the build without a schedule, and the finals."""
TRIALS = 300
"""Trials of a job that names none, without any measured job."""
SPREAD = 1.1
"""Factor from the busiest unit's work to the duration of jobs that share units."""


class Expected(Struct, frozen=True):
    """Times of one job, in seconds."""

    host_s: float
    device_s: float
    alone_s: float
    """Seconds without other jobs."""
    trials: int
    jobs: int = 0
    """Number of earlier jobs on which this is based; 0 for a guess."""


def expected(values: Mapping[str, Value], rows: Iterable[Row]) -> Expected:
    """Times of a job with these parameters, from the most similar earlier jobs."""
    done = [row for row in rows if row.state == JobState.DONE.value and row.took_s > 0]
    for count in range(len(ALIKE), 0, -1):
        names = ALIKE[:count]
        alike = [row for row in done if all(value_of(row.values, name) == value_of(values, name) for name in names)]
        if alike:
            return _scaled(values, alike, exact=count == len(ALIKE))
    return _scaled(values, done, exact=False) if done else _guess(values)


def makespan_s(
    jobs: Sequence[Expected], policy: str, lanes: int = 1, devices: int = 1, at_once: int | None = None
) -> float:
    """Duration of jobs that are submitted together."""
    if not jobs:
        return 0.0
    alone = [job.alone_s for job in jobs]
    if policy == "stagewise":
        return sum(job.host_s + job.device_s for job in jobs)
    if policy == "sequential" or at_once == 1 or len(jobs) == 1:
        return sum(alone)
    side_by_side = min(at_once or len(jobs), len(jobs))
    busiest_s = max(sum(job.host_s for job in jobs) / lanes, sum(job.device_s for job in jobs) / devices)
    return max(max(alone), SPREAD * busiest_s, sum(alone) / side_by_side)


def _scaled(values: Mapping[str, Value], rows: Sequence[Row], *, exact: bool) -> Expected:
    """Times from earlier jobs, in proportion to their trials, except the time besides the trials."""
    trials = values.get("trials")
    wanted = int(trials) if isinstance(trials, int) else round(median(row.trials for row in rows))
    leases = [(row.host_s, row.device_s) if exact else _leases_s(row, wanted) for row in rows]
    return Expected(
        median(host_s for host_s, _ in leases),
        median(device_s for _, device_s in leases),
        median(
            _alone_s(row) * sum(scaled) / (row.host_s + row.device_s) for row, scaled in zip(rows, leases, strict=True)
        ),
        wanted,
        len(rows),
    )


def _leases_s(row: Row, trials: int) -> tuple[float, float]:
    """Leases of lanes and of devices of a similar job with another number of trials: those of rounds grow with it,
    those of the network stay. Without stages in a row, half of FIXED_S stays of each."""
    beside = TASK_TRIALS * row.tasks
    factor = (trials + beside) / max(1, row.trials + beside)
    fixed = [sum(row.stages_s.get(stage, 0.0) for stage in stages) for stages in (OF_HOST, OF_DEVICE)]
    if not row.stages_s:
        fixed = [min(FIXED_S / 2, leased_s / 2) for leased_s in (row.host_s, row.device_s)]
    host_s, device_s = (
        fixed_s + max(0.0, leased_s - fixed_s) * factor
        for leased_s, fixed_s in zip((row.host_s, row.device_s), fixed, strict=True)
    )
    return host_s, device_s


def _alone_s(row: Row) -> float:
    """Seconds without other jobs: at least the longer of its leases, at most all of them."""
    return max(row.host_s, row.device_s, min(row.took_s - row.waited_s, row.host_s + row.device_s))


def _guess(values: Mapping[str, Value]) -> Expected:
    trials = values.get("trials")
    count = int(trials) if isinstance(trials, int) else TRIALS
    host_s, device_s = FIXED_S / 2 + count * TRIAL_HOST_S, FIXED_S / 2 + count * TRIAL_DEVICE_S
    return Expected(host_s, device_s, max(host_s, device_s) + FIXED_S / 2, count)


def row_of_store(job: MeasuredJob, model: str) -> Row:
    """An earlier job of the record store as a row. `model`: its name in this experiment."""
    values: dict[str, Value] = {"model": model, "backend": job.backend, "trials": job.trials}
    host_s, device_s = FIXED_S / 2 + job.build_s, FIXED_S / 2 + job.profile_s
    took_s = max(FIXED_S + job.lasted_s, host_s, device_s)
    return Row(
        combination="", values=values, job=0, state=JobState.DONE.value, trials=job.trials, host_s=host_s,
        device_s=device_s, took_s=took_s,
    )  # fmt: skip


class Outlook(Struct, frozen=True):
    """The jobs of an experiment that have not ended: their number, trials and duration."""

    jobs: int
    trials: int
    seconds: float
    known: int
    """Number of these jobs that are predicted from earlier ones; the others are guesses."""


def outlook(plan: Plan, done: Container[str], rows: Sequence[Row], units: Callable[[str], tuple[int, int]]) -> Outlook:
    """The jobs of a plan that have not ended, and their duration.

    `done`: ended combinations. `rows`: of earlier jobs, of any experiments. `units`: numbers of lanes and devices of
    the daemon with these settings.
    """
    left = [job for job in plan.jobs if job.combination not in done]
    foreseen = {job.combination: expected(job.values, rows) for job in left}
    definition, seconds = plan.definition, 0.0
    for _, jobs in plan.batches(left):
        lanes, devices = units(str(jobs[0].values.get("settings", "")))
        at_once = definition.at_once or (len(jobs) if definition.together else AT_ONCE)
        policy = str(jobs[0].values.get("policy", ""))
        seconds += makespan_s([foreseen[job.combination] for job in jobs], policy, lanes, devices, at_once)
    known = sum(one.jobs > 0 for one in foreseen.values())
    return Outlook(len(left), sum(one.trials for one in foreseen.values()), seconds, known)
