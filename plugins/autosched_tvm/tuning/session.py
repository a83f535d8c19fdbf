"""One job on TVM: its model, its workers, and all functions of a backend except the search."""

import bisect
import hashlib
import itertools
import logging
import math
import os
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from autosched import file_names, machine
from autosched.backend import INPUTS, Baseline, Earlier, Evaluation, Lease, Network, NoteGroup, Session
from autosched.errors import DeviceLost, Hindered, ModelRejected, RequestError, StepFailed, TargetUnfit
from autosched.model import DeviceNote, Identity, JobId, JobSpec, Program, Record, TaskIndex, TaskInfo
from autosched.process import whole_file
from autosched.process.forked_workers import Died, Killed, Raised, TimedOut, WorkerError, Workers, prepare
from autosched.records import record_selection, winner
from autosched_runtime.side_file import samples_beside
from autosched_tvm import worker_messages
from autosched_tvm.build_cache import digest_of
from autosched_tvm.compile import targets, toolchain
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.device import gpu_faults
from autosched_tvm.evaluation.verification_messages import Request, VerificationResult
from autosched_tvm.evaluation.wrong_schedules import REJECTED, Wrong, mended
from autosched_tvm.granted_features import granted
from autosched_tvm.source_fingerprint import text_digest
from autosched_tvm.tuning.job_measurements import JobMeasurements
from autosched_tvm.tuning.kernel_measurer import KernelMeasurer, task_file
from autosched_tvm.tuning.options import Options, options_of
from autosched_tvm.tuning.search_method import (
    ChecksNetwork,
    RanksSchedules,
    Search,
    SearchContext,
    SearchMethod,
    Unsupported,
)
from autosched_tvm.tuning.tuner import TvmTuner
from autosched_tvm.worker_failures import gist

if TYPE_CHECKING:
    from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark

log = logging.getLogger(__name__)

TAKEN = ("evaluation.json", "report.json")
"""Reserved file names in the user's folder."""
FORMS_TIMEOUT_S = 300.0
"""Maximum time for making the forms of a model for ONNX Runtime, in seconds. A large one takes a minute to simplify."""
MEND_TIMEOUT_S = 900.0
"""Time after which no further build is started to find a wrong schedule, in seconds."""
RANKED = 1
"""Number of schedules that a job without trials takes from a ranker, and compares with the schedule by rule."""
RANKED_SHARE = 0.9
"""Share of a network's arithmetic in the tasks whose rankers such a job asks: about half of the tasks. Building and
measuring the others' schedules would take as long, for some 7 % of the gain."""
NETWORK_ROLE = "network"
"""Role of the worker that imports and compiles the network."""
CHOICES_MAX = 3
"""Maximum number of schedules per task for a compilation, in case the best does not apply."""


