"""The public interface of a backend plugin; `autosched.simple` is a shorter one.

A backend is found by its entry point in the group ``autosched.backends`` and is loaded only inside a client process,
never by the daemon. It does not schedule: the client calls one stage at a time, each on the cores of a lease. All state
that must survive a killed client is in the job's records: `Session.tuner(task, seed)` followed by
`Tuner.restore(records)` must return a tuner that can continue.
"""

import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta, Struct, structs

from autosched.errors import NotFound, RequestError
from autosched.model import (
    TASKS_MAX,
    DeviceNote,
    Failure,
    Identity,
    JobId,
    JobSpec,
    Name,
    PositiveSeconds,
    Program,
    Record,
    TaskIndex,
    TaskInfo,
    Text,
)
from autosched.plugin_registry import installed_plugins

if TYPE_CHECKING:  # imported for types only: it costs more than the rest of this module
    from importlib.metadata import EntryPoint

BACKEND_API = (2, 1)
"""(major, minor): a plugin works with this daemon if its major version is equal and its minor version is not greater.

docs/plugins.md lists the changes of each minor version.
"""

GROUP = "autosched.backends"
TUNED = "tuned"
"""Name of the timing of the build with the best schedules."""
EVALUATION = "evaluation.json"
"""Name of a result file: the answer of `Session.evaluate` as JSON. The client writes it."""

INPUTS = "inputs.npz"
"""Name of the file in a session's `workdir` with the user's samples of inputs, if the job has any."""

_UNNUMBERED = itertools.count(1)
"""Numbers for leases without a step."""


class Board(Struct, frozen=True):
    """A machine with a TVM RPC server, on which kernels run; `tvm.rpc.connect` takes these fields."""

    host: str
    port: int
    key: str
    """Changes with each step."""


class Lease(Struct, frozen=True):
    """The right to use some cores for one step. The step must stay on them, and stop by `timeout_s`."""

    stage: str
    units: tuple[str, ...]
    cores: tuple[int, ...]
    timeout_s: float
    step: int = 0
    """Number of the step that holds the lease, which distinguishes the leases of a job.

    A lease without a step, outside of a daemon's job, gets a unique negative number.
    """
    board: Board | None = None
    """The device if it is a board: the measurements of the step run on it. None: they run on this machine."""
    gpu: str = ""
    """UUID of the device if it is a GPU of this machine: the measurements of the step run on it. Empty: it is none."""

    def __post_init__(self) -> None:
        if not self.step:
            structs.force_setattr(self, "step", -next(_UNNUMBERED))


class Built(Struct, frozen=True):
    """A candidate after the build stage: a file to profile, or the reason why there is none."""

    candidate: bytes
    artifact: Path | None = None
    failure: Failure | None = None
    detail: str = ""
    build_s: float = 0.0
    code: str = ""
    """Name of the object code, as made by `model.code_name`: of equal names only one is measured. Of candidates with
    equal latency, the one with the least code wins. Empty if unknown."""


class Measured(Struct, frozen=True):
    """A candidate after the profile stage. `latency_s`: repeated measurements of one call, empty if it failed."""

    candidate: bytes
    latency_s: tuple[float, ...] = ()
    failure: Failure | None = None
    detail: str = ""
    build_s: float = 0.0
    profile_s: float = 0.0


class Skipped(Struct, frozen=True, forbid_unknown_fields=True):
    """An operator that is not tuned, with the reason."""

    name: str
    reason: str


