"""The results of an experiment as one self-contained HTML page, with the reports beside it."""

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from itertools import groupby
from string import Template
from typing import Any

from autosched.experiments import table
from autosched.experiments.comparison import Compared, compare, words
from autosched.experiments.definition import Definition
from autosched.experiments.rows import Row
from autosched.formatting import count, duration, latency, ratio
from autosched.model import JobState
from autosched.report.page import style

WIDTH, LABEL_PX, ROW_PX = 1000, 260, 30
TICK_PX = 60
"""Minimum distance of two ticks in pixels."""
ORIGIN = ("software", "compiler", "cpu", "cores", "device_model", "identity", "under_policy", "under_goal")
"""Columns about the environment of a row."""


def compared(definition: Definition, rows: Sequence[Row]) -> list[Compared]:
    """The comparisons defined in the file."""
    if not definition.compare:
        return []
    return compare(
        rows, definition.compare, figures=definition.figures, by=definition.by, against=definition.against,
        together=definition.together, along=definition.along(definition.compare),
    )  # fmt: skip


def page(definition: Definition, rows: Sequence[Row], jobs: int, varied: Sequence[str]) -> str:
    """The page's text. jobs: number of all its jobs. varied: parameters in which they differ."""
    failed = [row for row in rows if row.state != JobState.DONE.value]
    left = f", {jobs - len(rows)} have not ended" if jobs > len(rows) else ""
    frame = Template(files("autosched.experiments").joinpath("results.html").read_text(encoding="utf-8"))
    last = max((row.made_at for row in rows), default="").replace("T", " ").replace("+00:00", " UTC")
    found = compared(definition, rows)
    return frame.substitute(
        title=escape(f"{definition.name}: results of an experiment"),
        style=style(),
        heading=escape(definition.name),
        about=escape(definition.about),
        subtitle=escape(f"{len(rows)} of {count(jobs, 'job')}{left}{f'; the last one ended {last}' if last else ''}"),
        problem=_problem(failed),
        cards="".join(_card(*card) for card in _cards(rows, failed)),
        comparisons="".join(_comparison(list(some)) for _, some in groupby(found, key=lambda one: one.figure)),
        jobs=_jobs(rows, varied),
        origin=_origin(rows),
    )


def _problem(failed: Sequence[Row]) -> str:
    if not failed:
        return ""
    why = "".join(f"<li>job {row.job}: {escape(row.failure or row.state)}</li>" for row in failed[:5])
    return f'<div class="bad"><strong>{count(len(failed), "job")} failed</strong><ul>{why}</ul></div>'


def _cards(rows: Sequence[Row], failed: Sequence[Row]) -> Iterable[tuple[str, str, str]]:
    yield "Jobs", str(len(rows)), f"{len(failed)} failed"
    yield "Trials", f"{sum(row.trials for row in rows):,}", f"{sum(row.failed for row in rows):,} failed"
    yield "Time of all jobs", duration(sum(row.took_s for row in rows)), "added up"
    disturbed = sum(row.disturbed for row in rows)
    yield "Disturbed", f"{disturbed:,}", "measurements"


def _card(name: str, value: str, more: str) -> str:
    return f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"


def _comparison(found: Sequence[Compared]) -> str:
    """One figure: a plot, and a table with the same numbers."""
    figure, first = found[0].figure, found[0]
    meaning = {one.name: one.meaning for one in table.FIGURES} | table.OF_BATCHES
    head = f"{figure}: each {first.parameter} over {first.parameter} {words(first.against)}"
    rows = "".join(
        f"<tr><td>{escape(one.group_words)}</td><td>{escape(words(one.value))}</td>"
        f'<td class="n">{one.ratio:.3f}</td>'
        f'<td class="n">{one.interval_words}</td><td class="n">{one.pairs}</td>'
        f'<td class="{_class(one)}">{one.verdict}</td></tr>'
        for one in found
    )
    return (
        f'<section aria-labelledby="c-{figure}"><h2 id="c-{figure}">{escape(head)}</h2>'
        f'<p class="dim">{escape(meaning[figure])}. The geometric mean of the ratios of pairs that differ in nothing'
        " else, with its 95 % confidence interval.</p>"
        f'<figure class="wide" tabindex="0">{plot(found)}</figure>'
        f'<div class="wide" tabindex="0"><table><thead><tr><th>for</th><th>{escape(first.parameter)}</th>'
        '<th class="n">ratio</th><th class="n">95 %</th><th class="n">pairs</th><th></th></tr></thead>'
        f"<tbody>{rows}</tbody></table></div></section>"
    )


