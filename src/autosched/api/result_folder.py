"""The result folder of a job: the compiled module, the records and the report."""

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
from msgspec import Struct, structs

from autosched import file_names, report
from autosched.api.connection import Daemon
from autosched.backend import EVALUATION, Evaluation
from autosched.errors import JobCancelled, JobFailed, RequestError
from autosched.model import IdentityFrom, JobId, JobState, Record
from autosched.process import whole_file
from autosched.protocol import Artifact, JobView
from autosched.records import identity
from autosched.wire import blob_transfer

MODULE, SIDE = ".so", ".json"
REJECTED = ".rejected.so"
"""File name suffix of a build with wrong results, kept for diagnosis."""
RECORDS, REPORT, PAGE = "records.jsonl", "report.json", "report.html"


class SavedRecord(Record, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=False):
    """A record as a line of records.jsonl."""

    identity: str = ""
    """Digest of the record's identity, which the report contains; empty if unknown."""


class Result(Struct, frozen=True):
    """A job's results on this machine."""

    report: report.Report
    folder: Path
    files: tuple[Path, ...]
    replaced: JobId | None = None
    """The other job whose results were in the folder."""

    @property
    def module(self) -> Path | None:
        """The compiled network; None if the backend makes none, or none was correct."""
        return next((path for path in self.files if is_module(path)), None)


def is_module(path: Path) -> bool:
    """Whether a file is a compiled network that was handed over."""
    return path.name.endswith(MODULE) and not path.name.endswith(REJECTED)


class _Numbered(Struct):
    job: JobId


class _Reported(Struct):
    """The job of a report of any version."""

    job: _Numbered


def check_ended(job: JobView) -> None:
    """Raise JobFailed or JobCancelled unless the job is done."""
    if job.state == JobState.CANCELLED.value:
        raise JobCancelled(
            f"job {job.job} ({job.name}) was cancelled after {job.trials} trials. Its records are kept; compile the"
            f" network with them:  autosched compile {job.job}"
        )
    if job.state == JobState.FAILED.value:
        why = job.failure.message if job.failure is not None else "no reason was given"
        raise JobFailed(f"job {job.job} ({job.name}) failed: {why}")


def prepare(output: Path) -> Path:
    """Create the output folder, or that of NAME.so, and check that it can be written. Raises RequestError with the
    reason."""
    if output.suffix == MODULE and output.is_dir():
        raise RequestError(f"{output} is a folder, not the file of a module. Choose another:  --output FILE.so")
    folder = output.parent if output.suffix == MODULE else output
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".autosched-"):
            pass
    except OSError as error:
        why = "there is a file of that name" if isinstance(error, FileExistsError) else error.strerror
        raise RequestError(
            f"the output folder {folder} cannot be written: {why}. Choose another:  --output DIR"
        ) from None
    return output.absolute()


def usual(job: JobView, who: str) -> Path:
    """The folder for a job's results if none is named. `who`: this user, as the daemon calls him.

    The place that a submission names is used for one's own jobs only: another user may name any. So may job names.
    """
    if job.output and job.owner and job.owner == who:
        return Path(job.output)
    return Path(f"{file_names.made_from(job.name)}-tuned")


async def collect(daemon: Daemon, job: JobView, output: Path) -> Result:
    """Write a job's results to a folder, or only its module to NAME.so with NAME.json; existing files are replaced.

    Raises RequestError if they cannot be written; the daemon keeps them for another try.
    """
    artifacts = await daemon.artifacts(job.job)
    gathered, records = await gather(daemon, job, artifacts)
    wanted = [artifact for artifact in artifacts if artifact.name != EVALUATION]
    folder = output
    try:
        prepare(output)
        before = _owner(output)
        if output.suffix == MODULE:
            folder = output.parent
            files = [await daemon.download(artifact, folder, name) for artifact, name in _alone(job, wanted, output)]
        else:
            files = [await daemon.download(artifact, folder) for artifact in wanted]
            files += write(folder, gathered, saved(records, gathered.job.identities))
    except OSError as error:
        why = "the disk is full" if blob_transfer.is_full_disk(error) else f"{error.strerror} ({error.filename})"
        raise RequestError(
            f"the results of job {job.job} could not be written to {folder}: {why}. Nothing is lost, the daemon keeps"
            f" them. Make room or choose another folder:  autosched attach {job.job} --output DIR"
        ) from None
    return Result(gathered, folder, tuple(files), before if before != job.job else None)


