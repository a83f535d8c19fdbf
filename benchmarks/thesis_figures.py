"""The figures of the thesis' evaluation, as SVG text."""

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from thesis_numbers import CAUSES, WORKING

from autosched.report import svg

COLOURS = {
    WORKING: "#17803d",
    "handing over": "#b3261e",
    "held back": "#c2570c",
    "other resource": "#1f6fc4",
    "clients": "#7a5195",
    "start": "#7d8590",
    "tail": "#b9bfc7",
}
"""Dark enough for a white page, light enough for a black one."""
DOT, BOX = COLOURS["other resource"], COLOURS["handing over"]
LEFT, RIGHT, ROW = 230, 90, 26
"""Pixels."""
TICK_PX = 45
"""Labels of ticks that are nearer than this would touch."""


def percent(ratio: float) -> str:
    """With its sign."""
    return f"{100 * ratio:+.2f} %"


def idle_figure(told: Mapping[str, Any]) -> str:
    """What each resource did, as one bar per run and resource, all on one scale."""
    bars = [(run, unit) for run in told["runs"] for unit in run["units"]]
    longest_s = max(run["total_s"] for run in told["runs"])
    scale = (svg.WIDTH - LEFT - RIGHT) / longest_s
    parts, y, before = [], 30.0, ""
    for column, name in enumerate(CAUSES):
        parts.append(f'<rect x="{10 + column * 138}" y="4" width="12" height="12" fill="{COLOURS[name]}"/>')
        parts.append(f'<text x="{27 + column * 138}" y="15">{escape(name)}</text>')
    for run, unit in bars:
        y += 10 if before and run["set"] != before else 0
        before, x = run["set"], float(LEFT)
        label = f"{run['set']}, {run['policy']}, {unit}"
        parts.append(f'<text x="{LEFT - 8}" y="{y + 14:.0f}" text-anchor="end">{escape(label)}</text>')
        for name, seconds in run["units"][unit].items():
            width = seconds * scale
            if width >= 0.05:
                title = f"{label}: {name} {seconds:.1f} s"
                parts.append(
                    f'<rect x="{x:.1f}" y="{y:.0f}" width="{width:.1f}" height="{ROW - 8}" fill="{COLOURS[name]}">'
                    f"<title>{escape(title)}</title></rect>"
                )
            x += width
        parts.append(f'<text x="{x + 6:.0f}" y="{y + 14:.0f}">{run["total_s"]:.1f} s</text>')
        y += ROW - 4
    return _drawing(y + 6, "What each resource did in each run", parts)


def distortion_figure(told: Mapping[str, Any]) -> str:
    """Every pair as a dot on a scale of the ratio's square root, with the median and its interval."""
    if not told["distortion"]:
        return ""
    rows = []
    for policy, found in told["distortion"]["policies"].items():
        probes = [tuple(map(float, line.split())) for line in found["probes_us"]]
        rows.append((f"{policy}, within", found["within"], [within / alone - 1 for within, alone, _ in probes]))
        rows.append((f"{policy}, alone again", found["again"], [again / alone - 1 for _, alone, again in probes]))
    furthest: float = max((abs(x) for _, _, dots in rows for x in dots), default=0.01) or 0.01
    middle, half = (LEFT + svg.WIDTH - RIGHT) / 2, (svg.WIDTH - RIGHT - LEFT) / 2

    def place(ratio: float) -> float:
        return middle + half * math.copysign(math.sqrt(abs(ratio) / furthest), ratio)

    height = 24 + ROW * len(rows)
    parts = []
    labelled_at = -math.inf
    for tick in (-0.5, -0.1, -0.01, 0.0, 0.01, 0.1, 0.5, 2.0, 5.0):
        if abs(tick) <= furthest:
            x = place(tick)
            parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{height - 20}" stroke="#8888" stroke-width="1"/>')
            if x - labelled_at >= TICK_PX:
                labelled_at = x
                parts.append(f'<text x="{x:.1f}" y="{height - 4}" text-anchor="middle">{100 * tick:+.0f} %</text>')
    for number, (label, one, dots) in enumerate(rows):
        y = 14 + number * ROW
        parts.append(f'<text x="{LEFT - 8}" y="{y + 5}" text-anchor="end">{escape(label)}</text>')
        low, high = place(one["low"]), place(one["high"])
        parts.append(
            f'<rect x="{low:.1f}" y="{y - 10}" width="{max(2.0, high - low):.1f}" height="20" fill="{BOX}"'
            f' fill-opacity=".8"><title>{escape(label)}: {percent(one["bias"])}</title></rect>'
        )
        for index, ratio in enumerate(dots):
            parts.append(
                f'<circle cx="{place(ratio):.1f}" cy="{y - 6 + index * 7 % 13}" r="2" fill="{DOT}" fill-opacity=".45"/>'
            )
        parts.append(f'<text x="{svg.WIDTH - RIGHT + 8}" y="{y + 5}">{percent(one["bias"])}</text>')
    return _drawing(height, "Ratio of a measurement within the run to one alone, minus one", parts)


def _drawing(height: float, label: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {svg.WIDTH} {height:.0f}" role="img" aria-label="{escape(label)}">'
        + "".join(parts)
        + "</svg>"
    )


def alone(drawing: str) -> str:
    """As a file of its own, which brings its style."""
    style = (
        "<style>text{font:13px system-ui,sans-serif;fill:#1b1f24}"
        "@media(prefers-color-scheme:dark){text{fill:#e8eaed}}</style>"
    )
    head, rest = drawing.split(">", 1)
    return f'{head} xmlns="http://www.w3.org/2000/svg">{style}{rest}\n'
