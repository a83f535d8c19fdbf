"""The public interface that a backend plugin implements; `autosched.simple` is a shorter one.

A backend is found by its entry point in the group ``autosched.backends`` and is loaded only inside a client process,
never by the daemon. It knows nothing of scheduling: the client asks it to run one stage at a time, each on the cores
of a lease, and it answers. State that must survive a killed client is the job's records and nothing else:
`Session.tuner(task, seed)` followed by `Tuner.restore(records)` must give a tuner that can go on.
"""

import itertools
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol

from msgspec import Meta, Struct, structs

from autosched.errors import NotFound, RequestError
from autosched.model import (
    EARLIER_MAX,
    TASKS_MAX,
    DeviceNote,
    Failure,
    Identity,
    JobId,
    JobSpec,
    Name,
    Program,
    Record,
    Seconds,
    StepId,
    TaskIndex,
    TaskInfo,
    Text,
)
from autosched.plugin_registry import installed_plugins

if TYPE_CHECKING:  # its import costs more than the rest of this module, and most readers of it need types only
    from importlib.metadata import EntryPoint

BACKEND_API = (1, 7)
"""(major, minor): a plugin works with this daemon when its major is equal and its minor is not greater.

docs/plugins.md tells what each minor brought.
"""

GROUP = "autosched.backends"
TUNED = "tuned"
"""Name of the timing of the build with the best schedules."""
PositiveSeconds = Annotated[float, Meta(gt=0, le=1e6)]
EVALUATION = "evaluation.json"
"""Among a job's results: what `Session.evaluate` answered, as JSON. The client writes it."""

INPUTS = "inputs.npz"
"""Name of the file, in a session's `workdir`, with the user's samples of inputs, where the job has any. Since 1.5."""

_UNNUMBERED = itertools.count(1)
"""Numbers for leases that are made without a step."""


class Board(Struct, frozen=True):
    """A machine with a TVM RPC server, where kernels run for this one; `tvm.rpc.connect` takes these. Since 1.7."""

    host: str
    port: int
    key: str
    """It changes with the step."""


class Lease(Struct, frozen=True):
    """The right to use some cores for one step. Stay on them; stop by `timeout_s`."""

    stage: str
    units: tuple[str, ...]
    cores: tuple[int, ...]
    timeout_s: float
    step: int = 0
    """Number of the step that holds it, which tells the leases of a job apart. Since 1.6.

    A lease that is made without one, outside of a daemon's job, gets a negative number of its own.
    """
    board: Board | None = None
    """The device where it is a board: nothing of the step's measurements runs on this machine. None: it is this
    machine. Since 1.7."""

    def __post_init__(self) -> None:
        if not self.step:
            structs.force_setattr(self, "step", -next(_UNNUMBERED))


class Built(Struct, frozen=True):
    """One candidate after the build stage: a file to profile, or the reason why there is none."""

    candidate: bytes
    artifact: Path | None = None
    failure: Failure | None = None
    detail: str = ""
    build_s: float = 0.0
    code: str = ""
    """Name of the object code that will be run, as `model.code_name` makes it: of equal names one is measured. Of
    candidates that are as fast, that with the least code wins. Empty: not told. Since 1.7."""


class Measured(Struct, frozen=True):
    """One candidate after the profile stage. `latency_s`: repeated measurements of one call, empty when it failed."""

    candidate: bytes
    latency_s: tuple[float, ...] = ()
    failure: Failure | None = None
    detail: str = ""
    build_s: float = 0.0
    profile_s: float = 0.0


class Skipped(Struct, frozen=True, forbid_unknown_fields=True):
    """An operator that is not tuned, and why."""

    name: str
    reason: str


class Baseline(Struct, frozen=True, forbid_unknown_fields=True):
    """The engine that the network's user would run without autosched, measured on the job's device. Since 1.5."""

    runtime: Name
    """Its name: "ONNX Runtime"."""
    version: Text
    form: Text
    """The form of the model that it ran, the fastest of those that were tried: "with fixed shapes"."""
    median_s: PositiveSeconds
    low_s: PositiveSeconds
    high_s: PositiveSeconds
    """Bounds of the 95 % confidence interval of the median."""


