"""Shows the progress of a job: a live display on a terminal, a line from time to time elsewhere."""

import sys
import time
from collections.abc import Iterable
from types import TracebackType
from typing import Any, Protocol

from autosched import formatting
from autosched.cli.keyboard import heard
from autosched.cli.output import colours, say
from autosched.model import JobState
from autosched.protocol import JobView
from autosched.text.latency_gain import best, compared, gain, ready, tasks_by_share
from autosched.text.visible import everywhere, one_line

LINE_EVERY_S = 30.0
TASKS_SHOWN = 8
BAR_WIDTH = 41
KEYS = " w = all tasks, f = failures, e = explain, q = detach; the job goes on"


class Progress(Protocol):
    """A display of a job; used in a `with`."""

    def show(self, view: JobView) -> None:
        """Show the present state of the job."""

    def above(self, lines: Iterable[str]) -> None:
        """Print lines that stay, above the display."""

    def __enter__(self) -> "Progress": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None: ...


def progress() -> Progress:
    """The display that suits this terminal."""
    return Live() if sys.stderr.isatty() and colours(sys.stderr) else Lines()


class Lines:
    """One line after each important event, otherwise one every half a minute."""

    def __init__(self) -> None:
        self._said_at = -LINE_EVERY_S
        self._said: tuple[object, ...] = ()

    def __enter__(self) -> "Lines":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        return

    def show(self, view: JobView) -> None:
        """Print a line if it is time."""
        module_s = None if view.comparison is None else view.comparison.module_s
        phase = (view.state, bool(view.tasks), view.estimate_s is None, view.comparison is None, module_s)
        now = time.monotonic()
        if phase == self._said and now - self._said_at < LINE_EVERY_S:
            return
        self._said, self._said_at = phase, now
        say(line(view))

    def above(self, lines: Iterable[str]) -> None:
        """Print lines."""
        for text in lines:
            say(one_line(text))


def line(view: JobView) -> str:
    """A job's progress in one line."""
    parts = [f"job {view.job} {view.name}: {view.state}"]
    if view.tasks:
        parts.append(f"{view.trials}/{'?' if view.trials_total is None else view.trials_total} trials")
    if (known := best(view)) != "":
        parts.append(known)
    elif (against := compared(view)) != "":
        parts.append(against)
    if (module := ready(view)) != "" and not JobState(view.state).ended:
        parts.append(f"ready: {module}")
    if view.failed:
        parts.append(f"failed {formatting.reasons(view.failures)}")
    if view.failed_steps:
        parts.append(formatting.failed_steps(view.failed_steps, view.last_error))
    if not JobState(view.state).ended:
        parts += [f"eta {formatting.duration(view.eta_s)}"] if view.eta_s is not None else []
        parts += [formatting.brief(view.reason)] if view.reason else []
    return ", ".join(parts)


class Live:
    """A live display, drawn with rich."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._live: Any = RichLive(console=Console(stderr=True), refresh_per_second=4, transient=True)
        self._keys = heard()
        self._estimate_s: float | None = None
        self._gained_at = time.monotonic()
        self._last: JobView | None = None

    def __enter__(self) -> "Live":
        self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._live.__exit__(kind, error, tb)
        if self._last is not None:
            say(line(self._last))

    def show(self, view: JobView) -> None:
        """Draw the present state of the job."""
        view = everywhere(view)
        if view.estimate_s != self._estimate_s:
            self._estimate_s, self._gained_at = view.estimate_s, time.monotonic()
        self._last = view
        self._live.update(picture(view, time.monotonic() - self._gained_at, keys=self._keys))

    def above(self, lines: Iterable[str]) -> None:
        """Print lines above the display."""
        from rich.text import Text

        self._live.console.print(Text("\n".join(map(one_line, lines))))


def picture(view: JobView, since_gain_s: float, *, keys: bool = False) -> Any:
    """The live display: header, bar, best latency, tasks by share, and the keys if there are any."""
    from rich.console import Group
    from rich.text import Text

    skipped = f", {len(view.skipped)} skipped (no arithmetic)" if view.skipped else ""
    parts: list[Any] = [
        Text.assemble(f" job {view.job} ", (view.name, "bold"), f"  {view.backend} on {view.device}")
        + Text(f"  {formatting.count(len(view.tasks), 'task')}{skipped}" if view.tasks else ""),
        _bar(view),
    ]
    if view.whole_s is not None:
        last = f"  last gain {formatting.duration(since_gain_s)} ago" if view.trials else ""
        parts.append(
            Text.assemble(" best ", (formatting.latency(view.whole_s), "bold green"), gain(view), (last, "dim"))
        )
    elif (against := compared(view)) != "":
        parts.append(Text(f" to beat: {against}"))
    if (module := ready(view)) != "":
        parts.append(Text.assemble((" ready ", "green"), module, (f"  autosched fetch {view.job}", "dim")))
    if (known := formatting.came_from([task.came_from for task in view.tasks])) != "":
        parts.append(Text(f" {known}", style="dim", no_wrap=True, overflow="ellipsis"))
    if view.failed:
        rate = formatting.share(view.failed, view.trials)
        parts.append(Text(f" failed {rate}: {formatting.reasons(view.failures)}", style="yellow"))
    if view.failed_steps:
        text = f" {formatting.failed_steps(view.failed_steps, view.last_error)}"
        parts.append(Text(text, style="red", no_wrap=True, overflow="ellipsis"))
    parts.append(Text(f" {view.reason}", style="dim", no_wrap=True, overflow="ellipsis"))
    if view.tasks:
        parts.append(_tasks(view))
    parts.append(Text(KEYS if keys else " Ctrl-C detaches; the job goes on", style="dim"))
    return Group(*parts)


def _bar(view: JobView) -> Any:
    from rich.text import Text

    if not view.trials_total:
        return Text(" ")
    part = min(1.0, view.trials / view.trials_total)
    full = round(part * BAR_WIDTH)
    numbers = f"  {view.trials}/{view.trials_total} trials  {100 * part:.0f} %  eta {formatting.duration(view.eta_s)}"
    return Text.assemble(" ", ("━" * full, "green"), ("─" * (BAR_WIDTH - full), "bright_black"), numbers)


def _tasks(view: JobView) -> Any:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, 1), header_style="dim", pad_edge=True)
    table.add_column("TASK", no_wrap=True, max_width=34, overflow="ellipsis")
    for name in ("SHARE", "TRIALS", "BEST", "GFLOP/S"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("STAGE", no_wrap=True)
    ordered = tasks_by_share(view)
    for task, part in ordered[:TASKS_SHOWN]:
        share = "-" if part is None else formatting.share(part, 1.0)
        speed = formatting.gflops(task.flops, task.best_s)
        table.add_row(
            Text(task.shape or task.name), share, str(task.trials), formatting.latency(task.best_s), speed, task.stage
        )
    if len(ordered) > TASKS_SHOWN:
        table.add_row(Text(f"… {len(ordered) - TASKS_SHOWN} more", style="dim"))
    return table
