"""The row of each ended job in the table of its experiment."""

import os
from collections import defaultdict
from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from autosched.backend import TUNED, Evaluation, Timing
from autosched.experiments.combinations import Values
from autosched.model import DEVICE_POOL, HOST_POOL, is_lane
from autosched.protocol import JobView, PolicyView, Span, UnitView
from autosched.records import identity
from autosched.report import Report

DEFAULT = "default"
"""Name of the timing of the build without tuning."""


class TaskRow(Struct, frozen=True, kw_only=True):
    """One task of a job."""

    name: str
    shape: str
    calls: int
    flops: float
    """Floating-point operations of one call."""
    trials: int
    best_s: float | None
    """Latency of the best schedule."""


class Row(Struct, frozen=True, kw_only=True):
    """One job. Times and latencies in seconds; None for unknown values."""

    combination: str
    values: Values
    """Its parameters, as in the file."""
    batch: str = ""
    """Name of its batch: the parameters that all jobs of the batch share; empty without batches."""
    job: int
    state: str
    failure: str = ""
    latency_s: float | None = None
    """Median latency of the handed-over network, and the bounds of its 95 % confidence interval."""
    low_s: float | None = None
    high_s: float | None = None
    default_s: float | None = None
    """Median latency without tuning."""
    engine: str = ""
    """Name of the baseline engine, and its median latency."""
    engine_s: float | None = None
    trials: int = 0
    failed: int = 0
    disturbed: int = 0
    """Number of disturbed records."""
    tasks: int = 0
    flops: float = 0.0
    """Floating-point operations of all tasks in one inference."""
    submitted_at: float = 0.0
    """By the daemon's clock, as all times of one daemon's jobs."""
    ended_at: float = 0.0
    took_s: float = 0.0
    """Seconds from the submission to the end."""
    waited_s: float = 0.0
    """Seconds until the first step."""
    host_s: float = 0.0
    device_s: float = 0.0
    """Seconds of leases of lanes and of devices."""
    stages_s: dict[str, float] = field(default_factory=dict)
    """Seconds of leases by stage."""
    lanes: int = 1
    devices: int = 1
    """Numbers of lanes, and of devices of the job's kind."""
    others_s: float = 0.0
    """Seconds of leases of other jobs in its time."""
    policy: str = ""
    goal: str = ""
    software: str = ""
    compiler: str = ""
    cpu: str = ""
    cores: int = 0
    """Number of cores of the machine."""
    device: str = ""
    """Model of the device."""
    identity: str = ""
    """Digest of the identity of the job's records, for finding them in the record store."""
    made_at: str = ""
    each: tuple[TaskRow, ...] = ()
    """Its tasks."""

    @property
    def speedup(self) -> float | None:
        """Latency of the baseline divided by that of the network; None if one is unknown."""
        return self.engine_s / self.latency_s if self.engine_s and self.latency_s else None


def row_of(
    combination: str, values: Values, batch: str, report: Report, policy: PolicyView, units: Sequence[UnitView]
) -> Row:
    """The row of an ended job. `policy`, `units`: of its daemon."""
    job, evaluation = report.job, report.evaluation
    stages, host_s, device_s, others_s = _leases(job, report.spans)
    best = _timing(evaluation, evaluation.published or TUNED) if evaluation is not None else None
    known = job.identities[-1].identity if job.identities else None
    baseline = job.comparison.baseline if job.comparison is not None else None
    first = min((span.started_at for span in report.spans if span.job == job.job), default=0.0)
    took_s = (job.ended_at or job.now) - job.submitted_at
    rival = next((one for one in evaluation.timings if one.name not in (TUNED, DEFAULT)), None) if evaluation else None
    untuned = _timing(evaluation, DEFAULT)
    return Row(
        combination=combination, values=values, batch=batch, job=job.job, state=job.state,
        failure=job.failure.message if job.failure is not None else "",
        latency_s=best.median_s if best is not None else None,
        low_s=best.low_s if best is not None else None,
        high_s=best.high_s if best is not None else None,
        default_s=untuned.median_s if untuned is not None else None,
        engine=rival.name if rival is not None else baseline.runtime if baseline is not None else "",
        engine_s=rival.median_s if rival is not None else baseline.median_s if baseline is not None else None,
        trials=job.trials, failed=job.failed, disturbed=job.disturbed_records, tasks=len(job.tasks),
        flops=sum(one.weight * one.flops for one in job.tasks),
        submitted_at=job.submitted_at, ended_at=job.ended_at or job.now, took_s=took_s, waited_s=max(0.0, first),
        host_s=host_s, device_s=device_s, stages_s=stages, others_s=others_s,
        lanes=_count(units, HOST_POOL), devices=_count(units, DEVICE_POOL + job.device),
        policy=policy.policy, goal=policy.goal,
        software=report.software, compiler=known.compiler if known is not None else "",
        cpu=report.machine.cpu, cores=os.cpu_count() or report.machine.cores,
        device=known.device if known is not None else "",
        identity=identity.digest(known) if known is not None else "", made_at=report.made_at,
        each=tuple(
            TaskRow(
                name=one.name, shape=one.shape, calls=one.weight, flops=one.flops,
                trials=one.trials, best_s=one.best_s,
            )
            for one in job.tasks
        ),
    )  # fmt: skip


def _count(units: Iterable[UnitView], pool: str) -> int:
    return max(1, sum(pool in unit.pools for unit in units))


def _timing(evaluation: Evaluation | None, name: str) -> Timing | None:
    return next((one for one in evaluation.timings if one.name == name), None) if evaluation is not None else None


def _leases(job: JobView, spans: Iterable[Span]) -> tuple[dict[str, float], float, float, float]:
    """Seconds of a job's leases by stage, of lanes and of devices; and of other jobs in its time."""
    stages: defaultdict[str, float] = defaultdict(float)
    host_s = device_s = others_s = 0.0
    until_s = (job.ended_at or job.now) - job.submitted_at
    for span in spans:
        lasted_s = min(span.ended_at or until_s, until_s) - max(0.0, span.started_at)
        if span.job != job.job:
            others_s += lasted_s
            continue
        stages[span.stage] += lasted_s
        if any(is_lane(unit) for unit in span.units):
            host_s += lasted_s
        else:
            device_s += lasted_s
    return dict(stages), host_s, device_s, others_s
