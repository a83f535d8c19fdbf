"""Drawings for the page, as SVG text. Colours are classes, which the page's style defines for light and dark."""

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape

from autosched.formatting import duration, latency
from autosched.protocol import Span
from autosched.report.data import BuildPoint, Point
from autosched.stages import STAGES

WIDTH = 1000
LABEL_WIDTH = 90
ROW_HEIGHT = 30
BAR_HEIGHT = 22
JOIN_PX = 0.3
"""Maximum gap in pixels between bars of the same kind that are joined: a long job has more steps than a screen has
pixels."""


def gantt(spans: Sequence[Span], job: int, names: Mapping[int, str], until_s: float) -> str:
    """Rows are units, bars are steps: those of `job` in the colour of their stage, those of others in grey."""
    units = sorted({unit for span in spans for unit in span.units}, key=lambda u: ("/" not in u, u))
    if not units or until_s <= 0:
        return ""
    scale = (WIDTH - LABEL_WIDTH) / until_s
    height = len(units) * ROW_HEIGHT + 26
    parts = [_ticks(until_s, scale, height - 20)]
    for row, unit in enumerate(units):
        y = row * ROW_HEIGHT + 4
        parts.append(f'<text class="label" x="{LABEL_WIDTH - 8}" y="{y + 15}" text-anchor="end">{escape(unit)}</text>')
        parts.append(
            f'<rect class="lane" x="{LABEL_WIDTH}" y="{y}" width="{WIDTH - LABEL_WIDTH}" height="{BAR_HEIGHT}"/>'
        )
        parts += _bars([s for s in spans if unit in s.units], job, names, y, scale)
    label = f"Which step held which resource over {duration(until_s)}"
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}" class="gantt">'
        + "".join(parts)
        + "</svg>"
    )


def _bars(spans: Sequence[Span], job: int, names: Mapping[int, str], y: int, scale: float) -> list[str]:
    bars: list[tuple[str, float, float, str]] = []
    for span in sorted(spans, key=lambda s: s.started_at):
        start = LABEL_WIDTH + max(0.0, span.started_at) * scale
        end = LABEL_WIDTH + max(0.0, span.ended_at or 0.0) * scale
        own = span.job == job
        kind = f"s-{span.stage}" if own and span.stage in STAGES else "s-more" if own else "s-other"
        if span.outcome not in ("done", "", "running"):
            kind += " bad"
        took = duration(span.ended_at - span.started_at) if span.ended_at is not None else "running"
        whose = names.get(span.task, "network") if own else f"job {span.job}"
        title = f"{span.stage}: {whose}, {took} at {duration(span.started_at)}"
        if bars and bars[-1][0] == kind and start - bars[-1][2] < JOIN_PX and end - start < 1.0:
            bars[-1] = (kind, bars[-1][1], max(end, bars[-1][2]), bars[-1][3])
        else:
            bars.append((kind, start, end, title))
    return [
        f'<rect class="{kind}" x="{start:.2f}" y="{y}" width="{max(end - start, 0.4):.2f}" height="{BAR_HEIGHT}">'
        f"<title>{escape(title)}</title></rect>"
        for kind, start, end, title in bars
    ]


def _ticks(until_s: float, scale: float, height: int) -> str:
    parts = []
    step = nice_step(until_s / 8)
    for i in range(int(until_s / step) + 1):
        x = LABEL_WIDTH + i * step * scale
        anchor = "end" if x > WIDTH - 20 else "middle"
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height}"/>')
        parts.append(
            f'<text class="tick" x="{x:.1f}" y="{height + 15}" text-anchor="{anchor}">{time_label(i * step)}</text>'
        )
    return "".join(parts)


def round_step(at_least: float) -> float:
    """The smallest 1, 2 or 5 times a power of ten that is at least the given value."""
    power = 10.0 ** math.floor(math.log10(max(at_least, 1e-9)))
    return next(f * power for f in (1, 2, 5, 10) if f * power >= at_least * 0.999)


def nice_step(at_least: float) -> float:
    """Like `round_step`, for a time axis: from half a minute on, steps of a clock."""
    if at_least <= 20:
        return round_step(at_least)
    for step in (30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 43_200):
        if step >= at_least:
            return float(step)
    return 86_400.0 * math.ceil(at_least / 86_400)


