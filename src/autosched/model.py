"""The nouns of autosched: job, task, step, resource, record.

Plain immutable data, shared by all parts and sent over the wire as they are. Units are in the names. The words are
those of the glossary in ARCHITECTURE.md.
"""

import hashlib
from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

import msgspec
from msgspec import Meta, Struct, structs

from autosched.stages import Stage, stage_of

JobId = int
TaskIndex = int
StepId = int
PoolName = str  # requested by a stage: "host", "device:cpu"
UnitName = str  # leased to a step: "host/0", "cpu0"
HostName = str  # a machine that lends units
OWN_HOST: HostName = ""
"""The machine of the daemon itself."""
HOST_POOL: PoolName = "host"
"""Pool of the lanes, for stages that need no device."""
DEVICE_POOL = "device:"
"""Prefix of pools of devices, before the kind of the devices."""

# Maximum sizes on the wire and in the journal: they bound memory against hostile peers.
Name = Annotated[str, Meta(min_length=1, max_length=200)]
Text = Annotated[str, Meta(max_length=4_000)]
CODE_DIGEST_PATTERN = "[0-9a-f]{0,64}"
"""Pattern of an object code's name, as made by `code_name`; empty if unknown."""
Sha256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Seconds = Annotated[float, Meta(ge=0, le=1e9)]
PositiveSeconds = Annotated[float, Meta(gt=0, le=1e6)]
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Labels = Annotated[dict[Word, Word], Meta(max_length=16)]
"""A user's labels of jobs, such as team=vision, in letters, digits and _ . / -. No decision depends on them."""
EXPERIMENT, EXPERIMENT_JOBS, COMBINATION = "experiment", "experiment-jobs", "combination"
"""Labels of a job of an experiment: its name, the number of its jobs, and the job's combination."""
TASKS_MAX = 4_096
TRIALS_MAX = 10_000_000
EARLIER_MAX = 8
"""Maximum number of jobs that warm-start another: each is imported again."""
FOREIGN_SHARE = 0.05
"""Share of a core that other processes may use before a measurement counts as disturbed. Timer ticks and kernel threads
stay below it, and less does not change a median latency."""
FOREIGN_MIN_S = 0.05
"""Minimum CPU time in seconds that counts: the kernel counts ticks of 10 ms, and fewer than five are noise."""

DEFAULT_BACKEND = "autotvm"
"""Backend of jobs that name none."""

NETWORK_TASK: TaskIndex = 0
"""Task 0 of each job is the network itself: its stages import, compile and evaluate the whole model."""


class CpuCores(Struct, frozen=True, forbid_unknown_fields=True, tag="cpu"):
    """Cores of a CPU, by their numbers on the unit's host; empty if only the client knows them."""

    cores: Annotated[tuple[int, ...], Meta(max_length=4_096)] = ()


class CudaDevice(Struct, frozen=True, forbid_unknown_fields=True, tag="cuda"):
    """An NVIDIA GPU. Its number may be another after a reboot, and its UUID stays."""

    uuid: Annotated[str, Meta(pattern=r"^GPU-[0-9a-f\-]{36}$")]
    arch: Annotated[int, Meta(ge=10, le=9_999)]
    """Its compute capability: 90 for 9.0."""


def split_address(address: str) -> tuple[str, str]:
    """Host, without the brackets of IPv6, and port of "HOST:PORT"; neither is checked."""
    host, _, port = address.rpartition(":")
    return host.removeprefix("[").removesuffix("]"), port


def is_lane(unit: UnitName) -> bool:
    """Whether a unit is a host lane, not a device."""
    return unit.startswith(f"{HOST_POOL}/")


class RpcServer(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True, tag="rpc"):
    """A board: a machine with a TVM RPC server, which runs kernels for others."""

    address: Annotated[str, Meta(pattern=r"^\S{1,255}:[0-9]{1,5}$")]
    """HOST:PORT"""
    key: Annotated[str, Meta(pattern=r"^\S*$", max_length=200)] = ""
    target: Annotated[str, Meta(max_length=2_000)] = ""
    """Target of jobs that name none."""

    @property
    def host_and_port(self) -> tuple[str, int]:
        """The two parts of its address, without the brackets of an IPv6 host."""
        host, port = split_address(self.address)
        return host, int(port)


Device = CpuCores | CudaDevice | RpcServer
"""The hardware of a unit."""


