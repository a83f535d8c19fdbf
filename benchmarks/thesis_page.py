"""The thesis' evaluation as a section of RESULTS.md, as figures, and as one HTML page; all from the JSON of thesis.py.

``python benchmarks/thesis_page.py FILE.json FOLDER`` writes page and figures of a run that is not to be kept.
"""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

import msgspec
from thesis_figures import alone, distortion_figure, idle_figure, percent
from thesis_numbers import CAUSES, WORKING, unpacked

from autosched.report import svg
from autosched.report.page import style

PAGE = "thesis.html"
FIGURES = ("thesis-idle.svg", "thesis-distortion.svg")
JUDGED = "predictive"


def section(told: Mapping[str, Any]) -> list[str]:
    """For RESULTS.md."""
    lines = ["## The thesis' evaluation", "", *_body(told)]
    lines += ["What a resource does at a moment, the first that holds:", ""]
    lines += [f"- *{name}*: {meaning}." for name, meaning in CAUSES.items()]
    lines += ["", f"![What each resource did](results/{FIGURES[0]})", ""]
    if told["distortion"]:
        lines += [f"![Distortion of measurements](results/{FIGURES[1]})", ""]
    return [*lines, f"Who held which resource when, with everything else: [{PAGE}](results/{PAGE})."]


def short_section(title: str, name: str, told: Mapping[str, Any]) -> list[str]:
    """Part of the same, with another budget and backend, for RESULTS.md."""
    return [f"## {title}", "", *_body(told, f"python benchmarks/run.py {name}")][:-1]


