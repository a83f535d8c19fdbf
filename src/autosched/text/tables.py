"""Tables for people: the same columns in command line and console, at most eight of them by default.

A table fits its width: columns that can be cut are, the longest first. Programs get the wire's values as JSON.
"""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from autosched import formatting
from autosched.backend import OperatorTimes
from autosched.device_types import words as type_words
from autosched.model import HOST_POOL, JobState, device_kind
from autosched.protocol import (
    AuditEntry,
    HostView,
    JobView,
    LoopTask,
    QueueView,
    Stall,
    TaskLoadView,
    TaskView,
    UnitView,
)
from autosched.text.latency_gain import against, best, compared, goal, ready, tasks_by_share
from autosched.text.visible import csv_cell, one_line

WIDTH = 80
TASKS_SHOWN = 15


class Column(Struct, frozen=True):
    """One column: its title and its text for a row."""

    title: str
    of: Callable[[Any], str]
    right: bool = False
    least: int = 0
    """Minimum characters to which it may be cut; 0: never cut."""
    wide: bool = False
    """Whether it is only shown in wide tables."""


def table(columns: Iterable[Column], rows: Sequence[object], *, wide: bool = False, room: int = WIDTH) -> list[str]:
    """The header and a line for each row. `wide`: all columns, nothing cut."""
    shown = [column for column in columns if wide or not column.wide]
    cells = [[column.title for column in shown], *([one_line(column.of(row)) for column in shown] for row in rows)]
    widths = [max(len(row[at]) for row in cells) for at in range(len(shown))]
    excess = 0 if wide else sum(widths) + 2 * (len(widths) - 1) + 1 - room
    slack = [max(0, width - column.least) if column.least else 0 for width, column in zip(widths, shown, strict=True)]
    for _ in range(min(excess, sum(slack))):
        most = slack.index(max(slack))
        widths[most], slack[most] = widths[most] - 1, slack[most] - 1
    return [_line(row, widths, shown) for row in cells]


def _line(row: Sequence[str], widths: Sequence[int], columns: Sequence[Column]) -> str:
    parts = []
    for cell, width, column in zip(row, widths, columns, strict=True):
        text = cell if len(cell) <= width else cell[: width - 1] + "…"
        parts.append(text.rjust(width) if column.right else text.ljust(width))
    return (" " + "  ".join(parts)).rstrip()


def comma_separated(columns: Iterable[Column], rows: Sequence[object]) -> str:
    """All columns as CSV, with a header."""
    shown, out = list(columns), io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.title for column in shown])
    writer.writerows([csv_cell(column.of(row)) for column in shown] for row in rows)
    return out.getvalue().rstrip("\n")


# Jobs -----------------------------------------------------------------------------------------------------------------


def _ended(job: JobView) -> bool:
    return JobState(job.state).ended


def target(text: str) -> str:
    """The kind of a target that is JSON: "llvm"."""
    try:
        found = json.loads(text)
    except ValueError:
        return text
    return str(found.get("kind", text)) if isinstance(found, dict) else text


def reason(job: JobView) -> str:
    """The reason of the job's state, in a few words."""
    words = job.failure.message if job.failure is not None else "" if _ended(job) else job.detail or job.reason
    if job.comparison is not None and (times := against(job)) != "":
        words = f"{times}; {words}" if words else f"{times} than {job.comparison.baseline.runtime}"
    if (wishes := wanted(job)) and not _ended(job):
        words = f"{words}; {wishes}"
    return f"DISTURBED; {words}".removesuffix("; ") if job.shared_units else words


def trials(job: JobView) -> str:
    """Trials made, and their total."""
    return f"{job.trials}/{'?' if job.trials_total is None else job.trials_total}"


def _trials(job: JobView) -> str:
    return (
        f"{formatting.compact(job.trials)}/{'?' if job.trials_total is None else formatting.compact(job.trials_total)}"
    )


def wanted(view: JobView) -> str:
    """Priority and deadline, if the user set them."""
    parts = [f"priority {view.priority}"] if view.priority else []
    if view.deadline_at is not None:
        left_s = view.deadline_at - (view.now if view.ended_at is None else view.ended_at)
        within = formatting.duration(view.deadline_at - view.submitted_at)
        how = "met" if view.ended_at is not None else f"{formatting.duration(left_s)} left"
        late = f"{formatting.duration(-left_s)} late"
        parts.append(f"wanted within {within}: {how if left_s >= 0 else late}")
    return ", ".join(parts)


def _to_beat(job: JobView) -> str:
    """Latency of the baseline."""
    return "" if job.comparison is None else formatting.latency(job.comparison.baseline.median_s).replace(" ", "")


