"""Builds, measures and compares the kernels of one job's tasks in its warm workers."""

import hashlib
import json
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from autosched.backend import Lease
from autosched.errors import DeviceLost, StepFailed, TargetUnfit
from autosched.model import DeviceNote, TaskIndex, TaskInfo
from autosched.process.forked_workers import Died, Killed, Raised, TimedOut, WorkerError, Workers
from autosched_tvm import build_cache, worker_messages
from autosched_tvm.build_cache import BuildCache
from autosched_tvm.compile import targets, toolchain
from autosched_tvm.device import gpu_faults
from autosched_tvm.tuning.options import Options
from autosched_tvm.worker_failures import gist, is_wrong_result

log = logging.getLogger(__name__)

REFERENCE_TIMEOUT_S = 120.0
"""Maximum time for running a reference, in seconds."""
UNSCHEDULED_FLOPS_MAX = 1e9
"""Maximum arithmetic of an operator whose reference has no schedule: it runs for about a second, and again in each
round. That of a larger operator has the schedule by rule, which is 50 to 100 times as fast."""
LOADED_RATIO = 6.0
"""Ratio of a build's wall time limit to its CPU time limit: other load may share the core."""
GENERIC = '{"kind": "llvm"}'
"""A target whose code each CPU of this kind runs."""
KERNEL = "kernel.so"
"""Name of a kernel in the build cache."""
REMOTE_S = 10.0
"""Additional time limit of a measurement on a board, in seconds: a kernel is uploaded first, and each call is a
message."""
FINAL_REPEAT = 2
"""Factor of the number of samples when the best candidates are compared: their median decides."""


