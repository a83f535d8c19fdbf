"""The methods that cross the wire, and their types. wire.py moves them; this file says what they are.

A method is a request struct and a result struct. Requests are named in the imperative; `METHODS` and `CLIENT_METHODS`
give the name on the wire, which is the class name in snake_case. A peer that sends anything else gets a WireError.
"""

from typing import Annotated, ClassVar

from msgspec import Meta, Struct

from autosched.backend import Network
from autosched.model import (
    DeviceNote,
    Goal,
    JobFailure,
    JobId,
    JobLoad,
    JobSpec,
    Name,
    Outcome,
    Record,
    Seconds,
    Sha256,
    Step,
    StepId,
    Text,
)

PROTOCOL = (1, 3)
"""(major, minor). Peers with another major are refused; a minor only ever adds methods and optional fields."""

FRAME_BYTES_BEFORE_HELLO = 4 * 1024
FRAME_BYTES = 512 * 1024
CHUNK_BYTES = 256 * 1024
HEARTBEAT_S = 5.0
SILENCE_S = 20.0
"""A client that says nothing for so long is taken for dead."""
WAIT_MAX_S = 30.0
NONCE_BYTES = 32

Version = Annotated[tuple[int, int], Meta(description="(major, minor)")]


class Method(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request. `Result` is the type of its answer."""

    result: ClassVar[type[Struct]]


class Done(Struct, frozen=True):
    """The answer of a method that has nothing to tell."""


# Anyone -----------------------------------------------------------------------------------------------------------


class Welcome(Struct, frozen=True):
    """The answer to Hello."""

    protocol: Version
    software: str
    session: int
    heartbeat_s: float = HEARTBEAT_S
    role: str = ""
    """What this connection is allowed: "viewer", "user", "operator" or "client"."""


class Challenge(Struct, frozen=True):
    """The answer to Authenticate."""

    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
    proof: bytes
    """That the daemon has the key too."""


class Authenticate(Method, frozen=True):
    """Before Hello, where keys are asked for: the id of this end's key, and a nonce. Hello then carries the proof."""

    result = Challenge
    key: Annotated[str, Meta(max_length=32)]
    nonce: Annotated[bytes, Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]


class Hello(Method, frozen=True, omit_defaults=True):
    """Says who comes. role: "user" or "client"; a client names its job and shows its token."""

    result = Welcome
    protocol: Version
    software: Annotated[str, Meta(max_length=100)]
    role: Annotated[str, Meta(max_length=20)] = "user"
    job: JobId | None = None
    token: Annotated[str, Meta(max_length=200)] = ""
    proof: Annotated[bytes, Meta(max_length=32)] = b""
    """That this end has the key that it named in Authenticate."""
    returns: bool = False
    """A client that had a connection before, has lost it, and says with Return how it stands."""


class Calibration(Struct, frozen=True):
    """How well the daemon has foreseen how long steps take."""

    steps: int
    """Ended steps of which it had said beforehand how long they would take."""
    mape: float
    """Mean of |foreseen - taken| / taken."""
    coverage_p90: float | None
    """Share of steps that took no longer than their 90 % quantile, 0.9 when all is well; None before there are any."""


class DaemonInfo(Struct, frozen=True):
    """Who answers."""

    version: str
    pid: int
    uptime_s: float
    policy: str
    on_demand: bool
    state_dir: str
    address: str
    jobs_active: int
    jobs_total: int
    steps_started: int
    rss_bytes: int
    warnings: tuple[str, ...] = ()
    goal: str = ""
    calibration: Calibration | None = None


class Info(Method, frozen=True):
    """Ask who answers."""

    result = DaemonInfo


class BlobState(Struct, frozen=True):
    """How much of a blob the daemon has; complete when `bytes_have` equals the announced total."""

    bytes_have: int
    complete: bool


class PutBlob(Method, frozen=True):
    """Upload a piece of a file, in order. `total` is its whole length. An empty piece asks how far the upload is."""

    result = BlobState
    sha256: Sha256
    total: Annotated[int, Meta(ge=0, le=64 * 1024**3)]
    offset: Annotated[int, Meta(ge=0)]
    data: Annotated[bytes, Meta(max_length=CHUNK_BYTES)]


class Chunk(Struct, frozen=True):
    """A piece of a file."""

    data: bytes
    total: int


class GetBlob(Method, frozen=True):
    """Download a piece of a file."""

    result = Chunk
    sha256: Sha256
    offset: Annotated[int, Meta(ge=0)]


class RecordPage(Struct, frozen=True):
    """Records in the order in which they were measured; `more` says that another page follows."""

    records: tuple[Record, ...]
    more: bool


class GetRecords(Method, frozen=True):
    """Records of a job, from the `after`-th on."""

    result = RecordPage
    job: JobId
    after: Annotated[int, Meta(ge=0)] = 0


# Users --------------------------------------------------------------------------------------------------------------


class Submitted(Struct, frozen=True):
    """The job is durably accepted."""

    job: JobId
    token: str = ""
    """For external clients: what to show in Hello."""


class Submit(Method, frozen=True):
    """Submit one job; its model's blob must be complete."""

    result = Submitted
    spec: JobSpec


class TaskView(Struct, frozen=True):
    """One task's progress."""

    task: int
    name: str
    shape: str
    weight: int
    flops: float
    trials: int
    failed: int
    best_s: float | None
    first_s: float | None
    stage: str = ""
    left_s: float | None = None
    """Until its running step is killed."""
    default_s: float | None = None
    """Without tuning, measured side by side with the best candidates; equal to `best_s` where it won."""
    groups: dict[str, int] = {}
    """Its calls for which it competes with other tasks, by group; the fastest of a group does them."""


class JobView(Struct, frozen=True, kw_only=True):
    """A job as people want to see it. Latencies in seconds; times in seconds of the daemon's scheduler clock."""

    job: JobId
    name: str
    target: str
    device: str
    backend: str
    state: str
    reason: str
    """What it does or waits for, in a few words."""
    trials: int
    trials_total: int | None
    failed: int
    failures: dict[str, int]
    """Failed trials by reason."""
    disturbed_records: int = 0
    """Records, trials or not, that something slowed down while they were measured."""
    failed_steps: int = 0
    """Steps that failed as a whole, and with them the trials they were to make."""
    last_error: str = ""
    """Stage and message of the last of them."""
    estimate_s: float | None
    """Sum over tasks of calls times best latency, of tasks that compete the fastest; None while records are lacking."""
    first_estimate_s: float | None
    eta_s: float | None
    submitted_at: float
    ended_at: float | None
    now: float
    version: int
    failure: JobFailure | None = None
    output: str = ""
    tasks: tuple[TaskView, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    spec: JobSpec | None = None
    """As submitted, so that it can be submitted again with other words; in the answer to GetJob only."""
    priority: int = 0
    deadline_at: float | None = None
    """When its user wants it to be done."""
    shared_units: bool = False
    """Steps of it shared a unit with other steps, which some policies allow: its latencies are not to be trusted."""
    client_bytes: int = 0
    """Memory of its client, where that runs on the daemon's machine."""


class JobList(Struct, frozen=True):
    """Newest last."""

    jobs: tuple[JobView, ...]


class ListJobs(Method, frozen=True):
    """Jobs without their tasks, the latest `limit` of them."""

    result = JobList
    limit: Annotated[int, Meta(ge=1, le=500)] = 200


class GetJob(Method, frozen=True):
    """One job with its tasks. Waits up to `wait_s` for a version other than `since`."""

    result = JobView
    job: JobId
    since: int | None = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0.0


class CancelJob(Method, frozen=True):
    """Stop a job; its records are kept."""

    result = Done
    job: JobId


class Explanation(Struct, frozen=True):
    """Why a job does not go on, in sentences, the most important first."""

    job: JobId
    lines: tuple[str, ...]


class ExplainJob(Method, frozen=True):
    """Ask why a job waits, for what, held by whom."""

    result = Explanation
    job: JobId


class PolicyView(Struct, frozen=True):
    """Who goes next, by whose word, and how good the estimates are that it is decided on."""

    policy: str
    goal: str
    rule: str
    """What `predictive` follows at present; empty for other policies."""
    installed: tuple[str, ...]
    """All policies by name."""
    configured: str
    """The policy of the next start."""
    replaced: str
    """Why the chosen policy does not decide; empty while it does."""
    calibration: Calibration | None


class GetPolicy(Method, frozen=True):
    """Ask who goes next, and why so."""

    result = PolicyView


class ChoosePolicy(Method, frozen=True):
    """Let another policy decide, or for another goal, until the daemon starts again. What is not named stays."""

    result = PolicyView
    policy: Name | None = None
    goal: Goal | None = None


class UnitView(Struct, frozen=True):
    """One lane or device."""

    unit: str
    pools: tuple[str, ...]
    cores: tuple[int, ...]
    state: str  # "free", "busy", "stopping", "drained"
    job: JobId | None = None
    task: int | None = None
    stage: str = ""
    held_s: float = 0.0
    left_s: float = 0.0
    waiting: int = 0
    busy_ratio: float = 0.0
    """Share of the daemon's uptime in which it was leased."""
    health: str = ""
    """Of a device: whether its measurements can be trusted, and why not."""
    drained: str = ""
    """Why it gets no steps; empty when it does."""


class UnitList(Struct, frozen=True):
    """All lanes and devices."""

    units: tuple[UnitView, ...]


class ListDevices(Method, frozen=True):
    """Host lanes and devices: who holds them, since when, until when."""

    result = UnitList


class DrainUnit(Method, frozen=True):
    """Give this lane or device no more steps; what runs on it goes on. It stays so over restarts."""

    result = Done
    unit: Name
    reason: Annotated[str, Meta(min_length=1, max_length=500)]


class ReturnUnit(Method, frozen=True):
    """Give a drained unit steps again."""

    result = Done
    unit: Name


class FreeUnit(Method, frozen=True):
    """Somebody who knows says that nothing runs on this unit any more: its holder's client is given up, and killed
    where that is possible."""

    result = Done
    unit: Name


class Span(Struct, frozen=True):
    """One finished or running step on the time line. `ended_at` is None while it runs."""

    step: StepId
    job: JobId
    task: int
    stage: str
    units: tuple[str, ...]
    queued_at: float
    started_at: float
    ended_at: float | None
    outcome: str
    worked_s: float | None = None
    """How long the stage itself ran, by the client's clock: the rest of the lease is what scheduling cost."""


class SpanList(Struct, frozen=True):
    """In the order of their start; `more` says that another page follows."""

    spans: tuple[Span, ...]
    now: float
    more: bool


class ListSpans(Method, frozen=True):
    """Steps with an id greater than `after`, of all jobs (a Gantt needs to see the neighbours too)."""

    result = SpanList
    after: StepId = 0


class Artifact(Struct, frozen=True):
    """A result file of a job."""

    name: str
    sha256: str
    bytes: int


class ArtifactList(Struct, frozen=True):
    """Result files of a job."""

    artifacts: tuple[Artifact, ...]


class ListArtifacts(Method, frozen=True):
    """Ask for a job's result files; fetch them with GetBlob."""

    result = ArtifactList
    job: JobId


class AuditEntry(Struct, frozen=True):
    """One command that changed something, or was to."""

    id: int
    at: str
    """Wall time, ISO 8601."""
    who: str
    """The user of the operating system ("uid 1000"), or the key ("key 3f2a91bc")."""
    role: str
    address: str
    command: str
    about: str
    """The command's parameters in JSON, shortened; no secrets."""
    outcome: str
    """Empty while it is under way, or when the daemon died meanwhile."""


class AuditList(Struct, frozen=True):
    """Newest last."""

    entries: tuple[AuditEntry, ...]


class ListAudit(Method, frozen=True):
    """The latest `limit` commands that changed something; with `before`, of those with a smaller id."""

    result = AuditList
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    before: Annotated[int, Meta(ge=0)] | None = None


class Shutdown(Method, frozen=True):
    """Stop the daemon and its clients. Running jobs resume from their records when it starts again."""

    result = Done


# Clients --------------------------------------------------------------------------------------------------------------


class JobOrder(Struct, frozen=True):
    """What a client needs to begin: the job and what was measured by an earlier client of it."""

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
    host_cores: tuple[int, ...] = ()
    """Where a client on the daemon's own machine may run, so that devices stay quiet."""


RETURNS_SINCE = (1, 3)
"""Below this protocol a client ends with its connection, and a daemon takes nobody back."""


class Return(Method, frozen=True):
    """A client is back, from a lost connection or a daemon that died. Then come the records and ends of steps that it
    has not heard to be known."""

    result = Done
    steps: Annotated[tuple[StepId, ...], Meta(max_length=4_096)]
    """Those that it runs, or has ended without hearing that this is known."""
    load: JobLoad


class GetOrder(Method, frozen=True):
    """A client asks for its job."""

    result = JobOrder


class PlanNetwork(Method, frozen=True):
    """A client tells what its model consists of."""

    result = Done
    network: Network
    trials: int


class AddRecord(Method, frozen=True):
    """Notification: a trial is over. Durable at the latest when the answer to the next EndStep arrives."""

    result = Done
    record: Record


class TagRecords(Method, frozen=True):
    """Notification, both ways: these trials of the client's job were disturbed. To a client: measure them again."""

    result = Done
    trials: Annotated[tuple[Annotated[int, Meta(ge=0)], ...], Meta(max_length=10_000)]
    reason: Text


class EndStep(Method, frozen=True):
    """A step ended; `load` says what the client can do now."""

    result = Done
    step: StepId
    outcome: Outcome
    load: JobLoad
    error: Text = ""
    worked_s: Seconds | None = None
    """How long the stage itself ran, by the client's clock."""
    device: DeviceNote | None = None
    """Of a step on a device with cores."""


class AddArtifact(Method, frozen=True):
    """A result file of the job; its blob must be complete."""

    result = Done
    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.\-]{0,199}$")]
    sha256: Sha256


class Heartbeat(Method, frozen=True):
    """Notification: the client is alive."""

    result = Done


# Daemon to client -----------------------------------------------------------------------------------------------------


class AskLoad(Method, frozen=True):
    """The daemon asks for the load of all tasks."""

    result = JobLoad


class StartStep(Method, frozen=True):
    """Run this step on these cores; answered at once, ended by EndStep."""

    result = Done
    step: Step
    cores: tuple[int, ...]
    timeout_s: float
    sentinel: bool = False
    """Run the fixed work first that tells how fast the device is at present (DeviceNote)."""


class RevokeStep(Method, frozen=True):
    """Kill this step and say so with EndStep."""

    result = Done
    step: StepId
    reason: Text


class Goodbye(Method, frozen=True):
    """Notification: the daemon goes, and comes back. Running steps go on; connect again and say Return."""

    result = Done
    reason: Text


class Stop(Method, frozen=True):
    """Notification: end within a second."""

    result = Done
    reason: Text


def wire_name(method: type[Method]) -> str:
    """`GetJob` is `get_job` on the wire."""
    return "".join(f"_{c.lower()}" if c.isupper() else c for c in method.__name__).lstrip("_")


def _table(*methods: type[Method]) -> dict[str, type[Method]]:
    return {wire_name(method): method for method in methods}


USER_METHODS = _table(
    Info, PutBlob, GetBlob, GetRecords, Submit, ListJobs, GetJob, CancelJob, ExplainJob, GetPolicy, ChoosePolicy,
    ListDevices, DrainUnit, ReturnUnit, FreeUnit, ListSpans, ListArtifacts, ListAudit, Heartbeat, Shutdown,
)  # fmt: skip
"""What a user may ask of the daemon."""

CLIENT_METHODS = _table(
    Return, GetOrder, PlanNetwork, AddRecord, TagRecords, EndStep, AddArtifact, Heartbeat, PutBlob, GetBlob, GetRecords
)
"""What a client may ask of the daemon."""

DAEMON_METHODS = _table(AskLoad, StartStep, RevokeStep, TagRecords, Goodbye, Stop)
"""What the daemon may ask of a client."""

HELLO = _table(Hello, Authenticate)
"""What a peer may ask before it has said who it is."""
