"""`autosched gantt`: the use of lanes and devices over time, in the terminal or as a file for a trace viewer."""

import shutil
import sys
from pathlib import Path

import click

from autosched import formatting
from autosched.cli.listings import caller
from autosched.cli.output import WIDTH, colours, data, document, document_option, say
from autosched.errors import RequestError
from autosched.protocol import IdleList, ListDevices, ListIdle, SpanList, UnitList
from autosched.protocol.pagination import answered, steps_since
from autosched.text.chrome_trace import trace
from autosched.text.gantt import ansi, gantt, idle_lines, speaks_unicode

SHOWN_MIN_S = 1e-3
"""Minimum length of the shown period, in seconds."""


@click.command("gantt")
@click.option(
    "--last", default="5m", show_default=True, metavar="TIME", help="Length of the past to show: 90s, 5m, 2h, 1d."
)
@click.option(
    "--trace",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a trace file for ui.perfetto.dev; - for stdout.",
)
@document_option
@click.pass_obj
def show(host: str | None, last: str, file: Path | None, style: str) -> None:
    """Show the steps on each lane and device over time, and why units were idle."""
    try:
        seconds = formatting.seconds(last)
    except ValueError as error:
        raise RequestError(f"--last: {error}") from None
    with caller(host) as daemon:
        names = [unit.unit for unit in daemon.call(ListDevices(), UnitList).units]
        spans, now = answered(steps_since(seconds), lambda asked: daemon.call(asked, SpanList))
        start = max(now - seconds, min((span.started_at for span in spans), default=now))
        start = min(start, now - SHOWN_MIN_S)
        idle = daemon.call(ListIdle(last_s=now - start), IdleList).idle if spans else {}
    if file == Path("-"):
        return data(trace(spans, now, names).decode())
    if file is not None:
        try:
            file.write_bytes(trace(spans, now, names))
        except OSError as error:
            raise RequestError(f"{file} cannot be written ({error.strerror}); choose another name") from None
        return say(f"{formatting.count(len(spans), 'step')} in {file}. Open it at ui.perfetto.dev or chrome://tracing")
    if style == "json":
        return document("steps", spans)
    if not spans:
        return say(
            f"Nothing ran in the last {formatting.duration(seconds)}. Look further back: autosched gantt --last 1d"
        )
    width = shutil.get_terminal_size((WIDTH, 24)).columns if sys.stdout.isatty() else WIDTH
    unicode, paint = speaks_unicode(sys.stdout.encoding), ansi if colours() else None
    for line in gantt(spans, start, now, units=names, width=width, unicode=unicode, style=paint):
        data(line)
    for line in idle_lines(idle, now - start, names):
        data(line)
