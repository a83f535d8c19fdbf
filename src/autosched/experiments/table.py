"""The table of an experiment: one row for each ended job, with its parameters and key figures."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from autosched.errors import RequestError
from autosched.experiments.parameters import PARAMETERS
from autosched.experiments.rows import Row
from autosched.recordstore import table_files


class Figure(Struct, frozen=True):
    """A column that is no parameter."""

    name: str
    type: type
    of: Callable[[Row], Any]
    meaning: str


FIGURES = (
    Figure("state", str, lambda row: row.state, "done or failed"),
    Figure("latency_s", float, lambda row: row.latency_s, "median latency of the network that was handed over"),
    Figure("low_s", float, lambda row: row.low_s, "lower bound of its 95 % confidence interval"),
    Figure("high_s", float, lambda row: row.high_s, "upper bound"),
    Figure("default_s", float, lambda row: row.default_s, "median latency without tuning"),
    Figure("engine", str, lambda row: row.engine, "what the user would run otherwise"),
    Figure("engine_s", float, lambda row: row.engine_s, "its median latency"),
    Figure("speedup", float, lambda row: row.speedup, "latency of that engine over latency_s"),
    Figure("trials", int, lambda row: row.trials, "candidates that the search measured"),
    Figure("failed", int, lambda row: row.failed, "of these, failed"),
    Figure("disturbed", int, lambda row: row.disturbed, "measurements that something slowed down"),
    Figure("tasks", int, lambda row: row.tasks, "operators that were tuned"),
    Figure(
        "gflops", float, lambda row: _gflops(row), "10^9 floating-point operations of the tasks per second of latency_s"
    ),
    Figure("batch", str, lambda row: row.batch, "what the jobs have in common that ran together with it"),
    Figure("took_s", float, lambda row: row.took_s, "from the submission to the end"),
    Figure("waited_s", float, lambda row: row.waited_s, "from the submission to the first step"),
    Figure("host_s", float, lambda row: row.host_s, "leases of lanes of the host"),
    Figure("device_s", float, lambda row: row.device_s, "leases of devices"),
    Figure("lanes", int, lambda row: row.lanes, "number of lanes of the host"),
    Figure("devices", int, lambda row: row.devices, "number of devices of the job's kind"),
    Figure("others_s", float, lambda row: row.others_s, "leases of other jobs in the job's time"),
    Figure("submitted_at", float, lambda row: row.submitted_at, "by the clock of the daemon"),
    Figure("ended_at", float, lambda row: row.ended_at, "by the clock of the daemon"),
    Figure("under_policy", str, lambda row: row.policy, "policy of the daemon when the job ended"),
    Figure("under_goal", str, lambda row: row.goal, "goal of that policy"),
    Figure("software", str, lambda row: row.software, "version of autosched"),
    Figure("compiler", str, lambda row: row.compiler, "versions of the compiler"),
    Figure("cpu", str, lambda row: row.cpu, "processor of the machine"),
    Figure("cores", int, lambda row: row.cores, "number of its cores"),
    Figure("device_model", str, lambda row: row.device, "model of the device"),
    Figure("identity", str, lambda row: row.identity, "digest of the circumstances of the records"),
    Figure("made_at", str, lambda row: row.made_at, "when the row was made, UTC"),
    Figure("job", int, lambda row: row.job, "number of the job"),
    Figure("combination", str, lambda row: row.combination, "digest of the parameters and the model"),
    Figure("failure", str, lambda row: row.failure, "why it failed"),
)
OF_BATCHES = {
    "batch_s": "from the first submission of the batch to the end of its last job",
    "bound_s": "work of the busiest kind of unit in the batch, per unit: no schedule of these steps is shorter",
    "over_bound": "batch_s over bound_s",
}
"""Columns of numbers that all jobs of a batch share, with their meanings."""
TIMES = (*OF_BATCHES, "took_s", "waited_s", "host_s", "device_s", "others_s", "submitted_at", "ended_at", "made_at")
"""Columns that differ between two otherwise equal runs of one experiment."""


def parameters(rows: Iterable[Row]) -> list[str]:
    """Names of the parameters of all rows, in a fixed order."""
    used = {name for row in rows for name in row.values}
    return [*(name for name in PARAMETERS if name in used), *sorted(used - PARAMETERS.keys())]


def columns(rows: Sequence[Row]) -> dict[str, type]:
    """Names and types of the columns: parameters first, with the prefix `set_` if a figure has the same name."""
    figures: dict[str, type] = {figure.name: figure.type for figure in FIGURES} | dict.fromkeys(OF_BATCHES, float)
    own = {column(name): _type(name, rows) for name in parameters(rows)}
    return {**own, **figures}


def column(parameter: str) -> str:
    """The column of a parameter."""
    return f"set_{parameter}" if any(figure.name == parameter for figure in FIGURES) else parameter


def flat(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The rows as dictionaries with the same keys; None for unknown values and defaults."""
    names, batches = parameters(rows), _batches(rows)
    return [
        {column(name): row.values.get(name) for name in names}
        | {figure.name: figure.of(row) for figure in FIGURES}
        | batches.get(row.batch, dict.fromkeys(OF_BATCHES))
        for row in rows
    ]


def _batches(rows: Iterable[Row]) -> dict[str, dict[str, float | None]]:
    """Numbers of each batch, by its name."""
    batches: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.batch:
            batches[row.batch].append(row)
    found: dict[str, dict[str, float | None]] = {}
    for name, some in batches.items():
        took_s = max(row.ended_at for row in some) - min(row.submitted_at for row in some)
        host_s = sum(row.host_s / row.lanes for row in some)
        bound_s = max(host_s, sum(row.device_s / row.devices for row in some))
        found[name] = {"batch_s": took_s, "bound_s": bound_s, "over_bound": took_s / bound_s if bound_s else None}
    return found


def _type(name: str, rows: Iterable[Row]) -> type:
    kinds = {type(row.values[name]) for row in rows if name in row.values}
    return kinds.pop() if len(kinds) == 1 else float if kinds <= {int, float} else str


def _gflops(row: Row) -> float | None:
    return row.flops / row.latency_s / 1e9 if row.latency_s else None


def write(rows: Sequence[Row], path: Path) -> int:
    """Write the table as CSV or Parquet, by the suffix of the file; returns the number of rows.

    Raises RequestError for another suffix, without pyarrow, and if the file cannot be written.
    """
    kinds = columns(rows)
    try:
        if path.suffix == ".parquet":
            return table_files.write_parquet(flat(rows), kinds, path)
        if path.suffix == ".csv":
            with path.open("wb") as file:
                return table_files.write_csv(flat(rows), kinds, file)
    except OSError as error:
        raise RequestError(f"{path} cannot be written: {error.strerror}. Choose another file") from None
    raise RequestError(f"{path}: a table is written as .csv, .parquet or .md; name the file so")