class TvmSession(Session):
    """Import, builds, measurements, compile and evaluation run in children; only the search runs here."""

    learns = ranks = compares = movable = parallel_profile = True

    def __init__(
        self,
        job: JobSpec,
        model: Path,
        workdir: Path,
        outdir: Path,
        device_cores: int,
        options: Options,
        method: Callable[[int], SearchMethod],
    ) -> None:
        """`method` makes the job's search method for a number of threads. Raises RequestError."""
        self.options = options
        toolchain.check_packages()
        prepare(worker_messages.PRELOAD)
        self.target = targets.resolve(job.target, max(1, device_cores))
        if device_cores and (problem := targets.refusal(self.target, granted(), "this machine's CPU")):
            raise TargetUnfit(f"{problem}, or --target auto")
        if device_cores and not machine.executable(workdir):
            raise RequestError(
                f"{workdir} is on a file system whose files may not be executed (noexec), so that no kernel built there"
                " can run. Choose another folder for the daemon's state: XDG_STATE_HOME=/path, or daemon.state_dir in"
                " its settings"
            )
        toolchain.linker(targets.triple_of(self.target))
        if targets.arch_of(self.target):
            toolchain.versions(self.target)  # tells what is missing for GPUs
        self._job, self._model, self._workdir, self._outdir = job, model, workdir, outdir
        artifacts = workdir / "artifacts"
        self._tasks_dir = workdir / "tasks"
        self._builds = workdir / "builds"
        for folder in (artifacts, self._tasks_dir, self._builds):
            shutil.rmtree(folder, ignore_errors=True)  # an earlier client of this job may have been killed in between
            folder.mkdir(parents=True, exist_ok=True)
        self.experience = JobMeasurements()
        self._workers = Workers(workdir / "logs", recycle_after=self.options.recycle_after)
        self.kernels = KernelMeasurer(self._workers, self._tasks_dir, artifacts, self.target, self.options)
        self._method_lock = threading.Lock()
        self._make_method = method
        self._method: SearchMethod | None = None
        self._imported: tuple[str, ...] = ()
        self._notes: tuple[str, ...] = ()
        self._rankers: Mapping[str, bytes] = {}
        self._ranked_tasks: frozenset[TaskIndex] = frozenset()
        """Tasks whose rankers a job without trials asks."""
        self._without_rule: tuple[str, ...] = ()
        """Workload hashes of kernels whose schedule by rule was wrong in the network."""
        self._lessons: tuple[str, ...] = ()
        self._records: tuple[Record, ...] = ()
        """Records that the network was compiled with."""
        self._opened_at = time.monotonic()
        self._samples = str(workdir / INPUTS) if job.inputs is not None else ""
        self._best_form: Sequence[worker_messages.Form] = ()
        """Form of the model that was fastest when the baseline was measured; none before."""
        self._forms: Sequence[worker_messages.Form] = (worker_messages.Form(worker_messages.AS_IT_IS, str(model)),)

    # The network's stages -----------------------------------------------------------------------------------

    def import_network(self, lease: Lease) -> Network:
        """Reads, simplifies and splits the model in a child. Raises ModelRejected."""
        found = self._take_in(self._job, self._model, self.options, self._tasks_dir, lease, own=True)
        self._imported = found.notes
        if not found.tasks_only:
            self._check_samples(lease)
            self._check_operators(lease)
            self._write_forms(lease)
        self._check_options(found.tasks, lease)
        first: dict[str, int] = {}
        for info in found.tasks:
            for group in info.groups:
                first.setdefault(group, info.task)
        wanted = [info for info in found.tasks if all(first[group] == info.task for group in info.groups)]
        self._ranked_tasks = with_most_arithmetic(found.tasks, RANKED_SHARE)
        return Network(
            tasks=found.tasks, skipped=found.skipped, batch=self.options.batch,
            default_trials=self.options.trials_per_task * len(wanted), tasks_only=found.tasks_only,
            identity=Identity(
                target=self.target, compiler=toolchain.versions(self.target), measurement=worker_messages.MEASUREMENT,
            ),
        )  # fmt: skip

    def import_tasks(self, lease: Lease) -> Network:
        """Imports the model as far as candidates need it. Raises ModelRejected."""
        found = self._take_in(self._job, self._model, self.options, self._tasks_dir, lease)
        return Network(tasks=found.tasks, batch=self.options.batch, tasks_only=found.tasks_only)

    def _write_forms(self, lease: Lease) -> None:
        """Writes the forms of the model for ONNX Runtime; only the model itself where that fails."""
        arguments = (str(self._model), str(_prepared(self._tasks_dir)), str(self._workdir / "forms"))
        try:
            self._forms = self._workers.once(
                lease, worker_messages.FORMS_LIKE, *arguments, timeout_s=min(FORMS_TIMEOUT_S, lease.timeout_s)
            )
        except Killed:
            raise
        except WorkerError as error:
            log.warning("ONNX Runtime is given the model as it is: its other forms cannot be made", exc_info=error)

    def _take_in(
        self, job: JobSpec, model: Path, options: Options, folder: Path, lease: Lease, *, own: bool = False
    ) -> worker_messages.Extracted:
        """Writes the tasks of a job's model to a folder. `own`: it is this session's job. Raises ModelRejected."""
        shapes = {name: tuple(dims) for name, dims in job.shapes.items()}
        ways = self._ways(options)
        arguments = (str(model), shapes, self.target, str(_prepared(folder)), str(folder), ways)
        cache = self.kernels.cache
        key = self._key("import", model, job.file, shapes, self.target, ways) if cache.keeps else ""
        if (note := cache.take(key, folder)) is not None:
            return msgspec.json.decode(note, type=worker_messages.Extracted)
        try:
            call = self._of_network if own else self._workers.once
            keep = own and self._compiles_next
            found: worker_messages.Extracted = call(
                lease, worker_messages.TAKE_IN, *arguments, keep, timeout_s=lease.timeout_s
            )
        except Raised as error:
            raise _rejection(error) from error
        except Died as error:
            raise ModelRejected(
                f"TVM crashed on this model: {error}. Cut the model, or export it with another opset"
            ) from error
        except WorkerError as error:
            raise StepFailed(f"import: {error}") from error
        made = {path.name: path for path in folder.iterdir() if path.is_file()}
        cache.keep(key, made, msgspec.json.encode(found).decode())
        return found

    def _check_operators(self, lease: Lease) -> None:
        """Raises ModelRejected for a network with an operator that TVM computes wrongly, or whose outputs nothing can
        check, before anything is tuned."""
        if targets.triple_of(self.target) or targets.arch_of(self.target):
            return  # the code does not run on a lane
        prepared, samples, unverified = _prepared(self._tasks_dir), self._samples, self.options.unverified
        cache, key = self.kernels.cache, ""
        if cache.keeps:
            given = _content(Path(samples)) if samples else ""
            code = text_digest("autosched_tvm.evaluation")
            key = self._key("operators", self._model, self.target, _content(prepared), given, unverified, code)
        if cache.take(key, {}) is not None:
            return
        arguments = (str(self._model), str(prepared), self.target, samples, unverified)
        try:
            self._workers.once(lease, worker_messages.CHECK_OPERATORS, *arguments, timeout_s=lease.timeout_s)
        except Killed:
            raise
        except Raised as error:
            if error.kind not in _REJECTIONS:
                log.warning("the operators were not run one by one", exc_info=error)
                return
            raise _rejection(error) from error
        except WorkerError as error:  # such as a lane without the features of the target
            log.warning("the operators were not run one by one", exc_info=error)
        else:
            cache.keep(key, {})

    def _check_samples(self, lease: Lease) -> None:
        """Raises RequestError for samples of inputs that do not fit, before anything is tuned."""
        if self._samples:
            arguments = (str(_prepared(self._tasks_dir)), self._samples)
            try:
                self._workers.once(lease, worker_messages.READ_SAMPLES, *arguments, timeout_s=lease.timeout_s)
            except Raised as error:
                raise _rejection(error) from error
            except WorkerError as error:
                raise StepFailed(f"the samples of inputs: {error}") from error

    def _check_options(self, tasks: Sequence[TaskInfo], lease: Lease) -> None:
        """Raises RequestError for options of the search that no task can use, before anything is tuned."""
        if not self._job.options:  # nothing to check, and making the method takes a while
            return
        from autosched_tvm.compile import candidate_build

        method = self._the_method(max(1, len(lease.cores)))
        if isinstance(method, ChecksNetwork):
            workloads = (candidate_build.load_task(self.kernels.task_file(task)) for task in tasks)
            method.check_network(workloads, candidate_build.load_target(self.target))

    def _the_method(self, threads: int) -> SearchMethod:
        """Returns the job's method, which is made when it is first needed."""
        with self._method_lock:
            if self._method is None:
                self._method = self._make_method(threads)
            return self._method

    def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        """Creates a search for each task of the earlier jobs and gives it that task's measurements, so that the search
        methods transfer them to this job's tasks as they do between tasks of one job. For the same workload, the best
        candidates are tried first.

        Raises RequestError for a job that was tuned without TVM.
        """
        for one in earlier:
            options = options_of(one.job, one.spec)
            folder = self._tasks_dir / "earlier" / str(one.job)
            folder.mkdir(parents=True, exist_ok=True)
            try:
                found = self._take_in(one.spec, one.model, options, folder, lease)
            except ModelRejected as error:  # it was imported by another version
                self._lessons += (f"nothing was learned from job {one.job}: {error}",)
                continue
            measured = record_selection.by_task(one.records)
            same = [info for info in found.tasks if one.workloads.get(info.task) == info.workload]
            told = [self._told(one.job, info, folder, measured.get(info.task, []), lease) for info in same]
            self._lessons += (f"learned from job {one.job}: {sum(told)} measurements of {len(same)} tasks",)

    def _told(self, job: JobId, info: TaskInfo, folder: Path, records: Sequence[Record], lease: Lease) -> int:
        """Returns the number of measurements of an earlier job's task that its search received."""
        found = [
            (record.candidate, record.latency_s) for record in records if record.candidate != worker_messages.UNTUNED
        ]
        self.experience.tell_earlier(info.workload, found)
        # under other names: an equal task of this job learns from it, and is not confused with it
        other = msgspec.structs.replace(
            info, name=f"{info.name} of job {job}", workload=f"{info.workload} of job {job}"
        )
        try:
            self._begun(other, str(task_file(folder, info.task)), 1, lease, tuned=False).update(found)
        except Unsupported:
            log.info("nothing is learned from %s, which this method does not search", other.name)
        return len(found)

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Compiles the network with the best schedules, and after a search once without any."""
        self._records = tuple(records)
        choices, cache = self._choices(), self.kernels.cache
        # the second best schedule counts only where the best does not apply; such a build is not kept
        chosen = [
            msgspec.structs.replace(one, workload=_content(Path(one.workload)), candidates=one.candidates[:1])
            for one in choices
        ]
        compilation = msgspec.structs.replace(self._compilation, model="", folder="")
        key = self._key("compile", _prepared(self._tasks_dir), compilation, chosen) if cache.keeps else ""
        if (note := cache.take(key, self._builds)) is not None:  # an earlier job had the same network and schedules
            self._notes = msgspec.json.decode(note, type=worker_messages.Compiled).notes
            return
        arguments = (self._compilation, choices)
        try:
            with _told("compile", lease.timeout_s):
                compiled = self._of_network(lease, worker_messages.COMPILE, *arguments, timeout_s=lease.timeout_s)
        finally:
            self._workers.dismiss(NETWORK_ROLE)
        self._notes = compiled.notes
        if not compiled.substitutes:
            made = [f"{build}.{ending}" for build in compiled.builds for ending in ("so", "json")]
            cache.keep(key, {name: self._builds / name for name in made}, msgspec.json.encode(compiled).decode())

    def _key(self, what: str, model: Path, *parts: object) -> str:
        """Returns the key of an artifact of a model, made by the present code, in the build cache."""
        code = text_digest("autosched_tvm.compile")
        return digest_of(what, _content(model), parts, toolchain.versions(self.target), code)

    def evaluate(self, lease: Lease) -> Evaluation:
        """Verifies and measures; leaves NAME.so and NAME.json in the output folder.

        When the tuned build is wrong, the responsible schedules are found and replaced by the next best.
        """
        from autosched_tvm.compile.side_file import side_of
        from autosched_tvm.evaluation import input_samples  # these load NumPy, which the search may not need
        from autosched_tvm.evaluation.build_comparison import evaluate

        request = self._request(lease)
        limits = lease.timeout_s, min(MEND_TIMEOUT_S, lease.timeout_s / 2, self._left_s())
        found = mended(partial(self._ask, lease), self._compilation, request, self._choices, limits)
        self._without_rule = found.without_rule
        if found.compile_notes is not None:
            self._notes = found.compile_notes
        inputs = input_samples.of(side_of(self._builds / "tuned").inputs, self._samples)[0]
        with _told("evaluate", lease.timeout_s, gpu=lease.gpu), self._benchmark(lease) as contest:
            evaluation = evaluate(
                contest, self._builds, self._forms, inputs, found.verdict, unverified=self.options.unverified
            )
        methods = self._method.notes if self._method is not None else ()
        said = [note for note in methods if isinstance(note, str)]
        groups = tuple(note for note in methods if isinstance(note, NoteGroup))
        difference = found.difference or evaluation.difference
        notes = (*self._imported, *self._lessons, *self._notes, *said, *found.notes, *evaluation.notes)
        evaluation = msgspec.structs.replace(
            evaluation, notes=notes, note_groups=groups, wrong=found.wrong, difference=difference
        )
        if evaluation.published:
            verified = evaluation.reference if evaluation.verified else ""
            self._publish(self._builds / evaluation.published, self._stem, verified)
        if found.difference is not None:
            self._publish(self._builds / REJECTED, f"{self._stem}.{REJECTED}")
        return evaluation

    def sentinel(self, lease: Lease) -> DeviceNote:
        """Runs the sentinel benchmark on the board of a lease; returns its time."""
        with _told(lease.stage, lease.timeout_s):
            self.kernels.check_board(lease)
            return self.kernels.sentinel(lease)

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        """Compiles the network with the best schedules so far."""
        self._records = tuple(records)
        arguments = (self._compilation, self._choices())
        self._child("compile", lease, worker_messages.COMPILE_AGAIN, *arguments, timeout_s=lease.timeout_s)

    def baseline(self, lease: Lease) -> Baseline | None:
        """Measures the engine that runs the model's file, in its fastest form; None where the engine cannot run it."""
        from autosched_tvm.evaluation.baseline_comparison import baseline

        limit_s = lease.timeout_s
        arguments = (str(_prepared(self._tasks_dir)), self._samples)
        inputs = self._child("baseline", lease, worker_messages.FIRST_SAMPLE, *arguments, timeout_s=limit_s)
        with _told("baseline", limit_s), self._benchmark(lease) as contest:
            found = baseline(contest, self._forms, inputs)
        if isinstance(found, str):
            log.info("there is nothing to compare with: %s", found)
            return None
        self._best_form = tuple(form for form in self._forms if form.name == found.form)
        return found

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """Measures the last compiled build beside the baseline; publishes it if it is faster and correct."""
        from autosched_tvm.compile.side_file import side_of
        from autosched_tvm.evaluation import input_samples
        from autosched_tvm.evaluation.baseline_comparison import measured

        build, limit_s = self._builds / "tuned", lease.timeout_s
        inputs = input_samples.of(side_of(build).inputs, self._samples)
        with _told("evaluate", limit_s, gpu=lease.gpu), self._benchmark(lease) as contest:
            forms = self._best_form or self._forms
            evaluation = measured(contest, build, forms, inputs[0], also_slower=self._job.names_latency)
        if not evaluation.published:
            return evaluation
        arguments = (str(build), self._request(lease), inputs)
        try:
            with _told("verify", limit_s, but="RequestError", gpu=lease.gpu):
                verdict: VerificationResult = self._workers.once(
                    lease, worker_messages.VERIFY_MODULE, *arguments, timeout_s=limit_s
                )
        except Raised as error:  # no engine computes the same network in floating point; the measurement holds
            return msgspec.structs.replace(evaluation, published="", notes=(*evaluation.notes, gist(error)))
        check = verdict.checks["tuned"]
        if check.equal:
            self._publish(build, self._stem, verdict.reference)
        return msgspec.structs.replace(
            evaluation, reference=verdict.reference, outputs_equal=check.equal, max_abs_error=check.max_abs_error,
            tolerance=check.tolerance, published="tuned" if check.equal else "", samples=verdict.samples,
            difference=check.difference, notes=(*evaluation.notes, *verdict.notes),
        )  # fmt: skip

    def _benchmark(self, lease: Lease) -> "EngineBenchmark":
        """Opens a benchmark of networks on the device of a lease."""
        from autosched_tvm.evaluation.engine_benchmark import EngineBenchmark  # it loads NumPy

        return EngineBenchmark(self._workers, lease, self.kernels.remote(lease, lease.timeout_s))

    def _request(self, lease: Lease) -> Request:
        models = tuple(form.path for form in self._forms)
        threads = max(1, len(lease.cores))
        if not lease.cores:  # the reference runs on the cores of this process
            threads = len(os.sched_getaffinity(0))
        return Request(
            models, threads, self._samples, self.options.tolerance, self.kernels.remote(lease, lease.timeout_s),
            keeps_samples=True,
        )  # fmt: skip

    def _left_s(self) -> float:
        """Returns the seconds until the job's deadline, as far as this session knows."""
        deadline_s = self._job.deadline_s
        return deadline_s - (time.monotonic() - self._opened_at) if deadline_s is not None else math.inf

    @property
    def _compilation(self) -> worker_messages.Compilation:
        ways = self._ways(self.options)
        return worker_messages.Compilation(
            str(_prepared(self._tasks_dir)), self.target, str(self._builds), self._job.name, ways.layout,
            ways.winograd, compares_kernels=self.options.tolerance is None,
            without_rule=self._without_rule, untuned=self._job.trials != 0 or self._job.records_from is not None,
        )  # fmt: skip

    def _ways(self, options: Options) -> worker_messages.Ways:
        """Returns the ways to compute a network for the job's target. Blocked layouts, Winograd's algorithm and dot
        products of integers are those of CPUs."""
        if not targets.arch_of(self.target):
            return worker_messages.Ways(options.layout.value, options.winograd, options.integers)
        layout = LayoutOption.NHWC if options.layout is LayoutOption.NHWC else LayoutOption.KEEP
        return worker_messages.Ways(layout.value)

    def _publish(self, build: Path, stem: str, verified: str = "") -> None:
        """Copies a build and its samples to the output folder, and records there what it was compiled from, and
        against what it was `verified`."""
        self._outdir.mkdir(parents=True, exist_ok=True)
        whole_file.write(self._outdir / f"{stem}.so", Path(f"{build}.so").read_bytes())
        if (samples := samples_beside(build)).exists():
            whole_file.write(samples_beside(self._outdir / stem), samples.read_bytes())
        side = msgspec.json.decode(Path(f"{build}.json").read_bytes())
        side |= {"model": self._job.model, "file": self._job.file or f"{self._job.name}.onnx", "verified": verified}
        text = msgspec.json.format(msgspec.json.encode(side), indent=2)
        whole_file.write(self._outdir / f"{stem}.json", text + b"\n")

    def tuner(self, task: TaskInfo, seed: int) -> TvmTuner:
        """Returns the search for one task."""
        return TvmTuner(task, self.kernels, self.experience, partial(self.search, task, seed))

    def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
        """Keeps the rankers for the searches that begin later."""
        self._rankers = dict(rankers)

    def first(self, task: TaskInfo, lease: Lease) -> Sequence[bytes]:
        """Returns the candidates of a task that are expected to be the fastest; none without any ranker, and for a task
        with little arithmetic."""
        return self.ranked(task, lease, RANKED) if self._rankers and task.task in self._ranked_tasks else ()

    def ranked(self, task: TaskInfo, lease: Lease, count: int) -> Sequence[bytes]:
        """Returns up to `count` candidates that are expected to be the fastest before anything is measured."""
        method = self._the_method(max(1, len(lease.cores)))
        if not isinstance(method, RanksSchedules):
            return ()
        try:
            return method.ranked(self._context(task, self.kernels.task_file(task), 1, lease), count)
        except Unsupported:  # the schedule by rule stays
            return ()

    def program(self, task: TaskInfo) -> Program:
        """Returns the task's module as TVM's JSON."""
        from autosched_tvm.compile import workload_program

        return workload_program.of_text(Path(self.kernels.task_file(task)).read_bytes())

    def kill(self, lease: Lease | None = None) -> None:
        """Kills the workers of this lease, or all."""
        self._workers.kill(lease)

    def search(self, task: TaskInfo, seed: int, lease: Lease) -> Search:
        """Begins a search for a task."""
        task_seed = 1 + (seed * 1_000_003 + int(task.workload, 16)) % (2**31 - 2)
        try:
            return self._begun(task, self.kernels.task_file(task), task_seed, lease)
        except Unsupported as error:
            raise StepFailed(f"backend {self._job.backend} cannot tune {task.name}: {error}") from error

    def _begun(self, task: TaskInfo, file: str, seed: int, lease: Lease, *, tuned: bool = True) -> Search:
        """Begins a search. Raises Unsupported."""
        method = self._the_method(max(1, len(lease.cores)))
        return method.search(self._context(task, file, seed, lease, tuned=tuned))

    def _context(self, task: TaskInfo, file: str, seed: int, lease: Lease, *, tuned: bool = True) -> SearchContext:
        """Returns a task as a search method receives it."""
        from autosched_tvm.compile import candidate_build

        workload, target = candidate_build.load_task(file), candidate_build.load_target(self.target)
        elsewhere = partial(self.experience.elsewhere, task.task) if tuned else tuple
        return SearchContext(task, workload, target, seed, max(1, len(lease.cores)), elsewhere, tuned, self._rankers)

    # Files --------------------------------------------------------------------------------------------------

    @property
    def _stem(self) -> str:
        stem = file_names.made_from(self._job.name)
        return f"{stem}_" if f"{stem}.json" in TAKEN else stem

    def _choices(self, wrong: Wrong = ()) -> list[worker_messages.TaskSchedules]:
        """Returns the best schedules of each task, without the wrong ones."""
        by_task: defaultdict[int, list[Record]] = defaultdict(list)
        for record in self._records:
            if record.best_s is not None and (record.task, record.candidate) not in wrong:
                by_task[record.task].append(record)
        choices = []
        for task, measured in sorted(by_task.items()):
            file = task_file(self._tasks_dir, task)
            measured = winner.in_order(measured)[:CHOICES_MAX]
            # records behind UNTUNED are slower than the untuned kernel
            best = list(itertools.takewhile(lambda record: record.candidate != worker_messages.UNTUNED, measured))
            if file.exists():
                candidates = tuple(record.candidate for record in best)
                choices.append(worker_messages.TaskSchedules(task, str(file), candidates, measured[0].best_s or 0.0))
        return choices

    def _ask(self, lease: Lease, what: str, function: str, *arguments: Any, timeout_s: float) -> Any:
        return self._child(what, lease, function, *arguments, timeout_s=timeout_s)

    @property
    def _compiles_next(self) -> bool:
        """Whether no search lies between the import of the network and its compilation."""
        return self._job.trials == 0

    def _of_network(self, lease: Lease, function: str, *arguments: Any, timeout_s: float) -> Any:
        """Calls a function that imports or compiles the network: in one process if one follows the other, and otherwise
        in one of its own, since a network may take gigabytes."""
        if self._compiles_next:
            return self._workers.call(NETWORK_ROLE, lease, function, *arguments, timeout_s=timeout_s)
        return self._workers.once(lease, function, *arguments, timeout_s=timeout_s)

    def _child(self, what: str, lease: Lease, function: str, *arguments: Any, timeout_s: float) -> Any:
        with _told(what, timeout_s, gpu=lease.gpu):
            return self._workers.once(lease, function, *arguments, timeout_s=timeout_s)


