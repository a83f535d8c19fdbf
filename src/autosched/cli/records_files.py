"""`autosched records export|import|merge|prune`: moves measurements out of and into a record store."""

import contextlib
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from autosched import formatting
from autosched.api.local_daemon import catalogue, existing_store, own_store, store_url
from autosched.cli.db import NEEDS_FORCE, config_option, style_option
from autosched.cli.listings import seconds_of
from autosched.cli.output import complain, data, document, say
from autosched.cli.records import SCHEDULES_MAX, backend_option, device_option, store_option
from autosched.errors import NotFound, RequestError

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from autosched.recordstore.catalogue import Catalogue, Filter
    from autosched.recordstore.json_lines import Complain, Taken
    from autosched.recordstore.rows import Measurement, Origin
    from autosched.recordstore.store import RecordStore

GZIP = ".gz"
COMMENTS_MAX = 1_000
"""Maximum comment lines before the first record of a log."""
WRONG_SHOWN = 20
"""Maximum wrong lines of a file that are printed."""
KEPT = 10
"""Default number of schedules of each workload that `prune` keeps."""


METASCHEDULE = "metaschedule"
FORMATS = ("jsonl", "csv", "parquet", METASCHEDULE)


@click.command()
@click.argument("path", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@click.option("--as", "kind", type=click.Choice(FORMATS), help="Format. Default: what the name of the file ends with.")
@click.option("--network", default="", metavar="TEXT", help="Only networks or jobs with this text.")
@device_option
@click.option("--target", default="", metavar="TEXT", help="Only targets with this text, such as znver4.")
@backend_option
@store_option
@config_option
def export(
    path: Path, kind: str | None, network: str, device: str, target: str, backend: str, store: str,
    settings: Path | None,
) -> None:  # fmt: skip
    """Write measurements to a file.

    jsonl contains everything, and other record stores import it. csv and parquet are tables for notebooks. A file name
    that ends in .gz is compressed. metaschedule is a folder with a database for programs that use TVM.
    """
    from autosched.recordstore.catalogue import Filter

    plain = path.with_suffix("") if path.suffix == GZIP and kind not in ("parquet", METASCHEDULE) else path
    kind = kind or plain.suffix.removeprefix(".")
    if kind not in FORMATS:
        raise RequestError(
            f"the name of {path} says nothing of its format. Let it end with .jsonl, .csv or .parquet, or give --as"
        )
    wanted = Filter(network=network, device=device, target=target, backend=backend)
    part = path.with_name(f".{path.name}.part{path.suffix}")
    with catalogue(store, settings) as known:
        try:
            told = _written(known, wanted, kind, part, path)
            part.replace(path)
        finally:
            if part.is_dir():
                shutil.rmtree(part)
            part.unlink(missing_ok=True)
    say(told)


def _chosen(known: "Catalogue", wanted: "Filter") -> "Iterator[tuple[Origin, Measurement]]":
    return ((origin, one) for origin, one in known.everything() if wanted.admits(one))


def _written(known: "Catalogue", wanted: "Filter", kind: str, part: Path, path: Path) -> str:
    """Write a file or folder; returns what was written, in words."""
    from autosched.recordstore import json_lines, table_files

    if kind == METASCHEDULE:
        return _written_for_tvm(known, wanted, part, path)
    chosen = _chosen(known, wanted)
    if kind == "parquet":
        count = table_files.write_parquet(table_files.rows(chosen), table_files.COLUMNS, part)
    else:
        with json_lines.opened(part, "wb") as out:
            if kind == "csv":
                count = table_files.write_csv(table_files.rows(chosen), table_files.COLUMNS, out)
            else:
                count = json_lines.write(chosen, known.programs, out)
    return f"{count:,} measurements are in {path}"


def _written_for_tvm(known: "Catalogue", wanted: "Filter", part: Path, path: Path) -> str:
    if path.exists():
        raise RequestError(f"{path} is there already. Name a folder that is not")
    files = _formats().metaschedule
    part.mkdir()
    found = files.write(lambda: _chosen(known, wanted), known.programs, part)
    left = ", ".join(f"{count:,} {reason}" for reason, count in found.left.most_common())
    return f"{found.records:,} measurements of {found.workloads:,} workloads are in {path}" + (
        f"; left out: {left}" if left else ""
    )


def _formats() -> Any:
    """The modules for file formats of other programs on TVM. Raises RequestError."""
    try:
        from autosched_tvm import api
        from autosched_tvm.api import metaschedule, tuning_logs  # noqa: F401  (loads TVM)
    except ImportError as error:
        raise RequestError(f"such files take TVM ({error}); install it: pip install 'autosched[tvm]'") from None
    return api


@click.command("import")
@click.argument("files", type=click.Path(path_type=Path), nargs=-1, required=True)
@store_option
@config_option
def import_(files: tuple[Path, ...], store: str, settings: Path | None) -> int:
    """Import files written by `export`, here or elsewhere; databases of MetaSchedule (folders); logs of AutoTVM 0.2,
    packages of TopHub and logs of Ansor 0.6, as seeds for known workloads.

    Known schedules are not duplicated. Imported schedules are the first candidates of later searches, and count with
    their latency on this machine. Wrong lines are printed with their numbers and skipped. Exit code 2: there were some.
    """
    from autosched.recordstore.store import RecordStore

    code = 0
    url = own_store(settings, store)
    with contextlib.closing(RecordStore(url)) as target:
        for path in files:
            if not path.exists():
                raise NotFound(f"there is no file {path}")
            told = 0

            def complain_of(number: int, why: str, path: Path = path) -> None:
                nonlocal told
                told += 1
                if told <= WRONG_SHOWN:
                    complain(f"{path}:{number}: {why}")

            taken = _taken(path, target, url, complain_of)
            if taken.wrong > WRONG_SHOWN:
                complain(f"{path}: {taken.wrong - WRONG_SHOWN} more lines are wrong")
            say(f"{path}: {_told(taken)}, {taken.wrong:,} lines are wrong")
            code = RequestError.exit_code if taken.wrong else code
    return code


def _told(taken: "Taken") -> str:
    if not taken.dropped and not taken.seeded:
        return f"{taken.new:,} measurements are new, {taken.known:,} were known"
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in taken.dropped.most_common())
    words = f"{taken.new:,} new seeds for {formatting.count(taken.seeded, 'known workload')}"
    return f"{words} from {taken.lines:,} lines; left out: {dropped or 'none'}"


