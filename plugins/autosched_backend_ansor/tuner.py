"""One task's tuner: the search in this process, builds and measurements in workers."""

import itertools
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from autosched.backend import Built, Lease, Measured
from autosched.errors import StepFailed
from autosched.model import Failure, Record, TaskInfo
from autosched.tvm.workers import Died, Killed, Raised, TimedOut, WorkerError

if TYPE_CHECKING:
    from autosched_backend_ansor.search import Search
    from autosched_backend_ansor.session import AnsorSession

REFERENCE_TIMEOUT_S = 120.0
"""Running an operator without a schedule may take as long."""
DETAIL_MAX = 1_000


class AnsorTuner:
    """Made cheaply: the search state is built by the first step that needs it, on that step's cores."""

    def __init__(self, session: "AnsorSession", task: TaskInfo, seed: int) -> None:
        self._session = session
        self._task = task
        self._seed = seed
        self._past: list[Record] = []
        self._search: Search | None = None
        self._lock = threading.Lock()
        self._best_s: float | None = None
        self._numbers = itertools.count()

    # The four stages ----------------------------------------------------------------------------------------

    def restore(self, records: Sequence[Record]) -> None:
        """Remember what was measured; replayed when the search starts."""
        self._past.extend(records)
        self._note_best(record.best_s for record in records)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Up to `count` new candidates; empty when the space is exhausted."""
        with self._lock:
            return self._started(lease).select(count)

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build each candidate in the warm worker of the lane."""
        self._session.reference(self._task, lease)
        built: list[Built] = []
        try:
            built.extend(self._build_one(candidate, lease) for candidate in candidates)
        except StepFailed:
            _discard(built)
            raise
        return built

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure each in the warm worker of the device."""
        try:
            for one in built:
                measured = self._profile_one(one, lease)
                if measured.latency_s:
                    self._note_best([sorted(measured.latency_s)[len(measured.latency_s) // 2]])
                yield measured
        finally:
            _discard(built)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Feed search, cost model and database."""
        with self._lock:
            self._started(lease).update([(one.candidate, one.latency_s) for one in measured])

    # How ----------------------------------------------------------------------------------------------------

    def _started(self, lease: Lease) -> "Search":
        if self._search is None:
            self._search = self._session.search(self._task, self._seed, lease)
            if past := [(record.candidate, record.latency_s) for record in self._past]:
                self._search.update(past)
            self._past.clear()
        return self._search

    def _note_best(self, latencies_s: Iterable[float | None]) -> None:
        for latency_s in latencies_s:
            if latency_s is not None and (self._best_s is None or latency_s < self._best_s):
                self._best_s = latency_s

    def _build_one(self, candidate: bytes, lease: Lease) -> Built:
        artifact = self._session.artifacts / f"{self._task.task}-{next(self._numbers)}.so"
        started = time.monotonic()
        failure, detail = None, ""
        try:
            self._session.build(self._task, candidate, artifact, lease)
        except WorkerError as error:
            for left in (artifact, artifact.with_name(f"{artifact.name}.o")):
                left.unlink(missing_ok=True)
            failure, detail = _build_failure(error, self._session.options.build_timeout_s)
        spent_s = time.monotonic() - started
        return Built(candidate, None if failure else artifact, failure, detail, spent_s)

    def _profile_one(self, built: Built, lease: Lease) -> Measured:
        if built.failure is not None or built.artifact is None:
            return Measured(built.candidate, (), built.failure, built.detail, built.build_s)
        started = time.monotonic()
        latency_s: tuple[float, ...] = ()
        failure, detail = None, ""
        try:
            latency_s = self._session.profile(self._task, built.artifact, self._best_s, lease)
        except WorkerError as error:
            failure, detail = _run_failure(error, self._session.options.run_timeout_s)
        finally:
            _discard([built])
        return Measured(built.candidate, latency_s, failure, detail, built.build_s, time.monotonic() - started)


def _discard(built: Iterable[Built]) -> None:
    """Delete what nobody will measure any more."""
    for one in built:
        if one.artifact is not None:
            one.artifact.unlink(missing_ok=True)


def _build_failure(error: WorkerError, timeout_s: float) -> tuple[Failure, str]:
    match error:
        case Killed():
            raise error
        case TimedOut():
            return Failure.BUILD_TIMEOUT, f"not compiled within {timeout_s:g} s of processor time"
        case Died():
            return Failure.BUILD_CRASH, f"the compiler crashed: {error}"[:DETAIL_MAX]
        case Raised():
            if _disk_full(error):
                raise StepFailed(f"nothing can be built: {gist(error)}. Free some space, then submit the job again")
            return Failure.BUILD_ERROR, gist(error)
    return Failure.BUILD_ERROR, gist(error)


def _run_failure(error: WorkerError, timeout_s: float) -> tuple[Failure, str]:
    match error:
        case Killed():
            raise error
        case TimedOut():
            return Failure.RUN_TIMEOUT, f"not measured within {timeout_s:g} s"
        case Died():
            return Failure.RUN_CRASH, f"the kernel crashed: {error}"[:DETAIL_MAX]
        case Raised(kind="WrongResult"):
            return Failure.WRONG_RESULT, gist(error)
    return Failure.RUN_ERROR, gist(error)


def _disk_full(error: Raised) -> bool:
    return "No space left on device" in str(error)


def gist(error: Exception) -> str:
    """The line of an error that says what happened."""
    lines = [line.strip() for line in str(error).strip().splitlines() if line.strip()]
    return (lines[-1] if lines else type(error).__name__)[:DETAIL_MAX]
