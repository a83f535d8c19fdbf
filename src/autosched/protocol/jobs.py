"""Methods of users about jobs."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from autosched.model import IdentityFrom, JobFailure, JobId, JobSpec, Labels
from autosched.network_status import Comparison, LatencyGoal, MeasuredBuild, standing_s
from autosched.protocol.method import WAIT_MAX_S, Done, Method, Role


class Chance(StrEnum):
    """Whether a job is expected to reach its latency goal, judged at its submission."""

    KNOWN = "known"  # measured by an earlier job of the same network
    LIKELY = "likely"
    UNLIKELY = "unlikely"
    UNKNOWN = "unknown"  # no earlier job of the same network has a measurement


class Forecast(Struct, frozen=True, omit_defaults=True):
    """Expectation for a job at its submission, from earlier jobs of the same network."""

    chance: Chance
    """Without a latency goal: known or unknown."""
    latency_s: float | None = None
    """The least latency measured by an earlier job."""
    job: JobId | None = None
    """The job that measured it."""
    ready_s: float | None = None
    """Seconds that such a job took, without waiting for other jobs."""


class Submitted(Struct, frozen=True):
    """The job is durably accepted."""

    job: JobId
    token: str = ""
    """For external clients: the token for Hello."""
    forecast: Forecast | None = None
    """None from a daemon of an earlier protocol."""


class Submit(Method, frozen=True):
    """Submit one job; its model's blob must be complete."""

    result = Submitted
    least_role = Role.USER
    bytes_max = 64 * 1024
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
    """Seconds until its running step is killed."""
    default_s: float | None = None
    """Without tuning, measured in turns with the best candidates; equal to `best_s` if it won."""
    groups: dict[str, int] = {}
    """Calls for which it competes with other tasks, by group; the fastest of a group does them."""
    untuned_s: float | None = None
    """Latency of one call without a search, in a build of the network; None if it was not measured."""
    came_from: str = ""
    """Origin of the best schedule if it comes from the record store; empty if this job found it."""


class JobView(Struct, frozen=True, kw_only=True):
    """A job in all details. Latencies in seconds; times in seconds of the daemon's scheduler clock."""

    job: JobId
    name: str
    target: str
    device: str
    backend: str
    state: str
    reason: str
    """The job's present activity, or the reason for waiting, in a few words. `detail` is the same beside `doing`."""
    trials: int
    trials_total: int | None
    failed: int
    failures: dict[str, int]
    """Failed trials by reason."""
    disturbed_records: int = 0
    """Number of records that were disturbed."""
    records: int = 0
    """Number of records: trials, their repetitions and finals. 0 if unknown."""
    failed_steps: int = 0
    """Number of steps that failed as a whole, without making their trials."""
    last_error: str = ""
    """Stage and message of the last failed step."""
    estimate_s: float | None
    """Sum over tasks of calls times best latency; only the fastest of competing tasks counts. A task without a record
    counts with its latency without a search. None while a task has neither."""
    first_estimate_s: float | None
    eta_s: float | None
    """Seconds until the last trial at the present rate; None while unknown, and afterwards."""
    submitted_at: float
    ended_at: float | None
    now: float
    version: int
    failure: JobFailure | None = None
    output: str = ""
    tasks: tuple[TaskView, ...] = ()
    skipped: tuple[tuple[str, str], ...] = ()
    spec: JobSpec | None = None
    """As submitted, so that it can be submitted again with changes; in the answer to GetJob only."""
    priority: int = 0
    deadline_at: float | None = None
    """The deadline that its user set."""
    shared_units: bool = False
    """Whether its steps shared a unit with other steps, which some policies allow: its latencies are not reliable."""
    client_bytes: int = 0
    """Memory of its client, if that runs on the daemon's machine."""
    owner: str = ""
    """The submitter, as in the audit trail: "uid 1000", "key ab12"; empty if no longer known."""
    held: str = ""
    """Why none of its steps start; empty if they do."""
    doing: str = ""
    """The stage of its first running step, or "waiting", "held", "paused"; for an ended job its state."""
    detail: str = ""
    """`reason` without the words of `doing`: "conv on host/0"."""
    labels: Labels = {}
    comparison: Comparison | None = None
    """Comparison with the engine that its user would run otherwise; None until it is measured."""
    result_s: float | None = None
    """Latency of the network as measured at the job's end; None before that, and for a job without a module."""
    goal: LatencyGoal | None = None
    """The latency goal, and the module that is nearest to it; None before a build was measured."""
    identities: tuple[IdentityFrom, ...] = ()
    """Identities of its measurements; in the answer to GetJob only."""
    builds: tuple[MeasuredBuild, ...] = ()
    """Measured builds of the network; in the answer to GetJob only."""

    @property
    def whole_s(self) -> float | None:
        """Latency of the whole network: the measured one of an ended job, otherwise the expected one."""
        return standing_s(self.estimate_s, self.comparison, self.result_s)


