"""Sessions of users."""

import asyncio
import logging
import os
from collections import deque
from collections.abc import Callable

import msgspec
from msgspec import Struct

from autosched import policy_registry
from autosched.config import Config
from autosched.core.events import Event, JobCancelRequested, PolicyChosen
from autosched.core.explain import explain_job
from autosched.core.state import Job
from autosched.daemon.access.audit import Audit
from autosched.daemon.access.authenticator import Admit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.clients.supervisor import ClientSupervisor
from autosched.daemon.devices.attribution_handler import AttributionHandler
from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.event_stream.recent_events import Recent
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.jobs.submissions import Submissions
from autosched.daemon.observe import diagnostics
from autosched.daemon.observe.loop_monitor import LoopMonitor
from autosched.daemon.observe.usage import Usage
from autosched.daemon.observe.views import asked_for, calibration, job_view, unit_views
from autosched.daemon.operations.control import alter, operate, slot_of
from autosched.daemon.operations.graceful_shutdown import wind_down
from autosched.daemon.operations.retention import Retention
from autosched.daemon.runtime import Runtime, spawn
from autosched.daemon.settings_reload import LiveSettings
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.job_store import JobStore
from autosched.errors import NotFound, Refused, RequestError, WireError
from autosched.model import JobId, JobSpec, encode
from autosched.process.detached_process import resident_bytes
from autosched.protocol import (
    FRAME_BYTES,
    USER_METHODS,
    ArtifactList,
    AuditEntry,
    AuditList,
    CancelJob,
    ChoosePolicy,
    ConfirmReload,
    DaemonInfo,
    Done,
    DrainUnit,
    ExplainJob,
    Explanation,
    ForgivePoison,
    FreeUnit,
    GetBlob,
    GetFigures,
    GetJob,
    GetPolicy,
    GetRecords,
    Hello,
    HoldJob,
    IdleList,
    Info,
    JobList,
    JobView,
    ListArtifacts,
    ListAudit,
    ListDevices,
    ListIdle,
    ListJobs,
    ListLoopTasks,
    ListNews,
    ListPoison,
    ListQueues,
    ListSpans,
    ListStalls,
    Method,
    NewsList,
    Pause,
    PoisonList,
    PolicyView,
    Prune,
    PutBlob,
    ReleaseJob,
    Reload,
    Resume,
    ReturnUnit,
    SetJob,
    Shutdown,
    SpanList,
    Submit,
    Submitted,
    UnitList,
    wire_name,
)
from autosched.protocol.roles import Role, changes, may
from autosched.version import __version__
from autosched.wire.link import Link

log = logging.getLogger(__name__)

ANSWER_BYTES_MAX = FRAME_BYTES - 32 * 1024
TASKS_SHOWN = 64
LOOKS_PER_TURN = 250
"""Maximum number of jobs that a query reads in one turn of the loop."""
LOOKS_OF_VIEW = 25
"""As long takes what is said of one."""


class Services(Struct, frozen=True, kw_only=True):
    """The parts of the daemon that sessions speak to."""

    settings: LiveSettings
    runtime: Runtime
    store: JobStore
    blobs: Blobs
    ledger: ProgressRegistry
    guard: DeviceMonitor
    verdicts: AttributionHandler
    clients: ClientSupervisor
    audit: Audit
    submissions: Submissions
    retention: Retention
    stop: Callable[[str], None]
    pulse: LoopMonitor
    usage: Usage
    on_demand: bool = False
    addresses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    page: str = ""
    """Where browsers look."""
    recent: Recent = msgspec.field(default_factory=Recent)

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.settings.now


def admitting(services: Services) -> Admit:
    """Gives a connection what it may ask, once it is known whose it is."""

    def admit(link: Link, hello: Hello, who: Principal) -> None:
        if hello.role == "client":
            services.clients.attach(link, hello)
        else:
            link.peer.serves, link.handler = USER_METHODS, UserSession(services, who).handle

    return admit


