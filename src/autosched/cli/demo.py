"""`autosched demo`: shows the purpose of autosched in under three minutes, and leaves only a folder of results.

Part 1 simulates the load that the thesis measured, with the daemon's scheduler. Part 2 tunes two real networks at the
same time on one host lane and one device, through a private daemon. Part 3 reports the results.
"""

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from autosched import api, formatting, user_folders, zoo
from autosched.api.connection import Daemon, off_devices
from autosched.api.on_demand import connected
from autosched.api.result_folder import Result, check_ended, collect
from autosched.cli.follow import interruptible
from autosched.cli.output import INTERRUPTED, colours, data, say
from autosched.cli.policy import policy_options, serve_words
from autosched.cli.progress_display import line
from autosched.errors import AutoschedError
from autosched.model import Goal, JobState
from autosched.protocol import Done, JobView, ListDevices, Shutdown, Span, UnitList
from autosched.report.evaluation_summary import verdict
from autosched.sim import thesis_workload
from autosched.text.gantt import ansi, busy_s, gantt, speaks_unicode

NETWORKS = (("rnet", 48), ("magika", 40))
"""Zoo name and trials: a face detector's refinement stage and a file-type classifier, both trained."""
OFFLINE_NETWORKS = (("squeezenet", 80), ("shufflenet", 48))
"""Shapes of real networks from the onnx package, with random weights, for machines without a package index."""
OUTPUT = "demo-out"
LINE_EVERY_S = 15.0
GANTT_S = 30.0


@click.command()
@policy_options("in the demo's private daemon")
def demo(policy: str | None, goal: Goal | None) -> int:
    """Show what autosched does: a simulated lab, then two real networks tuned at the same time."""
    started = time.monotonic()
    _simulate()
    with _private_state():
        failed = interruptible(_tune_both(serve_words(policy, goal)), "\nStopped, with its daemon.")
    if failed is None:
        return INTERRUPTED
    data("")
    data(f" {formatting.duration(time.monotonic() - started)} in all. Next:")
    data("   autosched model check model.onnx     can my network be tuned?")
    data("   autosched tune model.onnx            make it faster")
    data("   autosched serve                      a daemon for many jobs: submit, jobs, explain, devices")
    return 1 if failed else 0


def _simulate() -> None:
    """Part 1: the thesis' load under each policy."""
    table, few = thesis_workload.table(jobs=4), thesis_workload.table(jobs=2)
    data(" 1/3  scheduling, simulated: 4 jobs, 1 host lane, 1 device, the thesis' times")
    data(f"      {'policy':<13} {'makespan':>9} {'host':>6} {'device':>7}   vs sequential   with 2 jobs")
    for row, row_of_few in zip(table.rows, few.rows, strict=True):
        host, device = formatting.share(row.host_busy, 1), formatting.share(row.device_busy, 1)
        data(
            f"      {row.policy:<13} {formatting.duration(row.makespan_s):>9} {host:>6} {device:>7}"
            f" {row.speedup:>14.2f}x {row_of_few.speedup:>12.2f}x"
        )
    data(f"      No schedule can exceed {table.bound:.2f}x. The first minutes of `interleaved`:")
    for text in thesis_workload.chart(table, "interleaved", width=74, **_style()):
        data(f"      {text}")


async def _tune_both(serve: list[str]) -> bool:
    """Parts 2 and 3: two networks at once, and their results; returns whether one failed."""
    data("")
    data(" 2/3  tuning two real networks at the same time, on this CPU, with a private daemon")
    models = await asyncio.to_thread(_networks)
    async with connected(None, serve=serve) as daemon:
        try:
            jobs = []
            for model, trials in models:
                output = (Path(OUTPUT) / model.name).absolute()
                jobs.append(await api.submit(daemon, model, api.Settings(trials=trials, output=output, fresh=True)))
            async with off_devices(daemon):
                views = await _watch(daemon, jobs)
            return await _tell(daemon, views)
        finally:
            await daemon.link.call(Shutdown(), Done)


def _networks() -> list[tuple[api.Model, int]]:
    """The models; without a network connection, those that need no download."""
    try:
        return [(_model(name), trials) for name, trials in NETWORKS]
    except AutoschedError as error:
        say(f"      {error}\n      Using networks that come with the onnx package, with random weights.")
        return [(_model(name), trials) for name, trials in OFFLINE_NETWORKS]


