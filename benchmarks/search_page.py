"""What search_quality.py measured, as a section of RESULTS.md and as one HTML page with curves.

A method's quality on a task is the mean of the log of the best latency over its seeds, the best measured again beside
those of the others where that was done. Methods are compared on the tasks and seeds that both have.
"""

import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from autosched.formatting import latency
from autosched.report import svg
from autosched.report.page import style

Run = Mapping[str, Any]
CHECKPOINTS = (64, 256)
TAUGHT, UNTAUGHT, EARLY = "autotvm taught", "autotvm xgb", 32
"""What was learned elsewhere is to halve the trials."""
NEARLY = 0.01
"""A method is nearly as good as another that is better by this share."""
PAIRS = (
    ("tc", "tc random", 0.90), ("tc compat", "tc random", None), ("ansor", "stock", 1.00), ("tc", "ansor", None),
    ("autotvm xgb", "autotvm random", 0.85), ("autotvm xgb wide", "autotvm random wide", 0.85),
    ("autotvm ga", "autotvm random", None), ("autotvm xgb", "ansor", 1.10),
    ("autotvm stopping", UNTAUGHT, 1.01), (TAUGHT, UNTAUGHT, None),
)  # fmt: skip
"""Which methods are to be compared, and the ratio of their latencies that we want at most."""
MODELS = ("as it is", "knobs alone", "template alone", "stores")
"""What may put configurations in order."""
COLOURS = ("#1f6fc4", "#c2570c", "#17803d", "#a8326f", "#6b6a12", "#7a5195", "#0d7377", "#b3261e", "#57606a", "#3b3f8f")
CHANCE = ("autotvm random", "autotvm random wide", "tc random")
"""Methods that learn nothing."""
LEFT, RIGHT, TOP, BOTTOM, WIDTH, HEIGHT = 80, 20, 10, 225, 640, 260

