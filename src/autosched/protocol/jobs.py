"""Methods of users about jobs."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct, field

from autosched.backend import Comparison, LatencyGoal, MeasuredBuild, standing_s
from autosched.model import IdentityFrom, JobFailure, JobId, JobSpec, Labels
from autosched.protocol.method import WAIT_MAX_S, Done, Method, Role


class Chance(StrEnum):
    """Whether a job will reach the latency that its user asked for, judged at its submission."""

    KNOWN = "known"  # an earlier job of the same network has measured it
    LIKELY = "likely"
    UNLIKELY = "unlikely"
    UNKNOWN = "unknown"  # no earlier job of the same network was measured


class Forecast(Struct, frozen=True, omit_defaults=True):
    """Expectation of a job at its submission, from earlier jobs of the same network. Since 1.9."""

    chance: Chance
    """Without a latency to reach: known or unknown."""
    latency_s: float | None = None
    """The least latency that an earlier job has measured."""
    job: JobId | None = None
    """That job."""
    ready_s: float | None = None
    """Seconds that such a job took; the jobs before this one not counted."""


class Submitted(Struct, frozen=True):
    """The job is durably accepted."""

    job: JobId
    token: str = ""
    """For external clients: what to show in Hello."""
    forecast: Forecast | None = None
    """None: from a daemon of an earlier protocol."""


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
    """Until its running step is killed."""
    default_s: float | None = None
    """Without tuning, measured side by side with the best candidates; equal to `best_s` where it won."""
    groups: dict[str, int] = {}
    """Its calls for which it competes with other tasks, by group; the fastest of a group does them."""
    untuned_s: float | None = None
    """Latency of one call without a search, in a build of the network; None where that was not measured."""
    came_from: str = ""
    """Where the record store has the best schedule from; empty: this job found it. Since protocol 1.9."""


class JobView(Struct, frozen=True, kw_only=True):
    """A job as people want to see it. Latencies in seconds; times in seconds of the daemon's scheduler clock."""

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
    """Records, trials or not, that something slowed down while they were measured."""
    failed_steps: int = 0
    """Steps that failed as a whole, and with them the trials they were to make."""
    last_error: str = ""
    """Stage and message of the last of them."""
    estimate_s: float | None
    """Sum over tasks of calls times best latency, of tasks that compete the fastest; that without a search for a task
    without a record; None while one has neither."""
    first_estimate_s: float | None
    eta_s: float | None
    """Until the last trial, at the present rate; None while it is not known, and afterwards."""
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
    owner: str = ""
    """The submitter, as the audit trail names users: "uid 1000", "key ab12"; empty when it is no longer known."""
    held: str = ""
    """Why none of its steps start; empty when they do."""
    doing: str = ""
    """The stage of its first running step, or "waiting", "held", "paused"; of an ended job its state."""
    detail: str = ""
    """`reason` without what `doing` says as well: "conv on host/0". Since protocol 1.9."""
    labels: Labels = {}
    comparison: Comparison | None = None
    """How it compares with what its user would run otherwise; None while that is not measured."""
    result_s: float | None = None
    """Latency of the network as measured at the job's end; None before that, and for a job without a module."""
    goal: LatencyGoal | None = None
    """The latency that its user asked for, and the module that is nearest to it; None before a build was measured."""
    identities: tuple[IdentityFrom, ...] = ()
    """Circumstances of its measurements; in the answer to GetJob only."""
    builds: tuple[MeasuredBuild, ...] = ()
    """Builds of the network that were measured so far; in the answer to GetJob only."""

    @property
    def whole_s(self) -> float | None:
        """Latency of the whole network: the measured one of a job that has ended, else the expected one."""
        return standing_s(self.estimate_s, self.comparison, self.result_s)


class JobList(Struct, frozen=True):
    """Newest last."""

    jobs: tuple[JobView, ...]


class ListJobs(Method, frozen=True, omit_defaults=True):
    """Jobs without their tasks, the latest `limit` of those that are asked for; what is empty restricts nothing."""

    result = JobList
    least_role = Role.VIEWER
    limit: Annotated[int, Meta(ge=1, le=500)] = 200
    owner: Annotated[str, Meta(max_length=200)] = ""
    """Only those of this owner; "me": of the asking user."""
    name: Annotated[str, Meta(max_length=200)] = ""
    labels: Labels = field(default_factory=dict)
    """Only those that have all of these."""
    state: Annotated[str, Meta(max_length=64)] = ""
    """Only those in this state, or that do this: "running", "waiting", "profile"; "active": those that have not
    ended. A word that no job can be or do is refused, with those that there are."""
    before: JobId | None = None
    """Only those with a smaller number: the next page."""


class GetJob(Method, frozen=True):
    """One job with its tasks. Waits up to `wait_s` for a version other than `since`."""

    result = JobView
    least_role = Role.VIEWER
    job: JobId
    since: int | None = None
    wait_s: Annotated[float, Meta(ge=0, le=WAIT_MAX_S)] = 0.0


class TaskLoadView(Struct, frozen=True):
    """Load-awareness of one task: the four facts by which the scheduler decides (thesis 4.1.2)."""

    task: int
    name: str
    stage_done: bool
    """No stage of it is under way."""
    job_done: bool
    """It has no further stage."""
    resources_now: tuple[str, ...]
    """Pools that its running step holds a unit of."""
    resources_next: tuple[str, ...]
    """Pools of which its next stage needs a unit each."""
    stage: str = ""
    """The stage under way."""
    stage_next: str = ""


class LoadView(Struct, frozen=True):
    """Load-awareness of a job: the last report of its client on each task, and the leases held."""

    job: JobId
    tasks: tuple[TaskLoadView, ...]


class GetLoad(Method, frozen=True):
    """Load-awareness of each task of a job. Task 0 is the network."""

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
    """Want a job sooner or later; the answer says how it was wanted before. Fields that are not named stay."""

    result = PreviousSettings
    least_role = Role.USER
    job: JobId
    priority: Annotated[int, Meta(ge=-100, le=100)] | None = None
    deadline_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """From now; 0: there is none any more."""


class HoldJob(Method, frozen=True):
    """Start no more steps of a job; those that run go on. It stays so over restarts."""

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
    """Why a job does not go on, in sentences, the most important first."""

    job: JobId
    lines: tuple[str, ...]


class ExplainJob(Method, frozen=True):
    """Ask why a job waits, for what, held by whom."""

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
    """Ask for a job's result files; fetch them with GetBlob."""

    result = ArtifactList
    least_role = Role.VIEWER
    job: JobId
