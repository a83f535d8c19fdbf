"""Builds, measures and compares the kernels of one job's tasks in its warm workers."""

import hashlib
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from autosched.backend import Lease
from autosched.errors import StepFailed
from autosched.model import DeviceNote, TaskIndex, TaskInfo
from autosched.process.forked_workers import Killed, TimedOut, WorkerError, Workers
from autosched_tvm import build_cache, worker_messages
from autosched_tvm.build_cache import BuildCache
from autosched_tvm.compile import targets, toolchain
from autosched_tvm.tuning.options import Options
from autosched_tvm.worker_failures import gist

REFERENCE_TIMEOUT_S = 120.0
"""Maximum time for running an operator without a schedule, in seconds."""
LOADED_RATIO = 6.0
"""Ratio of a build's wall time limit to its CPU time limit: other load may share the core."""
KERNEL = "kernel.so"
"""Name of a kernel in the build cache."""
REMOTE_S = 10.0
"""Additional time limit of a measurement on a board, in seconds: a kernel is uploaded first, and each call is a
message."""
FINAL_REPEAT = 2
"""Factor of the number of samples when the best candidates are compared: their median decides."""


class KernelMeasurer:
    """Builds and measures kernels for tuners; used from several threads."""

    def __init__(self, workers: Workers, tasks: Path, artifacts: Path, target: str, options: Options) -> None:
        """`tasks`: folder in which the import writes N.json for task N."""
        self.cache = BuildCache.of_environment()
        self.artifacts = artifacts
        self.options = options
        self._workers = workers
        self._tasks = tasks
        self._target = target
        self._contents: dict[TaskIndex, str] = {}

    def task_file(self, task: TaskInfo) -> str:
        """Returns the path of the task in the import's folder."""
        return str(task_file(self._tasks, task.task))

    def reference_file(self, task: TaskInfo) -> Path:
        """Returns the path of the kernel that `reference` builds."""
        return self._tasks / f"{task.task}.so"

    def reference(self, task: TaskInfo, lease: Lease) -> None:
        """Builds the task's kernel without a schedule, once. Candidates' results are compared with its results."""
        path = self.reference_file(task)
        if not path.exists():
            part = path.with_suffix(f".{threading.get_ident()}.part")  # a killed linker leaves a broken file
            try:
                self._build(task, b"", part, lease, 4 * self.options.build_timeout_s)
            except WorkerError as error:
                if isinstance(error, Killed):
                    raise
                raise StepFailed(f"{task.name} cannot be compiled even without a schedule: {gist(error)}") from error
            part.rename(path)

    def untuned(self, task: TaskInfo, artifact: Path, lease: Lease) -> str:
        """Builds the kernel with the schedule by rule at `artifact`; returns the digest of its object code.

        Raises a WorkerError.
        """
        arguments, timeout_s = (self._target,), self.options.build_timeout_s
        return self._call_build(worker_messages.BUILD_BY_RULE, task, artifact, arguments, lease, timeout_s)

    def build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease) -> str:
        """Builds a shared library at `artifact`; returns the digest of its object code. Raises a WorkerError."""
        return self._build(task, candidate, artifact, lease, self.options.build_timeout_s)

    def _build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease, timeout_s: float) -> str:
        return self._call_build(worker_messages.BUILD, task, artifact, (self._target, candidate), lease, timeout_s)

    def _call_build(
        self, function: str, task: TaskInfo, artifact: Path, arguments: Sequence[Any], lease: Lease, timeout_s: float
    ) -> str:
        key = self._key(function, task, arguments) if self.cache.keeps else ""
        if (known := self.cache.take(key, {KERNEL: artifact})) is not None:
            return known
        digest: str = self._workers.call(
            "build", lease, function, self.task_file(task), *arguments, str(artifact),
            timeout_s=LOADED_RATIO * timeout_s, processor_s=timeout_s, cores=lease.cores[:1],
        )  # fmt: skip
        self.cache.keep(key, {KERNEL: artifact}, digest)
        return digest

    def _key(self, function: str, task: TaskInfo, arguments: Sequence[Any]) -> str:
        """Returns the key of a kernel in the build cache, which covers everything that determines it."""
        return build_cache.digest_of(function, self._content(task), *arguments, toolchain.versions())

    def _content(self, task: TaskInfo) -> str:
        """Returns the digest of the task's file."""
        if (known := self._contents.get(task.task)) is None:
            content = task_file(self._tasks, task.task).read_bytes()
            known = self._contents[task.task] = hashlib.sha256(content).hexdigest()
        return known

    def profile(self, task: TaskInfo, artifact: Path, best_s: float | None, lease: Lease) -> tuple[float, ...]:
        """Returns latencies of one call, in seconds. Raises a WorkerError."""
        plan = worker_messages.MeasurementPlan(self.options.repeat, self.options.min_repeat_ms / 1e3, best_s)
        latency_s = self._measure(task, worker_messages.PROFILE, str(artifact), plan, lease, self.options.run_timeout_s)
        return tuple(latency_s)

    def compare(
        self, task: TaskInfo, artifacts: Sequence[Path], best_s: float | None, lease: Lease
    ) -> list[tuple[float, ...] | str]:
        """Returns latencies of one call of each kernel, in seconds, or its error. Raises a WorkerError."""
        plan = worker_messages.MeasurementPlan(
            FINAL_REPEAT * self.options.repeat, self.options.min_repeat_ms / 1e3, best_s
        )
        names = [str(artifact) for artifact in artifacts]
        timeout_s = REFERENCE_TIMEOUT_S + FINAL_REPEAT * len(names) * self.options.run_timeout_s
        found: list[tuple[float, ...] | str] = self._measure(
            task, worker_messages.COMPARE, names, plan, lease, timeout_s
        )
        return found

    def _measure(
        self,
        task: TaskInfo,
        function: str,
        what: str | list[str],
        plan: worker_messages.MeasurementPlan,
        lease: Lease,
        timeout_s: float,
    ) -> Any:
        self.reference(task, lease)  # the kernel measured here may have been built on another host
        arguments = (self.task_file(task), str(self.reference_file(task)))
        role = board_role(lease) if lease.board is not None else "profile"
        call = self._workers.call
        try:
            there = self.remote(lease, REFERENCE_TIMEOUT_S)
            call(role, lease, worker_messages.READY, *arguments, there, timeout_s=REFERENCE_TIMEOUT_S)
        except TimedOut as error:
            raise StepFailed(
                f"{task.name} runs longer than {REFERENCE_TIMEOUT_S:g} s without a schedule, so no candidate can be"
                " checked against it. Tune the model with a smaller batch or input"
            ) from error
        timeout_s += REMOTE_S if lease.board is not None else 0.0
        there = self.remote(lease, timeout_s)
        return call(role, lease, function, *arguments, what, plan, there, timeout_s=timeout_s)

    def sentinel(self, lease: Lease) -> DeviceNote:
        """Returns the present speed of a lease's board, and whether other programs run there.

        Raises a WorkerError, and DeviceLost.
        """
        arguments = str(self._tasks / "sentinel.so"), self.remote(lease, REFERENCE_TIMEOUT_S)
        function, limit_s = worker_messages.BOARD_SENTINEL, self.options.run_timeout_s + REMOTE_S
        found: DeviceNote
        if lease.stage == "profile":  # the session continues
            found = self._workers.call(board_role(lease), lease, function, *arguments, timeout_s=limit_s)
        else:
            found = self._workers.once(lease, function, *arguments, timeout_s=limit_s)
        return found

    def remote(self, lease: Lease, lasts_s: float) -> worker_messages.Remote | None:
        """Returns the board of a lease, for work with this time limit; None: the worker runs it itself, on the lease's
        cores."""
        if lease.board is None:
            return None
        cores, triple = targets.cores_of(self._target), targets.triple_of(self._target)
        return worker_messages.Remote(lease.board, cores, lasts_s, triple)


def board_role(lease: Lease) -> str:
    """Returns the name of the worker that has the session with the board of a lease."""
    return f"profile {lease.units[0]}"


def task_file(folder: Path, task: TaskIndex) -> Path:
    """Returns the path of a task in an import's folder."""
    return folder / f"{task}.json"
