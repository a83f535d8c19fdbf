"""`autosched records`: what all jobs have measured."""

import contextlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from autosched import formatting
from autosched.cli.command_group import Group
from autosched.cli.db import config_of, config_option, style_option
from autosched.cli.listings import all_numbers, caller, dry_run_option
from autosched.cli.output import complain, data, document, format_option, say, table
from autosched.cli.wait import last_view
from autosched.errors import AutoschedError, JobFailed, NotFound, RequestError
from autosched.model import JobId, JobSpec, JobState, Purpose, Record
from autosched.protocol import GetJob, JobView, ListJobs, RecordPage, Submit, Submitted, pagination
from autosched.wire.blocking_link import BlockingLink

if TYPE_CHECKING:
    from sqlalchemy.engine import URL

    from autosched.recordstore.queries import Lookup

WRONG_SHOWN = 20
"""Wrong lines of a file that are told one by one."""
PAGE = 500
"""Jobs that are asked for at once."""
LABELS = {"made-by": "records-upgrade"}
PRIORITY = -50
"""Priority of the jobs of `upgrade`: all others go first."""


@click.group(cls=Group)
def records() -> None:
    """See, share and bring up to date what all jobs have measured.

    The record store keeps the best schedules of each operator, by device, compiler and backend, and gives them to later
    jobs. See the page for users, "What is known already".
    """


@records.command()
@click.option("-d", "--detach", is_flag=True, help="Submit the jobs, print their numbers, and do not wait.")
@dry_run_option
@format_option
@click.pass_obj
def upgrade(host: str | None, detach: bool, dry_run: bool, style: str) -> int:
    """Bring known schedules up to date after an upgrade of the compiler or of autosched.

    The best schedules of each network that was tuned here are built again. Where the object code is still the same, the
    old measurement holds; only what changed is measured. Nothing is searched.
    """
    with caller(host) as daemon:
        done = all_numbers(daemon, ListJobs(limit=PAGE, state=JobState.DONE.value))
        found = networks(daemon.call(GetJob(job=job), JobView) for job in done)
        if not found:
            say("No network was tuned here. Tune one:  autosched tune MODEL.onnx")
            return 0
        if dry_run:
            return _list(found, style)
        jobs: dict[JobId, JobSpec] = {}
        for view in found:
            spec = renewal(view)
            try:
                jobs[daemon.call(Submit(spec=spec), Submitted).job] = spec
            except AutoschedError as error:  # its model may have been pruned
                complain(f"{spec.name} of job {view.job} is left out: {error}")
        if detach:
            data("\n".join(str(job) for job in jobs))
            return 0
        return _wait(daemon, jobs, style)


def _url(settings: Path | None, store: str) -> "str | URL":
    """The store that is named; without a name, that of the daemon with these settings."""
    from autosched.daemon.storage.record_projection import RECORDS
    from autosched.recordstore import opening

    if store:
        return store if "://" in store else opening.file_url(Path(store).absolute())
    config = config_of(settings)
    chosen = config.records.url
    if chosen == "off":
        raise RequestError('there is no record store: records.url is "off" in the settings. Name one with --store')
    return chosen or opening.file_url(config.state_dir / RECORDS)


def _lookup(settings: Path | None, store: str) -> "contextlib.closing[Lookup]":
    """A store that is there. Raises NotFound."""
    from autosched.recordstore import opening
    from autosched.recordstore.queries import Lookup

    url = opening.read_url(_url(settings, store))
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        raise NotFound(f"there is no record store {url.database}. Name one with --store, or tune something first")
    return contextlib.closing(Lookup(url))


store_option = click.option(
    "--store", default="", envvar="AUTOSCHED_RECORDS", metavar="URL|FILE",
    help="The record store: postgresql://USER@HOST/DATABASE, or a file. Default: that of the daemon on this machine.",
)  # fmt: skip


@records.command()
@click.argument("file", type=click.Path(path_type=Path))
@store_option
@config_option
def export(file: Path, store: str, settings: Path | None) -> None:
    """Write all measurements to a file, a line of JSON for each; .gz compresses it."""
    from autosched.recordstore import json_lines

    part = file.with_name(f".{file.name}.part{file.suffix}")
    with _lookup(settings, store) as lookup:
        try:
            with json_lines.opened(part, "wb") as out:
                count = json_lines.write(lookup.everything(), out)
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)
    say(f"{count:,} measurements are in {file}")