def time_label(seconds: float) -> str:
    """A tick on a time axis: with decimals if steps are below a second."""
    return f"{seconds:g}s" if seconds < 60 and seconds != int(seconds) else duration(seconds).replace("m00s", "m")


def curve(
    points: Sequence[Point],
    until_s: float,
    *,
    title: str,
    rival: tuple[str, float] | None = None,
    builds: Sequence[BuildPoint] = (),
) -> str:
    """Best latency over time as a staircase, with axes. `rival`: name and latency in seconds of the baseline, a line;
    `builds`: measured latencies, points."""
    if not (points or builds) or until_s <= 0:
        return ""
    height, bottom, left, right = 280, 250, 80, 20
    shown_s = [point.best_s for point in points] + [build.latency_s for build in builds]
    top_s = 1.05 * max([*shown_s, *([rival[1]] if rival is not None else [])])
    step = round_step(top_s / 5)
    x_scale, y_scale = (WIDTH - left - right) / until_s, (bottom - 15) / top_s
    parts = []
    for i in range(int(top_s / step) + 1):
        y = bottom - i * step * y_scale
        parts.append(f'<line class="grid" x1="{left}" x2="{WIDTH - right}" y1="{y:.1f}" y2="{y:.1f}"/>')
        text = latency(i * step) if i else "0"
        parts.append(f'<text class="tick" x="{left - 8}" y="{y + 5:.1f}" text-anchor="end">{text}</text>')
    step = nice_step(until_s / 8)
    for i in range(int(until_s / step) + 1):
        x = left + i * step * x_scale
        text = time_label(i * step)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{bottom + 22}" text-anchor="middle">{text}</text>')
    if rival is not None:
        parts.append(_rival(*rival, left, WIDTH - right, bottom - rival[1] * y_scale))
    if points:
        path = _staircase(points, until_s, left, x_scale, lambda value: bottom - value * y_scale)
        parts.append(f'<path class="line" d="{path}"><title>{escape(title)}</title></path>')
    for build in builds:
        kind, remark = ("build disturbed", ", other load ran") if build.disturbed else ("build", "")
        said = f"a build measured after {duration(build.at_s)}: {latency(build.latency_s)}{remark}"
        parts.append(
            f'<circle class="{kind}" cx="{left + build.at_s * x_scale:.1f}"'
            f' cy="{bottom - build.latency_s * y_scale:.1f}" r="5"><title>{escape(said)}</title></circle>'
        )
    label = f"{title}: from {latency(shown_s[0])} to {latency(points[-1].best_s if points else builds[-1].latency_s)}"
    if rival is not None:
        label += f"; {rival[0]}: {latency(rival[1])}"
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(label)}">' + "".join(parts) + "</svg>"


def _rival(name: str, latency_s: float, left: float, right: float, y: float) -> str:
    """A dashed line across the drawing with the name of the baseline above it, or below if there is no space."""
    text_y = y - 6 if y > 30 else y + 16
    return (
        f'<line class="rival" x1="{left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="rival" x="{right}" y="{text_y:.1f}" text-anchor="end">{escape(name)} {latency(latency_s)}</text>'
    )


def sparkline(points: Sequence[Point], until_s: float) -> str:
    """A small curve for a table cell: logarithmic, without axes."""
    if not points or until_s <= 0:
        return ""
    width, height = 140.0, 26.0
    logarithms = [math.log(point.best_s) for point in points]
    high, low = max(logarithms), min(logarithms)
    span = max(high - low, 1e-9)
    path = _staircase(
        points, until_s, 0, width / until_s, lambda v: height - 3 - (height - 6) * ((math.log(v) - low) / span)
    )
    label = f"from {latency(points[0].best_s)} to {latency(points[-1].best_s)}"
    return (
        f'<svg viewBox="0 0 {width:.0f} {height:.0f}" class="spark" role="img" aria-label="{label}">'
        f'<path class="line" d="{path}"/></svg>'
    )


def _staircase(
    points: Sequence[Point], until_s: float, left: float, x_scale: float, y_of: Callable[[float], float]
) -> str:
    path = [f"M{left + points[0].at_s * x_scale:.1f} {y_of(points[0].best_s):.1f}"]
    path += [f"H{left + point.at_s * x_scale:.1f}V{y_of(point.best_s):.1f}" for point in points[1:]]
    path.append(f"H{left + until_s * x_scale:.1f}")
    return "".join(path)