def _model(name: str) -> api.Model:
    return api.load_model(zoo.fetch(name), zoo.catalogue()[name].shapes)


async def _watch(daemon: Daemon, jobs: list[int]) -> list[JobView]:
    """Show both jobs until both have ended."""
    said_at = 0.0
    style = _style()  # before `_screen`, under which sys.stdout has no encoding
    with _screen() as show:
        while True:
            views = [await daemon.job(job) for job in jobs]
            lines = [f"      {line(view)}" for view in views]
            if show is not None:
                show("\n".join([*lines, *_recent(await daemon.spans(GANTT_S), views[0].now, style)]))
            elif time.monotonic() - said_at >= LINE_EVERY_S:
                said_at = time.monotonic()
                say("\n".join(lines))
            if all(JobState(view.state).ended for view in views):
                return views
            await asyncio.sleep(0.5)


def _recent(spans: list[Span], now: float, style: dict[str, Any]) -> list[str]:
    recent = [span for span in spans if span.ended_at is None or span.ended_at > now - GANTT_S]
    return [f"      {text}" for text in gantt(recent, now - GANTT_S, now, width=74, **style)]


@contextmanager
def _screen() -> Iterator[Any]:
    """A display that updates a text in place; None without a suitable terminal."""
    if not (sys.stderr.isatty() and colours(sys.stderr)):
        yield None
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    with Live(console=Console(stderr=True), refresh_per_second=4, transient=True) as live:
        yield lambda text: live.update(Text.from_ansi(text, no_wrap=True, overflow="ellipsis"))


async def _tell(daemon: Daemon, views: list[JobView]) -> bool:
    """Part 3: the results."""
    results: list[Result] = []
    failed = False
    for view in views:
        try:
            check_ended(view)
            results.append(await collect(daemon, view, Path(view.output)))
        except AutoschedError as error:
            say(f"      {error}")
            failed = True
    spans = await daemon.spans()
    if spans:
        start, end = min(s.started_at for s in spans), max(s.ended_at or views[0].now for s in spans)
        for text in gantt(spans, start, end, width=74, **_style()):
            data(f"      {text}")
        lanes = [unit.unit for unit in (await daemon.link.call(ListDevices(), UnitList)).units]
        busy = ", ".join(f"{unit} {formatting.share(busy_s(spans, unit, start, end), end - start)}" for unit in lanes)
        alone = sum((s.ended_at or end) - s.started_at for s in spans)
        data(f"      busy: {busy}")
        data(f"      One step at a time it would have taken {formatting.ratio(alone / (end - start))} as long.")
    data("")
    data(" 3/3  results")
    for result in results:
        _tell_one(result)
        failed |= result.report.evaluation is None or not result.report.evaluation.outputs_equal
    return failed


def _tell_one(result: Result) -> None:
    job, measured = result.report.job, result.report.evaluation
    if measured is None:
        return
    found = verdict(measured)
    data(f"      {job.name:<12} {found.headline}")
    if found.speedup is not None:
        data(f"      {'':<12} {formatting.speed(found.speedup, 1.0)} than the untuned build")
    data(f"      {'':<12} {found.outputs}")
    data(f"      {'':<12} {Path(result.folder).relative_to(Path.cwd())}/report.html")


def _style() -> dict[str, Any]:
    return {"unicode": speaks_unicode(sys.stdout.encoding), "style": ansi if colours() else None}


@contextmanager
def _private_state() -> Iterator[None]:
    """A separate daemon for the demo, which neither disturbs nor sees the user's."""
    before = {name: os.environ.pop(name, None) for name in ("AUTOSCHED_STATE_DIR", "AUTOSCHED_HOST")}
    place = user_folders.temporary()  # kernels are built and run there
    with tempfile.TemporaryDirectory(prefix="autosched-demo-", dir=place, ignore_cleanup_errors=True) as folder:
        os.environ["AUTOSCHED_STATE_DIR"] = folder
        try:
            yield
        finally:
            del os.environ["AUTOSCHED_STATE_DIR"]
            os.environ.update({name: value for name, value in before.items() if value is not None})
