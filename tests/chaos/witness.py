"""A backend that passes calls to another one and logs them: the log that the checker reads.

Each line is one write to a file of the job, with the machine's monotonic clock. While a step runs, it holds file locks
of its units. The kernel releases them when a process dies, so a lock that is not available shows two steps on one unit
at the same time, whatever process is being killed.
"""

import fcntl
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from autosched import backend
from autosched.backend import Built, Evaluation, Lease, Measured, Network, Session, Tuner
from autosched.model import NETWORK_TASK, JobSpec, Record, TaskIndex, TaskInfo
from packages import install

NAME = "witness"
HELPER = ".helper"
"""Suffix of the log of a job's helpers."""


def on_path(folder: Path) -> list[Path]:
    """Returns the import path for daemon and clients on which they find this backend."""
    if not (packages := folder / "packages").exists():
        install(packages, backend.GROUP, {}, **{NAME: "chaos.witness:WitnessBackend"})
    return [Path(__file__).parents[1], packages]


class Log:
    """Log of one client."""

    def __init__(self, path: Path, locks: Path) -> None:
        self._path, self._locks, self._steps = path, locks, itertools.count(1)
        self._latest: dict[TaskIndex, tuple[Lease, int]] = {}
        self.write(event="born")

    def write(self, **words: Any) -> None:
        """Writes one line in one write."""
        line = json.dumps({"pid": os.getpid(), "at": time.monotonic(), **words}).encode() + b"\n"
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, line)
        finally:
            os.close(file)

    def codes(self, task: TaskIndex, built: Sequence[Built]) -> None:
        """Logs the name of each build's object code: empty if unknown, None if it failed to build."""
        named = {one.candidate.hex(): None if one.failure else one.code for one in built}
        self.write(event="built", task=task, codes=named)

    @contextmanager
    def step(self, task: TaskIndex, lease: Lease) -> Iterator[None]:
        """Logs a step from begin to end. A step is logged anew if its client calls the backend again in it, as a select
        that cannot finish a dead client's round."""
        number, ok = self._number(task, lease), False
        with ExitStack() as held:
            others = [other for unit in lease.units if (other := held.enter_context(self._holding(unit)))]
            self.write(event="began", step=number, task=task, stage=lease.stage, units=lease.units, others=others)
            try:
                yield
                ok = True
            finally:
                self.write(event="ended", step=number, task=task, ok=ok)

    def _number(self, task: TaskIndex, lease: Lease) -> int:
        """Returns the number of the step: each ordered step has its own lease."""
        known, number = self._latest.get(task, (None, 0))
        if known is not lease:
            number = next(self._steps)
            self._latest[task] = lease, number
        return number

    @contextmanager
    def _holding(self, unit: str) -> Iterator[str]:
        """Yields other steps on the unit; expected to be none."""
        file = os.open(self._locks / unit.replace("/", "-"), os.O_RDWR | os.O_CREAT, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield os.pread(file, 20, 0).decode()
            else:
                os.pwrite(file, f"{os.getpid():<20}".encode(), 0)
                yield ""
        finally:
            os.close(file)


class WitnessBackend:
    """The entry point. Options: `log`, `locks` (a folder) and `lets` (the backend that works); all others are passed
    on."""

    api = backend.BACKEND_API

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> "WitnessSession":
        """Opens a session and logs the start of a client."""
        options = dict(job.options)
        path, locks, lets = Path(str(options.pop("log"))), Path(str(options.pop("locks"))), str(options.pop("lets"))
        log = Log(path.with_suffix(HELPER) if "--helps" in sys.argv else path, locks)
        spec = JobSpec(**{name: getattr(job, name) for name in job.__struct_fields__} | {"options": options})
        return WitnessSession(backend.load(lets).open(spec, model, workdir, outdir, device_cores), log)


class WitnessSession(Session):
    """Session of one job."""

    def __init__(self, session: Session, log: Log) -> None:
        self._session, self._log = session, log
        self.movable = session.movable

    def import_network(self, lease: Lease) -> Network:
        """Passed on."""
        with self._log.step(NETWORK_TASK, lease):
            return self._session.import_network(lease)

    def import_tasks(self, lease: Lease) -> Network:
        """Passed on."""
        return self._session.import_tasks(lease)

    def tuner(self, task: TaskInfo, seed: int) -> "WitnessTuner":
        """Returns the search of one task."""
        return WitnessTuner(self._session.tuner(task, seed), task.task, self._log)

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Passed on."""
        with self._log.step(NETWORK_TASK, lease):
            self._session.compile(records, lease)

    def evaluate(self, lease: Lease) -> Evaluation:
        """Passed on."""
        with self._log.step(NETWORK_TASK, lease):
            return self._session.evaluate(lease)

    def kill(self, lease: Lease | None = None) -> None:
        """Passed on."""
        self._session.kill(lease)


class WitnessTuner(Tuner):
    """Search of one task."""

    def __init__(self, tuner: Tuner, task: TaskIndex, log: Log) -> None:
        self._tuner, self._task, self._log = tuner, task, log

    def restore(self, records: Sequence[Record]) -> None:
        """Passed on."""
        self._tuner.restore(records)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Passed on."""
        with self._log.step(self._task, lease):
            return self._tuner.select(count, lease)

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Passes the call on and logs the object code of each build."""
        with self._log.step(self._task, lease):
            built = self._tuner.build(candidates, lease)
            self._log.codes(self._task, built)
            return built

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Passes the call on and logs each measurement."""
        return self._measured(self._tuner.profile(built, lease), built, lease)

    def default(self) -> bytes | None:
        """Passed on."""
        return self._tuner.default()

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Passes the call on and logs each measurement."""
        return self._measured(self._tuner.compare(built, lease), built, lease)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Passed on."""
        with self._log.step(self._task, lease):
            self._tuner.update(measured, lease)

    def _measured(self, answers: Iterator[Measured], built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        with self._log.step(self._task, lease):
            self._log.codes(self._task, built)
            for one in answers:
                said = {"candidate": one.candidate.hex(), "latency_s": one.latency_s, "failed": bool(one.failure)}
                self._log.write(event="measured", task=self._task, **said)
                yield one
