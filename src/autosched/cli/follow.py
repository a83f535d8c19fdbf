"""Follows a job to its end in the terminal: progress, keys, results. Ctrl-C and q leave the job running."""

import asyncio
import math
import signal
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from autosched import formatting
from autosched.api import result_folder
from autosched.api.connection import Daemon, off_devices
from autosched.api.on_demand import connected
from autosched.cli.keyboard import pressed
from autosched.cli.output import INTERRUPTED, data, room, say
from autosched.cli.progress_display import Progress, progress
from autosched.cli.result_summary import in_a_line, outcome, shown
from autosched.errors import AutoschedError, DaemonUnreachable
from autosched.model import JobId, JobState, Record
from autosched.protocol import ExplainJob, Explanation, GetRecords, JobView, RecordPage
from autosched.text import tables
from autosched.text.latency_gain import ready
from autosched.text.tables import Column

T = TypeVar("T")
RECONNECT_TRIES = 5
RECONNECT_PAUSE_S = 1.0
FAILURES_FROM = 200
"""Number of last records in which failures are looked for."""
DETAIL_CHARS = 200
WARNINGS_EVERY_S = 5.0
"""Seconds between two questions for the daemon's warnings."""
NO_TASKS = (" its tasks are not known yet: the network is imported first",)


def follow(host: str | None, job: JobId, output: Path, *, brief: bool = False) -> int:
    """Watch a job to its end, fetch its results and print them. `brief`: in a line, if they are as they should be."""
    detached = f"\nDetached. The job goes on:  autosched attach {job}     stop it:  autosched cancel {job}"
    result = interruptible(_follow(host, job, output), detached)
    if result is None:
        return INTERRUPTED
    for line in in_a_line(result) if brief else outcome(result):
        data(line)
    measured = result.report.evaluation
    return 0 if measured is None or measured.outputs_equal else 1


def interruptible(work: Coroutine[Any, Any, T], farewell: str) -> T | None:
    """Run a coroutine; if it is interrupted or the process is told to end, print `farewell` and return None."""
    try:
        return asyncio.run(_until_told(work))
    except (KeyboardInterrupt, asyncio.CancelledError):
        say(farewell)
        return None


async def _until_told(work: Coroutine[Any, Any, T]) -> T:
    """Let SIGTERM end the coroutine as Ctrl-C does, so that the terminal is restored."""
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, _stopper())
    return await work


def _stopper() -> Callable[[], object]:
    task = asyncio.current_task()
    assert task is not None
    return task.cancel


async def _follow(host: str | None, job: JobId, output: Path) -> result_folder.Result:
    failures = 0
    with progress() as screen:
        keys = Keys(screen, _stopper())
        with pressed(keys.press):
            kept, warned = Kept(output, screen), Warned(screen)
            while True:
                try:
                    async with connected(host) as daemon, off_devices(daemon):
                        async for view in daemon.follow(job):
                            failures = 0
                            keys.daemon, keys.view = daemon, view
                            screen.show(view)
                            await kept.look(daemon, view)
                            await warned.look(daemon)
                        break
                except DaemonUnreachable as error:
                    failures += 1
                    if failures > RECONNECT_TRIES:
                        raise
                    say(f"{error}\nTrying to reach it again ({failures} of {RECONNECT_TRIES}) ...")
                    await asyncio.sleep(RECONNECT_PAUSE_S)
    result_folder.check_ended(view)
    async with connected(host) as daemon:
        return await result_folder.collect(daemon, view, output)


