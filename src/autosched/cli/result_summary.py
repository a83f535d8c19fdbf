"""The summary at the end of a job: latencies, outputs, failures, files, and the next commands."""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from autosched import device_types, formatting
from autosched.api.result_folder import PAGE, REJECTED, Result
from autosched.backend import Evaluation, OperatorTimes
from autosched.cli import output
from autosched.model import JobId
from autosched.report import verdict
from autosched.report.evaluation_summary import advice, interval, label, starts
from autosched.text.latency_gain import goal, goal_advice


def outcome(result: Result) -> Iterator[str]:
    """The lines to print."""
    job = result.report.job
    took = formatting.duration((job.now if job.ended_at is None else job.ended_at) - job.submitted_at)
    tuned = f"{formatting.count(job.trials, 'trial')} on {formatting.count(len(job.tasks), 'task')}"
    if job.trials == 0 and job.spec is not None and job.spec.records_from is not None:
        tuned = f"compiled with the trials of job {job.spec.records_from}"
    yield f" {job.name}  {tuned} in {took}, job {job.job}"
    if (known := formatting.came_from([task.came_from for task in job.tasks])) != "":
        yield f" {known}"
    if (wish := goal(job)) != "":
        yield f" {wish}"
        if (told := goal_advice(job, result.report.expected_gain)) != "":
            yield f" ! {told}"
    if result.report.evaluation is not None:
        found = verdict(result.report.evaluation)
        told = advice(found, result.report.expected_gain, trials=job.trials, job=job.job)
        yield from evaluation(result.report.evaluation, told)
    elif job.estimate_s is not None:
        yield f" best estimate {formatting.latency(job.estimate_s)}; nothing was measured as a whole"
    if job.failed:
        yield f" failed trials {job.failed} of {job.trials}: {formatting.reasons(job.failures)}"
    if finals := result.report.finals:
        others, defaults = (sum(final.winner == who for final in finals) for who in ("another", "default"))
        tasks = formatting.count(len(finals), "task")
        yield f" finals of {tasks} changed the best of {others}, the default won {defaults}"
    if job.disturbed_records:
        yield f" {formatting.disturbed(job.disturbed_records, job.records)}"
    if job.shared_units:
        yield f" ! {formatting.SHARED_UNITS}"
    if job.failed_steps:
        yield f" ! {formatting.failed_steps(job.failed_steps, job.last_error)}"
    folder = shown(result.folder)
    yield f" files in {folder}: {', '.join(path.name for path in result.files)}"
    if (other := result.replaced) is not None:
        yield f" ! in place of those of job {other}; to have them too:  autosched attach {other} -o DIR"
    if rejected := [path for path in result.files if path.name.endswith(REJECTED)]:
        yield f" rejected build, to look into: {shown(rejected[0])}"
    yield from _next(result, job.job)


def in_a_line(result: Result) -> Iterator[str]:
    """The comparison with the baseline alone, if the outputs are right; else the whole outcome."""
    measured = result.report.evaluation
    if measured is None or not measured.outputs_equal or not measured.verified:
        yield from outcome(result)
    else:
        yield f" {verdict(measured).headline}"


def _next(result: Result, job: JobId) -> Iterator[str]:
    """Commands to run next."""
    yield " Next:"
    if result.module is not None and device_types.target_kind(result.report.job.target) in device_types.CUDA_KINDS:
        yield f"   autosched evaluate {shown(result.module)}"
        yield "   on another machine: copy both files, and see:  autosched doctor --target cuda"
    elif result.module is not None and result.report.evaluation is not None and result.report.evaluation.board:
        name = result.module.name
        both = f"{name} and {result.module.with_suffix('.json').name}"
        yield f"   copy {both} to the board, and run it there, with autosched and TVM:"
        yield f"   autosched run {name}"
    elif result.module is not None:
        yield f"   autosched run {shown(result.module)}"
        yield f"   autosched evaluate {shown(result.module)}"
    else:
        yield f"   autosched job {job}"
        yield "   autosched devices"
    if (page := result.folder / PAGE) in result.files:
        yield f"   xdg-open {shown(page)}"


def evaluation(measured: Evaluation, told: str = "") -> Iterator[str]:
    """Comparison with the baseline: latencies, and whether the outputs are equal. `told`: advice."""
    found = verdict(measured)
    yield f" {found.headline}"
    if told:
        yield f" ! {told}"
    cores = ", ".join(map(str, measured.cores))
    where = f" on core{'s' if len(measured.cores) > 1 else ''} {cores}" if cores else ""
    yield f" latency of one inference{where}, median and 95 % confidence interval:"
    for timing in measured.timings:
        remark = found.remarks.get(timing.name, "")
        yield f"   {label(timing):13}{formatting.latency(timing.median_s):>9}  {interval(timing):22} {remark}".rstrip()
    for number, line in enumerate(starts(measured)):
        yield f"   {line}" if number else f" {line}"
    yield f" {found.outputs}"
    if measured.operators is not None:
        yield f" {operators(measured.operators)}"
    if found.difference:
        yield f" ! {found.difference}"
    for note in measured.notes:
        yield f" ! {note}"
    for group in measured.note_groups:
        yield f" ! {group.line}"
        if output.verbose and len(group.about) > 1:
            yield from (f"     {name}" for name in group.about)
    if not output.verbose and any(len(group.about) > 1 for group in measured.note_groups):
        yield "   (--verbose before the command names the operators)"


def operators(times: OperatorTimes) -> str:
    """The distribution of time, by the schedules of the kernels."""
    by_schedule: defaultdict[str, float] = defaultdict(float)
    for row in times.rows:
        by_schedule[row.schedule] += row.time_s
    parts = sorted(by_schedule.items(), key=lambda part: -part[1])
    said = ", ".join(f"{schedule} {formatting.share(time_s, times.whole_s)}" for schedule, time_s in parts)
    return f"time by operators' schedules: {said}; each:  autosched evaluate MODULE --operators"


def shown(path: Path) -> str:
    """A path, relative if it lies below the current folder, and quoted if a shell needs it."""
    import shlex

    try:
        short = path.relative_to(Path.cwd())
        return shlex.quote(f"./{short}") if short.name else "."
    except (ValueError, OSError):
        return shlex.quote(str(path))
