"""`autosched records list|best|show|stats`: the content of a record store."""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched import formatting
from autosched.api.local_daemon import RECORDS_VARIABLE, catalogue
from autosched.cli.db import config_option, style_option
from autosched.cli.output import data, document, format_option, listing_option, say, show, table
from autosched.errors import NotFound
from autosched.text.tables import Column

if TYPE_CHECKING:
    from autosched.recordstore.catalogue import Catalogue, Filter
    from autosched.recordstore.rows import Measurement, Schedule, SourceJob, Workload

LISTED = 50
"""Default number of workloads in a list."""
WORKLOADS_MAX = 100_000
SCHEDULES_MAX = 10_000
NEAREST = 5
"""Number of similar workloads that are shown with one."""

store_option = click.option(
    "--store", default="", envvar=RECORDS_VARIABLE, metavar="URL|FILE",
    help="The record store: postgresql://USER@HOST/DATABASE, or a file. Default: that of the daemon on this machine.",
)  # fmt: skip
device_option = click.option("--device", default="", metavar="TEXT", help="Only devices with this text.")
backend_option = click.option("--backend", default="", metavar="TEXT", help="Only backends with this text.")


def _filter(**words: str) -> "Filter":
    from autosched.recordstore.catalogue import Filter

    return Filter(**words)


def _ago(measured_at: float) -> str:
    return formatting.duration(datetime.now(UTC).timestamp() - measured_at) if measured_at else ""


def _job(job: "SourceJob") -> str:
    return f"{job.number} {job.name}".rstrip()


def _operator(workload: "Workload") -> str:
    return formatting.brief(workload.shape or workload.name)


def _speed(workload: "Workload", schedule: "Schedule | None") -> str:
    return formatting.gflops(workload.flops, None if schedule is None else schedule.best_s)


def _of_best(column: Any) -> Any:
    """A column that is empty if all schedules failed."""
    return lambda row: "" if row.best is None else column(row.best)


WORKLOADS = (
    Column("WORKLOAD", lambda row: row.workload.identifier),
    Column("OPERATOR", lambda row: _operator(row.workload), least=30),
    Column("BEST", lambda row: formatting.latency(row.best and row.best.best_s).replace(" ", ""), right=True),
    Column("GFLOP/S", lambda row: _speed(row.workload, row.best), right=True, wide=True),
    Column("TRIED", lambda row: str(row.tried), right=True),
    Column("FAILED", lambda row: str(row.failed), right=True, wide=True),
    Column("NETWORK", _of_best(lambda best: best.job.network or best.job.name), least=8),
    Column("BACKEND", lambda row: row.environment.backend, least=4),
    Column("DEVICE", lambda row: row.environment.device, least=8),
    Column("COMPILER", lambda row: row.environment.compiler, wide=True),
    Column("AGE", lambda row: _ago(row.measured_at), right=True, wide=True),
    Column("SCHEDULE", _of_best(lambda best: best.identifier), wide=True),
)
SCHEDULES = (
    Column("SCHEDULE", lambda row: row.identifier),
    Column("LATENCY", lambda row: formatting.latency(row.best_s).replace(" ", ""), right=True),
    Column("95 %", lambda row: _interval(row).replace(" ", ""), wide=True),
    Column("MEASURED", lambda row: how(row)),
    Column("JOB", lambda row: _job(row.job), least=8),
    Column("NETWORK", lambda row: row.job.network, least=8),
    Column("BACKEND", lambda row: row.environment.backend, least=4),
    Column("DEVICE", lambda row: row.environment.device, least=8),
    Column("AGE", lambda row: _ago(row.measured_at), right=True, wide=True),
    Column("COMPILER", lambda row: row.environment.compiler, wide=True),
)
MEASUREMENTS = (
    Column("JOB", lambda row: _job(row.job), least=8),
    Column("RECORD", lambda row: str(row.record.number), right=True),
    Column("PURPOSE", lambda row: row.record.purpose.value),
    Column("LATENCY", lambda row: formatting.latency(row.record.best_s).replace(" ", ""), right=True),
    Column("SAMPLES", lambda row: str(len(row.record.latency_s)), right=True),
    Column("UNIT", lambda row: row.record.unit),
    Column("REMARK", lambda row: _remark(row), least=10),
    Column("AGE", lambda row: _ago(row.record.measured_at), right=True),
)