JOBS = (
    Column("JOB", lambda job: str(job.job), right=True),
    Column("MODEL", lambda job: job.name, least=8),
    Column("TARGET", lambda job: job.device if job.target == "auto" else target(job.target), least=6),
    Column("STATE", lambda job: job.doing or job.state),
    Column("TRIALS", _trials, right=True),
    Column("BEST", lambda job: formatting.latency(job.whole_s).replace(" ", ""), right=True),
    Column("ETA", lambda job: "" if _ended(job) else formatting.duration(job.eta_s), right=True),
    Column("REASON", reason, least=14),
    Column("START", lambda job: formatting.latency(job.first_estimate_s).replace(" ", ""), right=True, wide=True),
    Column("TO BEAT", _to_beat, right=True, wide=True),
    Column("FAILED", lambda job: str(job.failed), right=True, wide=True),
    Column("OWNER", lambda job: job.owner, wide=True),
    Column("BACKEND", lambda job: job.backend, wide=True),
    Column("DEVICE", lambda job: job.device, wide=True),
    Column("PRIORITY", lambda job: str(job.priority), right=True, wide=True),
    Column("LABELS", lambda job: " ".join(f"{key}={value}" for key, value in job.labels.items()), wide=True),
    Column("MEMORY", lambda job: formatting.size(job.client_bytes) if job.client_bytes else "", right=True, wide=True),
)


def facts(view: JobView) -> list[str]:
    """A job in a few lines."""
    took = formatting.duration((view.now if view.ended_at is None else view.ended_at) - view.submitted_at)
    lines = [
        f" job {view.job}  {view.name}  {view.state}, {took}",
        f" {view.backend} on {view.device}, target {view.target}" + (f", by {view.owner}" if view.owner else ""),
        f" trials {trials(view)}"
        + (f", {view.failed} failed: {formatting.reasons(view.failures)}" if view.failed else ""),
    ]
    if (wishes := wanted(view)) != "":
        lines.append(f" {wishes}")
    if (known := formatting.came_from([task.came_from for task in view.tasks])) != "":
        lines.append(f" {known}")
    if view.held:
        lines.append(f" held: {view.held}. Let it go on:  autosched release {view.job}")
    if view.shared_units:
        lines.append(f" ! {formatting.SHARED_UNITS}")
    if view.disturbed_records:
        lines.append(f" {formatting.disturbed(view.disturbed_records, view.records)}")
    if view.failed_steps:
        lines.append(f" {formatting.failed_steps(view.failed_steps, view.last_error)}")
    if (known := best(view)) != "":
        lines.append(f" {known}")
    elif (against := compared(view)) != "":
        lines.append(f" to beat: {against}")
    if (wish := goal(view)) != "":
        lines.append(f" {wish}")
    if (module := ready(view)) != "":
        lines.append(f" ready: {module}. Fetch it:  autosched fetch {view.job}")
    if not _ended(view):
        memory = f"; its client holds {formatting.size(view.client_bytes)}" if view.client_bytes else ""
        lines.append(f" {view.reason or 'no reason given'}, ready in {formatting.duration(view.eta_s)}{memory}")
    if view.failure is not None:
        lines.append(f" failed: {view.failure.message}")
    return [one_line(line) for text in lines for line in text.splitlines()]


def _stage(task: TaskView) -> str:
    return task.stage if task.left_s is None else f"{task.stage}, {formatting.duration(task.left_s)} left"


def task_table(view: JobView, shown: int = TASKS_SHOWN, room: int = WIDTH) -> list[str]:
    """Its tasks, those with the largest share of the network's time first."""
    columns = (
        Column("TASK", lambda row: row[0].shape or row[0].name, least=12),
        Column("SHARE", lambda row: "-" if row[1] is None else formatting.share(row[1], 1.0), right=True),
        Column("TRIALS", lambda row: str(row[0].trials), right=True),
        Column("FAILED", lambda row: str(row[0].failed) if row[0].failed else "", right=True),
        Column("BEST", lambda row: formatting.latency(row[0].best_s), right=True),
        Column("GFLOP/S", lambda row: formatting.gflops(row[0].flops, row[0].best_s), right=True),
        Column("STAGE", lambda row: _stage(row[0])),
        *([Column("CAME FROM", lambda row: row[0].came_from)] if any(task.came_from for task in view.tasks) else []),
    )
    ordered = tasks_by_share(view)
    lines = table(columns, ordered[:shown], room=room)
    more = len(ordered) - shown
    return [*lines, f" … {more} more: autosched job {view.job} -o json"] if more > 0 else lines


# The lab --------------------------------------------------------------------------------------------------------------


