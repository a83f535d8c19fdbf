"""The view without textual: the same panels, updated in place, without keys."""

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from rich.console import Console
from rich.live import Live
from rich.text import Text

from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.text.gantt import ansi
from autosched.top import panels
from autosched.top.poller import DaemonPoller

PERIOD_S = 2.0
WINDOW_S = 120.0
HINT = "keys, scrolling, curves: pip install 'autosched[tui]'     Ctrl-C ends this; jobs go on"


def frame(watch: DaemonPoller, width: int, height: int) -> Text:
    """All panels, for a screen."""
    look = watch.last
    assert look is not None
    room = min(len(look.units) + 2, max(3, height // 3))
    lines = [panels.headline(look), *panels.time_line(look, list(watch.spans.values()), WINDOW_S, width, room, ansi)]
    lines += ["", *panels.health(look, width, 2)]
    if look.jobs:
        widths = [size for _, size in panels.JOB_COLUMNS]
        names = (*(name for name, _ in panels.JOB_COLUMNS), "REASON")
        table = [names, *(panels.job_cells(job, width) for job in look.jobs)]
        lines += [
            " ".join([*(cell.ljust(size) for cell, size in zip(row, widths, strict=False)), row[-1]])[:width]
            for row in table
        ]
    else:
        lines += panels.NOTHING_YET.splitlines()
    return Text.from_ansi("\n".join([*lines[: height - 2], HINT[:width]]), no_wrap=True)


async def show(address: str, *, once: bool) -> None:
    """Run until interrupted; once: one frame, for a pipe. Raises DaemonUnreachable if no daemon answers at first."""
    watch, console = DaemonPoller(), Console(file=sys.stdout)
    async with connected(address) as daemon:
        await watch.look(daemon)
        if once:
            return console.print(frame(watch, console.width, 1_000))
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(frame(watch, console.width, console.height), refresh=True)
            with contextlib.suppress(AutoschedError):  # the daemon may return
                async with connected(address) as daemon:
                    while True:
                        await watch.look(daemon)
                        live.update(frame(watch, console.width, console.height), refresh=True)
                        await asyncio.sleep(PERIOD_S)
            await asyncio.sleep(PERIOD_S)


@contextlib.asynccontextmanager
async def connected(address: str) -> AsyncIterator[Daemon]:
    """A connection, closed at the end."""
    daemon = await Daemon.connect(address)
    try:
        yield daemon
    finally:
        daemon.close()