COMMON = {"BACKEND": "by", "DEVICE": "on", "NETWORK": "of"}
"""Columns that are left out if all rows have the same value; the value is printed once, after a word."""


def _telling(columns: Sequence[Column], rows: Sequence[Any], style: str) -> Sequence[Column]:
    """Print values that all rows share, and return the other columns; only for tables."""
    if style != "table":
        return columns
    values = {column.title: {column.of(row) for row in rows} for column in columns if column.title in COMMON}
    common = {title: next(iter(of_rows)) for title, of_rows in values.items() if len(of_rows) == 1}
    if said := " ".join(f"{COMMON[title]} {text}" for title, text in common.items() if text):
        say(f"All {said}:")
    return [column for column in columns if column.title not in common]


def how(schedule: "Schedule") -> str:
    """How a schedule was measured, in one word."""
    words = {"BOUND": "disturbed", "COMPARED": "compared", "SEARCHED": "alone", "WRONG": "wrong"}
    return "imported" if schedule.origin.imported else words.get(schedule.standing.name, "disturbed")


def _interval(schedule: "Schedule") -> str:
    bounds = schedule.interval_s
    return "" if bounds is None else " to ".join(formatting.latency(bound) for bound in bounds)


def _remark(one: "Measurement") -> str:
    record = one.record
    if record.failure is not None:
        return f"{record.failure.value}: {record.detail}".removesuffix(": ")
    return f"disturbed: {record.disturbed}" if record.disturbed else record.detail


@click.command("list")
@click.argument("words", metavar="[OPERATOR]", nargs=-1)
@click.option("--network", default="", metavar="TEXT", help="Only networks or jobs with this text.")
@device_option
@backend_option
@click.option(
    "--limit",
    type=click.IntRange(1, WORKLOADS_MAX),
    default=LISTED,
    show_default=True,
    help="Maximum number of workloads, the latest of all.",
)
@store_option
@config_option
@listing_option
def list_(
    words: tuple[str, ...], network: str, device: str, backend: str, limit: int, store: str, settings: Path | None,
    style: str,
) -> None:  # fmt: skip
    """List workloads with their best schedules, the latest first.

    OPERATOR: text of its description, such as conv2d or 3x3, or the first characters of its identifier.
    """
    wanted = _filter(operator=" ".join(words), network=network, device=device, backend=backend)
    with catalogue(store, settings) as known:
        found = known.workloads(wanted, limit)
    if not found and style in ("table", "wide"):
        return say("Nothing is known of that. See what there is:  autosched records stats")
    show(style, "workloads", _telling(WORKLOADS, found, style), found, id=lambda row: row.workload.hash)


@click.command()
@click.argument("words", metavar="WORKLOAD", nargs=-1, required=True)
@click.option(
    "-k", "k", type=click.IntRange(1, SCHEDULES_MAX), default=10, show_default=True, help="Maximum number of schedules."
)
@device_option
@backend_option
@store_option
@config_option
@listing_option
def best(
    words: tuple[str, ...], k: int, device: str, backend: str, store: str, settings: Path | None, style: str
) -> None:
    """List the fastest schedules of one workload.

    WORKLOAD: its identifier, or as much of its description as no other one has.
    """
    with catalogue(store, settings) as known:
        workload = known.workload(" ".join(words))
        found = known.fastest(workload.hash, _filter(device=device, backend=backend), k)
    if style in ("table", "wide"):
        say(f"{_operator(workload)}, {workload.hash}")
        if not found:
            return say("No schedule of it works that is known there.")
    show(style, "schedules", _telling(SCHEDULES, found, style), found, id=lambda row: row.identifier)


