"""`autosched collect`: collects the tasks of many networks, and tunes them before a user needs them."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from autosched import formatting
from autosched.api import on_demand
from autosched.api.local_daemon import existing_store, own_store
from autosched.cli.db import config_option
from autosched.cli.follow import interruptible
from autosched.cli.listings import seconds_of
from autosched.cli.output import INTERRUPTED, complain, data, listing_option, say, show
from autosched.cli.records import store_option
from autosched.cli.tune import shape_option
from autosched.errors import Busy, DaemonUnreachable, ModelRejected, NotFound, RequestError, WireError
from autosched.model import DEFAULT_BACKEND
from autosched.text.tables import Column

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from autosched.collecting.collector import Importer, Outcome, Shapes
    from autosched.collecting.filler import Filler
    from autosched.collecting.usefulness import Rated
    from autosched.experiments.models import Found
    from autosched.recordstore.collected import Use
    from autosched.task_bundle import Change

AGAIN_S = 5.0
"""Seconds between attempts to reconnect to a lost daemon."""
LISTED = 50
"""Default number of tasks in a list."""
NOTES_SHOWN = 3

COLUMNS = (
    Column("WORKLOAD", lambda one: one.workload.identifier),
    Column("OPERATOR", lambda one: formatting.brief(one.workload.shape or one.workload.name), least=30),
    Column("MODELS", lambda one: str(one.models), right=True),
    Column("CALLS", lambda one: str(one.calls), right=True, wide=True),
    Column("SHARE", lambda one: f"{one.share:.2%}", right=True),
    Column("BEST", lambda one: formatting.latency(one.known.best_s).replace(" ", ""), right=True),
    Column("GFLOP/S", lambda one: formatting.gflops(one.workload.flops, one.known.best_s), right=True, wide=True),
    Column("TRIAL", lambda one: formatting.latency(one.trial_s).replace(" ", ""), right=True, wide=True),
    Column("TRIED", lambda one: str(one.known.tried), right=True),
    Column("USEFUL", lambda one: f"{one.useful:.2%}", right=True),
)


@click.command()
@click.argument("models", metavar="[MODEL|FOLDER|NAME]...", nargs=-1)
@click.option(
    "--mutate",
    "mutations",
    multiple=True,
    metavar="NAME=VALUES",
    help="Further sizes: batch=1,4,16, or resolution=0.75,1.25 (factors of height and width). Several are combined.",
)
@shape_option
@click.option(
    "--budget",
    "budget_s",
    callback=seconds_of,
    metavar="TIME",
    help="Tune the most useful tasks for this time: 30m, 2h.",
)
@click.option("--idle", is_flag=True, help="Tune them whenever the daemon is idle, until Ctrl-C.")
@click.option("--device", default="cpu", show_default=True, help="Kind of device to tune on.")
@click.option("-t", "--target", default="auto", show_default=True, help="TVM target, as in `tune`.")
@click.option(
    "-b",
    "--backend",
    default=DEFAULT_BACKEND,
    show_default=True,
    help="Target of the tasks, with its default layout.",
)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(1, 100_000),
    default=LISTED,
    show_default=True,
    help="Maximum number of tasks in the list.",
)
@store_option
@config_option
@listing_option
@click.pass_obj
def collect(
    host: str | None, models: tuple[str, ...], mutations: tuple[str, ...],
    shapes: dict[str, tuple[int, ...]], budget_s: float | None, idle: bool,
    device: str, target: str, backend: str, limit: int, store: str, settings: Path | None, style: str,
) -> int:  # fmt: skip
    """Collect the tasks of networks in the record store, each once; tune and list the most useful ones.

    MODEL is a file, a folder of files, a pattern, or a name of the zoo. Networks that were collected before are not
    imported again. Without MODEL, the collected tasks are listed. A task is the more useful to tune, the larger its
    share of the time of all networks and the less it was searched.
    """
    from autosched.collecting.collector import importer, read_changes

    if idle and budget_s is not None:
        raise RequestError("--idle has no end, and --budget is one: choose one of them")
    if not models and (mutations or shapes):
        raise RequestError("--mutate and --shape are for models that are collected now: name them")
    changes = read_changes(mutations)
    by = asyncio.run(importer(target, backend))
    code = 0
    if models:
        found = _found(models)
        code = asyncio.run(_collect(found, changes, shapes, by, own_store(settings, store)))
    tunes = idle or budget_s is not None
    if tunes and (ended := _fill(host, by, device, budget_s, own_store(settings, store))) is not None:
        return ended
    _list(by, limit, settings, store, style)
    return code


def _fill(host: str | None, by: "Importer", device: str, budget_s: float | None, store: "str | URL") -> int | None:
    """Tune collected tasks. Returns an exit code if interrupted, otherwise None."""
    from autosched.collecting.filler import Filler

    filler = Filler(by, store, device, lambda text: data(f" {text}"))
    farewell = "\nInterrupted. Measurements are in the record store; the job under way is cancelled."
    if interruptible(_filling(host, filler, budget_s), farewell) is None:
        return INTERRUPTED if budget_s is not None else 0
    done = filler.filled
    trials = f"{formatting.count(done.trials, 'trial')} in {formatting.count(done.jobs, 'job')}"
    say(f" tuned for {formatting.duration(done.took_s)}: {trials}")
    return None


async def _filling(host: str | None, filler: "Filler", budget_s: float | None) -> bool:
    """Tune for a time budget, or until interrupted; a lost daemon is reconnected to."""
    if budget_s is not None:
        async with on_demand.connected(host, told=say) as daemon:
            await filler.fill(daemon, budget_s)
        return True
    while True:
        try:
            async with on_demand.connected(host, told=say) as daemon:
                await filler.fill_while_idle(daemon)
        except (Busy, DaemonUnreachable, WireError) as error:
            say(f" the daemon is not there ({error}); once more in {AGAIN_S:g} s")
            await asyncio.sleep(AGAIN_S)


def _found(words: Sequence[str]) -> list["Found"]:
    """The networks selected by words, each once."""
    from autosched.experiments import models

    here = Path()
    found = [models.find(word, here) for word in models.expand(words, here)]
    return list({one.sha256: one for one in found}.values())


async def _collect(
    found: Sequence["Found"], changes: Sequence["Change"], shapes: "Shapes", by: "Importer", store: "str | URL"
) -> int:
    from autosched.collecting import collector

    failed, began_at = 0, time.monotonic()
    outcomes: list[Outcome] = []
    for number, model in enumerate(found, start=1):
        say(f" {number}/{len(found)} {model.label}")
        try:
            outcome = await collector.collect(model, changes, by, store, shapes)
        except (ModelRejected, RequestError) as error:
            failed += 1
            complain(f"{model.label} is left out: {error}")
            continue
        outcomes.append(outcome)
        data(f" {model.label}: {_told(outcome)}")
        for note in outcome.notes[:NOTES_SHOWN]:
            say(f"    {note}")
        if len(outcome.notes) > NOTES_SHOWN:
            say(f"    and {len(outcome.notes) - NOTES_SHOWN} more notes")
    tasks, new = (sum(getattr(outcome, name) for outcome in outcomes) for name in ("tasks", "new"))
    took = formatting.duration(time.monotonic() - began_at)
    say(f" {formatting.count(len(outcomes), 'model')} in {took}: {tasks:,} tasks, {new:,} of them new")
    return int(failed > 0)


def _told(outcome: "Outcome") -> str:
    if not outcome.sizes and not outcome.notes:
        return "collected before"
    return (
        f"{formatting.count(outcome.sizes, 'size')}, {formatting.count(outcome.tasks, 'task')},"
        f" {outcome.distinct} different, {outcome.new} new"
    )


def _list(by: "Importer", limit: int, settings: Path | None, store: str, style: str) -> None:
    """Print the most useful tasks."""
    from autosched.collecting.usefulness import rate
    from autosched.recordstore.collected import Collection

    with Collection(existing_store(settings, store)) as collection:
        uses = collection.uses(by.scope)
        if not uses:
            raise NotFound("no tasks are collected for this target and backend. Name models:  autosched collect MODELS")
        rated = rate(uses, collection.known(by.scope, by.backend, collection.threads(by.scope, by.backend)))
    show(style, "tasks", COLUMNS, rated[:limit], id=lambda one: one.workload.hash)
    if style in ("table", "wide"):
        say("\n".join(_summary(uses, rated)))


def _summary(uses: Sequence["Use"], rated: Sequence["Rated"]) -> Iterator[str]:
    """Number of tasks, number of tuned ones, and expected time for the others."""
    from autosched.collecting.filler import TRIALS

    models, networks = len({use.model for use in uses}), len({use.network for use in uses})
    sizes = f"{formatting.count(models, 'model')} in {formatting.count(networks, 'size')}"
    left = [one for one in rated if one.known.tried < TRIALS]
    yield f" {sizes}: {len(uses):,} tasks, {len(rated):,} different; {len(rated) - len(left):,} are tuned"
    if left:
        seconds = formatting.duration(sum((TRIALS - one.known.tried) * one.trial_s for one in left))
        yield f" To tune the others takes about {seconds}, with {TRIALS} trials for each"