def operator_table(times: OperatorTimes, room: int = WIDTH) -> list[str]:
    """The time of each operator, and the ratio of their sum to the whole network."""
    whole_s = times.whole_s
    columns = (
        Column("OPERATOR", lambda row: row.name, least=24), Column("SCHEDULE", lambda row: row.schedule),
        Column("CALLS", lambda row: str(row.calls), right=True),
        Column("TIME", lambda row: formatting.latency(row.time_s), right=True),
        Column("SHARE", lambda row: formatting.share(row.time_s, whole_s), right=True),
    )  # fmt: skip
    sums, whole = formatting.latency(times.sum_s), formatting.latency(whole_s)
    total = f" sum {sums} of {whole}: {formatting.share(times.sum_s, whole_s)}"
    return [*table(columns, times.rows, room=room), total]


def cores(numbers: Sequence[int]) -> str:
    """Core numbers with ranges: "0-3,8"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "any"


def drained(unit: UnitView) -> str:
    """Why a unit gets no steps. A quarantine explains itself."""
    return unit.drained if unit.quarantined else f"drained, {unit.drained}"


def unit_facts(unit: UnitView) -> list[str]:
    """Activity of a lane or device, or the reason for its idleness, in a few lines."""
    lines = [f"{unit.unit} is {unit.state}, {100 * unit.busy_ratio:.0f} % busy so far"]
    if unit.job is not None:
        eta = "" if unit.eta_s is None else f", likely done in {formatting.duration(unit.eta_s)}"
        held, left = formatting.duration(unit.held_s), formatting.duration(unit.left_s)
        lines.append(
            f"job {unit.job} has held it for {held}, {unit.stage or 'a step'}{eta}, killed in {left} at the latest"
        )
    if unit.drained:
        lines.append(f"it gets no steps: {drained(unit)}. Give it steps again:  autosched undrain {unit.unit}")
    if unit.health:
        lines.append(unit.health)
    lines.append(
        f"{formatting.count(unit.waiting, 'task')} in its queue" + (". See:  autosched queue" if unit.waiting else "")
    )
    return [one_line(line) for line in lines]


def unit_reason(unit: UnitView) -> str:
    """The reason of the unit's state, in a few words."""
    words = [drained(unit)] if unit.drained else []
    words += [unit.health] if unit.health else []
    if unit.job is not None and not words:
        words.append(f"killed in {formatting.duration(unit.left_s)}")
    return "; ".join(words)


DEVICES = (
    Column("UNIT", lambda unit: unit.unit, least=8),
    Column("KIND", lambda unit: ",".join(device_kind(pool) or HOST_POOL for pool in unit.pools), least=8),
    Column("STATE", lambda unit: unit.state),
    Column("HELD BY", lambda unit: "" if unit.job is None else f"job {unit.job} {unit.stage}", least=10),
    Column("ETA", lambda unit: "" if unit.job is None else formatting.duration(unit.eta_s), right=True),
    Column("QUEUE", lambda unit: str(unit.waiting), right=True),
    Column("BUSY", lambda unit: f"{100 * unit.busy_ratio:.0f} %", right=True),
    Column("REASON", unit_reason, least=10),
    Column("CORES", lambda unit: type_words(unit.accelerator) if unit.accelerator else cores(unit.cores), wide=True),
    Column("SINCE", lambda unit: "" if unit.job is None else formatting.duration(unit.held_s), right=True, wide=True),
    Column("LEFT", lambda unit: "" if unit.job is None else formatting.duration(unit.left_s), right=True, wide=True),
)


def host_reason(host: HostView) -> str:
    """Why a host is not used, or its peculiarity, in a few words."""
    words = [host.reason] if host.reason else []
    if host.lost_in_s is not None:
        words.append(f"taken for gone in {formatting.duration(host.lost_in_s)}")
    if host.drained:
        words.append(f"{host.drained} of {formatting.count(len(host.units), 'unit')} drained")
    words += [f"{formatting.count(len(host.differs), 'version')} differ"] if host.differs else []
    return "; ".join(words)