class TooSlow(StepFailed):
    """The reference does not end in time."""


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
        self._unscheduled: dict[TaskIndex, bool] = {}
        """Whether the reference of a large operator has no schedule, after a kernel differed from that by rule: False
        if it would be too slow."""
        self._runs_by_rule: bool | None = None
        """Whether a kernel with the schedule by rule runs on the device, once a kernel had an unknown instruction."""
        self._probing = threading.Lock()
        self._boards: set[str] = set()
        """Boards that offer what the target needs, or do not say what they offer."""

    def task_file(self, task: TaskInfo) -> str:
        """Returns the path of the task in the import's folder."""
        return str(task_file(self._tasks, task.task))

    def _by_rule(self, task: TaskInfo) -> bool:
        """Returns whether the reference has the schedule by rule; otherwise it has none."""
        return task.flops > UNSCHEDULED_FLOPS_MAX and not self._unscheduled.get(task.task, False)

    def reference_file(self, task: TaskInfo) -> Path:
        """Returns the path of the kernel that `reference` builds."""
        return self._tasks / (f"{task.task}.rule.so" if self._by_rule(task) else f"{task.task}.so")

    def reference(self, task: TaskInfo, lease: Lease) -> Path:
        """Builds the kernel with whose results those of candidates are compared, once: without a schedule, or by rule
        if the operator is large. Returns its path."""
        path, by_rule = self.reference_file(task), self._by_rule(task)
        if path.exists():
            return path
        part = path.with_suffix(f".{threading.get_ident()}.part")  # a killed linker leaves a broken file
        target, timeout_s = self._reference_target, self.options.build_timeout_s
        try:
            if by_rule:
                self._call_build(worker_messages.BUILD_BY_RULE, task, part, (target,), lease, timeout_s)
            else:
                self._call_build(worker_messages.BUILD, task, part, (target, b""), lease, 4 * timeout_s)
        except Killed:
            raise
        except WorkerError as error:
            if by_rule:
                self._unscheduled[task.task] = True
                return self.reference(task, lease)
            raise StepFailed(f"{task.name} cannot be compiled even without a schedule: {gist(error)}") from error
        part.rename(path)
        return path

    def untuned(self, task: TaskInfo, artifact: Path, lease: Lease) -> str:
        """Builds the kernel with the schedule by rule at `artifact`; returns the digest of its object code.

        Raises a WorkerError.
        """
        arguments, timeout_s = (self._target,), self.options.build_timeout_s
        return self._call_build(worker_messages.BUILD_BY_RULE, task, artifact, arguments, lease, timeout_s)

    def build(self, task: TaskInfo, candidate: bytes, artifact: Path, lease: Lease) -> str:
        """Builds a shared library at `artifact`; returns the digest of its object code. Raises a WorkerError."""
        arguments, timeout_s = (self._target, candidate), self.options.build_timeout_s
        return self._call_build(worker_messages.BUILD, task, artifact, arguments, lease, timeout_s)

    @cached_property
    def _reference_target(self) -> str:
        """The target of references. Those of candidates for a GPU run on the CPU of its machine, whichever that is."""
        return GENERIC if targets.arch_of(self._target) else self._target

    def _call_build(
        self,
        function: str,
        task: TaskInfo,
        artifact: Path,
        arguments: Sequence[Any],
        lease: Lease,
        timeout_s: float,
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
        return build_cache.digest_of(function, self._content(task), *arguments, toolchain.versions(self._target))

    def _content(self, task: TaskInfo) -> str:
        """Returns the digest of the task's file."""
        if (known := self._contents.get(task.task)) is None:
            content = task_file(self._tasks, task.task).read_bytes()
            known = self._contents[task.task] = hashlib.sha256(content).hexdigest()
        return known

    def profile(self, task: TaskInfo, artifact: Path, best_s: float | None, lease: Lease) -> tuple[float, ...]:
        """Returns latencies of one call, in seconds. Raises a WorkerError."""
        plan = worker_messages.MeasurementPlan(self.options.repeat, self.options.min_repeat_ms / 1e3, best_s)
        timeout_s = self.options.run_timeout_s
        measure = partial(self._measure, task, worker_messages.PROFILE, str(artifact), plan, lease, timeout_s)
        return tuple(self._attributed(task, lease, partial(self._judged, task, measure)))

    def compare(
        self, task: TaskInfo, artifacts: Sequence[Path], best_s: float | None, lease: Lease
    ) -> list[tuple[float, ...] | str]:
        """Returns latencies of one call of each kernel, in seconds, or its error. Raises a WorkerError."""
        plan = worker_messages.MeasurementPlan(
            FINAL_REPEAT * self.options.repeat, self.options.min_repeat_ms / 1e3, best_s
        )
        names = [str(artifact) for artifact in artifacts]
        timeout_s = REFERENCE_TIMEOUT_S + FINAL_REPEAT * len(names) * self.options.run_timeout_s
        measure = partial(self._measure, task, worker_messages.COMPARE, names, plan, lease, timeout_s)
        found: list[tuple[float, ...] | str] = self._attributed(task, lease, partial(self._judged, task, measure))
        return found

    def _judged(self, task: TaskInfo, measure: Callable[[], Any]) -> Any:
        """Measures kernels. If one differs from the reference by rule, the reference has no schedule from then on,
        unless that is too slow."""
        by_rule, wrong = self._by_rule(task), None
        found: Any = ()
        try:
            found = measure()
        except Raised as error:
            if not is_wrong_result(error):
                raise
            wrong = error
        differs = wrong is not None or any(isinstance(one, str) for one in found)
        if differs and by_rule and self._unscheduled.get(task.task, True):
            log.info("a kernel of %s differs from that by rule: comparing with one without a schedule", task.name)
            self._unscheduled[task.task] = True
            try:
                return measure()
            except TooSlow:
                self._unscheduled[task.task] = False
        if wrong is not None:
            raise wrong
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
        reference = self.reference(task, lease)  # the kernel measured here may have been built on another host
        arguments = (self.task_file(task), str(reference))
        role = profile_role(lease)
        call = self._workers.call
        try:
            there = self.remote(lease, REFERENCE_TIMEOUT_S)
            call(role, lease, worker_messages.READY, *arguments, there, timeout_s=REFERENCE_TIMEOUT_S)
        except TimedOut as error:
            form = "with its schedule by rule" if self._by_rule(task) else "without a schedule"
            raise TooSlow(
                f"{task.name} runs longer than {REFERENCE_TIMEOUT_S:g} s {form}, so no candidate can be checked"
                " against it. Tune the model with a smaller batch or input"
            ) from error
        timeout_s += REMOTE_S if lease.board is not None else 0.0
        there = self.remote(lease, timeout_s)
        try:
            return call(role, lease, function, *arguments, what, plan, there, timeout_s=timeout_s)
        except Died as error:  # TVM aborts a process after an error of CUDA, even of the GPU
            if lease.gpu and isinstance(told := gpu_faults.in_words(error), DeviceLost):
                raise told from error
            raise

    def _attributed(self, task: TaskInfo, lease: Lease, measure: Callable[[], Any]) -> Any:
        """Measures kernels. One that has an instruction unknown to the CPU is the target's fault, unless the kernel by
        rule runs. Raises TargetUnfit."""
        try:
            return measure()
        except Died as error:
            if error.signal_number != signal.SIGILL or self._by_rule_runs(task, lease):
                raise
            own = targets.of_this_machine()
            better = json.dumps(own) if own.items() - json.loads(self._target).items() else "x86-64-v2"
            raise TargetUnfit(
                f"the CPU lacks an instruction that code for the target {self._target} uses: the kernel of {task.name}"
                f" with its schedule by rule ends with SIGILL, too. Submit the job again with --target '{better}'"
            ) from error

    def _by_rule_runs(self, task: TaskInfo, lease: Lease) -> bool:
        """Returns whether the kernel of a task by rule runs without SIGILL. The first task that is asked decides."""
        with self._probing:
            if self._runs_by_rule is None:
                path = self._tasks / f"{task.task}.probe.so"
                try:
                    self.untuned(task, path, lease)
                    arguments, limit_s = (self.task_file(task), str(path)), REFERENCE_TIMEOUT_S
                    self._workers.once(lease, worker_messages.READY, *arguments, None, timeout_s=limit_s)
                except Killed:
                    raise
                except WorkerError as error:
                    unknown = isinstance(error, Died) and error.signal_number == signal.SIGILL
                    self._runs_by_rule = not unknown
                else:
                    self._runs_by_rule = True
            return self._runs_by_rule

    def check_board(self, lease: Lease) -> None:
        """Compares the features of the lease's board with those of the target, once for each board. Raises a
        WorkerError, DeviceLost, and TargetUnfit."""
        there = self.remote(lease, REFERENCE_TIMEOUT_S)
        if not isinstance(there, worker_messages.Remote) or lease.units[0] in self._boards:
            return
        arguments, limit_s = (worker_messages.BOARD_FEATURES, there), self.options.run_timeout_s + REMOTE_S
        if lease.stage == "profile":  # the session continues
            found = self._workers.call(profile_role(lease), lease, *arguments, timeout_s=limit_s)
        else:
            found = self._workers.once(lease, *arguments, timeout_s=limit_s)
        if isinstance(found, str):
            log.warning("the board %s does not say what its CPU offers: %s", lease.units[0], found)
        elif problem := targets.refusal(self._target, found, f"the CPU of the board {lease.units[0]}"):
            raise TargetUnfit(problem)
        self._boards.add(lease.units[0])

    def sentinel(self, lease: Lease) -> DeviceNote:
        """Returns the present speed of a lease's board, and whether other programs run there.

        Raises a WorkerError, and DeviceLost.
        """
        arguments = str(self._tasks / "sentinel.so"), self.remote(lease, REFERENCE_TIMEOUT_S)
        function, limit_s = worker_messages.BOARD_SENTINEL, self.options.run_timeout_s + REMOTE_S
        found: DeviceNote
        if lease.stage == "profile":  # the session continues
            found = self._workers.call(profile_role(lease), lease, function, *arguments, timeout_s=limit_s)
        else:
            found = self._workers.once(lease, function, *arguments, timeout_s=limit_s)
        return found

    def remote(self, lease: Lease, lasts_s: float) -> worker_messages.Elsewhere | None:
        """Returns the GPU or the board of a lease, for work with this time limit; None: the worker runs it itself, on
        the lease's cores."""
        if lease.gpu:
            return worker_messages.OwnGpu(lease.gpu)
        if lease.board is None:
            return None
        cores, triple = targets.cores_of(self._target), targets.triple_of(self._target)
        return worker_messages.Remote(lease.board, cores, lasts_s, triple)


def profile_role(lease: Lease) -> str:
    """Returns the name of the worker that measures for a lease. Each board and each GPU has one of its own, which has
    the session with the board, or has opened the GPU."""
    return "profile" if lease.board is None and not lease.gpu else f"profile {lease.units[0]}"


def task_file(folder: Path, task: TaskIndex) -> Path:
    """Returns the path of a task in an import's folder."""
    return folder / f"{task}.json"
