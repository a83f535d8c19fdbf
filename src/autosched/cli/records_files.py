"""`autosched records export|import|merge|prune`: what goes into a record store and out of it."""

import contextlib
from datetime import UTC, datetime
from pathlib import Path

import click

from autosched import formatting
from autosched.cli.db import NEEDS_FORCE, config_option, style_option
from autosched.cli.listings import seconds_of
from autosched.cli.output import complain, data, document, say
from autosched.cli.records import SCHEDULES_MAX, catalogue, existing, store_option, url_of
from autosched.errors import NotFound, RequestError

WRONG_SHOWN = 20
"""Wrong lines of a file that are told one by one."""
KEPT = 10
"""Schedules of each workload that `prune` keeps, unless another number is given."""


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@config_option
def export(file: Path, store: str, settings: Path | None) -> None:
    """Write all measurements to a file.

    .jsonl has everything, and other record stores take it in. .csv and .parquet are tables for notebooks. With .gz at
    the end, the file is compressed.
    """
    from autosched.recordstore import json_lines, table_files

    kind = file.with_suffix("") if file.suffix == json_lines.GZIP else file
    writers = {".jsonl": json_lines.write, ".csv": table_files.write_csv}
    if file.suffix != ".parquet" and kind.suffix not in writers:
        raise RequestError(f"the name of {file} says nothing of its format. Let it end with .jsonl, .csv or .parquet")
    part = file.with_name(f".{file.name}.part{file.suffix}")
    with catalogue(settings, store) as known:
        try:
            if file.suffix == ".parquet":
                count = table_files.write_parquet(known.everything(), part)
            else:
                with json_lines.opened(part, "wb") as out:
                    count = writers[kind.suffix](known.everything(), out)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    say(f"{count:,} measurements are in {file}")


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@store_option
@config_option
def import_(files: tuple[Path, ...], store: str, settings: Path | None) -> int:
    """Take in files that `export` wrote, here or elsewhere.

    What is known already is not doubled. Imported schedules are the first candidates of later searches: they count with
    what they measure here. A wrong line is told with its number and left out. Exit code 2: there were some.
    """
    from autosched.recordstore import json_lines
    from autosched.recordstore.store import RecordStore

    code = 0
    with contextlib.closing(RecordStore(url_of(settings, store))) as target:
        for path in files:
            if not path.is_file():
                raise NotFound(f"there is no file {path}")
            told = 0

            def complain_of(number: int, why: str, path: Path = path) -> None:
                nonlocal told
                told += 1
                if told <= WRONG_SHOWN:
                    complain(f"{path}:{number}: {why}")

            with json_lines.opened(path, "rb") as file:
                taken = json_lines.read(file, target, complain_of)
            if taken.wrong > WRONG_SHOWN:
                complain(f"{path}: {taken.wrong - WRONG_SHOWN} more lines are wrong")
            say(
                f"{path}: {taken.new:,} measurements are new, {taken.known:,} were known,"
                f" {taken.wrong:,} lines are wrong"
            )
            code = RequestError.exit_code if taken.wrong else code
    return code


@click.command()
@click.argument("other", metavar="URL|FILE")
@store_option
@config_option
def merge(other: str, store: str, settings: Path | None) -> None:
    """Take in all measurements of another record store. Nothing is doubled."""
    from autosched.recordstore import json_lines
    from autosched.recordstore.store import RecordStore

    with catalogue(None, other) as source, contextlib.closing(RecordStore(url_of(settings, store))) as target:
        taken = json_lines.merge(source.everything(), target)
    say(f"{taken.new:,} measurements are new, {taken.known:,} were known")


@click.command()
@click.option(
    "--older-than", "older_than_s", callback=seconds_of, metavar="TIME",
    help="Schedules that were last measured so long ago, such as 90d.",
)  # fmt: skip
@click.option("--imported", is_flag=True, help="Only schedules that files brought, and no daemon measured.")
@click.option(
    "--keep", type=click.IntRange(0, SCHEDULES_MAX), default=KEPT, show_default=True, metavar="N",
    help="The N fastest schedules of each workload, device, compiler and backend stay.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Do it; without, it is only said what would go.")
@store_option
@config_option
@style_option
def prune(
    older_than_s: float | None, imported: bool, keep: int, force: bool, store: str, settings: Path | None, style: str
) -> int:
    """Delete schedules from the record store, with what was measured of them.

    Later jobs may try them again. What the daemon's own database has stays: see `autosched db prune`.
    """
    from autosched.recordstore import pruning

    if older_than_s is None and not imported:
        raise click.UsageError(
            "nothing says which schedules. Give --older-than TIME, such as --older-than 90d, or --imported"
        )
    before = 0.0 if older_than_s is None else datetime.now(UTC).timestamp() - older_than_s
    wanted = pruning.Unwanted(before=before, imported=imported, keep=keep)
    gone = pruning.prune(existing(settings, store), wanted, dry_run=not force)
    if style == "json":
        document("prune", gone)
    else:
        verb = "are gone" if force else "would go"
        data(f" {formatting.count(gone.schedules, 'schedule')} with {gone.measurements:,} measurements {verb}")
    if force or not gone.schedules:
        return 0
    say("Nothing is changed yet. Nothing brings it back. Do it:  autosched records prune ... --force")
    return NEEDS_FORCE
