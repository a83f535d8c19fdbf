"""The content of a report, collected from the daemon's answers."""

import datetime
import os
import platform
from collections import Counter
from collections.abc import Mapping, Sequence

from msgspec import Struct

from autosched.backend import Evaluation
from autosched.model import NETWORK_TASK, Purpose, Record
from autosched.network_status import MeasuredBuild
from autosched.protocol import JobView, Span, TaskView
from autosched.records import record_selection
from autosched.records.network_estimate import network_s
from autosched.records.task_best import Measurement, TaskBest
from autosched.stages import PROFILE
from autosched.text.latency_gain import tasks_by_share
from autosched.version import __version__
from autosched_runtime.cpu_model import cpu_model

SCHEMA = 1
EXAMPLES_MAX = 3
DETAIL_CHARS = 400


class Machine(Struct, frozen=True):
    """The machine on which the report was written."""

    host: str
    system: str
    cpu: str
    cores: int
    memory_bytes: int
    python: str


class Point(Struct, frozen=True, array_like=True):
    """A new best latency from a moment on. Times in seconds since the submission of the job."""

    at_s: float
    best_s: float


class BuildPoint(Struct, frozen=True, array_like=True):
    """A measured build of the whole network. Time in seconds since the submission of the job."""

    at_s: float
    latency_s: float
    disturbed: bool
    """Whether other load ran on the device meanwhile."""


class FailureGroup(Struct, frozen=True):
    """Failed trials of one kind, with the messages of some of them."""

    reason: str
    count: int
    examples: tuple[str, ...]


class Final(Struct, frozen=True, kw_only=True):
    """The final comparison of a task's best candidates."""

    task: int
    name: str
    candidates: int
    """Number of candidates, with the default."""
    search_s: float
    """Best latency of the search, which selected the candidates."""
    best_s: float
    default_s: float | None
    winner: str
    """"first" of the search, "another" candidate, or "default"."""


class Report(Struct, frozen=True, kw_only=True):
    """Everything about one job. Times of `spans` are seconds since the submission of the job."""

    schema: int = SCHEMA
    made_at: str
    software: str
    machine: Machine
    job: JobView
    evaluation: Evaluation | None
    estimates: tuple[Point, ...]
    """Expected latency of the network: from the first measured build on, or from when every necessary task had a valid
    record."""
    task_curves: dict[str, tuple[Point, ...]]
    """Best latency per task; the key is the task's number."""
    failures: tuple[FailureGroup, ...]
    finals: tuple[Final, ...] = ()
    health: dict[str, str] = {}
    """Health of each device at the time of the report."""
    builds: tuple[BuildPoint, ...] = ()
    """Measured builds of the network, the last one included."""
    spans: tuple[Span, ...]
    """Steps of this job, and those of other jobs in its time."""
    expected_gain: float | None = None
    """Present expected latency divided by that after twice the trials, estimated from the gain of the second half of
    the trials."""

    @property
    def tasks_by_share(self) -> list[tuple[TaskView, float | None]]:
        """Tasks with their share of the network's latency, the largest first; None without a valid record."""
        return tasks_by_share(self.job)


def gather(
    job: JobView,
    evaluation: Evaluation | None,
    records: Sequence[Record],
    spans: Sequence[Span],
    health: Mapping[str, str] | None = None,
) -> Report:
    """Create a report."""
    until = job.ended_at if job.ended_at is not None else job.now
    near = [
        _since(span, job) for span in spans if span.started_at < until and (span.ended_at or until) > job.submitted_at
    ]
    curves = _curves(job, records, near)
    return Report(
        made_at=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        software=f"autosched {__version__}",
        machine=this_machine(),
        job=job,
        evaluation=evaluation,
        estimates=_estimates(job, curves, near),
        builds=_builds(job, near),
        task_curves={str(task): tuple(points) for task, points in curves.items()},
        failures=_failures(records),
        finals=_finals(job, records),
        health=dict(health or {}),
        spans=tuple(near),
        expected_gain=_expected_gain(job, records),
    )


def _since(span: Span, job: JobView) -> Span:
    """Returns a step with times since the submission of the job, as it was when the job was read: steps and records are
    read later."""
    start, now = job.submitted_at, job.now
    return Span(
        span.step, span.job, span.task, span.stage, span.units, span.queued_at - start, span.started_at - start,
        (now if span.ended_at is None else min(span.ended_at, now)) - start, span.outcome,
    )  # fmt: skip


def _curves(job: JobView, records: Sequence[Record], spans: Sequence[Span]) -> dict[int, list[Point]]:
    """The best latency of each task over time. It rises where a lower one was disturbed, or is not confirmed in the
    finals.

    A record has the duration of its profiling but not its time. A task has at most one step in flight, so the records
    in order, end to end, fill the task's profile steps. Without steps (a daemon that forgot them) the records are
    spread over the job's time.
    """
    whole = (job.ended_at or job.now) - job.submitted_at
    curves: dict[int, list[Point]] = {}
    for task in sorted({record.task for record in records}):
        own = sorted((r for r in records if r.task == task), key=lambda r: r.number)
        steps = [s for s in spans if s.job == job.job and s.task == task and s.stage == PROFILE]
        windows = [(s.started_at, s.ended_at or s.started_at) for s in steps] or [(0.0, whole)]
        points: list[Point] = []
        best = TaskBest()
        for record, at_s in zip(own, _places(own, windows), strict=True):
            best.add(Measurement.of(record))
            if best.best_s is not None and (not points or best.best_s != points[-1].best_s):
                points.append(Point(at_s, best.best_s))
        curves[task] = points
    return curves