class UserSession:
    """Session of a user: answers methods according to the role."""

    def __init__(self, services: Services, who: Principal) -> None:
        self._services, self._who = services, who
        self._runtime, self._store, self._ledger = services.runtime, services.store, services.ledger

    async def handle(self, method: Method) -> Struct:
        """Answer one call, and keep account of it when it changes something."""
        kind, who = type(method), self._who
        if not may(who.role, kind):
            log.warning("%s, a %s, may not ask for %s", who.name, who.role.value, kind.__name__)
            raise Refused(
                f"{wire_name(kind)} is for the role {kind.least_role.value}; {who.name} has the role {who.role.value}"
            )
        answer = self._answer(method)
        return await (self._services.audit.of(who, method, answer) if changes(kind) else answer)

    async def _answer(self, method: Method) -> Struct:
        match method:
            case ListAudit(limit=limit, before=before):
                return await self._audit(limit, before)
            case Info():
                return self._info()
            case PutBlob():
                return await self._services.blobs.put(method)
            case GetBlob():
                return await self._services.blobs.get(method)
            case GetRecords(job=job, after=after):
                return await self._store.records(job if self._was(job) else self._job(job).id, after)
            case Submit(spec=spec):
                return await self._submit(spec)
            case ListJobs():
                return await self._list(method)
            case GetJob():
                return await self._get_job(method)
            case CancelJob(job=job):
                return await self._cancel(self._own_job(job))
            case SetJob() | HoldJob() | ReleaseJob():
                return await alter(method, self._who.name, self._own_job(method.job), self._runtime)
            case ExplainJob(job=job):
                return self._explain(self._job(job))
            case GetPolicy():
                return self._policy()
            case ChoosePolicy():
                return await self._choose(method)
            case ListDevices():
                runtime, health = self._runtime, self._services.guard.health
                return UnitList(unit_views(runtime.state, runtime.timeline, runtime.clock(), health))
            case ListNews(unit=unit, limit=limit):
                return NewsList(self._services.recent.of(slot_of(self._runtime, unit).unit.name, limit))
            case DrainUnit() | ReturnUnit() | FreeUnit() | Pause() | Resume():
                return await operate(method, self._who.name, self._runtime, self._services.clients)
            case ListPoison(limit=limit, before=before):
                return PoisonList(self._services.verdicts.listed(limit, before))
            case ForgivePoison(number=number):
                await self._services.verdicts.forgive(number)
                return Done()
            case ListIdle(last_s=last_s):
                return IdleList(self._services.usage.idle(self._runtime.clock(), last_s))
            case ListSpans():
                return await self._spans(method)
            case ListArtifacts(job=job):
                return ArtifactList(await self._store.artifacts(self._job(job).id))
            case GetFigures() | ListQueues() | ListStalls() | ListLoopTasks():
                return diagnostics.look(method, self._runtime, self._services.pulse)
            case Prune():
                return await self._services.retention.prune(method)
            case Reload():
                return await self._services.settings.reload(method)
            case ConfirmReload():
                return self._services.settings.confirm()
            case Shutdown(drain_s=drain_s) if drain_s:
                work = wind_down(self._runtime, drain_s, self._who.name, self._services.stop)
                spawn(work, "the end")
                return Done()
            case Shutdown():
                asyncio.get_running_loop().call_soon(self._services.stop, f"{self._who.name} asked for it")
                return Done()
        raise WireError(f"a user may not ask for {type(method).__name__}")

    def _job(self, job: JobId) -> Job:
        state = self._runtime.state
        if job in state.jobs:
            return state.jobs[job]
        if self._was(job):
            raise NotFound(f"job {job} was pruned. Who asked for that:  autosched audit")
        last = f"the last one is {state.last_job}" if state.last_job else "there are none"
        raise NotFound(f"there is no job {job}; {last}")

    def _was(self, job: JobId) -> bool:
        """Whether it was pruned; its records may be there still."""
        state = self._runtime.state
        return 0 < job <= state.last_job and job not in state.jobs

    def _own_job(self, job: JobId) -> Job:
        """A job that this user may change: his own, or as an operator any. That of nobody belongs to all."""
        found, who = self._job(job), self._who
        if who.role is not Role.OPERATOR and found.owner not in ("", who.name):
            raise Refused(f"job {job} belongs to {found.owner}, and you are {who.name}: ask an operator")
        return found

    def _view(self, job: Job, *, whole: bool) -> JobView:
        runtime = self._runtime
        view = job_view(runtime.state, job, self._ledger.of(job.id), runtime.clock(), whole=whole)
        held = self._services.clients.memory_bytes(job.id)
        return msgspec.structs.replace(view, shared_units=job.id in runtime.sharing, client_bytes=held)

    def _info(self) -> DaemonInfo:
        services, state = self._services, self._runtime.state
        return DaemonInfo(
            version=__version__,
            pid=os.getpid(),
            uptime_s=self._runtime.clock() - self._runtime.timeline.began_at,
            policy=self._runtime.scheduler.policy.name,
            on_demand=services.on_demand,
            state_dir=str(services.config.state_dir),
            address=services.addresses[0] if services.addresses else "",
            jobs_active=len(state.active),
            jobs_total=len(state.jobs),
            steps_started=state.last_step,
            rss_bytes=resident_bytes("self"),
            warnings=(*services.warnings, *self._runtime.troubles),
            goal=state.goal.value,
            calibration=calibration(state),
            paused=state.paused,
            page=services.page,
        )

    def _policy(self) -> PolicyView:
        state = self._runtime.state
        return PolicyView(
            policy=self._runtime.scheduler.policy.name,
            goal=state.goal.value,
            rule=state.rule,
            installed=policy_registry.installed(),
            configured=self._services.config.scheduler.policy,
            replaced=self._runtime.replaced,
            calibration=calibration(state),
        )

    async def _choose(self, method: ChoosePolicy) -> PolicyView:
        now = self._runtime.scheduler.policy.name
        name, goal = method.policy or now, method.goal or self._runtime.state.goal
        try:
            policy_registry.check_allowed(
                policy_registry.load(name), self._services.config.scheduler.allow_interference
            )
        except policy_registry.PolicyBroken as error:
            raise Refused(f"{error}; {now} goes on deciding") from None
        await self._runtime.post(lambda: PolicyChosen(name, goal, self._who.name))
        return self._policy()

    async def _audit(self, limit: int, before: int | None) -> AuditList:
        """The latest entries, as many as fit an answer."""
        entries, size = deque[AuditEntry](), 0
        for entry in reversed(await self._services.audit.latest(limit, before)):
            size += len(encode(entry))
            if size > ANSWER_BYTES_MAX:
                break
            entries.appendleft(entry)
        return AuditList(tuple(entries))

    # Jobs -------------------------------------------------------------------------------------------------------------

    async def _submit(self, spec: JobSpec) -> Submitted:
        if spec.records_from is not None:
            self._job(spec.records_from)
        for job in spec.learn_from:
            if self._job(job).state.ended and not self._ledger.of(job).records:
                raise RequestError(f"job {job} measured nothing, so nothing can be learned from it: leave it out")
        quota = self._who.key.jobs_max if self._who.key is not None else None
        job = await self._services.submissions.take(spec, self._who.name, quota)
        return Submitted(job, self._services.clients.external_token(job) if spec.external else "")

    async def _get_job(self, method: GetJob) -> JobView:
        job = self._job(method.job)
        if method.since is not None and method.wait_s > 0:
            await self._ledger.wait(job.id, method.since, method.wait_s)
        view = self._view(job, whole=True)
        if len(encode(view)) > ANSWER_BYTES_MAX:  # thousands of operators: say of which tasks it consists, at least
            view = msgspec.structs.replace(view, skipped=(), tasks=view.tasks[:TASKS_SHOWN], spec=None)
        await self._runtime.durable()
        return view

    async def _list(self, method: ListJobs) -> JobList:
        """The latest of the jobs that are asked for, as many as fit an answer."""
        jobs, views, size, done = self._runtime.state.jobs, deque[JobView](), 0, 0
        wanted = asked_for(self._runtime.state, method, self._who.name)
        for number in reversed(tuple(jobs)):
            done += 1
            if done > LOOKS_PER_TURN:
                await asyncio.sleep(0)  # who runs a job must not wait for who looks at many
                done = 0
            if (job := jobs.get(number)) is None or not wanted(job):
                continue
            view = self._view(job, whole=False)
            done, size = done + LOOKS_OF_VIEW, size + len(encode(view))
            if size > ANSWER_BYTES_MAX:
                break
            views.appendleft(view)
            if len(views) == method.limit:
                break
        await self._runtime.durable()
        return JobList(tuple(views))

    async def _cancel(self, job: Job) -> Done:
        by = "its user" if job.owner in ("", self._who.name) else self._who.name

        def requested() -> Event | None:
            return None if job.state.ended else JobCancelRequested(job.id, by)

        await self._runtime.post(requested)
        return Done()

    def _explain(self, job: Job) -> Explanation:
        policy, now = self._runtime.scheduler.policy.name, self._runtime.clock()
        lines = explain_job(self._runtime.state, job.id, policy, now)
        if stalled := self._runtime.journal.stalled:
            lines = [f"The daemon waits for its disk: {stalled}.", *lines]
        return Explanation(job.id, tuple(lines))

    async def _spans(self, method: ListSpans) -> SpanList:
        running = dict(self._runtime.timeline.running)  # before reading: what ends meanwhile is in one of the two
        after = first = method.after
        if method.last_s is not None:
            first = max(after, await self._store.step_before(self._runtime.clock() - method.last_s))
        spans, more = await self._store.spans(first)
        by_step = {span.step: span for span in spans}
        last = spans[-1].step if more else None
        for step, span in running.items():
            if step > after and (last is None or step <= last):
                by_step.setdefault(step, span)
        ordered = tuple(by_step[step] for step in sorted(by_step))
        return SpanList(ordered, self._runtime.clock(), more)