@click.command("show")
@click.argument("words", metavar="WORKLOAD|SCHEDULE", nargs=-1, required=True)
@store_option
@config_option
@format_option
def show_(words: tuple[str, ...], store: str, settings: Path | None, style: str) -> None:
    """Show everything about one workload or one schedule.

    Both have identifiers, of which the first characters suffice. A workload may also be given by its description.
    """
    text = " ".join(words)
    with catalogue(store, settings) as known:
        try:
            workload = known.workload(text)
        except NotFound:
            try:
                return _show_schedule(known, text, style)
            except NotFound:
                raise NotFound(
                    f"there is no workload and no schedule {text!r}. See what there is:  autosched records list"
                ) from None
        _show_workload(known, workload, style)


def _show_workload(known: "Catalogue", workload: "Workload", style: str) -> None:
    rows = [one for one in known.workloads(_filter(operator=workload.hash)) if one.workload == workload]
    nearest = known.nearest(workload, NEAREST)
    if style == "json":
        return document("workload", {"workload": workload, "known": rows, "nearest": nearest})
    if style == "id":
        return data(workload.hash)
    data(f" workload {workload.hash}")
    data(f" {workload.shape or workload.name}")
    if workload.shape and workload.name:
        data(f" {workload.name}")
    data(f" {workload.flops / 1e6:,.3f} million operations")
    data("")
    show("table", "", WORKLOADS[2:], rows, id=str)
    if nearest:
        data("\n similar workloads:")
        data("\n".join(f"  {one.workload.identifier}  {_operator(one.workload)}" for one in nearest))
    say(f"Its fastest schedules:  autosched records best {workload.identifier}")


def _show_schedule(known: "Catalogue", text: str, style: str) -> None:
    found = known.schedule(text)
    measured = [known.measurements(one) for one in found]
    if style == "json":
        told = [{"known": one, "measurements": some} for one, some in zip(found, measured, strict=True)]
        return document("schedule", told)
    if style == "id":
        return data(found[0].identifier)
    for one, some in zip(found, measured, strict=True):
        workload = some[0].workload if some else known.workload(one.workload)
        data("\n".join(_facts(one, workload)))
        data("")
        show("table", "", MEASUREMENTS, some, id=str)


def _facts(one: "Schedule", workload: "Workload") -> Sequence[str]:
    """A schedule in a few lines."""
    where = one.environment
    speed = f"{_speed(workload, one)} GFLOP/s" if workload.flops and one.best_s else ""
    latency = f"{formatting.latency(one.best_s)} ({_interval(one)})" if one.best_s is not None else one.failure
    circumstances = {
        "device": where.device, "target": where.target, "threads": str(where.threads or ""),
        "compiler": where.compiler, "backend": where.backend, "template": where.template, "method": where.measurement,
        "object code": one.code,
    }  # fmt: skip
    found_by = ", ".join(
        word for word in (f"job {_job(one.job)}", one.job.network, one.job.owner, one.origin.detail) if word
    )
    return [
        f" schedule {one.identifier} of {_operator(workload)} ({workload.identifier})",
        " " + ", ".join(word for word in (latency, how(one), speed) if word),
        f" found by {found_by}",
        *(f" {name:11} {value}" for name, value in circumstances.items() if value),
    ]


@click.command()
@store_option
@config_option
@style_option
def stats(store: str, settings: Path | None, style: str) -> None:
    """Count the content of the record store, by backend, device and compiler."""
    with catalogue(store, settings) as lookup:
        found = lookup.stats()
    if style == "json":
        return document("stats", found)
    data(
        f" {found.measurements:,} measurements ({found.imported:,} imported) of {found.schedules:,} schedules for"
        f" {found.workloads:,} workloads, from {formatting.count(found.jobs, 'job')} of"
        f" {formatting.count(found.origins, 'database')}"
    )
    rows = [
        (f"{one.schedules:,}", f"{one.workloads:,}", one.backend, one.device, one.compiler) for one in found.holdings
    ]
    if rows:
        data(table(("SCHEDULES", "WORKLOADS", "BACKEND", "DEVICE", "COMPILER"), rows, right=(0, 1), give=4))
