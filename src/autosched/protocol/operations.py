"""Methods of users and operators about the daemon, its units and its journal."""

from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from autosched.model import CudaDevice, Goal, JobId, Name, RpcServer, Seconds, StepId, Text, UnitName
from autosched.protocol.method import Done, Method, Role


class Calibration(Struct, frozen=True):
    """Accuracy of the daemon's estimates of step durations."""

    steps: int
    """Number of ended steps with an estimate."""
    mape: float
    """Mean of |estimate - duration| / duration."""
    coverage_p90: float | None
    """Share of steps that took no longer than their 90 % quantile, ideally 0.9; None before there are any."""
    typical: float = 1.0
    """Median factor between the measured and the estimated duration of recent steps, in either direction."""


class DaemonInfo(Struct, frozen=True):
    """Identity and state of the daemon that answers."""

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
    paused: str = ""
    """Why no steps start; empty if they do."""
    page: str = ""
    """Address of the page; empty if there is none."""


class Info(Method, frozen=True):
    """Get the identity and state of the daemon."""

    result = DaemonInfo
    least_role = Role.VIEWER


class PageLink(Struct, frozen=True):
    """An address of the page that signs in its first reader."""

    url: str
    """Empty if there is no page."""


class GetPageLink(Method, frozen=True):
    """Get a link to the page, in the name of the peer. It works once, within 12 hours, while the daemon runs."""

    result = PageLink
    least_role = Role.VIEWER

    job: JobId = 0
    """0: the page of all jobs."""


class PolicyView(Struct, frozen=True):
    """The scheduling policy, the source of that choice, and the quality of the estimates it uses."""

    policy: str
    goal: str
    rule: str
    """Rule that `predictive` follows at present; empty for other policies."""
    installed: tuple[str, ...]
    """Names of all policies."""
    configured: str
    """The policy of the next start."""
    replaced: str
    """Why the chosen policy does not decide; empty while it does."""
    calibration: Calibration | None


class GetPolicy(Method, frozen=True):
    """Get the scheduling policy, and the reason for it."""

    result = PolicyView
    least_role = Role.VIEWER


class ChoosePolicy(Method, frozen=True):
    """Use another policy, or another goal, until the daemon restarts. A field that is not named stays."""

    result = PolicyView
    policy: Name | None = None
    goal: Goal | None = None


class DeviceCondition(StrEnum):
    """Reliability of a device's measurements, as far as the daemon monitors it."""

    STEADY = "steady"
    LEARNING = "learning"  # its noise is not known yet
    DRIFTING = "drifting"
    NOT_WATCHED = "not watched"


class UnitView(Struct, frozen=True):
    """One lane or device."""

    unit: str
    pools: tuple[str, ...]
    cores: tuple[int, ...]
    state: str  # "free", "busy", "stopping", "drained", "quarantined", "away"
    job: JobId | None = None
    task: int | None = None
    stage: str = ""
    held_s: float = 0.0
    left_s: float = 0.0
    waiting: int = 0
    busy_ratio: float = 0.0
    """Share of the daemon's uptime in which the unit was leased."""
    health: str = ""
    """Health of a device in words: whether its measurements are reliable, and if not, why."""
    condition: DeviceCondition | None = None
    """The health in one word; None for a lane."""
    drained: str = ""
    """Why it gets no steps; empty if it does."""
    quarantined: bool = False
    """Whether the daemon quarantined it."""
    eta_s: float | None = None
    """Seconds until its step should end; None if unknown."""
    accelerator: CudaDevice | RpcServer | None = None
    """The device if it is no CPU."""
    host: str = ""
    """Name of its machine; empty: the daemon's own."""


class GoneBoard(Struct, frozen=True):
    """A board that had registered itself and is absent now."""

    unit: UnitName
    kind: str
    reason: Text
    gone_s: Seconds


class UnitList(Struct, frozen=True):
    """All lanes and devices."""

    units: tuple[UnitView, ...]
    gone: tuple[GoneBoard, ...] = ()
    """Boards that are expected back."""


class ListDevices(Method, frozen=True):
    """List host lanes and devices: who holds them, since when, until when."""

    result = UnitList
    least_role = Role.VIEWER


class DrainUnit(Method, frozen=True):
    """Give a lane or device no more steps; running ones go on. Holds over restarts."""

    result = Done
    unit: Name
    reason: Annotated[str, Meta(min_length=1, max_length=500)]
    deadline_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Seconds after which its running step is killed, unless the unit is returned before; None: the step ends by
    itself."""


class ReturnUnit(Method, frozen=True):
    """Give a drained unit steps again."""

    result = Done
    unit: Name


class FreeUnit(Method, frozen=True):
    """Declare that nothing runs on a unit any more: its holder's client is given up, and killed if possible."""

    result = Done
    unit: Name


