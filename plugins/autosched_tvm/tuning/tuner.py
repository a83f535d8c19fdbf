"""Tuner of one task: the search in this process, builds and measurements in workers."""

import itertools
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Queue

import msgspec

from autosched.backend import Built, Lease, Measured, Tuner
from autosched.errors import DeviceLost, StepFailed
from autosched.model import Failure, Record, TaskInfo
from autosched.process.forked_workers import Killed, WorkerError
from autosched_tvm import worker_failures, worker_messages
from autosched_tvm.tuning.job_measurements import JobMeasurements
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer
from autosched_tvm.tuning.search_method import Search

Found = tuple[bytes, Sequence[float]]
"""A candidate and its latencies in seconds, empty for a failure."""
KEPT = 3
"""Number of best candidates whose kernels are kept for the final comparison."""


class TvmTuner(Tuner):
    """Tuner of one task. The search is created by the first step that needs it, on that step's cores."""

    _numbers = itertools.count()
    """Numbers of artifacts, for all tuners: overwriting a library that a worker has loaded would crash the worker."""

    def __init__(
        self, task: TaskInfo, kernels: KernelMeasurer, experience: JobMeasurements, begin: Callable[[Lease], Search]
    ) -> None:
        """`begin` makes the search, on the cores of a lease."""
        self._task = task
        self._kernels = kernels
        self._experience = experience
        self._begin = begin
        self._heard = experience.heard(task.workload)
        self._knows_untuned = False
        self._past: list[Found] = []
        self._search: Search | None = None
        self._lock = threading.Lock()
        self._best_lock = threading.Lock()
        """Guards the fields below: several devices may measure one round at the same time."""
        self._best_s: float | None = None
        self._kept: dict[bytes, tuple[float, Built]] = {}
        """Builds of the best candidates, with their medians in seconds."""
        self._outdone: list[Built] = []
        """Builds that were among the best and may still wait for their turn in the same round."""

    # The four stages ----------------------------------------------------------------------------------------

    def restore(self, records: Sequence[Record]) -> None:
        """Stores measurements, which are replayed when the search starts."""
        found = self._searched([(record.candidate, record.latency_s) for record in records])
        self._past.extend(found)
        self._experience.tell(self._task.task, found)
        self._forget_heard(found)
        self._note_best(record.best_s for record in records)

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Returns up to `count` new candidates: the schedule by rule, the best of earlier jobs for this very workload,
        then the search's own; empty when the space is exhausted."""
        with self._lock:
            first = [*([] if self._knows_untuned else [worker_messages.UNTUNED]), *self._heard][:count]
            search = self._started(lease)
            own = search.select(count - len(first)) if len(first) < count else ()
            return [*first, *(candidate for candidate in own if candidate not in first)]

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Builds each candidate in the warm workers of the lane, one on each of its cores, in the given order."""
        self._kernels.reference(self._task, lease)
        free: Queue[Lease] = Queue()
        for core in lease.cores:
            free.put(msgspec.structs.replace(lease, cores=(core,)))
        if not lease.cores:
            free.put(lease)
        finished: list[Built] = []

        def build_one(candidate: bytes) -> Built:
            own = free.get()
            try:
                built = self._build_one(candidate, own)
            finally:
                free.put(own)
            finished.append(built)
            return built

        try:
            with ThreadPoolExecutor(free.qsize(), "build") as pool:
                return list(pool.map(build_one, candidates))  # the first error cancels what has not begun
        except StepFailed:
            self._discard(finished)
            raise

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measures each candidate in the warm worker of the device."""
        over = list(built)
        try:
            for number, one in enumerate(built):
                try:
                    measured = self._profile_one(one, lease)
                except DeviceLost:
                    over = over[:number]  # the rest is measured again
                    raise
                if measured.latency_s:
                    median_s = sorted(measured.latency_s)[len(measured.latency_s) // 2]
                    with self._best_lock:
                        self._note_best([median_s])
                        self._keep(one, median_s)
                yield measured
        finally:
            with self._best_lock:
                outdone, self._outdone = self._outdone, []
                self._discard([*over, *outdone])

    def default(self) -> bytes | None:
        """Returns the workload with the schedule by rule."""
        return worker_messages.UNTUNED

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measures all candidates in turns, in one call of the device's warm worker."""
        whole = [(one.candidate, one.artifact) for one in built if one.artifact is not None]
        started = time.monotonic()
        over = list(built)
        try:
            answers = self._kernels.compare(self._task, [artifact for _, artifact in whole], self._best_s, lease)
        except Killed:
            raise
        except DeviceLost:
            over.clear()  # all are compared again
            raise
        except WorkerError as error:
            raise StepFailed(f"the best candidates cannot be compared: {worker_failures.gist(error)}") from error
        finally:
            if over:
                kept = self._kept_builds()
                self._kept.clear()
                self._discard([*over, *kept])
        spent_s = (time.monotonic() - started) / max(1, len(whole))
        found = {candidate: answer for (candidate, _), answer in zip(whole, answers, strict=True)}
        for one in built:
            answer = found.get(one.candidate)
            if answer is None:
                yield Measured(one.candidate, (), one.failure, one.detail, one.build_s)
            elif isinstance(answer, str):
                yield Measured(one.candidate, (), Failure.WRONG_RESULT, answer, one.build_s, spent_s)
            else:
                yield Measured(one.candidate, answer, None, "", one.build_s, spent_s)

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Updates search, cost model and database."""
        with self._lock:
            found = self._searched([(one.candidate, one.latency_s) for one in measured])
            self._started(lease).update(found)
            self._experience.tell(self._task.task, found)
            self._forget_heard(found)

    # How ----------------------------------------------------------------------------------------------------

    def _started(self, lease: Lease) -> Search:
        if self._search is None:
            self._search = self._begin(lease)
            if self._past:
                self._search.update(list(self._past))
            self._past.clear()
        return self._search

    def _searched(self, measured: Sequence[Found]) -> list[Found]:
        """Returns the measurements without the schedule by rule, from which a search cannot learn."""
        found = [one for one in measured if one[0] != worker_messages.UNTUNED]
        self._knows_untuned = self._knows_untuned or len(found) < len(measured)
        return found

    def _forget_heard(self, measured: Iterable[tuple[bytes, Sequence[float]]]) -> None:
        known = {candidate for candidate, _ in measured}
        self._heard = [candidate for candidate in self._heard if candidate not in known]

    def _note_best(self, latencies_s: Iterable[float | None]) -> None:
        for latency_s in latencies_s:
            if latency_s is not None and (self._best_s is None or latency_s < self._best_s):
                self._best_s = latency_s

    def _keep(self, built: Built, median_s: float) -> None:
        """Keeps the kernels of the best candidates; `_discard` deletes the others."""
        if built.artifact is None:
            return
        self._kept[built.candidate] = median_s, built
        if len(self._kept) > KEPT:
            worst = max(self._kept, key=lambda candidate: self._kept[candidate][0])
            self._outdone.append(self._kept.pop(worst)[1])

    def _kept_builds(self) -> list[Built]:
        return [built for _, built in self._kept.values()]

    def _discard(self, built: Iterable[Built]) -> None:
        """Deletes builds that will not be measured any more."""
        kept = {built.artifact for built in self._kept_builds()}
        for one in built:
            if one.artifact is not None and one.artifact not in kept:
                one.artifact.unlink(missing_ok=True)

    def _build_one(self, candidate: bytes, lease: Lease) -> Built:
        if candidate in self._kept:
            kept = self._kept[candidate][1]
            if kept.artifact is not None and kept.artifact.exists():
                return Built(candidate, kept.artifact, code=kept.code)
        artifact = self._kernels.artifacts / f"{self._task.task}-{next(self._numbers)}.so"
        started = time.monotonic()
        failure, detail, code = None, "", ""
        try:
            if candidate == worker_messages.UNTUNED:
                code = self._kernels.untuned(self._task, artifact, lease)
            else:
                code = self._kernels.build(self._task, candidate, artifact, lease)
        except WorkerError as error:
            for left in (artifact, artifact.with_name(f"{artifact.name}.o")):
                left.unlink(missing_ok=True)
            failure, detail = worker_failures.of_build(error, self._kernels.options.build_timeout_s)
        spent_s = time.monotonic() - started
        return Built(candidate, None if failure else artifact, failure, detail, spent_s, code)

    def _profile_one(self, built: Built, lease: Lease) -> Measured:
        if built.failure is not None or built.artifact is None:
            return Measured(built.candidate, (), built.failure, built.detail, built.build_s)
        started = time.monotonic()
        latency_s: tuple[float, ...] = ()
        failure, detail = None, ""
        try:
            latency_s = self._kernels.profile(self._task, built.artifact, self._best_s, lease)
        except DeviceLost as lost:
            raise DeviceLost(str(lost), built.candidate) from lost
        except WorkerError as error:
            failure, detail = worker_failures.of_run(error, self._kernels.options.run_timeout_s)
        return Measured(built.candidate, latency_s, failure, detail, built.build_s, time.monotonic() - started)