def _taken(path: Path, target: "RecordStore", url: "str | URL", complain_of: "Complain") -> "Taken":
    from autosched.recordstore import json_lines
    from autosched.recordstore.catalogue import Catalogue

    found: Taken
    if path.is_dir():
        files = _formats().metaschedule
        for name in (files.WORKLOADS, files.RECORDS):
            if not (path / name).is_file():
                raise NotFound(f"{path} is no database of MetaSchedule: it has no {name}")
        found = files.read(path, target, complain_of)
        return found
    if _is_log(path):
        with Catalogue(url) as known, json_lines.opened(path, "rb") as file:
            found = _formats().tuning_logs.read(file, target, known, complain_of)
        return found
    with json_lines.opened(path, "rb") as file:
        return json_lines.read(file, target, complain_of)


def _is_log(path: Path) -> bool:
    """Whether the first line of a file that is no comment is one of AutoTVM or Ansor."""
    from autosched.recordstore import json_lines

    try:
        with json_lines.opened(path, "rb") as file:
            for _ in range(COMMENTS_MAX):
                line = file.readline(json_lines.LINE_BYTES_MAX).strip()
                if line and not line.startswith(b"#"):
                    return json_lines.tuner_of(line) != ""
    except (OSError, EOFError):
        return False  # importing the file reports the reason
    return False


