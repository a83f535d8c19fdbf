"""`autosched experiment check|run|status|results|stop`: all combinations of lists of values, and a table of results."""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched import formatting
from autosched.cli.experiment_display import Display, bar
from autosched.cli.follow import interruptible
from autosched.cli.output import INTERRUPTED, bold, data, document, document_option, listing_option, say, show
from autosched.errors import ConfigError, NotFound, RequestError
from autosched.model import HOST_POOL, JobState
from autosched.text.tables import Column

if TYPE_CHECKING:
    from autosched.experiments.forecast import Outlook
    from autosched.experiments.plan import Plan
    from autosched.experiments.rows import Row
    from autosched.experiments.workspace import Workspace

STORED_MAX = 200
"""Maximum jobs of the record store that the forecast uses."""
FAILURES_SHOWN = 5
quick_option = click.option("--quick", is_flag=True, help="Use the short lists of [quick].")
file_argument = click.argument("file", type=click.Path(path_type=Path), metavar="FILE.toml")


@click.command()
@file_argument
@quick_option
def check(file: Path, quick: bool) -> None:
    """Check the file of an experiment, and print its numbers of jobs, trials and hours. Starts nothing."""
    from autosched.experiments import workspace
    from autosched.experiments.definition import load
    from autosched.experiments.plan import plan

    planned = plan(load(file, quick=quick))
    ended = workspace.Workspace(planned.definition.name).rows_of(planned)
    data(_summary(planned, _foresight(planned)(ended)))


@click.command()
@file_argument
@quick_option
@click.option("--retry-failed", is_flag=True, help="Run failed jobs once more.")
@click.pass_obj
def run(host: str | None, file: Path, quick: bool, retry_failed: bool) -> int:
    """Run all combinations of a file that have not run yet, and wait for them.

    Ctrl-C ends this command only; submitted jobs continue. Run it again to continue: nothing runs twice. Combinations
    added to the file since then also run.
    """
    from autosched.experiments import workspace
    from autosched.experiments.definition import load
    from autosched.experiments.plan import plan
    from autosched.experiments.runner import Runner

    planned = plan(load(file, quick=quick))
    name = planned.definition.name
    place = workspace.Workspace(name)
    with place.locked():
        place.keep(workspace.Source(str(file.absolute()), file.read_text(encoding="utf-8-sig"), quick))
        foresee = _foresight(planned)
        say(_summary(planned, foresee(place.rows_of(planned))))
        with Display(planned, foresee) as display:
            runner = Runner(planned, place, host, watch=display.show, retry_failed=retry_failed)
            again = f"autosched experiment run {file}{' --quick' if quick else ''}"
            farewell = f"\nInterrupted. Jobs that were submitted go on. Go on:  {again}"
            progress = interruptible(runner.run(), farewell)
    if progress is None:
        return INTERRUPTED
    rows = [progress.rows[job.combination] for job in planned.jobs]
    failed = [row for row in rows if row.state == JobState.FAILED.value]
    data(f"{formatting.count(len(rows) - len(failed), 'job')} done, {len(failed)} failed")
    say(f"See them:  autosched experiment results {name}     xdg-open {place.page}")
    for row in failed[:FAILURES_SHOWN]:
        say(f"  job {row.job} ({planned.called(row.values)}) failed: {row.failure}")
    return 1 if failed else 0


@click.command()
@click.argument("name", required=False)
@document_option
@click.pass_obj
def status(host: str | None, name: str | None, style: str) -> None:
    """Show the progress of an experiment; without NAME, of all experiments that have run here."""
    from autosched.experiments import workspace

    places = list(workspace.known().values()) if name is None else [_place(name)]
    views = [_view(place) for place in places]
    if style == "json":
        return document("experiments", views)
    if not views:
        say("No experiment has run here. Write a file and run it:  autosched experiment run FILE.toml")
    for view in views:
        data("\n".join(_lines(view)))


def _place(name: str) -> "Workspace":
    """The folder of an experiment, by name or file."""
    from autosched.experiments import workspace
    from autosched.experiments.definition import load

    if name.endswith(".toml") and Path(name).exists():
        name = load(Path(name)).name
    place = workspace.Workspace(name)
    place.source()
    return place


