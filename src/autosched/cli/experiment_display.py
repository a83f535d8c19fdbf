"""Progress of an experiment: at a terminal a bar and the running jobs, elsewhere a line for each ended job."""

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from autosched import formatting
from autosched.cli.output import say

if TYPE_CHECKING:
    from autosched.experiments.forecast import Outlook
    from autosched.experiments.plan import Plan
    from autosched.experiments.rows import Row
    from autosched.experiments.runner import Progress

BAR_CHARS = 30
JOBS_SHOWN = 12


def bar(part: float) -> str:
    """A share as a bar."""
    full = round(part * BAR_CHARS)
    return f"[{'#' * full}{'.' * (BAR_CHARS - full)}] {100 * part:3.0f} %"


class Display:
    """Progress of a run: a bar at a terminal, otherwise a line for each ended job."""

    def __init__(self, planned: "Plan", foresee: "Callable[[Mapping[str, Row]], Outlook]") -> None:
        """`foresee`: estimates the duration of the rest, from the rows of ended jobs."""
        self._planned, self._foresee = planned, foresee
        self._left_s: float | None = None
        """Seconds until all jobs have ended, estimated at the last end of a job."""
        self._live: Any = None
        self._told: set[str] = set()
        self._note = ""

    def __enter__(self) -> "Display":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, tb)

    def show(self, progress: "Progress") -> None:
        """Show the progress."""
        if not self._told:
            self._told.update(progress.before)
        for name, row in progress.rows.items():
            if name not in self._told:
                self._told.add(name)
                self._left_s = None
                self._say(ended(self._planned, row, len(progress.rows), progress.total))
        if progress.note and progress.note != self._note:
            self._say(progress.note)
        self._note = progress.note
        if self._live is not None:
            from rich.text import Text

            if self._left_s is None:
                self._left_s = self._foresee(progress.rows).seconds
            self._live.update(Text("\n".join(picture(self._planned, progress, self._left_s))))

    def _say(self, words: str) -> None:
        if self._live is not None:
            self._live.console.print(words, highlight=False, markup=False)
        else:
            say(words)


def ended(planned: "Plan", row: "Row", done: int, total: int) -> str:
    """One line about an ended job."""
    what = formatting.latency(row.latency_s) if row.latency_s is not None else row.state
    took = f"{row.trials} trials in {formatting.duration(row.took_s)}"
    return f"{done}/{total}  {planned.called(row.values)}: {what}, {took}"


def picture(planned: "Plan", progress: "Progress", left_s: float) -> list[str]:
    """The bar, and one line for each running job. `left_s`: seconds until all have ended, estimated at the last end."""
    done = len(progress.rows)
    whole = f"{done} of {progress.total} jobs  {bar(done / max(1, progress.total))}"
    lines = [f" {planned.definition.name}  {whole}  about {formatting.duration(left_s)} left"]
    names = {job.combination: job.values for job in planned.jobs}
    for name, view in list(progress.running.items())[:JOBS_SHOWN]:
        trials = f"{view.trials}/{view.trials_total}" if view.trials_total else str(view.trials)
        best = f", best {formatting.latency(view.whole_s)}" if view.whole_s is not None else ""
        lines.append(f"   job {view.job}  {planned.called(names[name])}: {view.doing}, {trials} trials{best}")
    return [*lines, " Ctrl-C ends this command; jobs that were submitted go on"]
