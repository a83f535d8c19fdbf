"""Commands with a short answer: jobs, job, cancel, explain, devices, queue, status, info, slowlog, stop.

They use one blocking connection and no event loop, so that `autosched jobs` answers at once.
"""

from collections.abc import Iterable

import click
import msgspec

from autosched import formatting
from autosched.api import daemon_address
from autosched.cli import output
from autosched.cli.output import (
    bold,
    complain,
    data,
    document,
    document_option,
    format_option,
    listing_option,
    room,
    say,
    show,
)
from autosched.errors import NotFound, Refused, RequestError
from autosched.model import JobState
from autosched.protocol import (
    CancelJob,
    DaemonInfo,
    Done,
    ExplainJob,
    Explanation,
    Figures,
    GetFigures,
    GetJob,
    GetLoad,
    GetPageLink,
    Info,
    JobList,
    JobView,
    ListDevices,
    ListJobs,
    ListQueues,
    ListStalls,
    LoadView,
    PageLink,
    QueueList,
    Shutdown,
    StallList,
    UnitList,
)
from autosched.protocol.pagination import answered
from autosched.text import tables
from autosched.text.job_selectors import MANY, every, labels, select, select_one
from autosched.text.visible import one_line
from autosched.wire.blocking_link import TIMEOUT_S, BlockingLink


def caller(host: str | None, timeout_s: float = TIMEOUT_S) -> BlockingLink:
    """A connection to the selected daemon."""
    told = complain if output.verbose else None
    return BlockingLink(daemon_address.named(host) or daemon_address.default(), timeout_s=timeout_s, told=told)


def chosen(daemon: BlockingLink, which: Iterable[str], *, active: bool = False) -> list[int]:
    """Numbers of the selected jobs; `active`: names and labels select only jobs that have not ended."""
    return answered(select(which, active=active), lambda asked: _numbers(daemon, asked))


def the_job(daemon: BlockingLink, which: str) -> int:
    """Number of the one selected job."""
    return answered(select_one(which), lambda asked: _numbers(daemon, asked))


def all_numbers(daemon: BlockingLink, asked: ListJobs) -> list[int]:
    """Numbers of all matching jobs, the oldest first, page by page."""
    return list(answered(every(asked), lambda page: _numbers(daemon, page)))


def _numbers(daemon: BlockingLink, asked: ListJobs) -> list[int]:
    return [view.job for view in daemon.call(asked, JobList).jobs]


def seconds_of(_ctx: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """ "30m" becomes 1800.0, "none" 0.0."""
    try:
        return None if value is None else 0.0 if value == "none" else formatting.seconds(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Only print what would be done.")


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 500), default=200, show_default=True, help="Maximum number of jobs, the latest."
)
@click.option(
    "-u", "--user", "owner", default="", metavar="WHO", help='Only jobs of this user: me, "uid 1000", "key ab12".'
)
@click.option(
    "--state",
    default="",
    metavar="WORD",
    help="Only jobs in this state or activity: active, waiting, held, profile, failed.",
)
@click.option("-l", "--label", "words", multiple=True, metavar="KEY=VALUE", help="Only jobs with this label.")
@listing_option
@click.pass_obj
def jobs(host: str | None, limit: int, owner: str, state: str, words: tuple[str, ...], style: str) -> None:
    """List jobs, newest last."""
    asked = ListJobs(limit=limit, owner=owner, state=state, labels=labels(words))
    with caller(host) as daemon:
        found = daemon.call(asked, JobList).jobs
    if not found and style in ("table", "wide"):
        if owner or state or words:
            return say("There are no such jobs. See all:  autosched jobs")
        return say("There are no jobs. Submit one:  autosched submit MODEL.onnx")
    show(style, "jobs", tables.JOBS, found, id=lambda job: job.job)


@click.command()
@click.argument("which", metavar="JOB")
@click.option("--load", is_flag=True, help="Show the facts on which the scheduler decides about each task, instead.")
@format_option
@click.pass_obj
def job(host: str | None, which: str, load: bool, style: str) -> None:
    """Show one job and its tasks, those with the largest share of the network's time first."""
    with caller(host) as daemon:
        if load:
            return _load(daemon.call(GetLoad(job=the_job(daemon, which)), LoadView), style)
        view = daemon.call(GetJob(job=the_job(daemon, which)), JobView)
    if style == "json":
        return document("job", view)
    if style == "id":
        return data(str(view.job))
    data("\n".join(tables.facts(view)))
    if view.tasks:
        data("")
        data("\n".join(tables.task_table(view, room=room())))
    if view.skipped:
        names = ", ".join(dict.fromkeys(name for name, _ in view.skipped))
        data(f"\n not tuned ({len(view.skipped)}): {names}")


def _load(view: LoadView, style: str) -> None:
    """Print the four facts of load-awareness of each task."""
    if style == "json":
        return document("load", view)
    if not view.tasks:
        return say(f"Job {view.job} has no tasks now: its client has said nothing yet, or it has ended.")
    data("\n".join(tables.table(tables.LOAD, view.tasks, room=room())))


@click.command(epilog=MANY)
@click.argument("which", metavar="JOB...", nargs=-1, required=True)
@dry_run_option
@click.pass_obj
def cancel(host: str | None, which: tuple[str, ...], dry_run: bool) -> int:
    """Cancel jobs. Their records are kept."""
    failed = 0
    with caller(host) as daemon:
        if not (jobs := chosen(daemon, which, active=True)):
            say("No job is active. See those that were:  autosched jobs")
        for job_id in jobs:
            view = daemon.call(GetJob(job=job_id), JobView)
            if JobState(view.state).ended:
                say(f"job {job_id} has ended already: {view.state}")
                continue
            kept = f" after {view.trials} trials; they are kept: autosched compile {job_id}" if view.trials else ""
            if dry_run:
                say(f"job {job_id} ({view.name}) would be cancelled{kept}")
                continue
            try:
                daemon.call(CancelJob(job=job_id), Done)
            except (NotFound, Refused) as error:
                complain(f"autosched: {error}")
                failed = error.exit_code
            else:
                say(f"job {job_id} is cancelled{kept}")
    return failed