def _view(place: "Workspace") -> dict[str, Any]:
    """Progress of an experiment, from its folder."""
    found: dict[str, Any] = {"name": place.name, "file": place.source().file, "runner": place.runner()}
    try:
        planned = place.plan()
    except RequestError as error:  # a model was removed since
        rows = place.rows()
        return {**found, "trouble": str(error), "jobs": len(rows), "done": len(rows)}
    rows = place.rows_of(planned)
    left = _foresight(planned)(rows)
    return {
        **found, "about": planned.definition.about, "jobs": len(planned.jobs), "done": len(rows),
        "failed": sum(row.state == JobState.FAILED.value for row in rows.values()),
        "left": left.jobs, "left_trials": left.trials, "left_s": left.seconds,
    }  # fmt: skip


def _lines(view: dict[str, Any]) -> list[str]:
    part = view["done"] / max(1, view["jobs"])
    running = f"process {view['runner']} runs it" if view["runner"] else "not running"
    state = running if view["done"] < view["jobs"] or view["runner"] else "complete"
    lines = [
        bold(f"{view['name']}  {view['done']} of {formatting.count(view['jobs'], 'job')}  {bar(part)}  {state}"),
        f"  file     {view['file']}",
    ]
    if view.get("about"):
        lines.append(f"  about    {view['about']}")
    if view.get("failed"):
        lines.append(f"  failed   {view['failed']}; run them again:  autosched experiment run FILE --retry-failed")
    if view.get("left"):
        lines.append(f"  left     {view['left_trials']:,} trials, about {formatting.duration(view['left_s'])}")
    if view.get("trouble"):
        lines.append(f"  trouble  {view['trouble']}")
    return lines


@click.command()
@click.argument("name")
@click.option(
    "--to",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE.csv|.parquet|.md",
    help="Write the whole table; as Markdown with the comparisons.",
)
@listing_option
def results(name: str, path: Path | None, style: str) -> None:
    """Print the table of an experiment, one row for each ended job, and the comparisons of its file."""
    from autosched.experiments import markdown, page, table

    place = _place(name)
    planned: Plan | None = None
    try:
        planned = place.plan()
        rows = list(place.rows_of(planned).values())
        names = planned.varied or ["model"]
    except RequestError:  # a model was removed since
        rows = list(place.rows().values())
        names = table.parameters(rows)
    if path is not None:
        if path.suffix == ".md":
            found = page.compared(planned.definition, rows) if planned is not None else []
            path.write_text(markdown.text(rows, names, found), encoding="utf-8")
            return say(f"{formatting.count(len(rows), 'row')} in {path}")
        count = table.write(rows, path)
        return say(f"{formatting.count(count, 'row')} in {path}")
    if style in ("json", "jsonl", "csv"):
        whole = [Column(key, _cell(key)) for key in table.columns(rows)]
        return show(style, "rows", whole, table.flat(rows), id=lambda row: row["job"])
    show(style, "rows", _columns(names), rows, id=lambda row: row.job)
    if style in ("table", "wide") and planned is not None and (found := page.compared(planned.definition, rows)):
        data("")
        show(style, "comparisons", COMPARISONS, found, id=lambda one: one.figure)
    if style in ("table", "wide") and place.page.exists():
        say(f"As a page, with plots:  xdg-open {place.page}")


COMPARISONS = (
    Column("FIGURE", lambda one: one.figure),
    Column("FOR", lambda one: one.group_words, least=8),
    Column("VALUE", lambda one: str(one.value), least=8),
    Column("OVER", lambda one: str(one.against), least=8),
    Column("RATIO", lambda one: f"{one.ratio:.3f}", right=True),
    Column("95 %", lambda one: one.interval_words.replace(" to ", "..")),
    Column("PAIRS", lambda one: str(one.pairs), right=True),
    Column("", lambda one: one.verdict),
)


def _cell(key: str) -> Any:
    return lambda row: "" if row[key] is None else str(row[key])


