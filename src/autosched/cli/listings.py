"""Questions with a short answer: jobs, job, cancel, explain, devices, status, stop.

They use one blocking connection and no event loop: `autosched jobs` must answer before anyone notices it started.
"""

from collections.abc import Sequence

import click
import msgspec

from autosched import address, units
from autosched.blocking import Caller
from autosched.cli.output import data, document, format_option, say, table
from autosched.errors import NotFound
from autosched.model import JobState
from autosched.protocol import (
    CancelJob,
    DaemonInfo,
    Done,
    ExplainJob,
    Explanation,
    GetJob,
    Info,
    JobList,
    JobView,
    ListDevices,
    ListJobs,
    Shutdown,
    UnitList,
    UnitView,
)
from autosched.selectors import select, select_one, up_to
from autosched.shares import gain, tasks_by_share

TASKS_SHOWN = 15


def caller(host: str | None) -> Caller:
    """A connection to the daemon that is meant."""
    return Caller(address.named(host) or address.default())


def job_ids(daemon: Caller) -> Sequence[int]:
    """The daemon's jobs, oldest first."""
    return up_to(daemon.call(ListJobs(limit=1), JobList).jobs)


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 500), default=200, show_default=True, help="At most so many, the latest."
)
@click.option(
    "-u", "--user", "owner", default="", metavar="WHO", help='Only jobs of this user: me, "uid 1000", "key ab12".'
)
@format_option
@click.pass_obj
def jobs(host: str | None, limit: int, owner: str, style: str) -> None:
    """List jobs, the newest last."""
    with caller(host) as daemon:
        found = daemon.call(ListJobs(limit=limit, owner=owner), JobList).jobs
    if style == "json":
        return document("jobs", found)
    if style == "id":
        return data("\n".join(str(job.job) for job in found)) if found else None
    if not found:
        whose = f" of {owner}" if owner else ""
        return say(f"There are no jobs{whose}. Submit one:  autosched submit MODEL.onnx")
    headers = ("JOB", "MODEL", "STATE", "TRIALS", "BEST", "ETA", "REASON")
    data(table(headers, [job_row(job) for job in found], right=(0, 3, 4, 5)))


def job_row(job: JobView) -> Sequence[str]:
    """A job in one line."""
    ended = JobState(job.state).ended
    eta = "" if ended else units.duration(job.eta_s)
    reason = job.failure.message if job.failure is not None else "" if ended else job.reason
    if (wishes := wanted(job)) and not ended:
        reason = f"{reason}; {wishes}"
    if job.shared_units:
        reason = f"DISTURBED; {reason}".removesuffix("; ")
    name = job.name if len(job.name) <= 20 else job.name[:19] + "…"
    best = units.latency(job.estimate_s).replace(" ", "")
    return (str(job.job), name, job.state, trials(job), best, eta, reason.replace("\n", " "))


def trials(job: JobView) -> str:
    """Trials made, of how many."""
    return f"{job.trials}/{'?' if job.trials_total is None else job.trials_total}"


@click.command()
@click.argument("which", metavar="JOB")
@format_option
@click.pass_obj
def job(host: str | None, which: str, style: str) -> None:
    """Show one job and its tasks, those with the largest share of the network's time first."""
    with caller(host) as daemon:
        view = daemon.call(GetJob(job=select_one(which, lambda: job_ids(daemon))), JobView)
    if style == "json":
        return document("job", view)
    if style == "id":
        return data(str(view.job))
    data("\n".join(facts(view)))
    if view.tasks:
        data("")
        data(task_table(view))
    if view.skipped:
        names = ", ".join(dict.fromkeys(name for name, _ in view.skipped))
        data(f"\n not tuned ({len(view.skipped)}): {names}")


def facts(view: JobView) -> list[str]:
    """A job in a few lines."""
    took = units.duration((view.now if view.ended_at is None else view.ended_at) - view.submitted_at)
    lines = [
        f" job {view.job}  {view.name}  {view.state}, {took}",
        f" {view.backend} on {view.device}, target {view.target}" + (f", by {view.owner}" if view.owner else ""),
        f" trials {trials(view)}" + (f", {view.failed} failed: {units.reasons(view.failures)}" if view.failed else ""),
    ]
    if (wishes := wanted(view)) != "":
        lines.append(f" {wishes}")
    if view.shared_units:
        lines.append(f" ! {units.SHARED_UNITS}")
    if view.disturbed_records:
        lines.append(f" {units.disturbed(view.disturbed_records)}")
    if view.failed_steps:
        lines.append(f" {units.failed_steps(view.failed_steps, view.last_error)}")
    if view.estimate_s is not None:
        lines.append(f" best estimate {units.latency(view.estimate_s)}{gain(view)}")
    if not JobState(view.state).ended:
        memory = f"; its client holds {units.size(view.client_bytes)}" if view.client_bytes else ""
        lines.append(f" {view.reason or 'no reason given'}, ready in {units.duration(view.eta_s)}{memory}")
    if view.failure is not None:
        lines.append(f" failed: {view.failure.message}")
    return lines


def wanted(view: JobView) -> str:
    """Priority and deadline, where the user named them."""
    parts = [f"priority {view.priority}"] if view.priority else []
    if view.deadline_at is not None:
        left_s = view.deadline_at - (view.now if view.ended_at is None else view.ended_at)
        within = units.duration(view.deadline_at - view.submitted_at)
        how = "met" if view.ended_at is not None else f"{units.duration(left_s)} left"
        late = f"{units.duration(-left_s)} late"
        parts.append(f"wanted within {within}: {how if left_s >= 0 else late}")
    return ", ".join(parts)


