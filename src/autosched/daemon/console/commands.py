"""The console's commands: the methods that each calls, and its answer."""

from collections.abc import Callable, Sequence

from autosched import formatting
from autosched import protocol as p
from autosched.daemon.console.command import Ask, Command, Said, call
from autosched.daemon.console.line_parser import Line, number, seconds
from autosched.daemon.console.method_commands import derived, of_method
from autosched.errors import AutoschedError, NotFound, RequestError
from autosched.model import Goal, JobState
from autosched.protocol.pagination import answered_async
from autosched.text import tables
from autosched.text.job_selectors import labels, select, select_one
from autosched.text.visible import one_line


def _one(line: Line, what: str) -> str:
    if len(line.words) != 1:
        raise RequestError(f"{line.name} takes {what}. Type: help {line.name}")
    return line.words[0]


async def _jobs_of(ask: Ask, words: Sequence[str]) -> list[int]:
    """Numbers of the selected jobs. Names and labels select jobs that have not ended."""
    return await answered_async(select(words, active=True), lambda asked: _numbers(ask, asked))


async def _job_of(ask: Ask, word: str) -> int:
    return await answered_async(select_one(word), lambda asked: _numbers(ask, asked))


async def _numbers(ask: Ask, asked: p.ListJobs) -> list[int]:
    return [view.job for view in (await call(ask, asked, p.JobList)).jobs]


# What is there --------------------------------------------------------------------------------------------------------


async def _status(ask: Ask, line: Line) -> Said:
    found = await call(ask, p.GetFigures(section=line.words[0] if line.words else ""), p.Figures)
    lines = [
        text
        for section, figures in found.sections.items()
        for text in (f"# {section}", *(f"{name}:{value}" for name, value in figures.items()))
    ]
    return Said("", lines, "figures", found.sections)


async def _jobs(ask: Ask, line: Line) -> Said:
    asked = dict(word.partition("=")[::2] for word in line.words)
    if wrong := [word for word in line.words if "=" not in word]:
        raise RequestError(f"{wrong[0]!r} is no filter. Write: jobs state=waiting, jobs name=net, jobs team=vision")
    state, name, owner = (asked.pop(key, "") for key in ("state", "name", "owner"))
    facts = {key: asked.pop(key) for key in ("device", "backend", "target") if key in asked}
    called = labels(f"{key}={value}" for key, value in asked.items())
    wanted = p.ListJobs(limit=500, labels=called, state=state, name=name, owner=owner)
    jobs = (await call(ask, wanted, p.JobList)).jobs
    found = [job for job in jobs if all(value == getattr(job, key) for key, value in facts.items())]
    first = "there are none" if not found else ""
    return Said(first, tables.table(tables.JOBS, found) if found else [], "jobs", found)


async def _job(ask: Ask, line: Line) -> Said:
    view = await call(ask, p.GetJob(job=await _job_of(ask, _one(line, "one job"))), p.JobView)
    return Said("", [*tables.facts(view), *(tables.task_table(view) if view.tasks else ())], "job", view)


async def _devices(ask: Ask, line: Line) -> Said:
    found = (await call(ask, p.ListDevices(), p.UnitList)).units
    return Said("", tables.table(tables.DEVICES, found), "devices", found)


async def _log(ask: Ask, line: Line) -> Said:
    unit = _one(line, "one unit, see: devices")
    found = (await call(ask, p.ListNews(unit=unit), p.NewsList)).news
    first = "" if found else "nothing out of the ordinary happened there since the daemon started"
    return Said(first, tables.table(tables.NEWS, found) if found else [], "news", found)


async def _queue(ask: Ask, line: Line) -> Said:
    found = (await call(ask, p.ListQueues(), p.QueueList)).queues
    return Said("", tables.table(tables.QUEUES, found), "queues", found)


async def _explain(ask: Ask, line: Line) -> Said:
    for unit in (await call(ask, p.ListDevices(), p.UnitList)).units:
        if line.words == (unit.unit,):
            return Said("", tables.unit_facts(unit), "unit", unit)
    why = await call(ask, p.ExplainJob(job=await _job_of(ask, _one(line, "one job"))), p.Explanation)
    return Said("", why.lines, "explanation", why)


async def _slowlog(ask: Ask, line: Line) -> Said:
    found = (await call(ask, p.ListStalls(), p.StallList)).stalls
    first = "" if found else "the loop has not stalled"
    return Said(first, tables.table(tables.STALLS, found) if found else [], "stalls", found)


async def _tasks(ask: Ask, line: Line) -> Said:
    found = (await call(ask, p.ListLoopTasks(), p.LoopTaskList)).tasks
    return Said("", tables.table(tables.TASKS, found), "tasks", found)


