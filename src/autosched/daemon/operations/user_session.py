"""Sessions of users: each checks the role of its user, writes the audit trail, and has the method answered.

The functions that answer are in job_answers.py, unit_answers.py, host_answers.py and daemon_answers.py.
"""

import inspect
import logging
from collections.abc import Callable

import msgspec
from msgspec import Struct

from autosched.config import Config
from autosched.core.state import Job
from autosched.daemon.access.audit import Audit
from autosched.daemon.access.authenticator import Admit
from autosched.daemon.access.fair_shares import FairShares
from autosched.daemon.access.page_links import PageLinks
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.answers import ANSWERS, Caller
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.clients.separation import Separation
from autosched.daemon.clients.supervisor import ClientSupervisor
from autosched.daemon.devices.attribution_handler import AttributionHandler
from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.event_stream.recent_events import Recent
from autosched.daemon.hosts.host_registry import HostRegistry
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.jobs.submissions import Submissions
from autosched.daemon.observe.loop_monitor import LoopMonitor
from autosched.daemon.observe.usage import Usage
from autosched.daemon.observe.views import job_view
from autosched.daemon.operations.retention import Retention
from autosched.daemon.runtime import Runtime
from autosched.daemon.settings_reload import LiveSettings
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.job_store import JobStore
from autosched.errors import NotFound, Refused
from autosched.model import JobId
from autosched.protocol import USER_METHODS, GetJob, GetLoad, Hello, JobView, ListJobs, Method, wire_name
from autosched.protocol.roles import Role, changes, may
from autosched.wire.link import Link

log = logging.getLogger(__name__)

DURABLE = frozenset((GetJob, GetLoad, ListJobs))
"""Methods whose answers tell only what is on the disk."""


class Services(Struct, frozen=True, kw_only=True):
    """The parts of the daemon that sessions speak to."""

    settings: LiveSettings
    runtime: Runtime
    store: JobStore
    blobs: Blobs
    progress: ProgressRegistry
    monitor: DeviceMonitor
    attribution: AttributionHandler
    clients: ClientSupervisor
    hosts: HostRegistry
    boards: BoardRegistry
    audit: Audit
    submissions: Submissions
    shares: FairShares
    retention: Retention
    stop: Callable[[str], None]
    pulse: LoopMonitor
    usage: Usage
    on_demand: bool = False
    addresses: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Warnings about the settings."""
    separation: Separation
    page: str = ""
    """Address of the page; empty without one."""
    page_links: PageLinks
    recent: Recent = msgspec.field(default_factory=Recent)

    @property
    def config(self) -> Config:
        """The settings in force."""
        return self.settings.now

    @property
    def warnings_now(self) -> tuple[str, ...]:
        """Warnings about the settings, and the present problems."""
        return tuple(text for text in (*self.warnings, *self.runtime.troubles, self.separation.warning()) if text)


def admitting(services: Services) -> Admit:
    """Gives a connection what it may ask, once it is known whose it is."""

    def admit(link: Link, hello: Hello, who: Principal) -> None:
        if hello.role == "client":
            services.clients.attach(link, hello)
        elif hello.role == "agent":
            services.hosts.attach(link, hello)
        else:
            link.peer.serves, link.handler = USER_METHODS, UserSession(services, who).handle

    return admit


class UserSession:
    """Session of a user: answers methods according to the role."""

    def __init__(self, services: Services, who: Principal) -> None:
        self.services, self.who = services, who
        self.runtime = services.runtime

    async def handle(self, method: Method) -> Struct:
        """Answer one call, and keep account of it when it changes something."""
        kind, who = type(method), self.who
        if not may(who.role, kind):
            log.warning("%s, a %s, may not ask for %s", who.name, who.role.value, kind.__name__)
            raise Refused(
                f"{wire_name(kind)} is for the role {kind.least_role.value}; {who.name} has the role {who.role.value}"
            )
        if changes(kind):
            self.services.shares.change(who)
            return await self.services.audit.of(who, method, self.answer(method))
        if kind.least_role is not Role.VIEWER:
            return await self.answer(method)
        if isinstance(method, GetJob):
            await self._job_changed(method)
        async with self.services.shares.answer(who):
            answer = await self.answer(method)
        if kind in DURABLE:  # without a turn: a disk that is full must not keep other questions waiting
            await self.runtime.durable()
        return answer

    async def _job_changed(self, method: GetJob) -> None:
        """Wait for another version of a job, as long as the method says. Many users may wait at a time."""
        job = self.job(method.job).id
        if method.since is not None and method.wait_s > 0:
            await self.services.progress.wait(job, method.since, method.wait_s)

    async def answer(self, method: Method) -> Struct:
        """Answer one call of a user whose role and share were checked."""
        answer = ANSWERS.answer(Caller.USER, self, method)
        found = await answer if inspect.isawaitable(answer) else answer
        assert found is not None, f"{type(method).__name__} has no answer"
        return found

    # What handlers share ----------------------------------------------------------------------------------------------

    def job(self, job: JobId) -> Job:
        """The job of this number. Raises NotFound."""
        state = self.runtime.state
        if job in state.jobs:
            return state.jobs[job]
        if self.was_pruned(job):
            raise NotFound(f"job {job} was pruned. Who asked for that:  autosched audit")
        last = f"the last one is {state.last_job}" if state.last_job else "there are none"
        raise NotFound(f"there is no job {job}; {last}")

    def was_pruned(self, job: JobId) -> bool:
        """Whether it was pruned; its records may be there still."""
        state = self.runtime.state
        return 0 < job <= state.last_job and job not in state.jobs

    def own_job(self, job: JobId) -> Job:
        """A job that this user may change: his own, or as an operator any. A job without an owner belongs to all."""
        found, who = self.job(job), self.who
        if who.role is not Role.OPERATOR and found.owner not in ("", who.name):
            raise Refused(f"job {job} belongs to {found.owner}, and you are {who.name}: ask an operator")
        return found

    def view(self, job: Job, *, whole: bool) -> JobView:
        """The view of a job; `whole`: with its tasks."""
        runtime = self.runtime
        view = job_view(runtime.state, job, self.services.progress.get(job.id), runtime.clock(), whole=whole)
        held = self.services.clients.memory_bytes(job.id)
        return msgspec.structs.replace(view, shared_units=job.id in runtime.sharing, client_bytes=held)