class Unit(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A host lane or a device, held by one step at a time."""

    name: Name
    cores: Annotated[tuple[int, ...], Meta(max_length=4_096)] = ()
    """CPU cores that it owns."""
    accelerator: CudaDevice | RpcServer | None = None
    """The device if it is no CPU."""
    host: Annotated[str, Meta(max_length=200)] = ""
    """Name of its machine; empty: the daemon's own."""
    model: Annotated[str, Meta(max_length=200)] = ""
    """Model of a GPU, or of a device of another machine: "AMD EPYC 9V74 80-Core Processor"."""

    @property
    def device(self) -> Device:
        """Its hardware."""
        return self.accelerator if self.accelerator is not None else CpuCores(self.cores)

    @property
    def is_board(self) -> bool:
        """Whether it is a machine with a TVM RPC server."""
        return isinstance(self.accelerator, RpcServer)


class Pool(Struct, frozen=True, forbid_unknown_fields=True):
    """Interchangeable units with one queue. A unit may be in several pools; at most one lease holds it."""

    name: Name
    units: Annotated[tuple[Unit, ...], Meta(min_length=1, max_length=1_000)]


def at_host(name: str, host: HostName) -> str:
    """Name of a host's pool or unit: "device:cpu@lab2". Names of the daemon's own host have no suffix."""
    return f"{name}@{host}" if host else name


def host_of(name: str) -> HostName:
    """The host of a pool's or unit's name: the inverse of `at_host`."""
    return name.partition("@")[2]


def lent_by(host: HostName, pools: Iterable[Pool]) -> tuple[Pool, ...]:
    """Pools and units of a host, with the daemon's names for them."""

    def named(unit: Unit) -> Unit:
        return structs.replace(unit, name=at_host(unit.name, host), host=host)

    return tuple(Pool(at_host(pool.name, host), tuple(map(named, pool.units))) for pool in pools)


def device_kind(pool: PoolName) -> str:
    """Kind of the devices of a pool, on any host; empty for a pool of lanes."""
    return pool.removeprefix(DEVICE_POOL).partition("@")[0] if pool.startswith(DEVICE_POOL) else ""


def code_name(content: bytes, size: int | None = None) -> str:
    """Name of object code: eight hexadecimal digits of its size in bytes, and 56 of its SHA-256.

    `content`: the bytes that determine whether two codes are equal. `size`: of the code, if it is not the whole
    content.
    """
    length = len(content) if size is None else size
    return f"{min(length, 2**32 - 1):08x}{hashlib.sha256(content).hexdigest()[:56]}"


class JobSpec(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A user's submission: one model to tune for one target. Fields with defaults are not sent, so that versions
    without such a field can read it."""

    name: Name
    model: Sha256
    """Content hash of the model's file, which is in the daemon's blob store. Only the backend interprets it."""
    file: Annotated[str, Meta(max_length=200)] = ""
    """The user's name of the file, for messages; its suffix may determine its kind. Empty: NAME.onnx."""
    shapes: Annotated[dict[Name, Annotated[tuple[int, ...], Meta(max_length=16)]], Meta(max_length=64)] = {}
    """Input name to its shape, for inputs whose ONNX shape is dynamic."""
    inputs: Sha256 | None = None
    """Content hash of a .npz file with samples of inputs, for checking the result; in the blob store."""
    target: Annotated[str, Meta(max_length=2_000)] = "auto"
    """TVM target as a JSON object, or "auto": the CPU of the device."""
    device: Name = "cpu"
    backend: Name = DEFAULT_BACKEND
    trials: Annotated[int, Meta(ge=0, le=TRIALS_MAX)] | None = None
    """Trials for the whole network. None: the backend's default. 0: compile with known schedules only, from the record
    store or `records_from`."""
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    options: Annotated[dict[Name, bool | int | float | str], Meta(max_length=64)] = {}
    """Backend options, checked by the backend."""
    records_from: JobId | None = None
    """An earlier job whose records are used too."""
    learn_from: Annotated[tuple[JobId, ...], Meta(max_length=EARLIER_MAX)] = ()
    """Earlier jobs, of any models, that warm-start the search; their measurements do not count as measured."""
    fresh: bool = False
    """Ignore the record store."""
    latency_goal_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Latency of the network, in seconds, with which the search ends."""
    improve_by: Annotated[float, Meta(gt=0, lt=1)] | None = None
    """The search ends when the network's latency is this share below that of the best known schedules at the job's
    start."""
    until_faster: bool = False
    """The search ends when a module is correct and faster than the baseline."""
    output: Annotated[str, Meta(max_length=4_096)] = ""
    """The submitting user's result folder; used by `attach`, never by the daemon."""
    external: bool = False
    """Whether the user starts the client, and not the daemon."""
    priority: Annotated[int, Meta(ge=-100, le=100)] = 0
    """Higher goes first; a waiting job rises, so that none starves."""
    deadline_s: Annotated[float, Meta(gt=0, le=1e9)] | None = None
    """Deadline in seconds after the submission; the job gets precedence when it becomes tight."""
    labels: Labels = {}
    """Labels, of letters, digits and _ . / - only."""
    step_timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """Minimum time limit of each of its steps, in seconds; longer if such steps are known to take longer. None if not
    set."""

    @property
    def names_latency(self) -> bool:
        """Whether its user set a latency goal."""
        return self.latency_goal_s is not None or self.improve_by is not None


class TaskInfo(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """One tunable operator workload of a job."""

    task: Annotated[int, Meta(ge=0, le=TASKS_MAX)]
    name: Name
    workload: Name
    """Structural hash: equal workloads may share records."""
    weight: Annotated[int, Meta(ge=1)] = 1
    """Number of its calls in one inference."""
    flops: Annotated[float, Meta(ge=0)] = 0.0
    """Floating-point operations of one call."""
    shape: Text = ""
    """The operator and its shapes, for people: "conv2d 64x56x56 -> 64, 3x3"."""
    template: Annotated[str, Meta(max_length=200)] = ""
    """Name and version of the schedule template or trace format of its candidates: a candidate of another version
    cannot be applied. Empty if the workload determines it."""
    groups: Annotated[dict[Name, Annotated[int, Meta(ge=1)]], Meta(max_length=TASKS_MAX)] = {}
    """Groups of tasks of which the network will use the fastest, with the number of this task's calls in each. Calls in
    no group are its own."""


PROGRAM_BYTES = 256 * 1024
"""Maximum bytes of a program; larger ones are not stored."""


class Program(Struct, frozen=True):
    """Computation of a workload, for other programs that compile it."""

    form: Annotated[str, Meta(min_length=1, max_length=100)]
    """Name and version of the program that can read it: "tvm 0.27"."""
    content: Annotated[bytes, Meta(max_length=PROGRAM_BYTES)]
    """The program, compressed with zlib."""


class Failure(StrEnum):
    """Why a trial has no latency."""

    BUILD_ERROR = "build error"
    BUILD_TIMEOUT = "build timeout"
    BUILD_CRASH = "build crash"
    RUN_ERROR = "run error"
    RUN_TIMEOUT = "run timeout"
    RUN_CRASH = "run crash"
    WRONG_RESULT = "wrong result"
    BLOCKED = "blocked"  # blocked after two failures, perhaps in another job, and not run


class Purpose(StrEnum):
    """Why a candidate was measured. Only trials cost budget."""

    TRIAL = "trial"
    AGAIN = "again"  # an earlier measurement of the candidate was disturbed
    FINAL = "final"  # in turns with the other good candidates of its task
    DEFAULT = "default"  # the task without any tuning, the last of the finals
    KNOWN = "known"  # not measured in this job: from the record store; `detail` names the origin
    NETWORK = "network"  # in the whole network, where its result was wrong


class Record(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """The result of a measurement, or its failure. Immutable."""

    task: Annotated[int, Meta(ge=0, le=TASKS_MAX)]
    number: Annotated[int, Meta(ge=0)]
    """Number of the record in its job, from 0; (job, number) identifies the record for ever."""
    candidate: Annotated[bytes, Meta(max_length=200_000)]
    """The schedule, in the backend's own encoding."""
    latency_s: Annotated[tuple[Annotated[float, Meta(gt=0, le=1e6)], ...], Meta(max_length=1_000)] = ()
    """Repeated measurements of one call; empty if it failed."""
    failure: Failure | None = None
    detail: Text = ""
    """The failure in words: the message of the compiler or the device. For a latency that was not measured for this
    record, its origin."""
    unit: Annotated[str, Meta(max_length=200)] = ""
    """The device that measured it."""
    build_s: Seconds = 0.0
    profile_s: Seconds = 0.0
    purpose: Purpose = Purpose.TRIAL
    disturbed: Text = ""
    """Why the latency is too high, found later: stored beside the record and set when the record is read."""
    code: Annotated[str, Meta(max_length=64)] = ""
    """Name of the measured object code, as made by `code_name`; empty if unknown."""
    measured_at: Annotated[float, Meta(ge=0)] = 0.0
    """Unix time in seconds at which the daemon received the record; 0 if unknown."""

    @property
    def copied(self) -> bool:
        """Whether the latency is that of another candidate with the same object code."""
        return self.purpose is not Purpose.KNOWN and bool(self.latency_s) and bool(self.detail)

    @property
    def best_s(self) -> float | None:
        """Median of the repeats, in seconds; the fastest one of a disturbed record, since disturbances only slow down.

        None for a failure.
        """
        if not self.latency_s:
            return None
        if self.disturbed:
            return min(self.latency_s)
        ordered = sorted(self.latency_s)
        middle = len(ordered) // 2
        return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


class Identity(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Environment of a measurement. Measurements of one workload are comparable if all fields are equal.

    Empty fields are unknown.
    """

    target: Annotated[str, Meta(max_length=1_000)] = ""
    """The resolved target: exact, whatever the user's word for it."""
    device: Annotated[str, Meta(max_length=200)] = ""
    """Model of the device: "AMD EPYC 9V74 80-Core Processor"."""
    compiler: Annotated[str, Meta(max_length=200)] = ""
    """Compilers and their versions: "tvm 0.27.0.post1, llvm 22.1.0"."""
    backend: Annotated[str, Meta(max_length=200)] = ""
    """Name and version of the backend: "autotvm 0.1.0"."""
    measurement: Annotated[str, Meta(max_length=200)] = ""
    """Name and version of the method by which kernels are timed: "tvm 1"."""


class IdentityFrom(Struct, frozen=True, forbid_unknown_fields=True):
    """The identity of a job's records from one number on, until the next of these."""

    number: Annotated[int, Meta(ge=0)]
    identity: Identity


class DeviceNote(Struct, frozen=True, forbid_unknown_fields=True):
    """A client's observation of the device during a step, besides the measurements of its job."""

    core_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Least seconds of the sentinel's work in the core; None if it did not run."""
    memory_s: Annotated[float, Meta(gt=0, le=1e6)] | None = None
    """Least seconds of the sentinel's work in the memory."""
    foreign_s: Seconds | None = None
    """CPU time of other programs on the device's cores; None if it cannot be seen."""
    watched_s: Seconds = 0.0
    """Seconds for which the cores were watched."""

    @property
    def disturbed(self) -> bool:
        """Whether the other load is more than noise."""
        return self.foreign_s is not None and self.foreign_s >= max(FOREIGN_MIN_S, FOREIGN_SHARE * self.watched_s)


class TaskLoad(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Load-awareness: a client's report on one of its tasks (thesis 4.1.2, four facts).

    A task whose stage is done, that is not complete and that names no next resource has no work until a later report.
    """

    task: Annotated[int, Meta(ge=0, le=TASKS_MAX)]
    stage_done: bool = True
    complete: bool = False
    resources_now: Annotated[tuple[Name, ...], Meta(max_length=4)] = ()
    """Pools of the running stage; empty if not reported. The daemon compares this with its leases: a client that names
    other pools has its job failed."""
    resources_next: Annotated[tuple[Name, ...], Meta(max_length=4)] = ()
    """Pools of which the next stage needs one unit each, all or nothing."""
    stage_next: Annotated[str, Meta(max_length=40)] = ""
    expected_s: Seconds | None = None
    """Expected seconds of the next stage."""
    gain: Annotated[float, Meta(ge=0, le=1e12)] | None = None
    """Seconds of network latency that the next round of this task is expected to save."""
    timeout_s: Annotated[float, Meta(gt=0, le=86_400)] | None = None
    """Seconds after which the step is killed, until such steps have been seen; None: the daemon's default."""
    avoid: Annotated[tuple[Name, ...], Meta(max_length=4)] = ()
    """Units that the next step should not get while its pools have others, because something failed there."""

    @property
    def stage(self) -> Stage:
        """The next stage: its role, and its place in a job."""
        return stage_of(self.stage_next)


class JobFailure(Struct, frozen=True, forbid_unknown_fields=True):
    """Why a job ended without a result; `code` is one of the codes in errors.py."""

    code: Name
    message: Text


class JobLoad(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A client's report on its job: the tasks whose load changed, and whether the job is over."""

    tasks: Annotated[tuple[TaskLoad, ...], Meta(max_length=TASKS_MAX + 1)] = ()
    complete: bool = False
    failure: JobFailure | None = None
    rounds_left: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Number of rounds that no task of the job has begun yet; None if unknown."""


class Step(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One execution of a stage. Its id is its fencing token: ids grow and are never used again."""

    id: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    started_at: float
    """Scheduler clock, seconds."""
    deadline_at: float


class StageHistory(Struct, frozen=True, forbid_unknown_fields=True):
    """Times of one stage of one task in earlier jobs, with the same workload and target."""

    task: Annotated[int, Meta(ge=0, le=TASKS_MAX)]
    stage: Annotated[str, Meta(max_length=40)]
    mean_s: Seconds
    count: Annotated[int, Meta(ge=1)]


class Goal(StrEnum):
    """The objective of the policy `predictive`."""

    BALANCED = "balanced"  # short jobs early, and the last one no later than necessary
    MAKESPAN = "makespan"  # minimum end of the last job
    LATENCY = "latency"  # minimum mean completion time


class Outcome(StrEnum):
    """How a step ended: exactly one of these, once."""

    DONE = "done"
    FAILED = "failed"  # reported by the client; the task's load says how it continues
    LOST = "lost"  # unknown; the client or the daemon died


class JobState(StrEnum):
    """State of a job."""

    STARTING = "starting"  # accepted; its client is not connected yet
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether the job has ended."""
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED)


def encode(value: object) -> bytes:
    """Encode any of these structs as MessagePack."""
    return msgspec.msgpack.encode(value)
