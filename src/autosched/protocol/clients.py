"""Methods between clients and the daemon, in both directions."""

from typing import Annotated

from msgspec import Meta, Struct

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
from autosched.protocol.method import BULK_BYTES, FRAME_BYTES, Asker, Done, Method, Role


class EarlierJob(Struct, frozen=True):
    """A job from which another one is to learn."""

    job: JobId
    spec: JobSpec
    workloads: dict[TaskIndex, Name]
    """The structural hash of each task."""


class JobOrder(Struct, frozen=True):
    """A job for a client to host, with the measurements of the job's earlier clients."""

    job: JobId
    spec: JobSpec
    network: Network | None
    """As planned by an earlier client of this job, if there was one."""
    records: int
    """How many records there are to fetch with GetRecords."""
    lanes: int
    devices: int
    device_cores: int
    """CPU cores of one of the devices."""
    units_elsewhere: int = 0
    """Lanes, and devices of the job's kind, of other hosts on which its stages could run. Since 1.9."""
    host_cores: tuple[int, ...] = ()
    """Where a client that the daemon or an agent has started may run, so that devices stay quiet."""
    age_s: Seconds = 0.0
    """Time since the job's submission. Since 1.9."""
    host: HostName = OWN_HOST
    """Host of the client. A step on a unit of another one is run by the client's helper there, by RunElsewhere. Since
    1.9."""
    identities: tuple[IdentityFrom, ...] = ()
    """Circumstances in which the records were measured, by growing trials. Since 1.9."""
    board: bool = False
    """Whether the job's devices are boards: each step on one asks for it with GetBoard. Since 1.9."""
    earlier: tuple[EarlierJob, ...] = ()
    """Jobs to learn from: those of `learn_from` in the spec, or those that an earlier client was told are similar.
    Their records are to be fetched with GetRecords."""


ARTIFACT_NAME = r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}$"
RETURNS_SINCE = (1, 3)
"""Below this protocol a client ends with its connection, and a daemon takes no client back."""


class Return(Method, frozen=True):
    """A client is back, from a lost connection or a daemon that died. Then come the records and ends of steps that it
    has not heard to be known."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    steps: Annotated[tuple[StepId, ...], Meta(max_length=4_096)]
    """Those that it runs, or has ended without hearing that this is known."""
    load: JobLoad


class GetOrder(Method, frozen=True):
    """A client asks for its job."""

    result = JobOrder
    askers = (Asker.CLIENT,)


class PlanNetwork(Method, frozen=True):
    """A client tells what its model consists of."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    network: Network
    trials: int


class KnownSchedule(Struct, frozen=True, kw_only=True):
    """A schedule that the record store has."""

    candidate: Annotated[bytes, Meta(max_length=200_000)]
    """In the backend's own encoding."""
    latency_s: tuple[float, ...]
    """Samples of one call, in seconds, as they were measured there."""
    compared: bool = False
    """Measured undisturbed, side by side with the other good ones of its task."""
    code: str = ""
    """Digest of its object code; empty: not known."""
    measured_at: float = 0.0
    """Unix time in seconds; 0: not known."""
    elsewhere: float = 0.0
    """Latency on other models of device over the best one there, where that is least; 0: not known."""
    source: Text = ""
    """Where it comes from, in words."""


class KnownSchedules(Struct, frozen=True):
    """Schedules of a workload in the record store."""

    own: tuple[KnownSchedule, ...] = ()
    """Measured by a daemon under the very circumstances of the job, undisturbed: their latencies hold for it. The
    fastest first."""
    tried: int = 0
    """Number of schedules that were measured on this model of device, with whatever version of the compiler."""
    hints: tuple[KnownSchedule, ...] = ()
    """Others that can be applied, most promising first. Nothing is said about their latency here."""
    trouble: Text = ""
    """The reason why the store did not answer; empty: it did."""


KNOWN_MAX = 32
KNOWN_SINCE = (1, 9)
"""Below this protocol a daemon knows none of GetKnown, GetTimings, GetUnknownPrograms, AddProgram, Network.recalled and
Purpose.KNOWN."""


class GetKnown(Method, frozen=True):
    """A client asks what is known of a task of its network. The answer has as much as fits."""

    result = KnownSchedules
    askers = (Asker.CLIENT,)
    workload: Name
    """`TaskInfo.workload`"""
    identity: Identity
    """Circumstances in which the job will measure."""
    count: Annotated[int, Meta(ge=1, le=KNOWN_MAX)]
    """Maximum number of schedules of each kind."""
    template: Annotated[str, Meta(max_length=200)] = ""
    """`TaskInfo.template`"""


class SimilarJobs(Struct, frozen=True):
    """Earlier jobs whose measurements are worth learning from, the most similar first."""

    jobs: tuple[EarlierJob, ...] = ()


class GetSimilarJobs(Method, frozen=True):
    """A client asks which earlier jobs, for the same kind of device and target and by the same backend, tuned operators
    most like those of its network. Their records are to be fetched with GetRecords."""

    result = SimilarJobs
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    tasks: Annotated[tuple[TaskInfo, ...], Meta(max_length=TASKS_MAX)]


