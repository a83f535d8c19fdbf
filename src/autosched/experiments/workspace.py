"""The folder of an experiment: one row for each ended job, its report, and the state of its separate daemon.

Rows are separate files, written atomically: after any kill, none is lost or damaged, and the next run finds them.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.config import Config
from autosched.errors import NotFound, Refused, RequestError
from autosched.experiments.definition import parse
from autosched.experiments.plan import Plan, plan
from autosched.experiments.rows import Row
from autosched.model import JobState
from autosched.process import folder_lock, whole_file

ROWS, JOBS, STATE, SOURCE, PAGE = "rows", "jobs", "state", "experiment.json", "results.html"
_ROW = msgspec.json.Decoder(Row)


class Source(Struct, frozen=True):
    """The file of an experiment, as of its last run."""

    file: str
    text: str
    quick: bool = False
    """Whether it ran in its quick size."""


class Workspace:
    """The folder of the experiment with this name."""

    def __init__(self, name: str) -> None:
        self.name, self.folder = name, root() / name

    @property
    def exists(self) -> bool:
        """Whether the experiment has run here."""
        return (self.folder / SOURCE).exists()

    def state(self, settings: str) -> Path:
        """State folder of the experiment's separate daemon with these settings."""
        return self.folder / (f"{STATE}-{settings}" if settings else STATE)

    def report(self, combination: str) -> Path:
        """Folder of the report and records of a job."""
        return self.folder / JOBS / combination

    def plan(self) -> Plan:
        """The jobs as defined at the last run. Raises RequestError if a model was removed."""
        source = self.source()
        return plan(parse(source.text, Path(source.file), quick=source.quick))

    def rows(self) -> dict[str, Row]:
        """Rows by combination. An unreadable file is ignored, and its job runs again."""
        found = {}
        for path in (self.folder / ROWS).glob("*.json"):
            try:
                row = _ROW.decode(path.read_bytes())
            except (OSError, msgspec.MsgspecError):
                continue
            found[row.combination] = row
        return found

    def rows_of(self, plan: Plan) -> dict[str, Row]:
        """Rows of the jobs of a plan, in their order, without cancelled jobs."""
        rows = self.rows()
        known = {job.combination: rows[job.combination] for job in plan.jobs if job.combination in rows}
        return {name: row for name, row in known.items() if row.state != JobState.CANCELLED.value}

    def add(self, row: Row) -> None:
        """Write a row. Raises RequestError if that fails."""
        self._write(Path(ROWS) / f"{row.combination}.json", msgspec.json.format(msgspec.json.encode(row), indent=1))

    def keep(self, source: Source) -> None:
        """Keep a copy of the file, for `status` and tables after the file was removed."""
        self._write(Path(SOURCE), msgspec.json.encode(source))

    def source(self) -> Source:
        """The file as of its last run. Raises NotFound for an experiment that has not run here."""
        try:
            return msgspec.json.decode((self.folder / SOURCE).read_bytes(), type=Source)
        except (OSError, msgspec.MsgspecError):
            there = ", ".join(known()) or "none"
            raise NotFound(
                f"no experiment {self.name!r} has run here; there are: {there}. Run one:  autosched experiment run FILE"
            ) from None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the experiment: two processes that run it would submit each job twice. Raises Refused."""
        try:
            lock = folder_lock.take(self.folder)
        except OSError as error:
            raise _unwritable(self.folder, error) from None
        if lock is None:
            raise Refused(
                f"experiment {self.name} is run by process {self.runner() or '?'} already. See how far it is:"
                f"  autosched experiment status {self.name}"
            )
        try:
            yield
        finally:
            os.close(lock)

    def write_page(self, text: str) -> None:
        """Write the page of results."""
        self._write(Path(PAGE), text.encode())

    @property
    def page(self) -> Path:
        """The page of results."""
        return self.folder / PAGE

    def runner(self) -> int | None:
        """Id of the process that runs it; None if none does."""
        return folder_lock.holder(self.folder)

    def _write(self, name: Path, content: bytes) -> None:
        path = self.folder / name
        try:
            self._make(path.parent)
            whole_file.write(path, content, durable=True)
        except OSError as error:
            raise _unwritable(path, error) from None

    def _make(self, folder: Path) -> None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise _unwritable(folder, error) from None


def root() -> Path:
    """Folder of all experiments of this user."""
    return Config().state_dir / "experiments"


def known() -> Mapping[str, Workspace]:
    """The experiments that have run here, by name."""
    names = sorted(path.parent.name for path in root().glob(f"*/{SOURCE}"))
    return {name: Workspace(name) for name in names}


def _unwritable(path: Path, error: OSError) -> RequestError:
    return RequestError(
        f"{path} cannot be written: {error.strerror}. Nothing that was measured is lost; make room, and run it again"
    )