class Comparison(Struct, frozen=True, forbid_unknown_fields=True):
    """How a network that is being tuned compares with its baseline, as far as it is known. Since 1.5."""

    baseline: Baseline
    scale: Annotated[float, Meta(gt=0, le=1)] = 1.0
    rest_s: Seconds | None = None
    """Latency of what is not tuned: that of a build beyond the sum of its tasks; None: no build was measured yet."""
    module_s: PositiveSeconds | None = None
    """Latency of the module that is kept for the user while the search goes on: right, and faster than the baseline or,
    where the user named a latency, the best so far."""
    faster_after_s: Seconds | None = None
    """Seconds from the start of the job's first client to the first such module."""

    def whole_s(self, tasks_s: float) -> float:
        """Expected latency of the network from the sum over its tasks."""
        return self.scale * tasks_s + (self.rest_s or 0.0)

    def calibrated(self, tasks_s: float, measured_s: float) -> "Comparison":
        """The same after a build was measured whose tasks sum up to `tasks_s`.

        A build that is faster than its sum scales the sum: kernels that were measured alone found colder caches.
        """
        if measured_s < tasks_s:
            return structs.replace(self, scale=measured_s / tasks_s, rest_s=0.0)
        return structs.replace(self, scale=1.0, rest_s=measured_s - tasks_s)

    def against(self, timing: "Timing", form: str) -> "Comparison":
        """The same with a newer measurement of the baseline. `form`: the form of the model that it ran."""
        baseline = structs.replace(
            self.baseline, form=form or self.baseline.form, median_s=timing.median_s, low_s=timing.low_s,
            high_s=timing.high_s,
        )  # fmt: skip
        return structs.replace(self, baseline=baseline)


BUILDS_MAX = 1_000
"""Maximum measured builds of one network that a client reports."""


class MeasuredBuild(Struct, frozen=True, forbid_unknown_fields=True):
    """A build of the whole network with the best schedules so far, measured on the device."""

    step: StepId
    """The evaluate step that measured it."""
    latency_s: PositiveSeconds
    scale: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """`Comparison.scale` from this build on."""
    rest_s: Seconds | None = None
    """`Comparison.rest_s` from this build on."""
    disturbed: bool = False
    """Other load ran on the device meanwhile."""


class GoalReached(StrEnum):
    """Whether a measured network meets the latency that its user asked for."""

    MET = "met"
    MISSED = "missed"
    UNCLEAR = "unclear"  # the goal lies within what measurements of one module differ by


class LatencyGoal(Struct, frozen=True, forbid_unknown_fields=True):
    """The latency that a job's user asked for, and the module that is nearest to it. Since protocol 1.9."""

    goal_s: PositiveSeconds
    latency_s: PositiveSeconds
    """Median of the module that the user can have."""
    low_s: PositiveSeconds
    high_s: PositiveSeconds
    """Bounds of its 95 % confidence interval."""
    reached: GoalReached
    ended: Text = ""
    """Why the search ended, in words; empty while it goes on."""