FRAME = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>How search methods compare: autosched</title>
$style
<style>.pair { display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: 1rem; }
.pair svg { width: 100%; height: auto; } .curve { fill: none; stroke-width: 2.2; } td { white-space: nowrap; }</style>
</head>
<body><header><h1>How search methods compare on single tasks</h1><p class="dim">$machine</p></header>
<main>$tables<ul class="legend">$legend</ul>$tasks</main></body>
</html>
"""


def best_s(run: Run, trials: int) -> float | None:
    """The best latency after so many trials: as measured again, if it was."""
    if run["trials"] < trials:
        return None
    again = run["again_s"].get(str(trials))
    if again is not None:
        return float(again)
    known = [point[2] for point in run["curve"] if point[0] <= trials]
    return float(known[-1]) if known else None


def quality(runs: Sequence[Run], trials: int) -> dict[tuple[str, str, int], float]:
    """Log of the best latency, by task, method and seed."""
    found = {}
    for run in runs:
        if (best := best_s(run, trials)) is not None:
            found[run["task"], run["method"], run["seed"]] = math.log(best)
    return found


def ratio(runs: Sequence[Run], method: str, against: str, trials: int) -> tuple[float, float, int] | None:
    """Mean ratio of latencies over tasks, its standard error as a factor, and the number of tasks."""
    found = quality(runs, trials)
    differences: defaultdict[str, list[float]] = defaultdict(list)
    for (task, name, seed), own in found.items():
        if name == method and (other := found.get((task, against, seed))) is not None:
            differences[task].append(own - other)
    if not differences:
        return None
    means = [statistics.mean(values) for values in differences.values()]
    spread = [statistics.variance(values) / len(values) for values in differences.values() if len(values) > 1]
    error = math.sqrt(sum(spread)) / len(spread) if spread else math.nan
    return math.exp(statistics.mean(means)), math.exp(error), len(means)


def equalled(runs: Sequence[Run], method: str, against: str, trials: int, slack: float = 0.0) -> int | None:
    """Trials after which a method is on average as good as another is in the end, or worse by a share of `slack` at
    most; None if it never is.
    """
    own = {(run["task"], run["seed"]): run for run in runs if run["method"] == method and run["trials"] >= trials}
    other = {(run["task"], run["seed"]): run for run in runs if run["method"] == against and run["trials"] >= trials}
    both = [(own[key], other[key]) for key in own.keys() & other.keys() if other[key]["curve"]]
    wanted = sum(math.log((1 + slack) * _known(run, trials)) for _, run in both)
    for number in range(1, trials + 1) if both else ():
        if sum(math.log(_known(run, number)) for run, _ in both) <= wanted:
            return number
    return None


def _told(found: tuple[float, float, int], runs: Sequence[Run], method: str, against: str, trials: int) -> str:
    """A ratio and when it was reached, as a cell of a table."""
    mean, error, tasks = found
    after, nearly = (equalled(runs, method, against, trials, slack) for slack in (0.0, NEARLY))
    ends = f"as good after {after or 'no'} trials, nearly after {nearly or 'no'}"
    return f"{mean:.3f} (x/: {error:.3f}, {tasks} tasks), {ends}"


def _known(run: Run, trials: int) -> float:
    """The best after so many trials, as it was known then."""
    return min((point[2] for point in run["curve"] if point[0] <= trials), default=math.inf)


def tables(told: Mapping[str, Any]) -> dict[str, tuple[Sequence[str], list[Sequence[str]]]]:
    """Titles, heads and rows."""
    runs = told["runs"]
    checkpoints = [trials for trials in CHECKPOINTS if any(run["trials"] >= trials for run in runs)]
    checkpoints = checkpoints or sorted({run["trials"] for run in runs})
    compared: list[Sequence[str]] = []
    for method, against, bar in PAIRS:
        cells = [ratio(runs, method, against, trials) for trials in checkpoints]
        if any(cells):
            texts = [
                "-" if c is None else _told(c, runs, method, against, n)
                for c, n in zip(cells, checkpoints, strict=True)
            ]
            compared.append((f"{method} / {against}", "-" if bar is None else f"<= {bar:.2f}", *texts))
    head = ("latency, geometric mean", "bar", *(f"{trials} trials" for trials in checkpoints))
    names = list(dict.fromkeys(run["method"] for run in runs))
    speeds: list[Sequence[str]] = [
        (task, *(_speed(runs, task, name, checkpoints[-1]) for name in names))
        for task in dict.fromkeys(run["task"] for run in runs)
    ]
    shares = _shares(runs, names, checkpoints[-1], told.get("sgemm_gflops")) if checkpoints else iter(())
    costs: list[Sequence[str]] = [(name, *_costs([run for run in runs if run["method"] == name])) for name in names]
    return {
        "Ratios of the best latencies found": (head, compared),
        f"GFLOP/s after {checkpoints[-1] if checkpoints else 0} trials, median of the seeds": (
            ("task", *names),
            speeds,
        ),
        "Share of the speed of the best that any run found, geometric mean; what is missing is all there is to gain": (
            ("task", "best GFLOP/s", "of sgemm", *names),
            list(shares),
        ),
        "What there is to win: the best that any run ever found, over the median of what random choice finds": (
            ("task", *CHANCE),
            list(_winnable(runs, checkpoints[-1])) if checkpoints else [],
        ),
        "What twice the trials bring, mean over tasks and seeds as measured first; luck with noise counts as a gain": (
            ("method", *(f"{number} to {2 * number}" for number in _doublings(runs))),
            [
                (name, *_gains([run for run in runs if run["method"] == name], _doublings(runs)))
                for name in names
                if name != "autotvm stopping"
            ],
        ),
        f"What was learned elsewhere saves: the best after {EARLY} trials and {checkpoints[-1]} of another search": (
            ("task", "runs", f"latency of {TAUGHT} / {UNTAUGHT}"),
            list(_halved(runs, checkpoints[-1])),
        ),
        "Seconds per 64 candidates, by stage": (
            ("method", "select", "build", "profile", "update", "failed", "trials used"),
            costs,
        ),
    }


def _speed(runs: Sequence[Run], task: str, method: str, trials: int) -> str:
    own = [run for run in runs if (run["task"], run["method"]) == (task, method)]
    found = [run["flops"] / best / 1e9 for run in own if (best := best_s(run, trials)) is not None]
    return f"{statistics.median(found):.1f}" if found else "-"


def _shares(
    runs: Sequence[Run], names: Sequence[str], trials: int, sgemm_gflops: float | None
) -> Iterator[Sequence[str]]:
    """By task, what the best known does, and how near each method comes to it."""
    found = quality(runs, trials)
    every: defaultdict[str, list[float]] = defaultdict(list)
    for task in dict.fromkeys(task for task, _, _ in found):
        best = min(value for (other, _, _), value in found.items() if other == task)
        speed = next(run["flops"] for run in runs if run["task"] == task) / math.exp(best) / 1e9
        of_sgemm = f"{speed / sgemm_gflops:.2f}" if sgemm_gflops else "-"
        cells = []
        for name in names:
            own = [best - value for (other, method, _), value in found.items() if (other, method) == (task, name)]
            every[name] += [statistics.mean(own)] if own else []
            cells.append(f"{math.exp(statistics.mean(own)):.3f}" if own else "-")
        yield (task, f"{speed:.1f}", of_sgemm, *cells)
    means = [f"{math.exp(statistics.mean(every[name])):.3f}" if every[name] else "-" for name in names]
    yield ("all", "", "", *means)


def _winnable(runs: Sequence[Run], trials: int) -> Iterator[Sequence[str]]:
    """By task, the ratio that a search would reach against random choice which knew the best from the beginning."""
    found = quality(runs, trials)
    every: defaultdict[str, list[float]] = defaultdict(list)
    for task in dict.fromkeys(task for task, _, _ in found):
        best = min(value for (other, _, _), value in found.items() if other == task)
        cells = []
        for name in CHANCE:
            own = [value for (other, method, _), value in found.items() if (other, method) == (task, name)]
            every[name] += [best - statistics.median(own)] if own else []
            cells.append(f"{math.exp(every[name][-1]):.3f}" if own else "-")
        if any(cell != "-" for cell in cells):
            yield (task, *cells)
    if any(every.values()):
        yield ("all", *(f"{math.exp(statistics.mean(every[name])):.3f}" if every[name] else "-" for name in CHANCE))


def _doublings(runs: Sequence[Run]) -> list[int]:
    """Numbers of trials from the first round on, each twice the one before; twice the last is all there were."""
    most = max((run["trials"] for run in runs), default=0)
    return [number for number in (8, 16, 32, 64, 128) if 2 * number <= most]


def _gains(runs: Sequence[Run], numbers: Sequence[int]) -> Iterator[str]:
    """By how much the best latency falls from so many trials to twice as many."""
    for number in numbers:
        whole = [run for run in runs if run["measured"] >= 2 * number]
        known = [(_known(run, number), _known(run, 2 * number)) for run in whole]
        gains = [math.log(before / after) for before, after in known if math.isfinite(before)]
        yield f"{math.expm1(statistics.mean(gains)):.1%}" if gains else "-"


def _halved(runs: Sequence[Run], trials: int) -> Iterator[Sequence[str]]:
    """By task, how a taught search after a few trials compares with the whole one of another that was taught nothing;
    their best were measured again.
    """
    whole = {(run["task"], run["seed"]): best_s(run, trials) for run in runs if run["method"] == UNTAUGHT}
    found: defaultdict[str, list[float]] = defaultdict(list)
    for run in runs:
        own, other = best_s(run, EARLY), whole.get((run["task"], run["seed"]))
        if run["method"] == TAUGHT and own is not None and other is not None:
            found[run["task"]].append(math.log(own / other))
    for task, values in found.items():
        yield task, str(len(values)), f"{math.exp(statistics.mean(values)):.3f}"
    if found:
        mean = math.exp(statistics.mean(statistics.mean(values) for values in found.values()))
        yield "all", str(sum(map(len, found.values()))), f"{mean:.3f}"


def _costs(runs: Sequence[Run]) -> list[str]:
    measured = sum(run["measured"] for run in runs) or 1
    stages = [f"{64 * sum(run['stages_s'][stage] for run in runs) / measured:.1f}" for stage in runs[0]["stages_s"]]
    asked = sum(run["trials"] for run in runs)
    return [*stages, f"{sum(run['failed'] for run in runs) / measured:.1%}", f"{measured / asked:.0%}"]


def section(
    told: Mapping[str, Any], title: str = "Search methods on single tasks", command: str = "make bench-search"
) -> list[str]:
    """For RESULTS.md. `command`: what measured it."""
    seeds = len({run["seed"] for run in told["runs"]})
    lines = [
        f"## {title}",
        "",
        f"`{command}`: equal trials, up to {seeds} seeds, one core that is measured on. Candidates are",
        "measured once each, whichever runs ask for them, and the best of each run once more. Nearly: within 1 %.",
    ]
    if taught := told.get("taught"):
        lines += [f"Taught were: {', '.join(taught)}."]
    for title, (head, rows) in tables(told).items():
        if not rows:
            continue
        lines += ["", f"{title}:", "", "| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [f"- Not possible: {note}." for note in told.get("skipped", ())]
    return lines


def ranking(told: Mapping[str, Any]) -> list[str]:
    """What search_ranking.py found, for RESULTS.md."""
    lines = [
        "## What the cost model of `autotvm` knows",
        "",
        "`python benchmarks/search_ranking.py`: it learns from the first records of one random search and puts what",
        "others measured in order. Of each: rank correlation; share of the best tenth that is among the best tenth by",
        "prediction; and the latency of the best of the first eight by prediction, over the very best's. *As it is*:",
        "knobs, what the template tells of its tiles, its promise. *Template alone*: the promise, before any record",
        "(chance where it makes none). *Stores*: TVM's features of the code (`feature_type=store`).",
        "",
        "| task | records | " + " | ".join(MODELS) + " |",
        "|---" * (2 + len(MODELS)) + "|",
    ]
    for row in told["rows"]:
        known = row["scores"]
        cells = ["{:.2f}, {:.2f}, {:.3f}".format(*known[name]) if name in known else "-" for name in MODELS]
        lines.append(f"| {row['task']} | {row['records']} | " + " | ".join(cells) + " |")
    return lines


def write(told: Mapping[str, Any], path: Path) -> None:
    """The page."""
    names = list(dict.fromkeys(run["method"] for run in told["runs"]))
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}
    text = Template(FRAME).substitute(
        style=f"<style>\n{style()}\n</style>",
        machine=escape(told.get("machine", "")),
        tables="".join(_table(title, *table) for title, table in tables(told).items()),
        legend="".join(f'<li><span style="background:{c}"></span>{escape(name)}</li>' for name, c in colours.items()),
        tasks="".join(_tasks(told["runs"], colours)),
    )
    path.write_text(text, encoding="utf-8")


def _table(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    table = f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
    return f"<section><h2>{escape(title)}</h2>{table}</section>"


def _tasks(runs: Sequence[Run], colours: Mapping[str, str]) -> Iterator[str]:
    for task in dict.fromkeys(run["task"] for run in runs):
        own = [run for run in runs if run["task"] == task and run["curve"]]
        drawings = "".join(drawn(own, colours, axis) for axis in (0, 1))
        yield f'<section><h2>{escape(task)}</h2><div class="pair">{drawings}</div></section>'


def medians(runs: Sequence[Run], axis: int) -> list[tuple[float, float]]:
    """The median over the runs of the best latency, wherever it changes; from when all have one."""
    places = sorted({point[axis] for run in runs for point in run["curve"]})
    found: list[tuple[float, float]] = []
    for place in places:
        now = [[point[2] for point in run["curve"] if point[axis] <= place] for run in runs]
        if all(now):
            value = statistics.median(values[-1] for values in now)
            if not found or value != found[-1][1]:
                found.append((float(place), value))
    return found


def drawn(runs: Sequence[Run], colours: Mapping[str, str], axis: int) -> str:
    """Best latency, on a logarithmic scale, against trials (axis 0) or seconds (axis 1)."""
    methods = [name for name in colours if any(run["method"] == name for run in runs)]
    curves = {name: medians([run for run in runs if run["method"] == name], axis) for name in methods}
    ends = {name: _end([run for run in runs if run["method"] == name], axis) for name in methods}
    values = [value for curve in curves.values() for _, value in curve]
    if not values:
        return ""
    low, high = math.log(min(values)) - 0.02, math.log(min(max(values), 20 * min(values))) + 0.02
    until = max(ends.values())
    x_scale, y_scale = (WIDTH - LEFT - RIGHT) / until, (BOTTOM - TOP) / (high - low)
    parts = list(_axes(low, high, until, axis))
    for name, curve in curves.items():
        shown = [(at, min(math.log(value), high)) for at, value in curve if at <= ends[name]]
        points = [(LEFT + at * x_scale, BOTTOM - (value - low) * y_scale) for at, value in shown]
        if points:
            path = f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])
            path += f"H{LEFT + ends[name] * x_scale:.1f}"
            title = f"<title>{escape(name)}: {latency(curve[-1][1])}</title>"
            parts.append(f'<path class="curve" stroke="{colours[name]}" d="{path}">{title}</path>')
    label = f"Best latency against {'seconds' if axis else 'trials'}"
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">' + "".join(parts) + "</svg>"


def _end(runs: Sequence[Run], axis: int) -> float:
    if axis == 0:
        return float(max(run["measured"] for run in runs))
    return float(statistics.median(sum(run["stages_s"].values()) for run in runs))


def _axes(low: float, high: float, until: float, axis: int) -> Iterator[str]:
    step = svg.round_step((math.exp(high) - math.exp(low)) / 12)
    last = math.inf
    for number in range(math.ceil(math.exp(low) / step), int(math.exp(high) / step) + 1):
        y = BOTTOM - (math.log(number * step) - low) / (high - low) * (BOTTOM - TOP)
        if last - y >= 18:
            last = y
            yield f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            text = latency(number * step)
            yield f'<text class="tick" x="{LEFT - 8}" y="{y + 5:.1f}" text-anchor="end">{text}</text>'
    step = svg.nice_step(until / 6) if axis else svg.round_step(until / 6)
    for number in range(int(until / step) + 1):
        x = LEFT + number * step / until * (WIDTH - LEFT - RIGHT)
        text = svg.time_label(number * step) if axis else f"{number * step:g}"
        anchor = "end" if x > WIDTH - RIGHT - 20 else "middle"
        yield f'<text class="tick" x="{x:.1f}" y="{BOTTOM + 20}" text-anchor="{anchor}">{text}</text>'
    yield f'<text class="tick" x="{LEFT + 4}" y="{HEIGHT - 2}">{"seconds" if axis else "trials"}</text>'
