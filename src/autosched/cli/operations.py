"""Commands of operators: set, hold and release jobs; pause, resume; drain, undrain and free units."""

from collections.abc import Callable

import click
from msgspec.structs import replace

from autosched import formatting
from autosched.cli.listings import caller, chosen, dry_run_option, seconds_of
from autosched.cli.output import complain, data, document, document_option, say
from autosched.errors import AutoschedError, DaemonUnreachable, NotFound, Refused
from autosched.model import JobState
from autosched.protocol import (
    CancelJob,
    ConfirmReload,
    Done,
    DrainUnit,
    FreeUnit,
    GetJob,
    HoldJob,
    JobView,
    ListDevices,
    Pause,
    PreviousSettings,
    ReleaseJob,
    Reload,
    Reloaded,
    Resume,
    ReturnUnit,
    SetJob,
    Submit,
    Submitted,
    UnitList,
)
from autosched.text.job_selectors import MANY
from autosched.text.visible import one_line
from autosched.wire.blocking_link import BlockingLink

NEEDS_FORCE = 5


def each(
    daemon: BlockingLink, which: tuple[str, ...], change: Callable[[BlockingLink, JobView], str], *, dry_run: bool
) -> int:
    """Change all selected active jobs, and print each change; returns the exit code of the last refusal."""
    code, jobs = 0, chosen(daemon, which, active=True)
    if not jobs:
        say("No job is active. See those that were:  autosched jobs")
    for job in jobs:
        try:
            view = daemon.call(GetJob(job=job), JobView)
            if JobState(view.state).ended and len(jobs) > 1:
                continue
            say(f"job {job} ({view.name}) would be changed" if dry_run else change(daemon, view))
        except AutoschedError as error:
            if isinstance(error, DaemonUnreachable):
                raise
            complain(f"autosched: {error}")
            code = error.exit_code
    return code


@click.command(epilog=MANY)
@click.argument("words", metavar="JOB... [target=TARGET]", nargs=-1, required=True)
@click.option(
    "--priority", type=click.IntRange(-100, 100), metavar="N", help="Priority, -100 to 100; higher goes first."
)
@click.option(
    "--deadline",
    "deadline_s",
    callback=seconds_of,
    metavar="TIME",
    help="Deadline from now: 45s, 30m, 2h; or none.",
)
@dry_run_option
@click.pass_obj
def set(host: str | None, words: tuple[str, ...], priority: int | None, deadline_s: float | None, dry_run: bool) -> int:
    """Change the priority, deadline or target of jobs.

    Another target is another search: a job with target=TARGET or device=KIND takes the place of the one that is named.
    """
    which = tuple(word for word in words if not word.startswith(("target=", "device=")))
    place = dict(word.split("=", 1) for word in words if word not in which)
    if not which or (priority is None and deadline_s is None and not place):
        raise click.UsageError("nothing to set. Name jobs, and --priority N, --deadline TIME or target=TARGET")
    if any(not value for value in place.values()):
        raise click.UsageError(
            "nothing stands behind the =. Write target=TARGET or device=KIND, for example target=llvm"
        )
    if place and (priority is not None or deadline_s is not None):
        raise click.UsageError("set the target first, then the others of the job that takes its place")

    def change(daemon: BlockingLink, view: JobView) -> str:
        if place:
            return _replaced(daemon, view, place.get("target", view.target), place.get("device"))
        was = daemon.call(SetJob(job=view.job, priority=priority, deadline_s=deadline_s), PreviousSettings)
        parts = [] if priority is None else [f"priority {priority}, was {was.priority}"]
        if deadline_s is not None:
            now = f"is wanted within {formatting.duration(deadline_s)}" if deadline_s else "has no deadline any more"
            left = "" if was.deadline_at is None else f", was {formatting.duration(was.deadline_at - view.now)}"
            parts.append(now + left)
        return f"job {view.job}: {'; '.join(parts)}"

    with caller(host) as daemon:
        return each(daemon, which, change, dry_run=dry_run)


def _replaced(daemon: BlockingLink, view: JobView, target: str, device: str | None) -> str:
    """Submit a job again for another target, as `submit -t` would, and cancel the old one."""
    from autosched.cli.tune import DEVICE, placed

    if JobState(view.state).ended or view.spec is None:
        raise Refused(f"job {view.job} has ended. Tune it again:  autosched submit MODEL -t {target}")
    wanted, kind = placed(target, device or DEVICE, daemon.call(ListDevices(), UnitList))
    made = daemon.call(Submit(spec=replace(view.spec, target=wanted, device=kind)), Submitted)
    daemon.call(CancelJob(job=view.job), Done)
    token = f", with the token {made.token}" if made.token else ""
    return f"job {made.job} takes the place of job {view.job}{token}. Follow it:  autosched attach {made.job}"


@click.command(epilog=MANY)
@click.argument("which", metavar="JOB...", nargs=-1, required=True)
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown to users.")
@dry_run_option
@click.pass_obj
def hold(host: str | None, which: tuple[str, ...], reason: str, dry_run: bool) -> int:
    """Start no more steps of jobs. Running steps continue; the jobs stay held over restarts."""

    def change(daemon: BlockingLink, view: JobView) -> str:
        daemon.call(HoldJob(job=view.job, reason=reason), Done)
        return f"job {view.job} starts no more steps. Let it go on:  autosched release {view.job}"

    with caller(host) as daemon:
        return each(daemon, which, change, dry_run=dry_run)