def task_table(view: JobView, shown: int = TASKS_SHOWN) -> str:
    """The tasks with the largest shares."""
    ordered = tasks_by_share(view)
    rows = [
        (
            task.shape or task.name,
            "-" if part is None else units.share(part, 1.0),
            str(task.trials),
            str(task.failed) if task.failed else "",
            units.latency(task.best_s),
            units.gflops(task.flops, task.best_s),
            task.stage if task.left_s is None else f"{task.stage}, {units.duration(task.left_s)} left",
        )
        for task, part in ordered[:shown]
    ]
    headers = ("TASK", "SHARE", "TRIALS", "FAILED", "BEST", "GFLOP/S", "STAGE")
    text = table(headers, rows, right=(1, 2, 3, 4, 5), give=0)
    more = len(ordered) - shown
    return f"{text}\n … {more} more: autosched job {view.job} -o json" if more > 0 else text


@click.command()
@click.argument("which", metavar="JOB...", nargs=-1, required=True)
@click.pass_obj
def cancel(host: str | None, which: tuple[str, ...]) -> int:
    """Stop jobs. Their records are kept.

    JOB is a number, a range 12-15, a list 12,14, or one of last and all.
    """
    failed = 0
    with caller(host) as daemon:
        for job_id in select(which, lambda: job_ids(daemon)):
            view = daemon.call(GetJob(job=job_id), JobView)
            if JobState(view.state).ended:
                if "all" not in which:
                    say(f"job {job_id} has ended already: {view.state}")
                continue
            try:
                daemon.call(CancelJob(job=job_id), Done)
            except NotFound as error:
                say(f"autosched: {error}")
                failed = error.exit_code
            else:
                kept = f" after {view.trials} trials; they are kept: autosched compile {job_id}" if view.trials else ""
                say(f"job {job_id} is cancelled{kept}")
    return failed


@click.command()
@click.argument("which", metavar="JOB")
@click.option("-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="How to print.")
@click.pass_obj
def explain(host: str | None, which: str, style: str) -> None:
    """Say why a job waits, for what, and who holds that."""
    with caller(host) as daemon:
        why = daemon.call(ExplainJob(job=select_one(which, lambda: job_ids(daemon))), Explanation)
    if style == "json":
        return document("explanation", why)
    data("\n".join(why.lines))


@click.command()
@format_option
@click.pass_obj
def devices(host: str | None, style: str) -> None:
    """List host lanes and devices: who holds them, since when, until when."""
    with caller(host) as daemon:
        found = daemon.call(ListDevices(), UnitList).units
    if style == "json":
        return document("devices", found)
    if style == "id":
        return data("\n".join(unit.unit for unit in found))
    headers = ("UNIT", "POOL", "CORES", "STATE", "HELD BY", "FOR", "LEFT", "QUEUE", "BUSY")
    data(table(headers, [_unit_row(unit) for unit in found], right=(5, 6, 7, 8), give=4))
    for unit in found:
        if unit.drained:
            quarantined = unit.drained.startswith("quarantined: ")
            data(f" {unit.unit}: {'' if quarantined else 'drained, '}{unit.drained}")
        if unit.health:
            data(f" {unit.unit}: {unit.health}")


def _unit_row(unit: UnitView) -> Sequence[str]:
    held = unit.job is not None
    return (
        unit.unit,
        ",".join(unit.pools),
        cores(unit.cores),
        unit.state,
        f"job {unit.job} {unit.stage}" if held else "",
        units.duration(unit.held_s) if held else "",
        units.duration(unit.left_s) if held else "",
        str(unit.waiting),
        f"{100 * unit.busy_ratio:.0f} %",
    )


def cores(numbers: Sequence[int]) -> str:
    """Core numbers with runs drawn together: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "any"


@click.command()
@click.option("-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="How to print.")
@click.pass_obj
def status(host: str | None, style: str) -> None:
    """Say whether a daemon runs, since when, and how it is. Exit code 3 when none does."""
    with caller(host) as daemon:
        info = daemon.call(Info(), DaemonInfo)
        where = daemon.address
    if style == "json":
        return document("daemon", msgspec.structs.asdict(info))
    up, memory = units.duration(info.uptime_s), units.size(info.rss_bytes)
    data(f" autosched {info.version}  process {info.pid}, up {up}, {memory}")
    data(f" at {where}" + (f" and {info.address}" if info.address not in ("", where) else ""))
    data(f" state and log in {info.state_dir}" + ("; ends when it has nothing to do" if info.on_demand else ""))
    active = f"{info.jobs_active} of {units.count(info.jobs_total, 'job')} active"
    policy = info.policy + (f" for {info.goal}" if info.goal else "")
    data(f" {active}, policy {policy}, {units.count(info.steps_started, 'step')}")
    for warning in info.warnings:
        data(f" ! {warning}")


@click.command()
@click.pass_obj
def stop(host: str | None) -> None:
    """Shut the daemon down, and its clients. Unfinished jobs go on from their records when it starts again."""
    with caller(host) as daemon:
        active = daemon.call(Info(), DaemonInfo).jobs_active
        daemon.call(Shutdown(), Done)
    say("The daemon stops. Start it again:  autosched serve")
    if active:
        say(f"{units.count(active, 'unfinished job')} will go on then.")