def distortion_section(told: Mapping[str, Any]) -> list[str]:
    """How far what else the daemon does disturbs measurements, for RESULTS.md."""
    words = "--only-distortion --policies predictive"
    lines = ["## What the rest of the daemon adds to a measurement", ""]
    lines += [f"`python benchmarks/thesis.py {words} --trials {told['trials']}`.", "", *_bars(told), ""]
    head, rows = _distortion(told)
    lines += [f"{_distortion_title(told)}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    return [*lines, *("| " + " | ".join(row) + " |" for row in rows)]


def _body(told: Mapping[str, Any], *command: str) -> list[str]:
    lines = [*_how(told, *command), "", *_bars(told), ""]
    for title, (head, rows) in _tables(told).items():
        lines += [f"{title}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows] + [""]
    return lines


def write(told: Mapping[str, Any], folder: Path) -> None:
    """Page and figures."""
    idle, distortion = idle_figure(told), distortion_figure(told)
    for name, drawing in zip(FIGURES, (idle, distortion), strict=True):
        if drawing:
            (folder / name).write_text(alone(drawing), encoding="utf-8")
    (folder / PAGE).write_text(html(told, idle, distortion), encoding="utf-8")


# What is said ---------------------------------------------------------------------------------------------------------


def _how(told: Mapping[str, Any], command: str = "make bench-thesis") -> list[str]:
    sets = []
    for name, jobs in told["sets"].items():
        sets.append(f"*{name}*: " + ", ".join(f"{j['network']} ({j['trials']} trials, seed {j['seed']})" for j in jobs))
    return [
        f"`{command}`: TVM on one host core and one device core; all jobs of a set are submitted at once, to a"
        f" daemon of their own. Backend {told.get('backend', 'ansor')}, goal of predictive: {told['goal']}."
        f" {'; '.join(sets)}.",
    ]


def _bars(told: Mapping[str, Any]) -> list[str]:
    lines = ["| | bar | measured |", "|---|---|---|"]
    for run in told["runs"]:
        if run["policy"] == JUDGED and run["set"].startswith("4"):
            against = _total(told, run["set"], "sequential")
            speed = f"; sequential takes {against / run['total_s']:.2f} times as long" if against else ""
            lines.append(
                f"| {run['set']}: total time over the work of the busiest resource ({run['busiest']}) | <= 1.05 |"
                f" {run['over_work']:.3f} (from its first step to its last {run['steady_over_work']:.3f}){speed} |"
            )
    if (found := told["latency"].get("against_alone", {}).get(JUDGED)) is not None:
        lines.append(
            f"| tuned latency against jobs tuned alone, geometric mean of {found['count']} networks | within 2 %"
            f" | {percent(found['bias'])} ({percent(found['low'])} to {percent(found['high'])}) |"
        )
    if (found := told["distortion"].get("policies", {}).get(JUDGED)) is not None:
        within = found["within"]
        lines.append(
            f"| bias of measurements, {within['count']} pairs | <= 1 %"
            f" | {percent(within['bias'])} ({percent(within['low'])} to {percent(within['high'])}) |"
        )
    return lines


def _total(told: Mapping[str, Any], jobs: str, policy: str) -> float | None:
    return next((r["total_s"] for r in told["runs"] if (r["set"], r["policy"]) == (jobs, policy)), None)


Table = tuple[Sequence[str], Sequence[Sequence[str]]]


def _tables(told: Mapping[str, Any]) -> dict[str, Table]:
    tables = {
        "Times in seconds, from the first submission to the last end": _times(told),
        "Idle time of each resource by cause, in seconds": _idle(told),
        "Between two steps of which the second had been waiting, in milliseconds": _overheads(told),
    }
    if told["distortion"]:
        tables[_distortion_title(told)] = _distortion(told)
    if told["latency"]:
        tables["Latency of the tuned networks in microseconds, re-measured in turns on a quiet device"] = _latency(told)
    return tables


def _times(told: Mapping[str, Any]) -> Table:
    head = (
        "jobs", "policy", "total", "against sequential", "mean completion", "busiest", "its work", "total / work",
        "first to last step / work", "trials", "disturbed records",
    )  # fmt: skip
    rows = []
    for run in told["runs"]:
        against = _total(told, run["set"], "sequential")
        rows.append(
            (
                run["set"], run["policy"], f"{run['total_s']:.1f}",
                f"x{against / run['total_s']:.2f}" if against else "-", f"{run['mean_completion_s']:.1f}",
                run["busiest"], f"{run['units'][run['busiest']][WORKING]:.1f}", f"{run['over_work']:.3f}",
                f"{run['steady_over_work']:.3f}", str(sum(job["trials"] for job in run["jobs"])),
                str(sum(job["disturbed"] for job in run["jobs"])),
            )
        )  # fmt: skip
    return head, rows


def _idle(told: Mapping[str, Any]) -> Table:
    names = [name for name in CAUSES if name != WORKING]
    rows = []
    for run in told["runs"]:
        for unit, spent in run["units"].items():
            idle_s = sum(spent[name] for name in names)
            rows.append(
                (run["set"], run["policy"], unit, f"{spent[WORKING]:.1f}", f"{idle_s:.1f}",
                 *(f"{spent[name]:.1f}" for name in names))
            )  # fmt: skip
    return ("jobs", "policy", "resource", WORKING, "idle", *names), rows


def _overheads(told: Mapping[str, Any]) -> Table:
    rows = []
    for run in told["runs"]:
        for unit, part in run["overhead_ms"].items():
            rows.append(
                (run["set"], run["policy"], unit, str(part["count"]), f"{part['p50']:.1f}", f"{part['p99']:.1f}")
            )
    return ("jobs", "policy", "resource", "steps", "p50", "p99"), rows


def _distortion_title(told: Mapping[str, Any]) -> str:
    number, jobs = len(told["distortion"]["candidates"]), told["distortion"]["jobs"]
    return (
        f"Distortion: {number} candidates measured by the profile steps of {jobs} equal jobs, within the run and"
        " with all other processes stopped, parts of a second apart"
    )


def _distortion(told: Mapping[str, Any]) -> Table:
    rows = []
    for policy, found in told["distortion"]["policies"].items():
        for name, what in (("within", "within against alone"), ("again", "alone against alone")):
            one = found[name]
            rows.append(
                (policy, what, str(one["count"]), percent(one["bias"]),
                 f"{percent(one['low'])} to {percent(one['high'])}", f"{100 * one['spread']:.2f} %")
            )  # fmt: skip
    return ("policy", "", "pairs", "bias (median)", "95 % interval", "spread (MAD)"), rows


def _latency(told: Mapping[str, Any]) -> Table:
    rows = []
    for job in told["latency"]["jobs"]:
        found = job["median_s"]
        alone = found["sequential"]
        cells = [
            f"{1e6 * s:.0f}" + (f" ({percent(s / alone - 1)})" if p != "sequential" else "") for p, s in found.items()
        ]
        rows.append((job["set"], f"{job['network']}, seed {job['seed']}", *cells))
    against = told["latency"]["against_alone"]
    ends = [
        f"{percent(one['bias'])} ({percent(one['low'])} to {percent(one['high'])})" if (one := against.get(p)) else "-"
        for p in found
    ]
    rows.append(("all", "geometric mean of the ratios", *ends))
    names = [f"{p} (each job alone)" if p == "sequential" else p for p in found]
    return ("jobs", "network", *names), rows


# The page -------------------------------------------------------------------------------------------------------------


def html(told: Mapping[str, Any], idle: str, distortion: str) -> str:
    """The page's text."""
    return _page().substitute(
        machine=escape(told.get("machine", "unknown")),
        how="".join(f"<p>{_marked(line)}</p>" for line in _how(told)),
        bars=_table(("", "bar", "measured"), [line.strip("| ").split(" | ") for line in _bars(told)[2:]]),
        causes="".join(f"<li><strong>{escape(name)}</strong>: {escape(text)}</li>" for name, text in CAUSES.items()),
        idle=f'<div class="wide">{idle}</div>',
        distortion=f'<div class="wide">{distortion}</div>' if distortion else "",
        tables="".join(
            f"<section><h2>{escape(title)}</h2>{_table(*table)}</section>" for title, table in _tables(told).items()
        ),
        gantts="".join(_gantts(told)),
        legend="".join(f'<li><span class="s-{stage}"></span>{stage}</li>' for stage in svg.STAGES),
        style=f"<style>\n{style()}\n</style>",
    )


def _page() -> Template:
    return Template((Path(__file__).parent / "thesis_page.html").read_text(encoding="utf-8"))


def _marked(text: str) -> str:
    """Words between stars and backticks."""
    pieces = escape(text).replace("`", "*").split("*")
    return "".join(piece if number % 2 == 0 else f"<strong>{piece}</strong>" for number, piece in enumerate(pieces))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _gantts(told: Mapping[str, Any]) -> Iterator[str]:
    """All jobs in the colours of their stages; whose a step is stands in its title."""
    longest_s: dict[str, float] = {}
    for run in told["runs"]:
        longest_s[run["set"]] = max(longest_s.get(run["set"], 0.0), run["total_s"])
    for run in told["runs"]:
        names = {number: f"job {number} ({job['network']})" for number, job in enumerate(run["jobs"], 1)}
        spans = [msgspec.structs.replace(span, task=span.job, job=1) for span in unpacked(run["spans"])]
        drawing = svg.gantt(spans, 1, names, longest_s[run["set"]])
        title = f"{run['set']}, {run['policy']}: {run['total_s']:.1f} s"
        yield f'<h3>{escape(title)}</h3><div class="wide">{drawing}</div>'


def main() -> None:
    """Write what a file says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", type=Path)
    parser.add_argument("folder", type=Path)
    args = parser.parse_args()
    told = json.loads(args.measured.read_text())
    args.folder.mkdir(parents=True, exist_ok=True)
    write(told, args.folder)
    print("\n".join(section(told)))


if __name__ == "__main__":
    main()