def _places(records: Sequence[Record], windows: Sequence[tuple[float, float]]) -> list[float]:
    """The end of each record when all are laid end to end into the windows, each as long as its profiling."""
    costs = [record.profile_s + 1e-6 for record in records]
    room = sum(end - start for start, end in windows)
    scale = room / sum(costs)
    places, used, window = [], 0.0, 0
    before = 0.0  # length of the windows before the current one
    for cost in costs:
        used += cost * scale
        while window < len(windows) - 1 and used > before + (length := windows[window][1] - windows[window][0]) + 1e-9:
            before += length
            window += 1
        start, end = windows[window]
        places.append(min(end, start + used - before))
    return places


def _ends(job: JobView, spans: Sequence[Span]) -> list[tuple[float, MeasuredBuild]]:
    """The job's measured builds with the ends of their steps, except those of steps that the daemon forgot."""
    ended_at = {span.step: span.ended_at for span in spans if span.job == job.job}
    return [(at_s, build) for build in job.builds if (at_s := ended_at.get(build.step)) is not None]


def _builds(job: JobView, spans: Sequence[Span]) -> tuple[BuildPoint, ...]:
    return tuple(BuildPoint(at_s, build.latency_s, build.disturbed) for at_s, build in _ends(job, spans))


def _estimates(job: JobView, curves: Mapping[int, Sequence[Point]], spans: Sequence[Span]) -> tuple[Point, ...]:
    """The expected latency over time, from the tasks' latencies and the measured builds."""
    tasks = {task.task for task in job.tasks}
    changes: list[tuple[float, int, float | MeasuredBuild]] = [
        (point.at_s, task, point.best_s) for task, points in curves.items() for point in points if task in tasks
    ]
    changes += [(at_s, NETWORK_TASK, build) for at_s, build in _ends(job, spans)]
    best: dict[int, float] = {}
    scale, rest_s = 1.0, 0.0
    estimates: list[Point] = []
    for at_s, task, change in sorted(changes, key=lambda change: change[:2]):
        if isinstance(change, MeasuredBuild):
            scale, rest_s = change.scale, change.rest_s or 0.0
            if not change.disturbed:
                best = {one.task: one.untuned_s for one in job.tasks if one.untuned_s is not None} | best
        else:
            best[task] = change
        if (tasks_s := network_s(job.tasks, best)) is not None:
            estimates.append(Point(at_s, scale * tasks_s + rest_s))
    return tuple(estimates)


def _expected_gain(job: JobView, records: Sequence[Record]) -> float | None:
    """Estimate after half of the trials divided by that after all of them; None without an estimate at half.

    Latencies fall about as a power of the number of trials, so the next doubling gains no more than the last one.
    """
    trials = [record for record in records if record.purpose is Purpose.TRIAL]
    half, whole = (_estimate_s(job, trials[:count]) for count in (len(trials) // 2, len(trials)))
    return half / whole if half is not None and whole else None


def _estimate_s(job: JobView, records: Sequence[Record]) -> float | None:
    best = {task: record_selection.best(own) for task, own in record_selection.by_task(records).items()}
    known = {task: record.best_s for task, record in best.items() if record is not None and record.best_s is not None}
    return network_s(job.tasks, known)


def _finals(job: JobView, records: Sequence[Record]) -> tuple[Final, ...]:
    names, found = {task.task: task.name for task in job.tasks}, []
    for task, own in sorted(record_selection.by_task(records).items()):
        finals, first = record_selection.finals(own), record_selection.best(record_selection.tried(own))
        winner = record_selection.best(own)
        if not finals or first is None or winner is None:
            continue
        how = "default" if winner.purpose is Purpose.DEFAULT else "another"
        found.append(
            Final(
                task=task, name=names.get(task, f"task {task}"), candidates=len(finals), search_s=first.best_s or 0.0,
                best_s=winner.best_s or 0.0, default_s=finals[-1].best_s,
                winner="first" if winner.candidate == first.candidate else how,
            )
        )  # fmt: skip
    return tuple(found)


def _failures(records: Sequence[Record]) -> tuple[FailureGroup, ...]:
    failed = [record for record in records if record.failure is not None]
    counts = Counter(record.failure.value for record in failed if record.failure is not None)
    groups = []
    for reason, count in counts.most_common():
        details = dict.fromkeys(
            r.detail.strip()[:DETAIL_CHARS] for r in failed if r.failure == reason and r.detail.strip()
        )
        groups.append(FailureGroup(reason, count, tuple(details)[:EXAMPLES_MAX]))
    return tuple(groups)


def this_machine() -> Machine:
    """Description of this machine."""
    return Machine(
        host=platform.node(),
        system=f"{platform.system()} {platform.release()}",
        cpu=cpu_model(),
        cores=len(os.sched_getaffinity(0)),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        python=platform.python_version(),
    )
