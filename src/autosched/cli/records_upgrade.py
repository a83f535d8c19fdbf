"""`autosched records upgrade`: rebuilds known schedules after an upgrade of the compiler."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from autosched.cli.listings import all_numbers, caller, dry_run_option
from autosched.cli.output import complain, data, document, format_option, say, table
from autosched.cli.wait import last_view
from autosched.errors import AutoschedError, JobFailed
from autosched.model import JobId, JobSpec, JobState, Purpose, Record
from autosched.protocol import GetJob, JobView, ListJobs, RecordPage, Submit, Submitted, pagination
from autosched.wire.blocking_link import BlockingLink

if TYPE_CHECKING:
    pass

PAGE = 500
"""Maximum jobs of one request."""
LABELS = {"made-by": "records-upgrade"}
PRIORITY = -50
"""Priority of the jobs of `upgrade`, below all others."""


@click.command()
@click.option("-d", "--detach", is_flag=True, help="Submit the jobs, print their numbers, and do not wait.")
@dry_run_option
@format_option
@click.pass_obj
def upgrade(host: str | None, detach: bool, dry_run: bool, style: str) -> int:
    """Renew known schedules after an upgrade of the compiler or of autosched.

    The best schedules of each network that was tuned here are built again. If the object code is unchanged, the old
    measurement holds; only changed code is measured. Nothing is searched.
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


def networks(views: Iterable[JobView]) -> list[JobView]:
    """The last job of each tuned network, for each target, device and backend with its options."""
    found: dict[bytes, JobView] = {}
    for view in views:
        if view.spec is not None and not view.spec.external:
            found[msgspec.msgpack.encode(renewal(view, name=""), order="sorted")] = view
    return list(found.values())


def renewal(view: JobView, name: str | None = None) -> JobSpec:
    """A job that takes over the known schedules of a network, without trials."""
    spec = view.spec
    assert spec is not None
    return JobSpec(
        name=spec.name if name is None else name, model=spec.model, file=spec.file, shapes=spec.shapes,
        target=spec.target, device=spec.device, backend=spec.backend, options=spec.options, trials=0,
        priority=PRIORITY, labels=LABELS,
    )  # fmt: skip


def told_apart(records: Sequence[Record]) -> tuple[int, int, int, int]:
    """Numbers of a job's schedules: same identity, equal object code, measured again, failed."""
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