class KnownTiming(Struct, frozen=True):
    """A latency of object code."""

    latency_s: tuple[float, ...]
    """Samples of one call, in seconds."""
    source: Text
    """The measurement that it is from, in words."""


class KnownTimings(Struct, frozen=True):
    """Latencies of object code in the record store."""

    found: dict[str, KnownTiming]
    """By the digest of the code; nothing stands here of code that is not known."""


class GetTimings(Method, frozen=True):
    """A client asks which object code was measured before on a device of the job's model, undisturbed."""

    result = KnownTimings
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    codes: Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=1_000)]
    """Digests, as `Record.code` has them."""
    identity: Identity
    """Circumstances in which the job measures."""


class BoardAccess(Struct, frozen=True):
    """How a client reaches the board that a step of its job holds. Since 1.9."""

    host: str
    """An address of the daemon's own machine."""
    port: int
    key: str
    """Key of the TVM RPC server there. It holds until the step is over."""
    trouble: Text = ""
    """Why the last session with the board did not begin, or ended; empty: nothing was wrong."""


class GetBoard(Method, frozen=True):
    """A client asks how to reach the board that a step holds: a machine with a TVM RPC server."""

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
    """A client tells what a workload computes, so that other programs can use its schedules."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    task: TaskInfo
    program: Program


class AddRecord(Method, frozen=True):
    """Notification: a trial is over. Durable at the latest when the answer to the next EndStep arrives."""

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = BULK_BYTES
    record: Record


class TagRecords(Method, frozen=True):
    """Notification, both ways: these trials of the client's job were disturbed. To a client: measure them again."""

    result = Done
    askers = (Asker.CLIENT, Asker.DAEMON)
    bytes_max = 96 * 1024
    trials: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=10_000)]
    reason: Text


POISON_MAX = 500


class CandidateBlock(Struct, frozen=True):
    """A candidate of a task of the client's job."""

    task: Annotated[int, Meta(ge=0)]
    sha256: Sha256
    reason: Annotated[str, Meta(max_length=1_000)]
    """Why it must not be run; empty: it may be again."""


class Poisoned(Method, frozen=True):
    """Notification: these candidates are not to be run any more. Those known already come before the answer to
    PlanNetwork."""

    result = Done
    askers = (Asker.DAEMON,)
    bytes_max = FRAME_BYTES
    candidates: Annotated[tuple[CandidateBlock, ...], Meta(max_length=POISON_MAX)]


class EndStep(Method, frozen=True):
    """A step ended; `load` says what the client can do now.

    A client that came back since the step ended replaces the load by its present one: the daemon takes the load that it
    hears last.
    """

    result = Done
    askers = (Asker.CLIENT,)
    bytes_max = FRAME_BYTES
    step: StepId
    outcome: Outcome
    load: JobLoad
    error: Text = ""
    worked_s: Seconds | None = None
    """How long the stage itself ran, by the client's clock."""
    device: DeviceNote | None = None
    """Observation of the device, after a step on a device with cores."""


class AddArtifact(Method, frozen=True):
    """A result file of the job; its blob must be complete."""

    result = Done
    askers = (Asker.CLIENT,)
    name: Annotated[str, Meta(pattern=ARTIFACT_NAME)]
    sha256: Sha256


class ResultFile(Struct, frozen=True, forbid_unknown_fields=True):
    """A result file of the job; its blob must be complete."""

    name: Annotated[str, Meta(pattern=ARTIFACT_NAME)]
    sha256: Sha256


ARTIFACTS_SINCE = (1, 6)
"""Below this protocol a daemon knows neither AddArtifacts nor Network.comparison."""

MEASUREMENTS_SINCE = (1, 7)
"""Below this protocol a daemon knows neither Network.measured nor Network.identity."""

CODE_SINCE = (1, 8)
"""Below this protocol a daemon knows none of Record.code, TaskInfo.template and Identity.measurement."""


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
    """The daemon asks for the load of all tasks."""

    result = JobLoad
    askers = (Asker.DAEMON,)


class StartStep(Method, frozen=True):
    """Run this step on these cores; answered at once, ended by EndStep."""

    result = Done
    askers = (Asker.DAEMON,)
    step: Step
    cores: tuple[int, ...]
    timeout_s: float
    sentinel: bool = False
    """Run the fixed work first that tells how fast the device is at present (DeviceNote)."""


class RevokeStep(Method, frozen=True):
    """Kill this step and say so with EndStep."""

    result = Done
    askers = (Asker.DAEMON,)
    step: StepId
    reason: Text


class Goodbye(Method, frozen=True):
    """Notification: the daemon goes, and comes back. Running steps go on; connect again and say Return."""

    result = Done
    askers = (Asker.DAEMON,)
    reason: Text


class Stop(Method, frozen=True):
    """Notification: end within a second."""

    result = Done
    askers = (Asker.DAEMON,)
    reason: Text