async def gather(daemon: Daemon, job: JobView, artifacts: Sequence[Artifact]) -> tuple[report.Report, Sequence[Record]]:
    """The report of an ended job, and its records. `artifacts`: those of the job."""
    evaluation = None
    for artifact in artifacts:
        if artifact.name == EVALUATION:
            evaluation = read_evaluation(await blob_transfer.fetch(daemon.link, artifact.sha256))
    source = _source(job)
    records = await daemon.records(source)
    if source != job.job:  # it has no measurements of its own
        job = structs.replace(job, identities=(await daemon.job(source)).identities)
    health = {unit.unit: unit.health for unit in await daemon.units() if unit.health}
    return report.gather(job, evaluation, records, await daemon.spans(job), health), records


async def fetch(daemon: Daemon, job: JobView, output: Path) -> Result:
    """Write the present results of a job to a folder. Raises RequestError if it has no module yet."""
    if not await daemon.artifacts(job.job):
        what = "it has ended without any" if JobState(job.state).ended else "none of its builds was faster yet"
        raise RequestError(
            f"job {job.job} has no module to fetch: {what}. Compile what it has measured:  autosched compile {job.job}"
        )
    return await collect(daemon, job, output)


def _owner(folder: Path) -> JobId | None:
    """The job whose report is in the folder; None if there is no readable one."""
    try:
        return msgspec.json.decode((folder / REPORT).read_bytes(), type=_Reported).job.job
    except (OSError, msgspec.MsgspecError):
        return None


def _alone(job: JobView, artifacts: Iterable[Artifact], output: Path) -> list[tuple[Artifact, str]]:
    """The module and its JSON file, with their names. Raises RequestError if there is no module."""
    artifacts = list(artifacts)
    for module in artifacts:
        if is_module(Path(module.name)):
            stem = module.name.removesuffix(MODULE)
            side = next((each for each in artifacts if each.name == f"{stem}{SIDE}"), None)
            return [(module, output.name)] + ([] if side is None else [(side, output.with_suffix(SIDE).name)])
    raise RequestError(
        f"job {job.job} left no {output.name}: the backend {job.backend!r} makes no module. See what it made:"
        f"  autosched attach {job.job} --output DIR"
    )


def _source(job: JobView) -> int:
    """The job whose trials were compiled: this one, unless it made none in order to use another's."""
    spec = job.spec
    return spec.records_from if job.trials == 0 and spec is not None and spec.records_from is not None else job.job


def read_evaluation(data: bytes) -> Evaluation:
    """Decode an evaluation of a backend. Raises RequestError."""
    try:
        return msgspec.json.decode(data, type=Evaluation)
    except msgspec.MsgspecError as error:
        raise RequestError(f"{EVALUATION} of the job is not an evaluation ({error}): the backend is at fault") from None


def saved(records: Iterable[Record], identities: Sequence[IdentityFrom]) -> Iterator[SavedRecord]:
    """The records to be written, each with the digest of its identity."""
    for record in records:
        known = identity.of_record(identities, record.number)
        yield SavedRecord(**structs.asdict(record), identity="" if known is None else identity.digest(known))


def write(folder: Path, gathered: report.Report, records: Iterable[SavedRecord]) -> list[Path]:
    """Write records and report, each atomically. Raises OSError."""
    lines = b"".join(msgspec.json.encode(record) + b"\n" for record in records)
    encoded = msgspec.json.format(msgspec.json.encode(gathered), indent=1)
    contents = {RECORDS: lines, REPORT: encoded, PAGE: report.page(gathered).encode()}
    return [whole_file.write(folder / name, content, durable=True) for name, content in contents.items()]
