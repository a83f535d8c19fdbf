"""Panels as lines for a terminal, used by both views."""

from collections.abc import Sequence

from autosched import formatting
from autosched.model import JobState
from autosched.protocol import DeviceCondition, JobView, Span
from autosched.text.gantt import Style, gantt
from autosched.text.latency_gain import against
from autosched.top.daemon_view import DaemonView

JOB_COLUMNS = (("JOB", 4), ("MODEL", 12), ("STATE", 9), ("TRIALS", 9), ("BEST", 7), ("ETA", 6))
"""Columns with their widths; REASON has the rest of the line."""
GOOD = (DeviceCondition.STEADY, DeviceCondition.NOT_WATCHED)
NOTHING_YET = """\
Nothing was ever submitted to this daemon. Try, in another terminal:

  autosched tune MODEL.onnx         tune a network, and watch it here
  autosched submit A.onnx B.onnx    several at once: they share lanes and devices
  autosched demo                    no model at hand? this brings its own

What you will see: above, which job holds which lane or device; here, the
jobs and what each waits for; below, how fast the networks are getting."""


def headline(look: DaemonView) -> str:
    """A summary of the daemon in one line."""
    active = sum(1 for job in look.jobs if not JobState(job.state).ended)
    running = len({unit.job for unit in look.units if unit.job is not None})
    info = look.info
    goal = f", {info.goal}" if info.policy == "predictive" else ""
    waiting = max(0, active - running)
    return f"{running} running, {waiting} waiting   {info.policy}{goal}   up {formatting.duration(info.uptime_s)}"


def rows(look: DaemonView, room: int) -> list[str]:
    """The units to show in `room` lines: devices before lanes, then in the order of declaration."""
    ordered = sorted(look.units, key=lambda unit: "host" in unit.pools and len(unit.pools) == 1)
    return [unit.unit for unit in ordered[:room]]


def time_line(
    look: DaemonView, spans: Sequence[Span], window_s: float, width: int, room: int, style: Style | None = None
) -> list[str]:
    """Gantt chart of the last `window_s` seconds, in at most `room` lines."""
    shown = rows(look, max(1, room - 2))
    start = look.now - window_s
    lately = [span for span in spans if span.ended_at is None or span.ended_at > start]
    lines = gantt(lately, start, look.now, units=shown, width=width, style=style)
    axis = f"-{formatting.duration(window_s)}"
    margin = max(map(len, shown), default=0)
    lines[len(shown)] = f"{'':<{margin}}  {axis}{'now':>{max(4, width - margin - len(axis) - 10)}}"
    if (hidden := len(look.units) - len(shown)) > 0:
        lines[len(shown)] += f"  {hidden} more"
    return lines[:room]


def health(look: DaemonView, width: int, room: int) -> list[str]:
    """State of devices, those in trouble first."""
    trouble = [f"! {unit.unit} drained: {unit.drained}" for unit in look.units if unit.drained]
    trouble += [f"! {text}" for text in look.info.warnings]
    bad: list[str] = []
    good: list[str] = []
    for unit in look.units:
        if unit.health and not unit.drained:
            (good if unit.condition in GOOD else bad).append(f"{unit.unit}: {unit.health}")
    lines = [*trouble, *bad, *good]
    if len(lines) > room:
        lines = [*lines[: room - 1], f"{len(lines) - room + 1} more: autosched devices"]
    return [line[:width] for line in lines]


def reason_width(width: int) -> int:
    """Width of the last column."""
    return max(10, width - sum(size + 1 for _, size in JOB_COLUMNS))


def job_cells(job: JobView, width: int) -> tuple[str, ...]:
    """Cells of a job, in at most `width` characters."""
    ended = JobState(job.state).ended
    reason = (
        job.failure.message.partition("\n")[0] if job.failure is not None else "" if ended else job.detail or job.reason
    )
    wish = f"priority {job.priority}; " if job.priority and not ended else ""
    cells = (
        str(job.job),
        job.name,
        job.doing or job.state,
        f"{job.trials}/{'?' if job.trials_total is None else job.trials_total}",
        formatting.latency(job.whole_s).replace(" ", ""),
        "" if ended else formatting.duration(job.eta_s),
        "; ".join(part for part in (against(job), wish + reason) if part),
    )
    widths = [size for _, size in JOB_COLUMNS]
    widths.append(reason_width(width))
    return tuple(
        cell if len(cell) <= size else f"{cell[: size - 1]}…" for cell, size in zip(cells, widths, strict=True)
    )