def host_facts(host: HostView) -> list[str]:
    """All facts about a host, in lines."""
    lines = [f"host {host.host} is {host.state}" + (f": {host.reason}" if host.reason else "")]
    if host.lost_in_s is not None:
        left = formatting.duration(host.lost_in_s)
        lines.append(f"in {left} it must have ended its clients itself: then its jobs go on elsewhere")
    if (facts := host.facts) is not None:
        memory = formatting.size(facts.memory_bytes)
        lines.append(f"{facts.cpu}, {formatting.count(facts.cores, 'core')}, {memory} of memory, {facts.system}")
        lines.append(", ".join(f"{name} {version}" for name, version in facts.versions.items()))
    lines += [f"{words}: measurements of these versions are kept apart" for words in host.differs]
    lines.append(
        f"{formatting.count(len(host.units), 'unit')}, {host.busy} busy, {host.drained} drained: "
        + ", ".join(host.units)
    )
    lines.append("devices for jobs of the kinds: " + (", ".join(host.kinds) or "none"))
    jobs = ", ".join(map(str, host.jobs))
    lines.append(
        f"clients of jobs {jobs}, {formatting.size(host.client_bytes)}" if jobs else "no job has its client there"
    )
    if host.helps:
        lines.append(f"runs stages of jobs {', '.join(map(str, host.helps))}, whose clients are on other hosts")
    if host.heard_s is not None:
        free, offset = formatting.size(host.memory_free_bytes), f"{host.clock_offset_s:+.3f} s"
        lines.append(f"its agent, at {host.address}, reported {formatting.duration(host.heard_s)} ago:")
        lines.append(f"load {host.load:.2f}, {free} of memory free, clock {offset} against the daemon's")
    return [one_line(line) for line in lines]


HOSTS = (
    Column("HOST", lambda host: host.host, least=8),
    Column("STATE", lambda host: host.state),
    Column("UNITS", lambda host: str(len(host.units)), right=True),
    Column("BUSY", lambda host: str(host.busy), right=True),
    Column("JOBS", lambda host: ",".join(map(str, host.jobs)) or "-"),
    Column("LOAD", lambda host: "-" if host.heard_s is None else f"{host.load:.1f}", right=True),
    Column("HEARD", lambda host: "-" if host.heard_s is None else f"{formatting.duration(host.heard_s)} ago"),
    Column("REASON", host_reason, least=10),
    Column("CPU", lambda host: host.facts.cpu if host.facts is not None else "-", wide=True),
    Column("CLOCK", lambda host: "-" if host.heard_s is None else f"{host.clock_offset_s:+.3f} s", wide=True),
    Column("ADDRESS", lambda host: host.address or "-", wide=True),
)


def _first(queue: QueueView) -> str:
    named = [f"{place.job}.{place.task} {place.stage} {formatting.duration(place.waited_s)}" for place in queue.first]
    more = queue.waiting - len(named)
    return ", ".join(named) + (f", {more} more" if more > 0 else "")


def _next_resource(load: TaskLoadView) -> str:
    return f"{'+'.join(load.resources_next)}: {load.stage_next}" if load.resources_next else "-"


LOAD = (
    Column("TASK", lambda load: str(load.task), right=True),
    Column("NAME", lambda load: load.name, least=16),
    Column("STAGE DONE", lambda load: "yes" if load.stage_done else f"no: {load.stage or '?'}"),
    Column("JOB DONE", lambda load: "yes" if load.job_done else "no"),
    Column("CURRENT RESOURCE", lambda load: "+".join(load.resources_now) or "-"),
    Column("NEXT RESOURCE", _next_resource),
)
QUEUES = (
    Column("POOL", lambda queue: queue.pool),
    Column("UNITS", lambda queue: str(queue.units), right=True),
    Column("FREE", lambda queue: str(queue.free), right=True),
    Column("WAITING", lambda queue: str(queue.waiting), right=True),
    Column("NEXT: JOB.TASK STAGE WAITED", _first, least=20),
)


def _when(at: str) -> str:
    return at[:19].replace("T", " ")


def _audit_about(entry: AuditEntry) -> str:
    return entry.about


AUDIT = (
    Column("NO", lambda entry: str(entry.id), right=True),
    Column("WHEN", lambda entry: _when(entry.at)),
    Column("WHO", lambda entry: entry.who, least=8),
    Column("ROLE", lambda entry: entry.role),
    Column("COMMAND", lambda entry: entry.command),
    Column("OUTCOME", lambda entry: entry.outcome or "?", least=6),
    Column("ABOUT", _audit_about, least=6),
    Column("FROM", lambda entry: entry.address, wide=True),
)


def _stalled(stall: Stall) -> str:
    return f"{1000 * stall.seconds:.0f} ms"


STALLS = (
    Column("NO", lambda stall: str(stall.id), right=True),
    Column("WHEN", lambda stall: _when(stall.at)),
    Column("STALLED", _stalled, right=True),
    Column("WHERE", lambda stall: stall.where, least=20),
)


NEWS = (
    Column("WHEN", lambda news: _when(news.at)),
    Column("WHAT", lambda news: news.text, least=20),
)


def _loop_task_place(task: LoopTask) -> str:
    return task.stack[-1] if task.stack else ""


TASKS = (
    Column("TASK", lambda task: str(task.id), right=True),
    Column("NAME", lambda task: task.name, least=16),
    Column("WAITS IN", _loop_task_place, least=20),
)