async def _where(ask: Ask, line: Line) -> Said:
    wanted = _one(line, "the number of a task, see: tasks")
    found = (await call(ask, p.ListLoopTasks(), p.LoopTaskList)).tasks
    for task in found:
        if wanted in (str(task.id), task.name):
            return Said(task.name, [f" {place}" for place in task.stack], "task", task)
    raise NotFound(f"there is no task {wanted!r} now. See which there are: tasks")


async def _audit(ask: Ask, line: Line) -> Said:
    limit = number(line.words[0]) if line.words else 20
    found = (await call(ask, p.ListAudit(limit=limit), p.AuditList)).entries
    return Said("", tables.table(tables.AUDIT, found), "audit", found)


# What is changed ------------------------------------------------------------------------------------------------------


async def _each(ask: Ask, line: Line, would: str, make: Callable[[int], p.Method], done: str) -> Said:
    """Run a method for each selected job; the first refusal ends it and names the jobs that were changed before."""
    if not line.words:
        raise RequestError(
            f"{line.name} takes jobs: a number, 12-15, 12,14, last, all, @name, team=vision. Type: help {line.name}"
        )
    jobs, trials = [], 0
    chosen = await _jobs_of(ask, line.words)
    for job in chosen:
        view = await call(ask, p.GetJob(job=job), p.JobView)
        if len(chosen) == 1 or not JobState(view.state).ended:
            jobs.append(job)
            trials += view.trials
    named = formatting.count(len(jobs), "job")
    if "dry-run" in line.options:
        return Said(f"would {would} {named}: {_named(jobs)}; {trials} trials are kept", (), "jobs", jobs)
    changed: list[int] = []
    for job in jobs:
        try:
            await ask(make(job))
        except AutoschedError as error:
            raise type(error)(f"{error}" + (f"; {done} before it: {_named(changed)}" if changed else "")) from None
        changed.append(job)
    return Said(f"{done} {named}: {_named(jobs)}" if jobs else f"{done} no job: all have ended", (), "jobs", jobs)


def _named(jobs: Sequence[int]) -> str:
    return ",".join(map(str, jobs[:20])) + (f" and {len(jobs) - 20} more" if len(jobs) > 20 else "") or "none"


async def _cancel(ask: Ask, line: Line) -> Said:
    return await _each(ask, line, "cancel", lambda job: p.CancelJob(job=job), "cancelled")


async def _hold(ask: Ask, line: Line) -> Said:
    reason = line.options.get("reason", "")
    return await _each(ask, line, "hold", lambda job: p.HoldJob(job=job, reason=reason), "held")


async def _release(ask: Ask, line: Line) -> Said:
    return await _each(ask, line, "release", lambda job: p.ReleaseJob(job=job), "released")


async def _set(ask: Ask, line: Line) -> Said:
    match line.words:
        case ["job", which, "priority", value]:
            job = await _job_of(ask, which)
            was = await call(ask, p.SetJob(job=job, priority=number(value)), p.PreviousSettings)
            return Said(f"was {was.priority}", (), "was", was)
        case ["job", which, "deadline", value]:
            job = await _job_of(ask, which)
            view = await call(ask, p.GetJob(job=job), p.JobView)
            until_s = 0.0 if value == "none" else seconds(value)
            was = await call(ask, p.SetJob(job=job, deadline_s=until_s), p.PreviousSettings)
            words = "none" if was.deadline_at is None else f"in {formatting.duration(was.deadline_at - view.now)}"
            return Said(f"was {words}", (), "was", was)
        case ["policy", name, *goal]:
            before = await call(ask, p.GetPolicy(), p.PolicyView)
            wanted = Goal(goal[0]) if goal and goal[0] in list(Goal) else None
            if goal and wanted is None:
                raise RequestError(f"{goal[0]!r} is no goal; there are: {', '.join(Goal)}")
            await ask(p.ChoosePolicy(policy=name, goal=wanted))
            return Said(f"was {before.policy} for {before.goal}", (), "was", before)
    raise RequestError("set what? Write: set job 14 priority 5, set job 14 deadline 2h, or set policy NAME [GOAL]")


async def _drain(ask: Ask, line: Line) -> Said:
    unit = _one(line, "one unit, see: devices")
    if not line.options.get("reason"):
        raise RequestError(f'a drain needs a reason, for all who wait: drain {unit} --reason "new fan"')
    within = seconds(line.options["deadline"]) if "deadline" in line.options else None
    await ask(p.DrainUnit(unit=unit, reason=line.options["reason"], deadline_s=within))
    found = (await call(ask, p.ListDevices(), p.UnitList)).units
    busy = sum(1 for one in found if one.unit == unit and one.job is not None)
    waits = "" if not busy else "; waits for it" if within is None else f"; killed in {formatting.duration(within)}"
    return Said(f"{formatting.count(busy, 'step')} running{waits}; `undrain {unit}` to undo")