class RecentEvent(Struct, frozen=True):
    """An unusual event."""

    at: str
    """Wall time, ISO 8601."""
    text: str


class NewsList(Struct, frozen=True):
    """Events, newest last."""

    news: tuple[RecentEvent, ...]


class ListNews(Method, frozen=True):
    """List the events of a lane or device since the daemon started, without successful steps."""

    result = NewsList
    least_role = Role.VIEWER
    unit: Name
    limit: Annotated[int, Meta(ge=1, le=100)] = 20


class ForgetBoard(Method, frozen=True):
    """Stop waiting for a board that is gone, and free its name."""

    result = Done
    unit: UnitName


class Pause(Method, frozen=True):
    """Start no steps of any job; running ones go on. Holds over restarts."""

    result = Done
    reason: Annotated[str, Meta(max_length=500)] = ""


class Resume(Method, frozen=True):
    """Start steps again."""

    result = Done


class BlockedCandidate(Struct, frozen=True):
    """A candidate that is blocked after repeated failures."""

    number: int
    place: str
    """Backend, target and kind of device."""
    workload: str
    sha256: str
    """SHA-256 of the candidate."""
    reason: str
    """How the candidate failed, where, and in which jobs."""


class BlockedList(Struct, frozen=True):
    """Blocked candidates, newest last."""

    candidates: tuple[BlockedCandidate, ...]


class ListBlocked(Method, frozen=True):
    """List the latest `limit` blocked candidates; with `before`, of those with a smaller number."""

    result = BlockedList
    least_role = Role.VIEWER
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    before: Annotated[int, Meta(ge=0)] | None = None


class ForgiveBlocked(Method, frozen=True):
    """Allow a blocked candidate to be run again."""

    result = Done
    number: int


class Span(Struct, frozen=True):
    """A finished or running step on the time line. `ended_at` is None while it runs."""

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
    """Seconds that the stage itself ran, by the client's clock; the rest of the lease is scheduling."""


class SpanList(Struct, frozen=True):
    """Steps in the order of their start; `more` means that another page follows."""

    spans: tuple[Span, ...]
    now: float
    more: bool


class IdleList(Struct, frozen=True):
    """Seconds in which no step held a unit, by unit and cause, as far back as the daemon remembers."""

    idle: dict[str, dict[str, float]]


class ListIdle(Method, frozen=True):
    """List the reasons for which units were idle in the last `last_s` seconds, at most since the daemon started."""

    result = IdleList
    least_role = Role.VIEWER
    last_s: Annotated[float, Meta(gt=0, le=1e9)]


class ListSpans(Method, frozen=True, omit_defaults=True):
    """List steps with an id greater than `after`, of all jobs (a Gantt chart shows other jobs' steps, too)."""

    result = SpanList
    least_role = Role.VIEWER
    after: StepId = 0
    last_s: Annotated[float, Meta(ge=0, le=1e9)] | None = None
    """Only steps that run, or ended within this number of seconds."""


class AuditEntry(Struct, frozen=True):
    """A command that changed state, or was refused."""

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
    """Empty while the command runs, or if the daemon died meanwhile."""


class AuditList(Struct, frozen=True):
    """Commands, newest last."""

    entries: tuple[AuditEntry, ...]


class ListAudit(Method, frozen=True):
    """List the latest `limit` commands that change state; with `before`, of those with a smaller id."""

    result = AuditList
    audited = False
    limit: Annotated[int, Meta(ge=1, le=500)] = 100
    before: Annotated[int, Meta(ge=0)] | None = None


class Shutdown(Method, frozen=True):
    """Stop the daemon and its clients. Running jobs resume from their records when it starts again."""

    result = Done
    drain_s: Annotated[float, Meta(ge=0, le=86_400)] = 0.0
    """Seconds that running steps may go on before the daemon stops; no other steps start."""


class Pruned(Struct, frozen=True):
    """Jobs that were pruned, or would be."""

    jobs: tuple[JobId, ...]
    steps: int
    records: int
    """Number of the records of these jobs. They stay unless their removal was requested."""
    files: int
    """Number of models and results that no other job uses."""
    file_bytes: int
    left: int
    """Number of jobs that stay."""
    more: bool = False
    """Whether more jobs are left to prune: call again."""


class Prune(Method, frozen=True):
    """Remove jobs that ended `older_than_s` ago or earlier, except the `keep` latest, with their steps, results and
    models. Stage times and blocked candidates stay."""

    result = Pruned
    older_than_s: Annotated[float, Meta(ge=0, le=1e10)]
    keep: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    records: bool = False
    """Whether their records are removed too."""
    dry_run: bool = True
    """Only report what would be removed."""