@click.command()
@click.argument("which", metavar="JOB|UNIT")
@document_option
@click.pass_obj
def explain(host: str | None, which: str, style: str) -> None:
    """Explain why a job waits, for what, and who holds it; or why a lane or device is idle."""
    with caller(host) as daemon:
        lab = daemon.call(ListDevices(), UnitList).units
        unit = next((u for u in lab if u.unit == which), None)
        if unit is not None:
            return document("unit", unit) if style == "json" else data("\n".join(tables.unit_facts(unit)))
        try:
            job = the_job(daemon, which)
        except RequestError as error:
            raise RequestError(f"{error}. Or a unit; there are: {', '.join(u.unit for u in lab)}") from None
        why = daemon.call(ExplainJob(job=job), Explanation)
    if style == "json":
        return document("explanation", why)
    data("\n".join(why.lines))


@click.command()
@listing_option
@click.pass_obj
def devices(host: str | None, style: str) -> None:
    """List host lanes and devices: holders, expected ends, and reasons for being idle."""
    with caller(host) as daemon:
        listed = daemon.call(ListDevices(), UnitList)
    found = listed.units
    show(style, "devices", tables.DEVICES, found, id=lambda unit: unit.unit)
    if style == "table":
        for unit, line in zip(found, tables.table(tables.DEVICES, found, room=room())[1:], strict=True):
            if "…" in line:
                data(f" {unit.unit}: {one_line(tables.unit_reason(unit))}")
    if style in ("table", "wide"):
        for board in listed.gone:
            since = formatting.duration(board.gone_s)
            data(f" gone: {board.unit}, of the kind {board.kind}, for {since}: {board.reason}")


@click.command()
@listing_option
@click.pass_obj
def queue(host: str | None, style: str) -> None:
    """List the tasks that wait for lanes and devices, in scheduling order."""
    with caller(host) as daemon:
        found = daemon.call(ListQueues(limit=100 if style == "wide" else 5), QueueList).queues
    show(style, "queues", tables.QUEUES, found, id=lambda queue: queue.pool)


@click.command()
@listing_option
@click.pass_obj
def slowlog(host: str | None, style: str) -> None:
    """List stalls of the daemon's event loop, with duration and the call that ran."""
    with caller(host) as daemon:
        found = daemon.call(ListStalls(), StallList).stalls
    if not found and style in ("table", "wide"):
        return say("The daemon's loop has not stalled.")
    show(style, "stalls", tables.STALLS, found, id=lambda stall: stall.id)


@click.command()
@click.argument("section", required=False, default="")
@document_option
@click.pass_obj
def info(host: str | None, section: str, style: str) -> None:
    """Print the daemon's figures, of one SECTION or all: daemon, sched, devices, storage, stream."""
    with caller(host) as daemon:
        found = daemon.call(GetFigures(section=section), Figures).sections
    if style == "json":
        return document("figures", found)
    for name, figures in found.items():
        data(bold(f"# {name}"))
        data("\n".join(f"{figure}:{value}" for figure, value in figures.items()))


@click.command()
@document_option
@click.pass_obj
def status(host: str | None, style: str) -> None:
    """Print whether a daemon runs, since when, and its health. Exit code 3 if none runs."""
    with caller(host) as daemon:
        info = daemon.call(Info(), DaemonInfo)
        info = msgspec.structs.replace(info, page=daemon.call(GetPageLink(), PageLink).url)
        where = daemon.address
    if style == "json":
        return document("daemon", msgspec.structs.asdict(info))
    up, memory = formatting.duration(info.uptime_s), formatting.size(info.rss_bytes)
    data(f" autosched {info.version}  process {info.pid}, up {up}, {memory}")
    data(f" at {where}" + (f" and {info.address}" if info.address not in ("", where) else ""))
    if info.page:
        data(f" page at {info.page}")
    data(f" state and log in {info.state_dir}" + ("; ends when it has nothing to do" if info.on_demand else ""))
    active = f"{info.jobs_active} of {formatting.count(info.jobs_total, 'job')} active"
    policy = info.policy + (f" for {info.goal}" if info.goal else "")
    data(f" {active}, policy {policy}, {formatting.count(info.steps_started, 'step')}")
    if info.paused:
        data(f" ! paused, no steps start: {info.paused}. Start them again:  autosched resume")
    for warning in info.warnings:
        data(f" ! {warning}")


@click.command()
@click.option(
    "--drain", "drain_s", callback=seconds_of, metavar="TIME", help="Maximum wait for running steps: 30s, 5m."
)
@click.pass_obj
def stop(host: str | None, drain_s: float | None) -> None:
    """Stop the daemon and its clients. Unfinished jobs resume from their records when it starts again."""
    with caller(host) as daemon:
        active = daemon.call(Info(), DaemonInfo).jobs_active
        daemon.call(Shutdown(drain_s=drain_s or 0.0), Done)
    when = f" when the running steps have ended, in {formatting.duration(drain_s)} at most" if drain_s else ""
    say(f"The daemon stops{when}. Start it again:  autosched serve")
    if active:
        say(f"{formatting.count(active, 'unfinished job')} will go on then.")