def plot(found: Sequence[Compared]) -> str:
    """A line for each ratio: a dot, its interval, and the position of 1."""
    ends = [end for one in found for end in (one.low, one.high, one.ratio) if end is not None]
    low, high = min(0.95, *ends), max(1.05, *ends)
    scale = (WIDTH - LABEL_PX - 30) / (high - low)
    height = ROW_PX * len(found) + 30

    def x(value: float) -> str:
        return f"{LABEL_PX + (value - low) * scale:.1f}"

    parts = [f'<line class="one" x1="{x(1.0)}" x2="{x(1.0)}" y1="0" y2="{height - 24}"/>']
    parts += [
        f'<text class="tick" x="{x(at)}" y="{height - 6}" text-anchor="middle">{at:.2f}</text>'
        for at in (low, 1.0, high)
        if at == 1.0 or abs(at - 1.0) * scale > TICK_PX
    ]
    for number, one in enumerate(found):
        y = ROW_PX * number + ROW_PX // 2
        label = f"{words(one.value)}, {one.group_words}"
        parts.append(f'<text x="{LABEL_PX - 12}" y="{y + 5}" text-anchor="end">{escape(label[:34])}</text>')
        if one.low is not None and one.high is not None:
            parts.append(
                f'<line class="whisker {_class(one)}" x1="{x(one.low)}" x2="{x(one.high)}" y1="{y}" y2="{y}"/>'
            )
        title = escape(f"{label}: {one.ratio:.3f}, {one.verdict}")
        parts.append(
            f'<circle class="dot {_class(one)}" cx="{x(one.ratio)}" cy="{y}" r="6"><title>{title}</title></circle>'
        )
    what = f"{found[0].figure} of each {found[0].parameter} over that of {words(found[0].against)}"
    return f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(what)}">{"".join(parts)}</svg>'


def _class(one: Compared) -> str:
    return {"better": "good better", "worse": "bad worse"}.get(one.verdict, "")


def _jobs(rows: Sequence[Row], varied: Sequence[str]) -> str:
    names = list(varied) or ["model"]
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    numbers = "".join(f'<th class="n">{name}</th>' for name in ("latency", "95 %", "speed-up", "trials", "took"))
    lines = "".join(
        f"<tr>{''.join(f'<td>{escape(words(row.values.get(name)))}</td>' for name in names)}"
        f'<td class="n">{latency(row.latency_s)}</td>'
        f'<td class="n">{latency(row.low_s)} to {latency(row.high_s)}</td>'
        f'<td class="n">{ratio(row.speedup) if row.speedup else "-"}</td>'
        f'<td class="n">{row.trials}</td><td class="n">{duration(row.took_s)}</td>'
        f'<td><a href="jobs/{row.combination}/report.html">job {row.job}</a></td></tr>'
        for row in rows
    )
    return (
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}{numbers}<th>report</th></tr></thead>'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _origin(rows: Sequence[Row]) -> str:
    """Numbers of jobs by environment."""
    flat = table.flat(rows)
    found: dict[tuple[Any, ...], list[int]] = {}
    for one in flat:
        found.setdefault(tuple(one[name] for name in ORIGIN), []).append(one["job"])
    head = "".join(f"<th>{escape(name)}</th>" for name in ("jobs", *ORIGIN))
    lines = "".join(
        f"<tr><td>{len(jobs)}</td>{''.join(f'<td>{escape(str(value))}</td>' for value in key)}</tr>"
        for key, jobs in found.items()
    )
    return (
        "<p>Each job has its report, with all settings and times of its steps, and its records beside it"
        " (<code>jobs/COMBINATION/records.jsonl</code>). <code>identity</code> is the digest of the circumstances that"
        " stands with each record.</p>"
        f'<div class="wide" tabindex="0"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'
    )
