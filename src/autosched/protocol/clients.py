"""Methods between clients and the daemon, in both directions."""

from typing import Annotated

from msgspec import Meta, Struct

from autosched import file_names
from autosched.backend import Network
from autosched.model import (
    OWN_HOST,
    TASKS_MAX,
    DeviceNote,
    HostName,
    Identity,
    IdentityFrom,
    JobId,
    JobLoad,
    JobSpec,
    Name,
    Outcome,
    Program,
    Record,
    Seconds,
    Sha256,
    Step,
    StepId,
    TaskIndex,
    TaskInfo,
    Text,
)
from autosched.network_status import NOT_MEASURED, NetworkStatus
from autosched.protocol.method import BULK_BYTES, FRAME_BYTES, Asker, Done, Method, Role


class EarlierJob(Struct, frozen=True):
    """A job that warm-starts another one."""

    job: JobId
    spec: JobSpec
    workloads: dict[TaskIndex, Name]
    """The structural hash of each task."""


class JobOrder(Struct, frozen=True):
    """A job for a client to host, with the measurements of the job's earlier clients."""

    job: JobId
    spec: JobSpec
    network: Network | None
    """As imported by an earlier client of this job; None if there was none."""
    records: int
    """Number of records to fetch with GetRecords."""
    lanes: int
    devices: int
    device_cores: int
    """CPU cores of one of the devices."""
    status: NetworkStatus = NOT_MEASURED
    """As last reported by the earlier clients of this job."""
    units_elsewhere: int = 0
    """Number of lanes, and devices of the job's kind, of other hosts on which its stages could run."""
    host_cores: tuple[int, ...] = ()
    """Cores for a client that the daemon or an agent has started, so that devices are not disturbed."""
    age_s: Seconds = 0.0
    """Time since the job's submission."""
    host: HostName = OWN_HOST
    """Host of the client. A step on a unit of another host is run by the client's helper there, by RunElsewhere."""
    identities: tuple[IdentityFrom, ...] = ()
    """Identities of the job's records, in ascending order of record numbers."""
    board: bool = False
    """Whether the job's devices are boards: the client gets access to a step's board with GetBoard."""
    earlier: tuple[EarlierJob, ...] = ()
    """Jobs that warm-start this one: those of `learn_from` in the spec, or similar jobs that an earlier client was
    told. Their records are fetched with GetRecords."""


class Return(Method, frozen=True):
    """A client reconnects after a lost connection or a restart of the daemon. It then repeats records and ends of steps
    that were not acknowledged."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    steps: Annotated[tuple[StepId, ...], Meta(max_length=4_096)]
    """Steps that run, and ended ones without acknowledgement."""
    load: JobLoad


class GetOrder(Method, frozen=True):
    """A client requests its job."""

    result = JobOrder
    askers = (Asker.CLIENT,)


class PlanNetwork(Method, frozen=True):
    """A client reports, once, the network that it has imported."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    network: Network
    trials: int
    """Number of trials for the whole network, without those of earlier jobs that count as its own."""
    status: NetworkStatus = NOT_MEASURED


class ReportStatus(Method, frozen=True):
    """A client reports a changed status of its network, after PlanNetwork."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    status: NetworkStatus


class KnownSchedule(Struct, frozen=True, kw_only=True):
    """A schedule in the record store."""

    candidate: Annotated[bytes, Meta(max_length=200_000)]
    """In the backend's own encoding."""
    latency_s: tuple[float, ...]
    """Samples of one call in seconds, measured in the schedule's own environment."""
    compared: bool = False
    """Whether it was measured undisturbed, in turns with the other good schedules of its task."""
    code: str = ""
    """Digest of its object code; empty if unknown."""
    measured_at: float = 0.0
    """Unix time in seconds; 0 if unknown."""
    elsewhere: float = 0.0
    """Least ratio of its latency to the best one on another device model; 0 if unknown."""
    source: Text = ""
    """Its origin, in words."""


