"""`autosched models list|show|train`: models that order schedules before anything is measured."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched import formatting
from autosched.api import daemon_address
from autosched.api.local_daemon import catalogue, existing_store
from autosched.cli.db import config_option
from autosched.cli.follow import interruptible
from autosched.cli.output import INTERRUPTED, data, document, format_option, listing_option, say, show
from autosched.cli.records import store_option
from autosched.errors import DaemonUnreachable, NotFound
from autosched.model import JobId
from autosched.text.tables import Column

if TYPE_CHECKING:
    from autosched.recordstore.rows import StoredRanker


def _age(trained_at: float) -> str:
    return formatting.duration(datetime.now(UTC).timestamp() - trained_at)


def _figure(name: str, *, wide: bool = False) -> Column:
    return Column(
        name.upper(), lambda row: f"{row.quality[name]:.3f}" if name in row.quality else "", right=True, wide=wide
    )


RANKERS = (
    Column("FAMILY", lambda row: row.family, least=28),
    Column("DEVICE", lambda row: row.device, least=8),
    Column("SCHEDULES", lambda row: f"{row.schedules:,}", right=True),
    Column("NETS", lambda row: f"{row.quality.get('networks', 0):.0f}", right=True),
    Column("NDCG@8", lambda row: f"{row.quality.get('ranker', 0.0):.3f}", right=True),
    _figure("random"),
    _figure("nearest", wide=True),
    _figure("linear", wide=True),
    Column("AGE", lambda row: _age(row.trained_at), right=True),
)


@click.command("list")
@store_option
@config_option
@listing_option
def list_(store: str, settings: Path | None, style: str) -> None:
    """List the models of the record store.

    NDCG@8 says how good the first eight schedules of an order are, for networks that the model has not seen; 1 is the
    best order. RANDOM, NEAREST and LINEAR are the same for orders by chance, by resemblance to the best schedule of the
    nearest shape, and by a linear model.
    """
    found = _rankers(store, settings)
    show(style, "models", RANKERS, found, id=lambda row: row.family)
    if not found and style in ("table", "wide"):
        say("There is no model yet. Train some on your records:  autosched models train")


@click.command("show")
@click.argument("family", metavar="FAMILY")
@store_option
@config_option
@format_option
def show_(family: str, store: str, settings: Path | None, style: str) -> None:
    """Show the models of one operator family."""
    found = [one for one in _rankers(store, settings) if one.family == family]
    if not found:
        raise NotFound(f"there is no model of {family!r}. See which there are:  autosched models list")
    if style == "json":
        return document("models", found)
    if style == "id":
        return data(family)
    for one in found:
        data(f" {one.family} on {one.device or 'an unknown device'}")
        data(f" trained {_age(one.trained_at)} ago on {one.schedules:,} schedules, version {one.version}")
        for name, figure in one.quality.items():
            data(f" {name:10} {figure:,.3f}" if isinstance(figure, float) else f" {name:10} {figure:,}")


@click.command()
@click.option("--all", "again", is_flag=True, help="Also those for which no fifth of the schedules is new.")
@click.option("--backend", default="autotvm", show_default=True, help="Backend whose schedules are ranked.")
@store_option
@config_option
@click.pass_obj
def train(host: str | None, again: bool, backend: str, store: str, settings: Path | None) -> int:
    """Train models on the record store: for each operator family and device, where a fifth of the schedules is new.

    A model that orders the schedules of networks that it has not seen no better than chance is not kept. This takes
    minutes of one core for each 10,000 schedules. If a daemon runs, it is a job of the lowest priority on a host lane.
    """
    from autosched.api.on_demand import connected
    from autosched.collecting import model_training

    url = existing_store(settings, store).render_as_string(hide_password=False)
    words = ["--backend", backend, *(["--all"] if again else [])]

    async def ask() -> Sequence[Mapping[str, Any]]:
        try:
            async with connected(host, start=False) as daemon:
                return await model_training.train(url, words, daemon, waiting=_waiting, progress=_progress)
        except DaemonUnreachable:
            if daemon_address.named(host) is not None:
                raise
        return await model_training.train(url, words, progress=_progress)

    trained = interruptible(ask(), "\nInterrupted. Models that were finished are kept.")
    if trained is None:
        return INTERRUPTED
    if not trained:
        say("No model is due: no fifth of the schedules is new. Train all again with --all")
    return 0


def _waiting(job: JobId) -> None:
    say(f"Waiting for a host lane as job {job}. Why:  autosched explain {job}")


def _progress(told: Mapping[str, Any]) -> None:
    if begun := told.get("begun"):
        source = f"{told['schedules']:,} schedules of {formatting.count(told['networks'], 'network')}"
        say(f"{begun} on {told['device'] or 'an unknown device'}: learning from {source} ...")
    elif unreadable := told.get("unreadable"):
        say(f"Passed over: {formatting.count(unreadable, 'workload')} of the store that this TVM cannot read")
    else:
        say(f"{told['family']}: {told['refused'] or _quality(told['quality'])}")


def _quality(quality: dict[str, float]) -> str:
    return f"NDCG@8 {quality['ranker']:.3f} over {quality['networks']} networks (chance {quality['random']:.3f})"


def _rankers(store: str, settings: Path | None) -> "list[StoredRanker]":
    with catalogue(store, settings) as known:
        return known.rankers()