async def _free(ask: Ask, line: Line) -> Said:
    unit = _one(line, "one unit, see: devices")
    if "force" not in line.options:
        raise RequestError(f"if you know that nothing runs on {unit} any more: free {unit} --force")
    await ask(p.FreeUnit(unit=unit))
    return Said("its holder's client is given up")


async def _reload(ask: Ask, line: Line) -> Said:
    match line.words:
        case []:
            method = p.Reload()
        case ["check"]:
            method = p.Reload(check=True)
        case ["timeout", value]:
            method = p.Reload(timeout_s=seconds(value))
        case ["confirm"]:
            return await _confirm(ask, line)
        case _:
            raise RequestError("write: reload check, reload, reload timeout 120, or reload confirm")
    found = await call(ask, method, p.Reloaded)
    shown = [
        f"{change.name} {change.old}->{change.new}{' (needs a restart)' if change.restart else ''}"
        for change in found.changes
    ]
    undo = f"; reverts in {formatting.duration(found.reverts_in_s)} unless `confirm`" if found.reverts_in_s else ""
    words = formatting.count(len(shown), "change") + (f": {', '.join(shown)}" if shown else "")
    return Said(one_line(words) + undo, (), "reload", found)


async def _confirm(ask: Ask, line: Line) -> Said:
    await ask(p.ConfirmReload())
    return Said("the settings are kept")


async def _shutdown(ask: Ask, line: Line) -> Said:
    match line.words:
        case ["now"]:
            await ask(p.Shutdown())
            return Said("the daemon stops")
        case ["drain"] | ["drain", _]:
            limit_s = seconds(line.words[1]) if len(line.words) == 2 else 300.0
            await ask(p.Shutdown(drain_s=limit_s))
            return Said(f"running steps finish, for {formatting.duration(limit_s)} at most; then the daemon stops")
    raise RequestError("write: shutdown drain 5m, or shutdown now")


_REASON: dict[str, bool] = {"reason": True}
_DRY: dict[str, bool] = {"dry-run": False}
_WITHIN: dict[str, bool] = {"deadline": True}
COMMANDS: dict[str, Command] = {
    "status": Command("status [SECTION]", "figures: daemon, sched, devices, storage, stream", _status),
    "jobs": Command("jobs [state=WORD] [name=WORD] [LABEL=WORD]", "jobs, the newest last", _jobs),
    "job": Command("job JOB", "one job and its tasks", _job),
    "devices": Command("devices", "lanes and devices: who holds them, until when", _devices),
    "log": Command("log UNIT", "what went wrong on a lane or device lately", _log),
    "queue": Command("queue", "who waits for which pool, who is next", _queue),
    "explain": Command("explain JOB|UNIT", "why it waits, for what; or does nothing", _explain),
    "audit": Command("audit [N]", "the last commands that changed something", _audit),
    "slowlog": Command("slowlog", "when the daemon's loop stood still, and where", _slowlog),
    "tasks": Command("tasks", "what goes on in the daemon (asyncio tasks)", _tasks),
    "where": Command("where TASK", "in which calls one of them waits", _where),
    "set": Command("set job JOB priority N|deadline TIME|none; set policy NAME [GOAL]", "want it otherwise", _set),
    "hold": Command("hold JOB... [--reason TEXT] [--dry-run]", "start no more steps of jobs", _hold, _REASON | _DRY),
    "release": Command("release JOB... [--dry-run]", "let held jobs go on", _release, _DRY),
    "cancel": Command("cancel JOB... [--dry-run]", "stop jobs; their records are kept", _cancel, _DRY),
    "drain": Command(
        "drain UNIT --reason TEXT [--deadline TIME]", "no more steps for a unit", _drain, _REASON | _WITHIN
    ),
    "undrain": of_method(p.ReturnUnit, "undrain", "steps for it again", done="it gets steps again"),
    "free": Command("free UNIT --force", "say that nothing runs on it any more", _free, {"force": False}),
    "pause": of_method(
        p.Pause, "pause", "start no steps at all", done="no new steps start; running ones finish; `resume` to undo"
    ),
    "resume": of_method(p.Resume, "resume", "start steps again", done="steps start again"),
    "reload": Command("reload [check | timeout TIME | confirm]", "read the settings again", _reload),
    "confirm": Command("confirm", "keep what `reload timeout` changed", _confirm),
    "shutdown": Command("shutdown drain [TIME] | now", "stop the daemon, after running steps or at once", _shutdown),
}  # fmt: skip
ALL = derived() | COMMANDS
"""These commands, and those derived from methods, by name."""
OPTIONS = {name: command.options for name, command in ALL.items()}