@click.command()
@click.argument("other", metavar="URL|FILE")
@store_option
@config_option
def merge(other: str, store: str, settings: Path | None) -> None:
    """Import all measurements of another record store, without duplicates."""
    from autosched.recordstore import json_lines
    from autosched.recordstore.store import RecordStore

    with catalogue(other) as source, contextlib.closing(RecordStore(store_url(settings, store))) as target:
        taken = json_lines.merge(source.everything(), source.programs, target)
    say(f"{taken.new:,} measurements are new, {taken.known:,} were known")


@click.command()
@click.option(
    "--older-than", "older_than_s", callback=seconds_of, metavar="TIME",
    help="Minimum age of the last measurement of a schedule, such as 90d.",
)  # fmt: skip
@click.option("--imported", is_flag=True, help="Only imported schedules that no daemon has measured.")
@click.option(
    "--keep", type=click.IntRange(0, SCHEDULES_MAX), default=KEPT, show_default=True, metavar="N",
    help="Keep the N fastest schedules of each workload, device, compiler and backend.",
)  # fmt: skip
@click.option("--force", is_flag=True, help="Do it. Default: only print what would be removed.")
@store_option
@config_option
@style_option
def prune(
    older_than_s: float | None, imported: bool, keep: int, force: bool, store: str, settings: Path | None, style: str
) -> int:
    """Delete schedules from the record store, with their measurements.

    Later jobs may try them again. The daemon's own database keeps its records: see `autosched db prune`.
    """
    from autosched.recordstore import pruning

    if older_than_s is None and not imported:
        raise click.UsageError(
            "nothing says which schedules. Give --older-than TIME, such as --older-than 90d, or --imported"
        )
    before = 0.0 if older_than_s is None else datetime.now(UTC).timestamp() - older_than_s
    wanted = pruning.Unwanted(before=before, imported=imported, keep=keep)
    gone = pruning.prune(existing_store(settings, store), wanted, dry_run=not force)
    if style == "json":
        document("prune", gone)
    else:
        verb = "are gone" if force else "would go"
        data(f" {formatting.count(gone.schedules, 'schedule')} with {gone.measurements:,} measurements {verb}")
    if force or not gone.schedules:
        return 0
    say("Nothing is changed yet. Nothing brings it back. Do it:  autosched records prune ... --force")
    return NEEDS_FORCE


@click.command()
@click.option("--job", type=click.IntRange(min=1), required=True, metavar="JOB", help="Number of the job.")
@click.option(
    "--of", "daemon", default="", metavar="HOST", help="The daemon of the job, where several have one of its number."
)
@click.option("--force", is_flag=True, help="Do it. Default: only print what would be removed.")
@store_option
@config_option
@style_option
def forget(job: int, daemon: str, force: bool, store: str, settings: Path | None, style: str) -> int:
    """Delete what one job has brought into the record store, for example one whose client measures wrongly.

    Schedules that other jobs have measured too stay, with those measurements.
    """
    from autosched.recordstore.store import RecordStore

    with contextlib.closing(RecordStore(existing_store(settings, store))) as target:
        found = [one for one in target.origins_of(job) if daemon in ("", one.name, one.detail)]
        if not found:
            raise NotFound(
                f"the record store has no measurements of job {job}. See:  autosched records list --network NAME"
            )
        if len(found) > 1:
            there = ", ".join(one.detail or one.name for one in found)
            raise RequestError(f"{len(found)} daemons have measurements of a job {job}: name one with --of: {there}")
        gone = target.forget(found[0].name, job, dry_run=not force)
    if style == "json":
        document("forget", gone)
    else:
        verb = "are gone" if force else "would go, as far as no other job has made them too"
        data(f" {gone.measurements:,} measurements of {formatting.count(gone.schedules, 'schedule')} {verb}")
    if force:
        return 0
    say(f"Nothing is changed yet. Nothing brings it back. Do it:  autosched records forget --job {job} --force")
    return NEEDS_FORCE