def _value(name: str) -> Any:
    return lambda row: str(row.values.get(name, "-"))


def _interval(row: "Row") -> str:
    low, high = formatting.latency(row.low_s), formatting.latency(row.high_s)
    return f"{low}..{high}".replace(" ", "") if row.latency_s is not None else "-"


def _columns(names: Sequence[str]) -> list[Column]:
    own = [Column(name.upper(), _value(name), least=6) for name in names]
    return [
        *own,
        Column("LATENCY", lambda row: formatting.latency(row.latency_s).replace(" ", ""), right=True),
        Column("95 %", lambda row: _interval(row), wide=True),
        Column("SPEEDUP", lambda row: formatting.ratio(row.speedup) if row.speedup else "-", right=True),
        Column("TRIED", lambda row: str(row.trials), right=True),
        Column("TOOK", lambda row: formatting.duration(row.took_s), right=True),
        Column("STATE", lambda row: row.state),
        Column("JOB", lambda row: str(row.job), right=True),
    ]


@click.command()
@click.argument("name")
@click.pass_obj
def stop(host: str | None, name: str) -> int:
    """Stop an experiment: end the process that runs it, and cancel its jobs. Rows of ended jobs stay."""
    from autosched.experiments.runner import stop_jobs

    place = _place(name)
    planned, pid = place.plan(), place.runner()
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
    cancelled = interruptible(stop_jobs(planned, place, host), "Interrupted; run the same command again.")
    if cancelled is None:
        return INTERRUPTED
    ended = f"process {pid} ends, " if pid is not None else ""
    data(f"{place.name}: {ended}{formatting.count(cancelled, 'job')} cancelled")
    say(f"Go on:  autosched experiment run {planned.definition.file}")
    return 0


def _foresight(planned: "Plan") -> "Callable[[Mapping[str, Row]], Outlook]":
    """Return a function that estimates the rest from the rows of ended jobs. Earlier jobs of all experiments and of the
    record store are read once, here."""
    from autosched import config
    from autosched.experiments import workspace
    from autosched.experiments.forecast import outlook

    def units(settings: str) -> tuple[int, int]:
        """Numbers of lanes and devices."""
        path = planned.definition.file.parent / settings if settings else None
        try:
            pools = config.resources(config.load(path)).pools
        except ConfigError as error:
            raise ConfigError(f"{settings or 'this machine'}: {error}") from None
        lanes = sum(len(pool.units) for pool in pools if pool.name == HOST_POOL)
        return lanes, max(1, sum(len(pool.units) for pool in pools if pool.name != HOST_POOL))

    every = [row for one in workspace.known().values() for row in one.rows().values()]
    every += _stored(planned)
    return lambda ended: outlook(planned, ended, [*every, *ended.values()], units)


def _stored(planned: "Plan") -> list["Row"]:
    """Earlier jobs of the same models in the record store of this user's daemon; none without a store."""
    from autosched.api.local_daemon import catalogue
    from autosched.errors import StoreUnavailable
    from autosched.experiments.forecast import row_of_store

    names = {job.found.sha256: job.found.label for job in planned.jobs}
    try:
        with contextlib.closing(catalogue()) as known:
            return [row_of_store(one, names[one.model]) for one in known.jobs(list(names), STORED_MAX)]
    except (NotFound, RequestError, StoreUnavailable):
        return []


def _summary(planned: "Plan", left: "Outlook") -> str:
    """ "thesis: 24 jobs (model 3, policy 4, seed 2); 18 to run, 2,304 trials, about 1h12m"."""
    lists = ", ".join(f"{name} {len({str(job.values.get(name)) for job in planned.jobs})}" for name in planned.varied)
    words = f"{planned.definition.name}: {formatting.count(len(planned.jobs), 'job')}{f' ({lists})' if lists else ''}"
    if not left.jobs:
        return f"{words}; all have run"
    source = "from earlier jobs" if left.known == left.jobs else f"{left.jobs - left.known} of them guessed"
    return f"{words}; {left.jobs} to run, {left.trials:,} trials, about {formatting.duration(left.seconds)} ({source})"