class JobList(Struct, frozen=True):
    """Jobs, newest last."""

    jobs: tuple[JobView, ...]


class ListJobs(Method, frozen=True, omit_defaults=True):
    """List jobs without their tasks: the latest `limit` of those that match; an empty field matches all."""

    result = JobList
    least_role = Role.VIEWER
    limit: Annotated[int, Meta(ge=1, le=500)] = 200
    owner: Annotated[str, Meta(max_length=200)] = ""
    """Only jobs of this owner; "me": of the calling user."""
    name: Annotated[str, Meta(max_length=200)] = ""
    labels: Labels = field(default_factory=dict)
    """Only jobs with all of these labels."""
    state: Annotated[str, Meta(max_length=64)] = ""
    """Only jobs in this state or activity: "running", "waiting", "profile"; "active": jobs that have not ended. An
    unknown word is refused, and the answer lists the known ones."""
    before: JobId | None = None
    """Only jobs with a smaller number: the next page."""


class GetJob(Method, frozen=True):
    """Get one job with its tasks. Waits up to `wait_s` for a version other than `since`."""

    result = JobView
    least_role = Role.VIEWER
    job: JobId
    since: int | None = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0.0


class TaskLoadView(Struct, frozen=True):
    """Load-awareness of one task: the four facts on which the scheduler decides (thesis 4.1.2)."""

    task: int
    name: str
    stage_done: bool
    """Whether none of its stages is running."""
    job_done: bool
    """Whether it has no further stage."""
    resources_now: tuple[str, ...]
    """Pools of the units that its running step holds."""
    resources_next: tuple[str, ...]
    """Pools of which its next stage needs a unit each."""
    stage: str = ""
    """The running stage."""
    stage_next: str = ""


class LoadView(Struct, frozen=True):
    """Load-awareness of a job: the last report of its client on each task, and the leases held."""

    job: JobId
    tasks: tuple[TaskLoadView, ...]


class GetLoad(Method, frozen=True):
    """Get the load-awareness of each task of a job. Task 0 is the network."""

    result = LoadView
    least_role = Role.VIEWER
    job: JobId


class CancelJob(Method, frozen=True):
    """Stop a job; its records are kept. Jobs of others are changed by operators only."""

    result = Done
    least_role = Role.USER
    job: JobId


class PreviousSettings(Struct, frozen=True):
    """Priority, deadline and target of a job."""

    priority: int
    deadline_at: float | None
    """Scheduler clock, seconds."""
    held: str = ""


class SetJob(Method, frozen=True):
    """Change a job's priority, deadline or target; the answer has the previous settings. Fields that are not named
    stay."""

    result = PreviousSettings
    least_role = Role.USER
    job: JobId
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    deadline_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Seconds from now; 0 removes the deadline."""


class HoldJob(Method, frozen=True):
    """Start no more steps of a job; running ones go on. Holds over restarts."""

    result = Done
    least_role = Role.USER
    job: JobId
    reason: Annotated[str, Meta(max_length=500)] = ""


class ReleaseJob(Method, frozen=True):
    """Let a held job go on."""

    result = Done
    least_role = Role.USER
    job: JobId


class Explanation(Struct, frozen=True):
    """Why a job does not proceed, in sentences, the most important first."""

    job: JobId
    lines: tuple[str, ...]


class ExplainJob(Method, frozen=True):
    """Explain why a job waits, for what, and who holds it."""

    result = Explanation
    least_role = Role.VIEWER
    job: JobId


class Artifact(Struct, frozen=True):
    """A result file of a job."""

    name: str
    sha256: str
    bytes: int


class ArtifactList(Struct, frozen=True):
    """Result files of a job."""

    artifacts: tuple[Artifact, ...]


class ListArtifacts(Method, frozen=True):
    """List a job's result files; fetch them with GetBlob."""

    result = ArtifactList
    least_role = Role.VIEWER
    job: JobId