class Kept:
    """Fetches a module that is faster than ONNX Runtime while the search goes on."""

    def __init__(self, output: Path, screen: Progress) -> None:
        self._output, self._screen = output, screen
        self._latency_s: float | None = None

    async def look(self, daemon: Daemon, view: JobView) -> None:
        """Fetch the module if there is one that was not fetched yet."""
        latency_s = None if view.comparison is None else view.comparison.module_s
        if latency_s is None or latency_s == self._latency_s or JobState(view.state).ended:
            return
        self._latency_s = latency_s
        try:
            result = await result_folder.fetch(daemon, view, self._output)
        except DaemonUnreachable:
            self._latency_s = None
            raise
        except AutoschedError as error:
            self._screen.above((f"autosched: {error}",))
            return
        where = shown(result.module) if result.module is not None else shown(result.folder)
        self._screen.above((f" {where} is ready: {ready(view)}. The search goes on.",))


class Warned:
    """Shows what the daemon warns of, such as a full disk, for which jobs wait."""

    def __init__(self, screen: Progress) -> None:
        self._screen = screen
        self._current: frozenset[str] = frozenset()
        self._looked_at = -math.inf

    async def look(self, daemon: Daemon) -> None:
        """Show each warning when it comes up, and that it is over."""
        if (now := time.monotonic()) < self._looked_at + WARNINGS_EVERY_S:
            return
        self._looked_at = now
        told = (await daemon.info()).warnings
        self._screen.above(
            [f" ! {text}" for text in told if text not in self._current]
            + [f"   over: {text}" for text in sorted(self._current) if text not in told]
        )
        self._current = frozenset(told)


class Keys:
    """Handles keys: w shows all tasks, f the failures, e the reason for waiting; q leaves."""

    def __init__(self, screen: Progress, leave: Callable[[], object]) -> None:
        self._screen, self._leave = screen, leave
        self.asking: asyncio.Task[None] | None = None
        self.daemon: Daemon | None = None
        self.view: JobView | None = None

    def press(self, key: str) -> None:
        """Handle a key. Further keys are ignored while the daemon answers."""
        if key == "q":
            self._leave()
        elif self.daemon is None or self.view is None:
            return
        elif key == "w":
            self._screen.above(
                tables.task_table(self.view, len(self.view.tasks), room()) if self.view.tasks else NO_TASKS
            )
        elif key in ("e", "f") and (self.asking is None or self.asking.done()):
            ask = self._explain if key == "e" else self._failures
            self.asking = asyncio.get_running_loop().create_task(ask(self.daemon, self.view))

    async def _explain(self, daemon: Daemon, view: JobView) -> None:
        try:
            lines = (await daemon.link.call(ExplainJob(job=view.job), Explanation)).lines
        except AutoschedError as error:
            lines = (f"autosched: {error}",)
        self._screen.above(lines)

    async def _failures(self, daemon: Daemon, view: JobView) -> None:
        records: tuple[Record, ...] = ()
        with suppress(AutoschedError):  # without the records, print the rest
            asked = GetRecords(job=view.job, after=max(0, view.trials - FAILURES_FROM))
            records = tuple((await daemon.link.call(asked, RecordPage)).records)
        self._screen.above(failures(view, records))


def failures(view: JobView, records: Iterable[Record]) -> Iterator[str]:
    """Number of failed trials by reason, their tasks, and the message of the last one of each kind."""
    if view.failed_steps:
        yield f" {formatting.failed_steps(view.failed_steps, view.last_error)}"
    if not view.failed:
        yield f" none of {formatting.count(view.trials, 'trial')} has failed"
        return
    yield f" {view.failed} of {formatting.count(view.trials, 'trial')} failed: {formatting.reasons(view.failures)}"
    columns = (
        Column("TASK", lambda task: task.shape or task.name, least=12),
        Column("FAILED", lambda task: str(task.failed), right=True),
        Column("TRIALS", lambda task: str(task.trials), right=True),
    )
    worst = sorted((task for task in view.tasks if task.failed), key=lambda task: -task.failed)
    yield from tables.table(columns, worst, room=room())
    last = {record.failure.value: record.detail for record in records if record.failure is not None}
    for reason, detail in last.items():
        said = detail.strip().partition("\n")[0][:DETAIL_CHARS]
        yield f" the last {reason}: {said or 'nothing was said of it'}"