class KnownSchedules(Struct, frozen=True):
    """Schedules of a workload in the record store."""

    own: tuple[KnownSchedule, ...] = ()
    """Measured undisturbed by a daemon in the environment of the job, so that their latencies hold for it. The fastest
    first."""
    tried: int = 0
    """Number of schedules measured on this device model, with any version of the compiler."""
    hints: tuple[KnownSchedule, ...] = ()
    """Other applicable schedules, most promising first. Their latency on this device is unknown."""
    trouble: Text = ""
    """Why the store did not answer; empty if it did."""


KNOWN_MAX = 32


class GetKnown(Method, frozen=True):
    """A client requests known schedules of a task of its network. The answer is limited to a frame."""

    result = KnownSchedules
    askers = (Asker.CLIENT,)
    workload: Name
    """`TaskInfo.workload`"""
    identity: Identity
    """The environment in which the job will measure."""
    count: Annotated[int, Meta(ge=1, le=KNOWN_MAX)]
    """Maximum number of schedules of each kind."""
    template: Annotated[str, Meta(max_length=200)] = ""
    """`TaskInfo.template`"""


class SimilarJobs(Struct, frozen=True):
    """Earlier jobs that can warm-start a search, the most similar first."""

    jobs: tuple[EarlierJob, ...] = ()


class GetSimilarJobs(Method, frozen=True):
    """A client requests the earlier jobs of the same device kind, target and backend whose operators are most similar
    to those of its network. Their records are fetched with GetRecords."""

    result = SimilarJobs
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    tasks: Annotated[tuple[TaskInfo, ...], Meta(max_length=TASKS_MAX)]


class Rankers(Struct, frozen=True):
    """Models of the record store that order schedules before anything is measured."""

    families: tuple[Name, ...] = ()
    """The operator families that have one: names of schedule templates."""


class GetRankers(Method, frozen=True):
    """A client requests which operator families have a ranker for the device model of its job."""

    result = Rankers
    askers = (Asker.CLIENT,)
    device: Name
    """`Identity.device`"""


class RankerPart(Struct, frozen=True):
    """A part of a ranker."""

    content: bytes = b""
    total: Annotated[int, Meta(ge=0)] = 0
    """Bytes of the whole ranker; 0 if there is none."""


class GetRanker(Method, frozen=True):
    """A client requests a part of a ranker. Its form is known to the backend that trained it."""

    result = RankerPart
    askers = (Asker.CLIENT,)
    device: Name
    """`Identity.device`"""
    family: Name
    after: Annotated[int, Meta(ge=0)] = 0
    """Number of bytes that the client has already."""


class KnownTiming(Struct, frozen=True):
    """A latency of object code."""

    latency_s: tuple[float, ...]
    """Samples of one call, in seconds."""
    source: Text
    """The measurement that it comes from, in words."""


class KnownTimings(Struct, frozen=True):
    """Latencies of object code in the record store."""

    found: dict[str, KnownTiming]
    """By the digest of the code; unknown code is left out."""


class GetTimings(Method, frozen=True):
    """A client requests undisturbed latencies of object code on the job's device model."""

    result = KnownTimings
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    codes: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=1_000)]
    """Digests, as in `Record.code`."""
    identity: Identity
    """The environment in which the job measures."""


class BoardAccess(Struct, frozen=True):
    """Access to the board that a step of a job holds."""

    host: str
    """An address of the daemon's own machine."""
    port: int
    key: str
    """Key of the TVM RPC server there, valid until the step is over."""
    trouble: Text = ""
    """Why the last session with the board failed to begin, or ended; empty if nothing was wrong."""


class GetBoard(Method, frozen=True):
    """A client requests access to the board that a step holds: a machine with a TVM RPC server."""

    result = BoardAccess
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    step: StepId