@records.command("import")
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
    with contextlib.closing(RecordStore(_url(settings, store))) as target:
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


@records.command()
@click.argument("other", metavar="URL|FILE")
@store_option
@config_option
def merge(other: str, store: str, settings: Path | None) -> None:
    """Take in all measurements of another record store. Nothing is doubled."""
    from autosched.recordstore import json_lines
    from autosched.recordstore.store import RecordStore

    with _lookup(None, other) as source, contextlib.closing(RecordStore(_url(settings, store))) as target:
        taken = json_lines.merge(source.everything(), target)
    say(f"{taken.new:,} measurements are new, {taken.known:,} were known")


@records.command()
@store_option
@config_option
@style_option
def stats(store: str, settings: Path | None, style: str) -> None:
    """Count what the record store has, by backend, device and compiler."""
    with _lookup(settings, store) as lookup:
        found = lookup.stats()
    if style == "json":
        return document("stats", found)
    data(
        f" {found.measurements:,} measurements ({found.imported:,} imported) of {found.schedules:,} schedules for"
        f" {found.workloads:,} workloads, from {found.jobs:,} jobs of {formatting.count(found.origins, 'database')}"
    )
    rows = [
        (f"{one.schedules:,}", f"{one.workloads:,}", one.backend, one.device, one.compiler) for one in found.holdings
    ]
    if rows:
        data(table(("SCHEDULES", "WORKLOADS", "BACKEND", "DEVICE", "COMPILER"), rows, right=(0, 1), give=4))


def networks(views: Iterable[JobView]) -> list[JobView]:
    """The last job of each network that was tuned, for each target, device and backend with its options."""
    found: dict[bytes, JobView] = {}
    for view in views:
        if view.spec is not None and not view.spec.external:
            found[msgspec.msgpack.encode(renewal(view, name=""), order="sorted")] = view
    return list(found.values())


def renewal(view: JobView, name: str | None = None) -> JobSpec:
    """The job that takes over what is known of a network, and tries nothing."""
    spec = view.spec
    assert spec is not None
    return JobSpec(
        name=spec.name if name is None else name, model=spec.model, file=spec.file, shapes=spec.shapes,
        target=spec.target, device=spec.device, backend=spec.backend, options=spec.options, trials=0,
        priority=PRIORITY, labels=LABELS,
    )  # fmt: skip


def told_apart(records: Sequence[Record]) -> tuple[int, int, int, int]:
    """Numbers of a job's schedules: unchanged circumstances, equal object code, measured anew, failed."""
    known = sum(record.purpose is Purpose.KNOWN for record in records)
    finals = [record for record in records if record.purpose in (Purpose.FINAL, Purpose.DEFAULT)]
    copied = sum(record.copied for record in finals)
    failed = sum(record.failure is not None for record in finals)
    return known, copied, len(finals) - copied - failed, failed


def _list(found: Sequence[JobView], style: str) -> int:
    if style == "json":
        document("networks", [view.spec for view in found])
    elif style == "id":
        data("\n".join(str(view.job) for view in found))
    else:
        rows = [(str(view.job), view.name, view.backend, view.device, view.target) for view in found]
        data(table(("LAST JOB", "NETWORK", "BACKEND", "DEVICE", "TARGET"), rows, right=(0,), give=4))
    return 0


def _wait(daemon: BlockingLink, jobs: dict[JobId, JobSpec], style: str) -> int:
    rows, code = [], 0
    for job, spec in jobs.items():
        view = last_view(daemon, job)
        if view.state != JobState.DONE.value:
            code = JobFailed.exit_code
            why = view.failure.message if view.failure is not None else view.state
            complain(f"{spec.name} is not up to date: {why}. See:  autosched job {job}")
            continue
        found = pagination.answered(pagination.records_of(job), lambda asked: daemon.call(asked, RecordPage))
        rows.append((job, spec.name, *told_apart(found)))
        say(f"{spec.name} is up to date")
    names = ("job", "network", "unchanged", "equal_code", "measured", "failed")
    if style == "json":
        document("networks", [dict(zip(names, row, strict=True)) for row in rows])
    elif style == "id":
        data("\n".join(str(row[0]) for row in rows))
    elif rows:
        heads = tuple(name.replace("_", " ").upper() for name in names)
        data(table(heads, [tuple(map(str, row)) for row in rows], right=(0, 2, 3, 4, 5), give=1))
    return code