@click.command(epilog=MANY)
@click.argument("which", metavar="JOB...", nargs=-1, required=True)
@dry_run_option
@click.pass_obj
def release(host: str | None, which: tuple[str, ...], dry_run: bool) -> int:
    """Let held jobs proceed."""

    def change(daemon: BlockingLink, view: JobView) -> str:
        daemon.call(ReleaseJob(job=view.job), Done)
        return f"job {view.job} goes on. See:  autosched job {view.job}"

    with caller(host) as daemon:
        return each(daemon, which, change, dry_run=dry_run)


@click.command()
@click.option("--reason", default="", metavar="TEXT", help="Reason, shown to users of waiting jobs.")
@click.pass_obj
def pause(host: str | None, reason: str) -> None:
    """Start no steps of any job. Running steps continue; the pause holds over restarts."""
    with caller(host) as daemon:
        daemon.call(Pause(reason=reason), Done)
    say("No new steps start; those that run finish. Start steps again:  autosched resume")


@click.command()
@click.pass_obj
def resume(host: str | None) -> None:
    """Start steps again after a pause."""
    with caller(host) as daemon:
        daemon.call(Resume(), Done)
    say("Steps start again. See:  autosched jobs")


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option("--reason", required=True, metavar="TEXT", help="Reason, shown to users of waiting jobs.")
@click.option(
    "--deadline",
    "deadline_s",
    callback=seconds_of,
    metavar="TIME",
    help="Kill the running step after this time: 45s, 10m.",
)
@click.pass_obj
def drain(host: str | None, unit: str, reason: str, deadline_s: float | None) -> None:
    """Give a lane or device no more steps. A running step continues; the unit stays drained over restarts."""
    with caller(host) as daemon:
        daemon.call(DrainUnit(unit=unit, reason=reason, deadline_s=deadline_s), Done)
        held = next(
            (u for u in daemon.call(ListDevices(), UnitList).units if u.unit == unit and u.job is not None), None
        )
    left_s = 0.0 if held is None else min(held.left_s, held.left_s if deadline_s is None else deadline_s)
    still = f"; job {held.job} {held.stage} runs on it for {formatting.duration(left_s)} at most" if held else ""
    say(f"{unit} gets no more steps{still}. Give it steps again:  autosched undrain {unit}")


@click.command()
@click.argument("unit", metavar="UNIT")
@click.pass_obj
def undrain(host: str | None, unit: str) -> None:
    """Give a drained lane or device steps again."""
    with caller(host) as daemon:
        daemon.call(ReturnUnit(unit=unit), Done)
    say(f"{unit} gets steps again.")


@click.command()
@click.argument("unit", metavar="UNIT")
@click.option("--force", is_flag=True, help="Confirm that nothing runs on the unit.")
@click.pass_obj
def free(host: str | None, unit: str, force: bool) -> int:
    """Declare that nothing runs on a lane or device any more, if its holder cannot.

    The holder's client is given up, and killed if it runs on the daemon's machine.
    """
    with caller(host) as daemon:
        if force:
            daemon.call(FreeUnit(unit=unit), Done)
            say(f"{unit} is free as soon as its holder's client is dead. See:  autosched devices")
            return 0
        found = daemon.call(ListDevices(), UnitList).units
    if unit not in (there := [u.unit for u in found]):
        raise NotFound(f"there is no unit {unit!r}; there are: {', '.join(there)}")
    if (held := next((u for u in found if u.unit == unit and u.job is not None), None)) is None:
        say(f"nothing holds {unit}. See:  autosched devices")
        return 0
    say(
        f"{unit} is held by job {held.job}, {held.stage}, for {formatting.duration(held.held_s)} and at most"
        f" {formatting.duration(held.left_s)} more. If something still runs there, the next measurement is wrong."
        f" If you know that nothing does:  autosched free {unit} --force"
    )
    return NEEDS_FORCE


@click.command()
@click.option("--check", is_flag=True, help="Only print what would change.")
@click.option(
    "--timeout",
    "timeout_s",
    callback=seconds_of,
    metavar="TIME",
    help="Undo the changes after 60s, 5m, unless they are confirmed.",
)
@click.option("--confirm", is_flag=True, help="Keep settings that were reloaded with a timeout.")
@document_option
@click.pass_obj
def reload(host: str | None, check: bool, timeout_s: float | None, confirm: bool, style: str) -> None:
    """Have the daemon read its settings again. Settings that need a restart are listed."""
    if confirm and (check or timeout_s):
        raise click.UsageError("--confirm keeps what was reloaded; it goes without --check and --timeout")
    if check and timeout_s:
        raise click.UsageError("--check changes nothing, so there is nothing to undo: give it without --timeout")
    if confirm:
        with caller(host) as daemon:
            daemon.call(ConfirmReload(), Done)
        return say("The settings are kept.")
    with caller(host) as daemon:
        found = daemon.call(Reload(check=check, timeout_s=timeout_s or None), Reloaded)
    if style == "json":
        return document("reload", found)
    for change in found.changes:
        later = "  needs a restart" if change.restart else ""
        data(one_line(f" {change.name}  {change.old} -> {change.new}{later}"))
    if not found.changes:
        say(f"{found.file} says nothing else than what holds already.")
    elif check:
        say("Nothing is changed yet. Change it:  autosched reload --timeout 2m")
    elif found.reverts_in_s is not None:
        say(f"All of it is undone in {formatting.duration(found.reverts_in_s)}. Keep it:  autosched reload --confirm")