class Baseline(Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that the user would run without autosched, measured on the job's device."""

    runtime: Name
    """Name of the engine: "ONNX Runtime"."""
    version: Text
    form: Text
    """The form of the model that it ran, the fastest of those that were tried: "with fixed shapes"."""
    median_s: PositiveSeconds
    low_s: PositiveSeconds
    high_s: PositiveSeconds
    """Bounds of the 95 % confidence interval of the median."""


class Network(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model after import: the tasks to tune."""

    tasks: Annotated[tuple[TaskInfo, ...], Meta(max_length=TASKS_MAX)]
    """Indices count from 1; task 0 is the network itself."""
    skipped: tuple[Skipped, ...] = ()
    default_trials: int = 0
    """Default number of trials for the whole network."""
    batch: int = 8
    """Candidates per round of a task."""
    tasks_only: bool = False
    """Whether there is no network that calls the tasks: nothing is compiled or evaluated."""
    identity: Identity | None = None
    """Environment of the measurements: the backend sets target and compiler as far as known, and the client adds the
    other fields."""


class Earlier(Struct, frozen=True):
    """An ended job that warm-starts another one."""

    job: JobId
    spec: JobSpec
    model: Path
    workloads: dict[TaskIndex, str]
    """`TaskInfo.workload` of each of its tasks."""
    records: tuple[Record, ...]
    """One record of each candidate that its search selected."""


NO_NUMBER = 1e308
"""Error of outputs whose difference is no finite number, or which have another shape: JSON lacks infinity."""
RIVALS = {"onnxruntime": "ONNX Runtime", "litert": "LiteRT", "pytorch": "PyTorch"}
"""Baseline engines: names of timings, and names for people. The model's file decides which one is used."""


class Timing(Struct, frozen=True):
    """Repeated latencies of one build of the network, in seconds, interleaved with those of the others."""

    name: str  # "default", TUNED, or one of RIVALS
    samples_s: tuple[float, ...]
    median_s: float
    low_s: float
    high_s: float
    """Bounds of the 95 % confidence interval of the median."""


class OperatorTime(Struct, frozen=True):
    """Time of all calls of one operator in an inference."""

    name: str
    """The description of a task: "matmul+add 128x384 by 384x384"; or a part of the virtual machine's own work."""
    schedule: str
    """Origin of the kernel's schedule: "tuned", "by rule", "default" (TVM's own), "library", "unknown"; or "virtual
    machine" for that machine's own work."""
    calls: int
    time_s: float
    """Seconds of all calls together."""


class OperatorTimes(Struct, frozen=True):
    """The distribution of the time of one inference over its operators."""

    whole_s: float
    """Latency of the network without instrumentation, in undisturbed runs."""
    rows: tuple[OperatorTime, ...]
    """The longest first."""

    @property
    def sum_s(self) -> float:
        """Sum of all rows in seconds. It is measured separately from `whole_s`, as a check of both."""
        return sum(row.time_s for row in self.rows)


class Difference(Struct, frozen=True):
    """An element of an output that differs from the reference."""

    output: str
    sample: int
    """Number of the inputs, from 0."""
    index: tuple[int, ...]
    expected: str
    """Both values as text, because JSON has neither infinities nor NaN."""
    got: str
    tolerance: float
    build: str = ""
    """The build that computed it: "tuned", or "default"."""


class WrongSchedule(Struct, frozen=True):
    """A candidate that gives wrong results in the network, although its kernel alone is correct."""

    task: TaskIndex
    candidate: bytes
    detail: str


class NoteGroup(Struct, frozen=True):
    """One note for the user about several parts of the network."""

    text: str
    about: tuple[str, ...]
    """Names of the parts."""

    @property
    def line(self) -> str:
        """The note in one line, with the name of the part or the number of parts."""
        who = self.about[0] if len(self.about) == 1 else f"{len(self.about)} operators"
        return f"{who}: {self.text}"


class Start(Struct, frozen=True):
    """The start of an engine in a process of its own, which has loaded NumPy and has the files in the cache."""

    engine: str
    """Its package, such as "onnxruntime"."""
    load_s: float
    """From the import of the engine until the network is loaded."""
    first_s: float
    """The first inference."""
    peak_bytes: int
    """Peak resident memory of the process until then, with Python and NumPy."""


class Evaluation(Struct, frozen=True):
    """The compiled network, checked and measured."""

    timings: tuple[Timing, ...]
    reference: str
    """The reference of the outputs: "ONNX Runtime 1.x" or "the untuned build"."""
    outputs_equal: bool
    max_abs_error: float
    tolerance: float
    cores: tuple[int, ...]
    published: str
    """The build that `module` contains: "tuned", or "default" if tuning did not make it faster; empty: none is correct,
    and none is handed over."""
    notes: tuple[str, ...] = ()
    form: str = ""
    """The form of the model that "onnxruntime" among the timings ran, the fastest of `forms`."""
    forms: tuple[Timing, ...] = ()
    """Latencies of ONNX Runtime with each form of the model, from a short comparison, by the form's name."""
    operators: OperatorTimes | None = None
    """Time of each operator in the published build."""
    difference: Difference | None = None
    """The largest difference of the rejected build."""
    samples: int = 1
    """Number of samples of inputs for which outputs were compared."""
    wrong: tuple[WrongSchedule, ...] = ()
    """Schedules that were removed because of their results in the network."""
    note_groups: tuple[NoteGroup, ...] = ()
    """Notes about several operators each."""
    board: str = ""
    """The device if it is a board or a GPU, on which everything was measured."""
    verified: bool = True
    """Whether the reference is another engine. If not, nothing is known about the outputs."""
    starts: tuple[Start, ...] = ()
    """That of the published build in the runtime first, then that of ONNX Runtime."""


class Tuner(ABC):
    """The search of one task: a fold over its records."""

    @abstractmethod
    def restore(self, records: Sequence[Record]) -> None:
        """Take over the records of an earlier client, one per candidate, in the order of their selection."""

    @abstractmethod
    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Select up to `count` new candidates; empty if the space is exhausted. Must not change the tuner's state."""

    @abstractmethod
    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build each candidate on the lease's cores. A candidate that fails is a Built with a failure."""

    @abstractmethod
    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure each build on the lease's device, yielding results as they arrive; failed builds are passed
        through."""

    @abstractmethod
    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Learn from a round. A candidate comes a second time if its first measurement was disturbed."""

    def default(self) -> bytes | None:
        """The candidate without any tuning; None: candidates of this task are never compared."""
        return None

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure all builds in turns, so that a disturbance of the device affects all alike. Called only if there is
        a default candidate.

        The default candidate is the last one, in `built` and in the results.
        """
        raise NotImplementedError(f"{type(self).__name__} has a default candidate, and no method compare()")


class Session(ABC):
    """One job inside a backend.

    The methods below the attributes are optional: an attribute says whether the backend has them.
    """

    learns: bool = False
    """Whether `learn` warm-starts from earlier jobs. A user who asks for it is refused otherwise."""
    ranks: bool = False
    """Whether searches begin with the order of rankers, which `take_rankers` takes and `first` asks: models that order
    the schedules of an operator family before anything is measured."""
    compares: bool = False
    """Whether there are `baseline`, `compile_early` and `evaluate_early`. Otherwise nothing is compiled before the
    search is over."""
    movable: bool = False
    """Whether candidates may be built on one host and measured on another, which needs `import_tasks`.

    `Built.artifact` is then one file, or a folder of files, and contains everything that `Tuner.profile` and
    `Tuner.compare` need, also in another session of the same job on a machine with the same processor and versions. The
    path is different there; its last part is the same. If `Network.identity` contains a target, `JobSpec.target` is set
    to it, so that a machine with another processor builds for the right one."""
    parallel_profile: bool = False
    """Whether `Tuner.profile` may be called by several threads at the same time, with different builds of one round and
    separate leases: several devices then measure a round."""

    @abstractmethod
    def import_network(self, lease: Lease) -> Network:
        """Read, simplify and split the model. Raises ModelRejected."""

    @abstractmethod
    def tuner(self, task: TaskInfo, seed: int) -> Tuner:
        """Create the search of one task. Must be cheap, because a resumed job creates all of them."""

    @abstractmethod
    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Compile the whole network with the best schedule of each task, and once without any.

        `records`: the valid ones, one per candidate. The first record of each task must be used, even if it is the
        default candidate: a fixed rule selects it among candidates that measurements cannot distinguish.
        """

    @abstractmethod
    def evaluate(self, lease: Lease) -> Evaluation:
        """Check the outputs, and measure default, tuned and reference builds in turns on the lease's cores.

        Writes the user's files to the session's output folder; the client adds `evaluation.json`.
        """

    @abstractmethod
    def kill(self, lease: Lease | None = None) -> None:
        """Kill the processes that work for a lease at once (None: for all leases); called from another thread."""

    def program(self, task: TaskInfo) -> Program | None:
        """Return the program of a task's workload, in a form that other programs read; None if there is none.

        Called after the import, for workloads whose program the record store lacks. A failure does not end the job.
        """
        return None

    def sentinel(self, lease: Lease) -> DeviceNote | None:
        """Run fixed work on the board of the lease, and return the time of the fastest of some runs; None without such
        work. Called before the stage of a step on a board, whose clock and other load cannot be read: the daemon
        compares these times. It should take 200 ms. `foreign_s`: CPU time of other programs meanwhile; None if unknown.

        Raises DeviceLost, and TargetUnfit if the board cannot run code for the job's target.
        """
        return None

    def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        """Warm-start from other jobs, before the first tuner is created; only called if the user asks for it, or for
        similar jobs. Tuners may depend on these jobs only: a client that resumes the job passes the same ones again.

        Raises RequestError for a job that is of no use.
        """
        raise self._lacks("learn")

    def take_rankers(self, rankers: Mapping[str, bytes]) -> None:
        """Take over the rankers of the job's device model in the record store, by operator family. Called at most once,
        before the first tuner is created. Rankers of another backend or version are ignored."""
        raise self._lacks("take_rankers")

    def first(self, task: TaskInfo, lease: Lease) -> Sequence[bytes]:
        """Return the candidates of a task that a ranker, or other knowledge of the backend, expects to be the fastest,
        the best first; none without any. Called for a job without trials, whose finals compare them with the
        default."""
        raise self._lacks("first")

    def baseline(self, lease: Lease) -> Baseline | None:
        """Measure the engine that the user would run otherwise, on the lease's cores; None if there is none."""
        raise self._lacks("baseline")

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        """Compile as `compile` does, during the search; a build without schedules is not needed."""
        raise self._lacks("compile_early")

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """Check the last build made during the search, and measure it in turns with the baseline.

        The timings are "tuned" and that of the baseline. A correct build that is clearly faster than the baseline is
        written to the output folder, as by `evaluate`, and `published` is "tuned"; otherwise `published` is empty. For
        a job with a latency goal (`JobSpec.latency_goal_s`, `improve_by`), the build need not be faster.
        """
        raise self._lacks("evaluate_early")

    def import_tasks(self, lease: Lease) -> Network:
        """Import the model as far as `tuner`, `build`, `profile` and `compare` need it. The tasks must equal those of
        `import_network` on the other machine."""
        raise self._lacks("import_tasks")

    def _lacks(self, method: str) -> NotImplementedError:
        return NotImplementedError(f"{type(self).__name__} promises {method}() by an attribute, and has no such method")


OPTIONAL = {
    "learns": ("learn",),
    "ranks": ("take_rankers", "first"),
    "compares": ("baseline", "compile_early", "evaluate_early"),
    "movable": ("import_tasks",),
}
"""Optional methods of a session, by the attribute that says whether they are there."""


class Backend(Protocol):
    """The object of the entry point."""

    api: tuple[int, int]

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Start one job. Files may be written below `workdir`; files in `outdir` are the user's results.

        `device_cores`: CPU cores of the device that measures; 0 if it is no CPU.

        Raises RequestError for unknown or unusable options.
        """


def available() -> "dict[str, EntryPoint]":
    """Installed backends by name. Reads metadata only; imports nothing."""
    return installed_plugins(GROUP, anew=True)


def check_name(name: str) -> None:
    """Raise NotFound unless a backend of that name is installed. Cached."""
    if name not in installed_plugins(GROUP) and name not in (names := available()):
        there = ", ".join(names) or "none"
        raise NotFound(f"no backend is named {name!r}. Installed: {there}. To add one:  pip install -e ITS_FOLDER")


def version(name: str) -> str:
    """Version of the package that provides a backend; empty if it has none."""
    entry = available().get(name)
    return entry.dist.version if entry is not None and entry.dist is not None else ""


def load(name: str) -> Backend:
    """Import a backend. Only a client process may call this. Raises NotFound, or RequestError with the reason."""
    check_name(name)
    entry = installed_plugins(GROUP)[name]
    package = entry.dist.name if entry.dist is not None else entry.module
    try:
        backend: Any = entry.load()()
    except (Exception, SystemExit) as error:  # another package may raise any exception
        raise RequestError(
            f"backend {name!r} of the package {package} cannot be loaded from {entry.value}: {type(error).__name__}:"
            f" {error}. Mend the package or remove it; see all backends with: autosched plugin list"
        ) from error
    check_api(name, getattr(backend, "api", None))
    loaded: Backend = backend
    return loaded


def check_api(name: str, api: object) -> None:
    """Raise RequestError unless a backend written for this version of the interface works here."""
    ours = ".".join(map(str, BACKEND_API))
    match api:
        case (int(major), int(minor)):
            if major == BACKEND_API[0] and minor <= BACKEND_API[1]:
                return
            raise RequestError(
                f"backend {name!r} was written for interface {major}.{minor}, this autosched has {ours}: install"
                " versions that belong together"
            )
    raise RequestError(f"backend {name!r} does not say which interface it was written for: set api = {BACKEND_API}")
