"""`autosched db`: check, back up, restore, upgrade and prune the database of a daemon on this machine."""

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from autosched import formatting
from autosched.api.local_daemon import config_of
from autosched.cli.command_group import Group
from autosched.cli.listings import caller, seconds_of
from autosched.cli.output import data, document, say, table
from autosched.errors import Damaged, Refused
from autosched.protocol import Prune, Pruned

config_option = click.option(
    "-c", "--config", "settings", type=click.Path(path_type=Path), metavar="FILE", help="Settings file of that daemon."
)
style_option = click.option(
    "-o", "--format", "style", type=click.Choice(("table", "json")), default="table", help="Output format."
)


@click.group(cls=Group)
def db() -> None:
    """Check, back up, restore, upgrade and prune a daemon's database. Check, backup and prune also work while the
    daemon runs."""


@db.command()
@config_option
@style_option
def check(settings: Path | None, style: str) -> int:
    """Check every row, and that the result files exist. Exit code 8: something is damaged."""
    from autosched.daemon.recovery import backups
    from autosched.daemon.storage import database

    state_dir = config_of(settings).state_dir
    path = database.database(state_dir)
    backups.there(path)
    found = backups.look(path, state_dir / "blobs")
    if style == "json":
        document("check", found)
    else:
        data(f" {path}, format {found.format}")
        rows = [
            (name, f"{count:,}", str(sum(one.table == name for one in found.damage)))
            for name, count in found.rows.items()
        ]
        data(table(("TABLE", "ROWS", "DAMAGED"), rows, right=(1, 2)))
        for one in found.damage:
            data(f" ! {one.what}")
        say("Something is damaged: autosched db restore" if found.damage else "All of it is as it was written.")
    return Damaged.exit_code if found.damage else 0


@db.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_option
@style_option
def backup(file: Path | None, settings: Path | None, style: str) -> None:
    """Copy the database to FILE, by default to the daemon's own backups, and check the copy row by row."""
    from autosched.daemon.recovery import backups

    made = backups.make(config_of(settings).state_dir, file)
    if style == "json":
        return document("backup", {"path": str(made), "bytes": made.stat().st_size})
    data(str(made))
    size = formatting.size(made.stat().st_size)
    say(f"{size}; models and results are not in it: they lie in blobs/ in the state folder")


@db.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@config_option
@style_option
def restore(file: Path | None, settings: Path | None, style: str) -> None:
    """Replace the database with the backup FILE, or with the daemon's own backup of that name; without FILE, list
    these.

    Works only while the daemon does not run. The former database is kept. Jobs and records after the backup are lost.
    """
    from autosched.daemon.recovery import backups
    from autosched.daemon.storage import database

    state_dir = config_of(settings).state_dir
    if file is None:
        return _list(backups.all_of(state_dir), style)
    if not file.exists() and (own := database.backups(state_dir) / file.name).exists():
        file = own
    lock = _alone(state_dir)
    try:
        former = backups.restore(state_dir, file)
    finally:
        os.close(lock)
    if style == "json":
        return document("restore", {"restored": str(file), "former": str(former) if former is not None else None})
    data(f" {file} is the database now")
    if former is not None:
        say(f"the former one: {former}")


def _alone(state_dir: Path) -> int:
    """Lock the folder, so that no daemon starts on it meanwhile. Raises Refused if one runs."""
    from autosched.daemon import state_folder

    try:
        return state_folder.take_state_dir(state_dir)
    except state_folder.Occupied as error:
        raise Refused(f"{error.fact}; stop it first:  autosched stop") from None


def _list(found: list[Path], style: str) -> None:
    now = datetime.now(UTC).timestamp()
    if style == "json":
        return document("backups", [{"path": str(path), "bytes": path.stat().st_size} for path in found])
    rows = [
        (path.name, formatting.size(path.stat().st_size), formatting.duration(now - path.stat().st_mtime))
        for path in found
    ]
    data(table(("BACKUP", "SIZE", "AGE"), rows, right=(1, 2), give=0))
    say("Put one back:  autosched db restore FILE" if found else "There is none yet: autosched db backup")


@db.command()
@config_option
@style_option
def upgrade(settings: Path | None, style: str) -> None:
    """Upgrade the database to this version, after a backup; the daemon does the same when it starts."""
    from autosched.daemon.recovery import backups

    state_dir = config_of(settings).state_dir
    lock = _alone(state_dir)
    try:
        done = backups.upgrade(state_dir)
    finally:
        os.close(lock)
    if style == "json":
        return document("upgrade", done)
    if done.before == done.after:
        return data(f" format {done.after}: nothing to do")
    data(f" format {done.before} -> {done.after}")
    say(f"as it was before: {done.backup}")


PRUNE_S = 1_800.0
"""Maximum seconds of pruning: a snapshot of all events may have to be made first."""
NEEDS_FORCE = 5


@db.command()
@click.option(
    "--older-than",
    "older_than_s",
    callback=seconds_of,
    metavar="TIME",
    help="Jobs that ended at least this time ago, such as 90d.",
)
@click.option(
    "--keep", type=click.IntRange(0, formatting.WHOLE_MAX), metavar="N", help="Jobs except the N that ended last."
)
@click.option("--records", is_flag=True, help="Delete the records of these jobs, too.")
@click.option("--force", is_flag=True, help="Do it. Default: only print what would be removed.")
@config_option
@style_option
@click.pass_obj
def prune(
    host: str | None, older_than_s: float | None, keep: int | None, records: bool, force: bool, settings: Path | None,
    style: str,
) -> int:  # fmt: skip
    """Remove ended jobs, with their steps, results and models; a running daemon does it itself.

    Stage times and blocked candidates stay, and so do records, unless --records is given. This cannot be undone: make a
    backup first. With both --older-than and --keep, a job must fulfil both to be removed.
    """
    if older_than_s is None and keep is None:
        raise click.UsageError("nothing says which jobs. Give --older-than TIME or --keep N, such as --older-than 90d")
    wish = Prune(older_than_s=older_than_s or 0.0, keep=keep or 0, records=records, dry_run=not force)
    told = _prune(host, settings, wish)
    if style == "json":
        document("prune", told)
    else:
        measured = f"{told.records:,} records {'too' if records else 'stay'}"
        files = f"{formatting.count(told.files, 'file')} of {formatting.size(told.file_bytes)}"
        count, steps = formatting.count(len(told.jobs), "job"), formatting.count(told.steps, "step")
        data(f" {count} {'gone' if force else 'would go'} with {steps} and {files}; {measured}; {told.left} left")
        if told.more:
            say("There are more: type it again for the rest.")
    if force or not told.jobs:
        return 0
    say("Nothing is changed yet. Nothing brings it back. Do it:  autosched db prune ... --force")
    return NEEDS_FORCE


def _prune(host: str | None, settings: Path | None, wish: Prune) -> Pruned:
    """Prune through the named daemon, the one that runs on the database, or in this process."""
    from autosched.daemon import state_folder
    from autosched.daemon.access import peer_identity
    from autosched.daemon.operations import retention
    from autosched.protocol.roles import Role
    from autosched.wire import whereabouts

    if host is None or settings is not None:
        state_dir = config_of(settings).state_dir
        try:
            lock = state_folder.take_state_dir(state_dir)
        except Refused:
            host = whereabouts.read(state_dir).addresses[0]
        else:
            try:
                return retention.prune(state_dir, wish, peer_identity.user(os.getuid(), Role.OPERATOR, "no daemon"))
            finally:
                os.close(lock)
    with caller(host, timeout_s=PRUNE_S) as daemon:
        return daemon.call(wish, Pruned)
