"""The view with keys (textual). It reads the state of `DaemonPoller`, and sends what a key asks for."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widgets import DataTable, Footer, Static

from autosched import formatting
from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.model import JobId, JobState
from autosched.protocol import Done, DrainUnit, ExplainJob, Explanation, JobView, PreviousSettings, ReturnUnit, SetJob
from autosched.text.curve import curve as curve_lines
from autosched.text.gantt import ansi
from autosched.text.latency_gain import gain
from autosched.top import panels
from autosched.top.daemon_view import DaemonView
from autosched.top.dialogs import Ask, Say
from autosched.top.poller import DaemonPoller

PERIOD_S = 1.0
SHARE_MAX, PAUSE_MAX_S = 0.04, 5.0
"""Maximum share of a core for polling and drawing, and the longest pause in seconds to stay below it."""
WINDOWS_S = (30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0)
KEYS = """\
up, down   choose a job          e   explain: what it waits for, and why
+, -       zoom the time line    c   cancel the job, after a question
space      stop the picture      p   set the job's priority
q          leave; jobs go on     d   drain a lane or device
                                 u   undrain it"""


class Top(App[None]):
    """A daemon, live."""

    TITLE = "autosched"
    CSS_PATH = "app.tcss"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        ("e", "explain", "Explain"),
        ("c", "cancel", "Cancel"),
        ("p", "priority", "Priority"),
        ("d", "drain", "Drain"),
        ("u", "undrain", "Undrain"),
        ("plus", "zoom(-1)", "Zoom"),
        ("minus", "zoom(1)", ""),
        ("space", "freeze", "Stop"),
        ("question_mark", "keys", "Keys"),
        ("q", "quit", "Quit"),
    ]

    def __init__(self, where: str) -> None:
        super().__init__()
        self._where = where
        self._daemon: Daemon | None = None
        self._watch, self._acted = DaemonPoller(), asyncio.Event()
        self._window, self._frozen = 2, False
        self._shown: dict[JobId, tuple[str, ...]] = {}
        names = ("headline", "timeline", "health", "empty", "curve", "news")
        self._parts = {name: Static(id=name) for name in names}
        self._table: DataTable[str] = DataTable(id="jobs", cursor_type="row", cell_padding=0)

    def compose(self) -> ComposeResult:
        """Time line at the top, jobs in the middle, a job's curve and the news below."""
        parts = self._parts
        yield from (parts["headline"], parts["timeline"], parts["health"], self._table, parts["empty"])
        yield Horizontal(parts["curve"], parts["news"], id="below")
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Begin to poll."""
        table = self._table
        for name, width in panels.JOB_COLUMNS:
            table.add_column(name, width=width + 1, key=name)
        self._reason = table.columns[table.add_column("REASON", width=10, key="REASON")]
        table.display = self._parts["empty"].display = False  # not known yet
        self.run_worker(self._look(), name="look")

    def on_unmount(self) -> None:
        """Stop polling."""
        if self._daemon is not None:
            self._daemon.close()

    # Looking ----------------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        """Poll without end, also while the daemon is lost."""
        used_s = time.process_time()
        while True:
            try:
                if self._daemon is None:
                    self._daemon = await Daemon.connect(self._where)
                look = await self._watch.look(self._daemon)
            except AutoschedError as error:
                self._lost(str(error))
            else:
                if not self._frozen:
                    self._show(look)
            before_s, used_s = used_s, time.process_time()
            pause_s = min(max(PERIOD_S, (used_s - before_s) / SHARE_MAX), PAUSE_MAX_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._acted.wait()
            self._acted.clear()

    def _lost(self, why: str) -> None:
        if self._daemon is not None:
            self._daemon.close()
            self._daemon = None
        self._put("headline", Text(f"! trying again: {why}", style="bold red", no_wrap=True))
        if self._watch.last is None:
            self._parts["empty"].display = True
            self._put("empty", Text(why))

    def _show(self, look: DaemonView) -> None:
        width = self.size.width
        stopped = "   STOPPED: space goes on" if self._frozen else ""
        self._put("headline", Text(f"{panels.headline(look)}   {self._where}{stopped}", style="bold", no_wrap=True))
        room = min(len(look.units) + 2, max(4, self.size.height // 3))
        spans = list(self._watch.spans.values())
        lines = panels.time_line(look, spans, WINDOWS_S[self._window], width, room, ansi)
        self._put("timeline", Text.from_ansi("\n".join(lines), no_wrap=True))
        self._put("health", Text("\n".join(panels.health(look, width, 2)), no_wrap=True))
        self._parts["empty"].display = not look.jobs
        self._put("empty", Text(panels.NOTHING_YET))
        self._table.display = bool(look.jobs)
        self._show_jobs(look)
        self._show_below(look)

    def _put(self, where: str, text: Text) -> None:
        widget = self._parts[where]
        if widget.content != text:
            widget.update(text)

    def _show_jobs(self, look: DaemonView) -> None:
        """Update only what has changed, because drawing is expensive."""
        table = self._table
        self._reason.width = panels.reason_width(self.size.width)
        rows = {job.job: panels.job_cells(job, self.size.width) for job in look.jobs}
        if list(rows) != list(self._shown):
            chosen = self._chosen()
            table.clear()
            for job, cells in rows.items():
                table.add_row(*cells, key=str(job))
            if chosen is not None and chosen.job in rows:
                table.move_cursor(row=list(rows).index(chosen.job))
        else:
            names = [*(name for name, _ in panels.JOB_COLUMNS), "REASON"]
            for job, cells in rows.items():
                for name, cell, before in zip(names, cells, self._shown[job], strict=True):
                    if cell != before:
                        table.update_cell(str(job), name, cell)
        self._shown = rows

    def _show_below(self, look: DaemonView) -> None:
        curve, news = self._parts["curve"], self._parts["news"]
        if (job := self._chosen()) is not None:
            points = tuple(self._watch.curves.get(job.job, ()))
            until = look.now if job.ended_at is None else job.ended_at
            head = f"job {job.job} {job.name}: {formatting.latency(job.whole_s)}{gain(job)}"
            size = curve.content_size
            lines = [head, *curve_lines(points, until, max(20, size.width), max(2, size.height - 1))]
            self._put("curve", Text("\n".join(lines), no_wrap=True))
        last = list(self._watch.news)[-max(1, news.content_size.height) :]
        ago = [f"{formatting.duration(look.now - at):>6}  {words}" for at, words in last]
        self._put("news", Text("\n".join(ago or ["no news yet"]), no_wrap=True))

    def on_data_table_row_highlighted(self) -> None:
        """Called when another job is selected."""
        if self._watch.last is not None:
            self._show_below(self._watch.last)

    def _chosen(self) -> JobView | None:
        table, look = self._table, self._watch.last
        if look is None or not 0 <= table.cursor_row < len(self._shown):
            return None
        wanted = list(self._shown)[table.cursor_row]
        return next((job for job in look.jobs if job.job == wanted), None)

    # Keys -------------------------------------------------------------------------------------------------------------

    def _send(self, work: Callable[[Daemon], Coroutine[Any, Any, str]]) -> None:
        """Call the daemon; its answer or its error is shown."""

        async def send() -> None:
            try:
                if self._daemon is None:
                    return self.notify("The daemon does not answer; try again when it does.", severity="warning")
                if said := await work(self._daemon):
                    self._acted.set()  # the effect is shown at once
                    self.notify(said)
            except AutoschedError as error:
                self.notify(str(error), severity="error")

        self.run_worker(send(), name="send")

    def action_explain(self) -> None:
        """Show the reason for the job's waiting."""
        if (job := self._chosen()) is None:
            return

        async def explain(daemon: Daemon) -> str:
            answer = await daemon.link.call(ExplainJob(job=job.job), Explanation)
            self.push_screen(Say(f"job {job.job} {job.name}", "\n".join(answer.lines)))
            return ""

        self._send(explain)

    def action_cancel(self) -> None:
        """Cancel the job, after a confirmation."""
        job = self._chosen()
        if job is None or JobState(job.state).ended:
            return self.notify("No running job is chosen.", severity="warning")

        async def cancel(daemon: Daemon) -> str:
            await daemon.cancel(job.job)
            return f"job {job.job} is cancelled; its records are kept"

        question = f"Cancel job {job.job} {job.name}, {job.trials} trials? Type yes"
        self.push_screen(Ask(question), lambda said: self._send(cancel) if said == "yes" else None)

    def action_priority(self) -> None:
        """Change the job's priority."""
        if (job := self._chosen()) is None:
            return

        def answered(said: str | None) -> None:
            if not said:
                return None
            try:
                priority = int(said)
            except ValueError:
                return self.notify(f"{said!r} is no whole number from -100 to 100", severity="warning")

            async def change(daemon: Daemon) -> str:
                before = await daemon.change(SetJob(job=job.job, priority=priority), PreviousSettings)
                return f"job {job.job} has priority {priority}; it was {before.priority}"

            return self._send(change)

        self.push_screen(Ask(f"Priority of job {job.job} {job.name}, -100 to 100 (now {job.priority})"), answered)

    def action_drain(self) -> None:
        """Give a unit no more steps."""
        look = self._watch.last
        free = [unit.unit for unit in look.units if not unit.drained] if look is not None else []

        def answered(said: str | None) -> None:
            unit, _, reason = (said or "").strip().partition(" ")
            if not unit:
                return None
            if not reason:
                return self.notify("Say why, too: UNIT REASON", severity="warning")

            async def drain(daemon: Daemon) -> str:
                await daemon.link.call(DrainUnit(unit=unit, reason=reason), Done)
                return f"{unit} gets no more steps; u gives it some again"

            return self._send(drain)

        self.push_screen(Ask(f"Drain which unit, and why? UNIT REASON  ({', '.join(free)[:200]})"), answered)

    def action_undrain(self) -> None:
        """Give a drained unit steps again."""
        look = self._watch.last
        drained = [unit.unit for unit in look.units if unit.drained] if look is not None else []
        if not drained:
            self.notify("No unit is drained.")
            return

        def answered(said: str | None) -> None:
            async def undrain(daemon: Daemon) -> str:
                await daemon.link.call(ReturnUnit(unit=said or ""), Done)
                return f"{said} gets steps again"

            if said:
                self._send(undrain)

        self.push_screen(Ask(f"Undrain which unit? ({', '.join(drained)})", drained[0]), answered)

    def action_zoom(self, by: int) -> None:
        """Change the length of the time line."""
        self._window = min(max(0, self._window + by), len(WINDOWS_S) - 1)
        if self._watch.last is not None:
            self._show(self._watch.last)

    def action_freeze(self) -> None:
        """Freeze the display, or let it go on; polling continues either way."""
        self._frozen = not self._frozen
        if self._watch.last is not None:
            self._show(self._watch.last)

    def action_keys(self) -> None:
        """Show all keys."""
        self.push_screen(Say("Keys", KEYS))