class UnknownPrograms(Struct, frozen=True):
    """Workloads whose program the record store lacks."""

    workloads: tuple[Name, ...]


class GetUnknownPrograms(Method, frozen=True):
    """A client asks which programs of its network the record store lacks."""

    result = UnknownPrograms
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    workloads: Annotated[tuple[Name, ...], Meta(max_length=TASKS_MAX)]
    """`TaskInfo.workload` of each task."""


class AddProgram(Method, frozen=True):
    """A client sends the program of a workload, so that others can use its schedules without this project."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    task: TaskInfo
    program: Program


class AddRecord(Method, frozen=True):
    """Notification: a record. Durable at the latest when the answer to the next EndStep arrives."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = BULK_BYTES
    record: Record


class TagRecords(Method, frozen=True):
    """Notification, in both directions: these records of the client's job, by their numbers, were disturbed. A client
    measures them again."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = 96 * 1024
    numbers: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=10_000)]
    reason: Text


BLOCKS_MAX = 500


class CandidateBlock(Struct, frozen=True):
    """A candidate of a task of the client's job."""

    task: Annotated[int, Meta(ge=0)]
    sha256: Sha256
    reason: Annotated[str, Meta(max_length=1_000)]
    """Why the candidate must not be run; empty if it may be run again."""


class BlockCandidates(Method, frozen=True):
    """Notification: these candidates are blocked. Known blocks are sent before the answer to PlanNetwork."""

    result = Done
    askers = (Asker.DAEMON,)
    bytes_max = FRAME_BYTES
    candidates: Annotated[tuple[CandidateBlock, ...], Meta(max_length=BLOCKS_MAX)]


class EndStep(Method, frozen=True):
    """A step ended; `load` reports what the client can do now.

    The last report on a task counts. The client therefore makes the load when it sends the message, also after a
    reconnect: an older load would undo what it has reported since.
    """

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    step: StepId
    outcome: Outcome
    load: JobLoad
    error: Text = ""
    worked_s: Seconds | None = None
    """Seconds that the stage itself ran, by the client's clock."""
    note: DeviceNote | None = None
    """Observation of the device, after a step on a device with cores."""


class ResultFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A result file of the job; its blob must be complete."""

    name: Annotated[str, Meta(pattern=file_names.PATTERN)]
    sha256: Sha256


class AddArtifacts(Method, frozen=True):
    """Result files of the job that belong together: a reader sees all of them or none."""

    result = Done
    askers = (Asker.CLIENT,)
    files: Annotated[tuple[ResultFile, ...], Meta(min_length=1, max_length=100)]


class Heartbeat(Method, frozen=True):
    """Notification: the client is alive."""

    result = Done
    askers = (Asker.USER, Asker.CLIENT)
    least_role = Role.VIEWER


class AskLoad(Method, frozen=True):
    """The daemon requests the load of all tasks."""

    result = JobLoad
    askers = (Asker.DAEMON,)


class StartStep(Method, frozen=True):
    """Run a step on cores. Answered at once; EndStep reports its end."""

    result = Done
    askers = (Asker.DAEMON,)
    step: Step
    cores: tuple[int, ...]
    timeout_s: float
    sentinel: bool = False
    """Run the sentinel first, which measures the device's present speed (DeviceNote)."""
    gpu: Annotated[str, Meta(max_length=40)] = ""
    """UUID of the step's device if it is a GPU."""


class RevokeStep(Method, frozen=True):
    """Kill a step, and report it with EndStep."""

    result = Done
    askers = (Asker.DAEMON,)
    step: StepId
    reason: Text


class Goodbye(Method, frozen=True):
    """Notification: the daemon restarts. Running steps go on; reconnect and send Return."""

    result = Done
    askers = (Asker.DAEMON,)
    reason: Text


class Stop(Method, frozen=True):
    """Notification: end within a second."""

    result = Done
    askers = (Asker.DAEMON,)
    reason: Text