@contextmanager
def _told(what: str, timeout_s: float, but: str = "", *, gpu: str = "") -> Iterator[None]:
    """Raises errors of a worker as StepFailed, in words; exceptions of the kind `but` pass unchanged. On a GPU, raises
    DeviceLost for those of CUDA."""
    try:
        try:
            yield
        except (Raised, Died) as error:
            if gpu and isinstance(told := gpu_faults.of_network(error), DeviceLost):
                raise told from error
            raise
    except TimedOut as error:
        raise StepFailed(f"{what} took longer than {timeout_s:.0f} s and was ended") from error
    except Raised as error:
        if error.kind == but:
            raise
        raise StepFailed(f"{what} failed: {gist(error)}") from error
    except Died as error:
        raise StepFailed(f"{what} crashed: {error}") from error


def with_most_arithmetic(tasks: Iterable[TaskInfo], share: float) -> frozenset[TaskIndex]:
    """Returns the fewest tasks that have a share of all tasks' arithmetic in one inference."""
    descending = sorted(tasks, key=lambda info: -info.weight * info.flops)
    sums = list(itertools.accumulate(info.weight * info.flops for info in descending))
    wanted = share * sums[-1] if sums else 0.0
    return frozenset(info.task for info in descending[: bisect.bisect_left(sums, wanted) + 1])


def _content(file: Path) -> str:
    """Returns the digest of a file."""
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


def _prepared(folder: Path) -> Path:
    return folder / "prepared.onnx"  # not beside the model, which may have this name


_REJECTIONS = {"ModelRejected": ModelRejected, "OperatorRejected": ModelRejected, "RequestError": RequestError}
"""Exceptions by the names of a child's."""


def _rejection(error: Raised) -> Exception:
    """Returns the child's exception; a full disk or lack of memory says nothing about the model."""
    if kind := _REJECTIONS.get(error.kind):
        return kind(str(error))
    if error.kind in ("OSError", "MemoryError"):
        words = f"the model could not be imported now, for a reason of this machine: {gist(error)}"
        return Hindered(words) if error.kind == "OSError" else StepFailed(words)  # the model may need too much memory
    return ModelRejected(f"the model cannot be imported: {error.kind}: {gist(error)}")
