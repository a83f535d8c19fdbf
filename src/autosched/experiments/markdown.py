"""The results of an experiment as Markdown tables, for pages beside its file. Pure."""

from collections.abc import Sequence

from autosched.experiments import table
from autosched.experiments.comparison import Compared, words
from autosched.experiments.rows import Row
from autosched.formatting import duration, latency


def text(rows: Sequence[Row], names: Sequence[str], found: Sequence[Compared]) -> str:
    """Comparisons, jobs, and their environment. names: parameters of the table of jobs."""
    parts = [_comparisons(found), _jobs(rows, names), _origin(rows)]
    return "\n".join(part for part in parts if part)


def _comparisons(found: Sequence[Compared]) -> str:
    if not found:
        return ""
    lines = [
        f"| {one.figure} | {one.group_words} | {words(one.value)} | {words(one.against)} | {one.ratio:.3f}"
        f" | {one.interval_words} | {one.pairs} | {one.verdict} |"
        for one in found
    ]
    head = f"| figure | for | {found[0].parameter} | over | ratio | 95 % | pairs | |\n|---|---|---|---|---|---|---|---|"
    return "\n".join((head, *lines, ""))


def _jobs(rows: Sequence[Row], names: Sequence[str]) -> str:
    batched = any(row.batch for row in rows)
    more = ("batch_s", "over_bound") if batched else ()
    columns = (*names, "latency", "95 %", "over engine", "trials", "took", *more, "state")
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for row, flat in zip(rows, table.flat(rows), strict=True):
        own = [words(row.values.get(name)) for name in names]
        interval = f"{latency(row.low_s)} to {latency(row.high_s)}"
        speed = f"{row.speedup:.2f}" if row.speedup else "-"
        numbers = [latency(row.latency_s), interval, speed, str(row.trials), duration(row.took_s)]
        numbers += [f"{flat[name]:.3g}" if flat[name] else "-" for name in more]
        lines.append(f"| {' | '.join([*own, *numbers, row.state])} |")
    return "\n".join((*lines, ""))


def _origin(rows: Sequence[Row]) -> str:
    told = dict.fromkeys(
        f"{row.software}, {row.compiler or 'compiler not known'}; {row.cores} cores, {row.cpu}" for row in rows
    )
    return "\n".join(f"Measured with {one}." for one in told) + "\n"