class NetworkMeasurements(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Measurements of the whole network during its search and at its end."""

    builds: Annotated[tuple[MeasuredBuild, ...], Meta(max_length=BUILDS_MAX)] = ()
    """In the order of measurement."""
    untuned_s: dict[TaskIndex, PositiveSeconds] = {}
    """Latency of one call of each task without a search, in the first undisturbed build; not of all tasks."""
    result_s: PositiveSeconds | None = None
    """Latency of the module that the user gets, as measured at the job's end; None before that, and without one."""
    goal: LatencyGoal | None = None
    """None: the user named no latency, or no build was measured yet. Since protocol 1.9."""


def expected_s(
    tasks_s: float | None, comparison: Comparison | None = None, result_s: float | None = None
) -> float | None:
    """Latency of a whole network: measured at the end, else expected from the sum over its tasks; None: not known."""
    if result_s is not None:
        return result_s
    return tasks_s if tasks_s is None or comparison is None else comparison.whole_s(tasks_s)


def standing_s(
    tasks_s: float | None, comparison: Comparison | None = None, result_s: float | None = None
) -> float | None:
    """Latency that a network has got so far: measured at the end, else the least of what is expected and of the module
    that its user can have; None: not known."""
    whole_s = expected_s(tasks_s, comparison, result_s)
    module_s = None if comparison is None or result_s is not None else comparison.module_s
    return min((known for known in (whole_s, module_s) if known is not None), default=None)


class Recalled(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Known schedules that a job took over from the record store after the import. Since protocol 1.9."""

    taken: Annotated[tuple[TaskIndex, ...], Meta(max_length=TASKS_MAX)] = ()
    """Tasks that need no search: they have enough records of Purpose.KNOWN."""
    trials: Annotated[int, Meta(ge=0)] = 0
    """Trials of earlier jobs that stand for trials of this one."""
    sources: Annotated[dict[TaskIndex, dict[Name, Text]], Meta(max_length=TASKS_MAX)] = {}
    """Where the known schedules of each task come from, by `short_digest` in hexadecimal digits."""
    teachers: Annotated[tuple[JobId, ...], Meta(max_length=EARLIER_MAX)] = ()
    """Earlier jobs from which the search learns though the user named none."""

    def source(self, task: TaskIndex, digest: str) -> str:
        """Where a schedule comes from; empty: from the job's own search."""
        return self.sources.get(task, {}).get(digest, "")


class Network(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model after import: what there is to tune."""

    tasks: Annotated[tuple[TaskInfo, ...], Meta(max_length=TASKS_MAX)]
    """Indices count from 1; task 0 is the network itself."""
    skipped: tuple[Skipped, ...] = ()
    default_trials: int = 0
    """Trials for the whole network when the user names none."""
    batch: int = 8
    """Candidates per round of a task."""
    tasks_only: bool = False
    """Whether there is no network that calls the tasks: nothing is compiled or evaluated. Since 1.7."""
    identity: Identity | None = None
    """Circumstances of what will be measured: the backend tells target and compiler as far as it knows them, and the
    client adds what is empty. Since 1.6."""
    comparison: Comparison | None = None
    """Filled in by the client, never by a backend. Since 1.5."""
    measured: NetworkMeasurements = NetworkMeasurements()
    """Filled in by the client, never by a backend. Since protocol 1.7."""
    recalled: Recalled = Recalled()
    """Filled in by the client, never by a backend. Since protocol 1.9."""
    movable: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    """Stages that may run on other hosts than the client's. Filled in by the client, never by a backend. Since protocol
    1.9."""
    divisible: Annotated[tuple[Name, ...], Meta(max_length=8)] = ()
    """Stages of which several steps, each on a unit of its own, may share the work. Filled in by the client, never by a
    backend. Since protocol 1.9."""


class Earlier(Struct, frozen=True):
    """A job that has ended, and from which another one is to learn."""

    job: JobId
    spec: JobSpec
    model: Path
    workloads: dict[TaskIndex, str]
    """`TaskInfo.workload` of each of its tasks."""
    records: tuple[Record, ...]
    """One of each candidate that its search selected."""


RIVALS = {"onnxruntime": "ONNX Runtime", "litert": "LiteRT", "pytorch": "PyTorch"}
"""Engines that users run otherwise: names of timings, and names for people. The model's file decides which."""


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
    """In words, as tasks are: "matmul+add 128x384 by 384x384"; or a part of the virtual machine's own work."""
    schedule: str
    """Where the kernel's schedule comes from: "tuned", "by rule", "default" (TVM's own), "library", "unknown"; or
    "virtual machine", for its own work."""
    calls: int
    time_s: float
    """Seconds of all calls together."""


class OperatorTimes(Struct, frozen=True):
    """Where the time of one inference goes."""

    whole_s: float
    """Latency of the network without any instrument, in runs that nothing interrupted."""
    rows: tuple[OperatorTime, ...]
    """Those that take longest first."""

    @property
    def sum_s(self) -> float:
        """Sum of all rows. It is measured apart from `whole_s`, so that the two prove each other."""
        return sum(row.time_s for row in self.rows)


class Difference(Struct, frozen=True):
    """An element of an output that is not what the reference computes."""

    output: str
    sample: int
    """Number of the inputs for which it was computed, from 0."""
    index: tuple[int, ...]
    expected: str
    """Both values as text, since JSON has neither infinities nor NaN."""
    got: str
    tolerance: float
    build: str = ""
    """The build that computed it: "tuned", or "default"."""


class WrongSchedule(Struct, frozen=True):
    """A candidate with which the network computed something wrong, although its kernel alone did not."""

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
    """Which build `module` is: "tuned", or "default" when tuning did not make it faster; empty: none is right, and
    none is handed over."""
    notes: tuple[str, ...] = ()
    form: str = ""
    """The form of the model that "onnxruntime" among the timings ran, the fastest of `forms`. Since 1.5."""
    forms: tuple[Timing, ...] = ()
    """Latencies of ONNX Runtime with each form of the model, from a short race, by the form's name. Since 1.5."""
    operators: OperatorTimes | None = None
    """Time of each operator in the build that is published. Since 1.5."""
    difference: Difference | None = None
    """Where the build that was rejected differs most; since 1.5."""
    samples: int = 1
    """Samples of inputs for which outputs were compared; since 1.5."""
    wrong: tuple[WrongSchedule, ...] = ()
    """Schedules that were taken out because of their results in the network; since 1.5."""
    note_groups: tuple[NoteGroup, ...] = ()
    """Notes that hold for several operators each; since 1.6."""
    board: str = ""
    """The device that it was measured on, where that is a board: nothing of it runs on this machine. Since 1.7."""


class Tuner(Protocol):
    """The search of one task: a fold over its records."""

    def restore(self, records: Sequence[Record]) -> None:
        """Take over what an earlier client measured, one record per candidate, in the order of their selection."""

    def select(self, count: int, lease: Lease) -> Sequence[bytes]:
        """Up to `count` new candidates; empty when the space is exhausted. Must not change what the tuner knows."""

    def build(self, candidates: Sequence[bytes], lease: Lease) -> Sequence[Built]:
        """Build each candidate on the lease's cores. A candidate that fails is a Built with a failure."""

    def profile(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure each on the lease's device, yielding as results arrive; failed builds are passed on as they are."""

    def update(self, measured: Sequence[Measured], lease: Lease) -> None:
        """Learn from a round; from a candidate a second time when its first measurement was disturbed."""

    def default(self) -> bytes | None:
        """The candidate that is the task without any tuning; None: candidates of this task are never compared.

        Since 1.1, like `compare`; a tuner of an older backend has neither.
        """

    def compare(self, built: Sequence[Built], lease: Lease) -> Iterator[Measured]:
        """Measure all of them side by side, taking turns, so that whatever disturbs the device disturbs all alike.

        The default candidate is the last one, in `built` and in what is yielded.
        """


class Session(Protocol):
    """One job inside a backend."""

    def import_network(self, lease: Lease) -> Network:
        """Read, simplify and split the model. Raises ModelRejected."""

    def learn(self, earlier: Sequence[Earlier], lease: Lease) -> None:
        """Take over what other jobs found, before there is a tuner; only for jobs whose user asks for it. Tuners
        must depend on nothing else of it: a client that takes over is told the same once more.

        Since 1.4; a job that asks for it fails with a backend that has no such method. Raises RequestError for a job
        that can teach nothing here.
        """

    def tuner(self, task: TaskInfo, seed: int) -> Tuner:
        """The search for one task; cheap, since a resumed job makes all of them."""

    def compile(self, records: Sequence[Record], lease: Lease) -> None:
        """Compile the whole network with the best schedule of each task, and once without any.

        `records` are those that count, one per candidate. Since 1.7 the first one of a task is to be used, also when it
        is the default candidate: of those that measurement cannot tell apart, it is chosen by a fixed rule. Before,
        they came in any order, and the fastest was to be used.
        """

    def evaluate(self, lease: Lease) -> Evaluation:
        """Check the outputs and measure default, tuned and reference builds side by side on the lease's cores.

        Leaves the files to hand to the user in the session's output folder; `evaluation.json` is added to them.
        """

    def kill(self, lease: Lease | None = None) -> None:
        """Kill the processes that work for this lease at once (None: all of them); called from another thread."""


class ComparingSession(Session, Protocol):
    """One job inside a backend that knows what the user would run otherwise. Since 1.5.

    With a session that lacks one of these methods, nothing is compiled before the search is over.
    """

    def baseline(self, lease: Lease) -> Baseline | None:
        """Measure on the lease's cores what the user would run otherwise; None where there is nothing."""

    def compile_early(self, records: Sequence[Record], lease: Lease) -> None:
        """Compile as `compile` does, in the middle of the search; a build without schedules is not needed."""

    def evaluate_early(self, lease: Lease) -> Evaluation:
        """Check what was compiled last, in the middle of the search, and measure it side by side with the baseline.

        The timings are "tuned" and that of the baseline. A build that is right and clearly faster than the baseline or,
        for a job whose user named a latency (`JobSpec.latency_goal_s`, `improve_by`), however fast, is left in the
        output folder, as by `evaluate`, and `published` is "tuned"; otherwise it is empty.
        """


class DescribingSession(Session, Protocol):
    """One job inside a backend whose workloads other programs can compile. Since 1.7."""

    def program(self, task: TaskInfo) -> Program | None:
        """Return the computation of a task's workload, in a form that other programs read; None where there is none.

        Called after the import, for workloads whose program the record store lacks. The job goes on where it fails.
        """


class MovableSession(Session, Protocol):
    """One job inside a backend whose candidates may be built on one host and measured on another. Since 1.7.

    `Built.artifact` is then one file, or a folder of files, with all that `Tuner.profile` and `Tuner.compare` need,
    also those of another session of the same job on a machine with the same processor and versions. There the file has
    another path; what it is called at the end stays the same. `JobSpec.target` is what `Network.identity` tells, where
    that tells it, so that a machine with another processor builds for the right one.
    """

    def import_tasks(self, lease: Lease) -> Network:
        """Import the model as far as `tuner`, `build`, `profile` and `compare` need it. The tasks are the same as those
        of `import_network` on the other machine."""


class BoardSession(Session, Protocol):
    """One job inside a backend that can tell how fast a board is at present. Since 1.7.

    A board's clock and its other load cannot be read. Its measurements are watched all the same where the backend runs
    fixed work at the start of some steps: the daemon compares how long that takes.
    """

    def sentinel(self, lease: Lease) -> DeviceNote:
        """Run fixed work on the board of the lease, and tell how long the fastest of some runs took; called before the
        stage of a step. Some 200 ms are enough. `foreign_s`: the time that other programs took away meanwhile; None
        where that is not known. Raises DeviceLost."""


class ParallelSession(Session, Protocol):
    """One job inside a backend that measures candidates of one task on several devices at once. Since 1.7."""

    parallel_profile: bool
    """Whether `Tuner.profile` may be called by several threads at a time, each with other builds of one round and a
    lease of its own."""


class Backend(Protocol):
    """The entry point's object."""

    api: tuple[int, int]

    def open(self, job: JobSpec, model: Path, workdir: Path, outdir: Path, device_cores: int) -> Session:
        """Start one job. Files may be written below `workdir`; what lands in `outdir` is the user's result.

        `device_cores`: CPU cores of the device that is profiled on; 0 when it is no CPU.

        Raises RequestError for options it does not know or cannot use.
        """


def available() -> "dict[str, EntryPoint]":
    """Installed backends by name. Reads metadata only; imports nothing."""
    return installed_plugins(GROUP, anew=True)


def check_name(name: str) -> None:
    """Raise NotFound unless a backend of that name is installed. Fast for one that was seen before."""
    if name not in installed_plugins(GROUP) and name not in (names := available()):
        there = ", ".join(names) or "none"
        raise NotFound(f"no backend is named {name!r}. Installed: {there}. To add one:  pip install -e ITS_FOLDER")


def version(name: str) -> str:
    """Version of the package that offers a backend; empty where it tells none."""
    entry = available().get(name)
    return entry.dist.version if entry is not None and entry.dist is not None else ""


def load(name: str) -> Backend:
    """Import the backend. Only a client process may call this. Raises NotFound, or RequestError that says why not."""
    check_name(name)
    entry = installed_plugins(GROUP)[name]
    package = entry.dist.name if entry.dist is not None else entry.module
    try:
        backend: Any = entry.load()()
    except (Exception, SystemExit) as error:  # whatever another package may raise
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
