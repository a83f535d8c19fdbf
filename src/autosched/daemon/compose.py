"""Builds and connects all parts of the daemon, starts and stops it."""

import asyncio
import contextlib
import faulthandler
import gc
import logging
import os
import signal
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import uvloop

from autosched import config, gpus, policy_registry
from autosched.config import Config
from autosched.core.actions import Action, EndJob, LaunchClient, RevokeStep, StartClient, StartStep, StopClient
from autosched.core.events import PolicyChosen, ResourcesDeclared
from autosched.core.policies.policy import Policy
from autosched.core.state import Job
from autosched.daemon import environment, service_manager, state_folder
from autosched.daemon.access import endpoints
from autosched.daemon.access.access_rules import AccessRules
from autosched.daemon.access.admission import Admission
from autosched.daemon.access.audit import Audit
from autosched.daemon.access.authenticator import Authenticator
from autosched.daemon.access.endpoints import Endpoint
from autosched.daemon.access.fair_shares import FairShares
from autosched.daemon.access.page_links import PageLinks
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.boards.board_registry import BoardRegistry
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.boards.program_jobs import ProgramJobs
from autosched.daemon.boards.tracker_port import TrackerPort
from autosched.daemon.clients.adoption import clear, find
from autosched.daemon.clients.client_session import Parts
from autosched.daemon.clients.separation import Separation
from autosched.daemon.clients.supervisor import ClientSupervisor
from autosched.daemon.console.server import Console, open_console
from autosched.daemon.devices.attribution_handler import AttributionHandler
from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.devices.gpu_watch import GpuWatch
from autosched.daemon.devices.quarantine import Quarantine
from autosched.daemon.engine import Engine, order_of
from autosched.daemon.event_stream import logs
from autosched.daemon.event_stream.counters import Counters
from autosched.daemon.event_stream.daemon_events import LoopStalled
from autosched.daemon.hosts.host_registry import HostRegistry
from autosched.daemon.jobs.latency_curves import Curves
from autosched.daemon.jobs.stage_history import History
from autosched.daemon.jobs.submissions import Submissions
from autosched.daemon.observe.loop_monitor import NOTICED_S, LoopMonitor
from autosched.daemon.observe.status_line import Headline
from autosched.daemon.observe.usage import LOOK_EVERY_S, Usage
from autosched.daemon.operations import daemon_answers, host_answers, job_answers, unit_answers
from autosched.daemon.operations.graceful_shutdown import welcome_back
from autosched.daemon.operations.retention import Retention
from autosched.daemon.operations.user_session import Services, admitting
from autosched.daemon.policy_time_limit import PolicyTimeLimit
from autosched.daemon.recovery import repair
from autosched.daemon.recovery.maintenance import Keeper
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.runtime import BY, spawn
from autosched.daemon.settings_reload import PASSWORD_IN_URL, LiveSettings
from autosched.daemon.storage import database, disk_reserve, schema
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.job_store import JobStore, span_rows
from autosched.daemon.storage.journal import Journal
from autosched.daemon.storage.moved_files import MovedFiles
from autosched.daemon.storage.record_lookup import RecordLookup
from autosched.daemon.storage.record_projection import RECORDS, RecordProjection
from autosched.daemon.storage.store_reader import StoreReader
from autosched.daemon.web.listener import Listener
from autosched.daemon.web.web_services import WebServices
from autosched.errors import AutoschedError, ConfigError, DiskFull, Refused, RequestError
from autosched.launch.job_folder import kill_strays
from autosched.launch.local import LocalLauncher
from autosched.launch.sandbox import Bounds
from autosched.model import JobId, Pool, UnitName
from autosched.process import control_group
from autosched.protocol import Reload
from autosched.protocol.roles import Role
from autosched.records.failure_attribution import DeviceSuspicion
from autosched.recordstore.rows import SourceJob
from autosched.version import __version__
from autosched.wire import whereabouts

log = logging.getLogger(__name__)

USER_ANSWERS = (daemon_answers, host_answers, job_answers, unit_answers)
"""Modules that register what users are answered."""
RESERVE_S = 5.0
"""Seconds between two looks at the space that is kept for a full disk."""
HALT_S, STOP_S = 2.0, 2.5
"""Maximum seconds of a stop: for the event that is being written, and for closing connections."""


def run(settings: LiveSettings, on_demand: bool = False, accept_data_loss: bool = False) -> int:
    """Serve until told to stop; returns the exit code. Raises ConfigError or Refused when it cannot start.

    A daemon that is started on demand, for one command, ends by itself when it has nothing to do. `accept_data_loss`:
    a damaged database is replaced by what is sound in it.
    """
    logged = logs.begin(settings.now.log.format, settings.now.log.level)
    faulthandler.enable()  # a watchdog ends a hanging daemon by SIGABRT, which then logs its stack
    daemon = Daemon(settings, on_demand, accept_data_loss, logged)
    lock = state_folder.take_state_dir(settings.now.state_dir)
    state_folder.make_private(settings.now.state_dir)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(daemon.serve())
    except DiskFull as error:
        daemon.manager.pause(str(error))
        raise
    finally:
        os.close(lock)


def source_job(jobs: Mapping[JobId, Job], number: JobId) -> tuple[SourceJob, str]:
    """A job's name in the record store, and its backend. Of a pruned job only the number is known."""
    if (job := jobs.get(number)) is None:
        return SourceJob(number), ""
    spec = job.spec
    return SourceJob(number, spec.name, spec.file or f"{spec.name}.onnx", spec.model, job.owner), spec.backend


def warnings_of(settings: Config, file: Path | None = None) -> Iterator[str]:
    """Yields warnings about valid settings that give others access. `file`: the settings, if they come from a file."""
    if warning := state_folder.exposed(settings.state_dir):
        yield warning
    if settings.boards.listen:
        who = " and ".join(("this machine", *settings.boards.networks))
        yield (
            f"boards.listen is {settings.boards.listen}, which asks for no key: any peer in {who} may run any program"
            " on the boards"
        )
    if file is not None and PASSWORD_IN_URL.search(settings.records.url) and file.stat().st_mode & stat.S_IROTH:
        yield (
            f"all users of this machine can read the password of the record store in {file}; run: chmod o= {file},"
            " or write it into ~/.pgpass"
        )


def choose_policy(scheduler: config.SchedulerConfig) -> tuple[Policy, str]:
    """The first policy, and the reason if it is not the configured one. Raises ConfigError.

    An operator's mistake stops the start; a package that is broken must not: jobs wait.
    """
    try:
        policy = policy_registry.load(scheduler.policy)
        policy_registry.check_allowed(policy, scheduler.allow_interference)
    except RequestError as error:
        raise ConfigError(f"scheduler.policy: {error}") from None
    except policy_registry.PolicyBroken as error:
        return policy_registry.FALLBACK, f"{error}; {policy_registry.FALLBACK.name} decides instead"
    return policy, ""


class Daemon:
    """All parts of the daemon and their connections."""

    def __init__(
        self, settings: LiveSettings, on_demand: bool, accept_data_loss: bool = False, logged: logs.Logs | None = None
    ) -> None:
        self._live, self._settings, self._logs = settings, settings.now, logged
        self._accept_data_loss = accept_data_loss
        self._on_demand = on_demand
        self._folder = self._settings.state_dir
        self._stop = asyncio.Event()
        self._why = ""
        self._comes_back = False
        self._exit_code = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self.manager = service_manager.Manager()
        self._page: Listener | None = None
        self._pulse = LoopMonitor(self._beat)

    async def serve(self) -> int:
        """Start, serve and stop."""
        resources = config.resources(self._settings, there=gpus.inventory())
        policy, trouble = choose_policy(self._settings.scheduler)
        self._engine = Engine(order_of(self._settings.launcher), self._folder)
        self._warnings = (*resources.warnings, *warnings_of(self._settings, self._live.file))
        for warning in self._warnings:
            log.warning("%s", warning)
        self._prepare(resources)
        with contextlib.ExitStack() as held:
            passed = service_manager.passed_listeners()
            opened = endpoints.open_all(self._settings, passed[service_manager.WIRE], held)
            self._door = endpoints.door(self._folder, held)
            if self._settings.http.listen or passed[service_manager.HTTP]:
                self._page = Listener(self._settings, passed[service_manager.HTTP])
                held.callback(self._page.release)
            with self.manager.starting("reads what it has written"):
                repair.see_to(self._folder, accept_data_loss=self._accept_data_loss)
                path = database.database(self._folder)
                journal = held.enter_context(contextlib.closing(Journal(path, *database.TABLES)))
                self._wire(journal, resources, tuple(one.address for one in opened))
            gc.freeze()  # recovered objects stay: a collection over 10,000 jobs takes a third of a second
            held.callback(gc.unfreeze)
            journal.reserve = partial(disk_reserve.release, self._folder, disk_reserve.JOURNAL)
            journal.start()
            loop = spawn(self._loop(), "the scheduler's loop")
            await self._runtime.post(lambda: self._declaration(resources, policy))
            await self._resume()
            for job in self._clients.hosted:  # their steps go on
                await self._history.look_up(job)
            if trouble:
                log.error("%s", trouble)
                self._runtime.replaced = trouble
            environment.spare_the_collector(held)
            console = open_console(
                self._live.now, passed[service_manager.CONSOLE], held, self._services, self._authenticator
            )
            self._listen(opened, journal, console)
            held.callback(whereabouts.remove, self._folder)
            keeper = spawn(self._keeper.run(), "snapshots and backups")
            follow = self._retention.follow(lambda: self._settings.retention, self._services.audit)
            retention = spawn(follow, "retention")
            reserve = spawn(self._keep_reserve(journal), "the disk's reserve")
            beside = [
                *(spawn(one.run(), "the record store") for one in self._projections),
                spawn(self._gpus.run(), "the watch of GPUs"),
            ]
            tidy = spawn(
                environment.collect_when_idle(self._runtime.state.active, lambda: self._runtime.decisions), "garbage"
            )
            await self._stop.wait()
            log.info("STOPPING %s", self._why)
            self.manager.tell("STOPPING=1", f"STATUS=stops: {self._why}")
            self._runtime.halt()
            await asyncio.wait({loop}, timeout=HALT_S)
            for work in (loop, keeper, retention, reserve, tidy, *beside):
                work.cancel()
            for one in (self._lookup, self._reader):
                if one is not None:
                    one.close()
            await console.close()
            await self._end()
        return self._exit_code

    async def _resume(self) -> None:
        """Take over hosts, boards, agents and quarantined devices of the earlier daemon."""
        await self._hosts.resume()
        self._registry.resume()
        self._programs.resume()
        if (address := self._settings.boards_listen()) is not None:
            await self._tracker.open(*address)
        self._engine.start()
        self._quarantine.resume()
        await welcome_back(self._runtime)

    def _prepare(self, resources: config.Resources) -> None:
        """Make the process and the state folder ready. Raises ConfigError."""
        resources.stay_off_devices()
        environment.check_proc()
        environment.allow_connections(self._settings.limits.connections_max)
        self._give_back_reserve()

    def _give_back_reserve(self) -> bool:
        """Give back the space that is kept for a full disk, if the disk is full; returns whether there was any."""
        if full := disk_reserve.release(self._folder, disk_reserve.JOURNAL):
            log.error("%s", disk_reserve.FULL_WORDS)
        return full

    async def _keep_reserve(self, journal: Journal) -> None:
        """Keep space for a full disk, give it back when the disk is full, and take it again when there is plenty. The
        journal asks for it when it needs it; files of clients need it, too. Never returns."""
        while True:
            if await asyncio.to_thread(self._give_back_reserve):
                journal.worry = disk_reserve.FULL_WORDS
            elif await asyncio.to_thread(disk_reserve.make, self._folder) and journal.worry == disk_reserve.FULL_WORDS:
                journal.worry = ""
            await asyncio.sleep(RESERVE_S)

    def _open_store(self, journal: Journal) -> None:
        """Copy records to the record store, unless the settings disable it. Raises ConfigError."""
        self._projections: list[RecordProjection] = []
        self._lookup: RecordLookup | None = None
        self._origin = schema.origin_name(journal.rows)
        self._reader: StoreReader | None = None
        if (chosen := self._settings.records.url) == "off":
            return
        jobs = self._runtime.state.jobs
        url = chosen or self._folder / RECORDS
        projection = RecordProjection(journal.path, url, lambda job: source_job(jobs, job), self._runtime.records)
        self._runtime.stream.attach(projection.take, *projection.KINDS)
        self._projections = [projection]
        self._lookup = RecordLookup(url, self._origin, projection.caught_up, self._rules.is_operator)
        self._reader = StoreReader(url, "the records page is empty")

    def _declaration(self, resources: config.Resources, policy: Policy) -> ResourcesDeclared:
        scheduler = self._settings.scheduler
        return ResourcesDeclared(
            resources.pools,
            scheduler.step_timeout_s,
            scheduler.attach_timeout_s,
            policy.name,
            scheduler.goal,
            self._clients.hosted,
        )

    def _wire(self, journal: Journal, resources: config.Resources, addresses: tuple[str, ...]) -> None:
        jobs = self._folder / "jobs"
        jobs.mkdir(exist_ok=True)
        budget = PolicyTimeLimit(self._settings.scheduler.policy_budget_s)
        recovered = recover(journal, database.snapshots(self._folder), budget)
        self._runtime, self._progress = runtime, progress = recovered.runtime, recovered.progress
        self._rules = AccessRules(self._settings)
        self._open_store(journal)
        log.info("replayed %d events", recovered.replayed)
        if self._logs is not None:
            self._logs.follow(runtime.stream)
        self._keeper = Keeper(journal, runtime.stream, self._folder, self._settings.backup, recovered.replayed)
        records = JobStore(journal)
        self._history = history = History(runtime, progress)
        trail = Audit(journal, runtime.stream)
        blobs = Blobs(self._folder / "blobs", self._settings.limits.blob_bytes_max)
        interval_s = self._settings.guard.sentinel_interval_s
        self._gpus = GpuWatch(runtime)
        monitor = DeviceMonitor(records, progress, runtime.stream, interval_s, self._gpus.health)
        self._gpus.tags = monitor.disturbed
        suspicion = DeviceSuspicion(self._settings.guard.quarantine_s)
        hooks: dict[UnitName, Sequence[str]] = {**self._settings.reboot_hooks}
        self._hosts = HostRegistry(runtime, self._settings.scheduler.host_lease_s, monitor.disturbed, self._gpus.hear)
        self._registry = BoardRegistry(runtime, self._settings.board, hooks)
        self._boards = BoardSessions(runtime, self._registry)
        self._programs = ProgramJobs(runtime, self._registry, self._boards, self._limits_of_programs)
        networks = self._settings.board_networks()
        self._tracker = TrackerPort(self._registry, self._boards, self._programs, networks)
        reboot_s = self._settings.guard.reboot_timeout_s
        self._quarantine = Quarantine(
            runtime, monitor, suspicion, hooks, reboot_s, self._hosts.probe, self._boards.probe
        )
        attribution = AttributionHandler(runtime, progress, monitor, self._quarantine.accuse, suspicion)
        self._moved = moved = MovedFiles(self._folder / "moved", self._settings.limits.blob_bytes_max)
        parts = Parts(
            runtime, records, history, blobs, progress, monitor, attribution, moved, self._boards, self._lookup
        )
        separation = Separation(self._settings.daemon.sandbox, self._rules)
        address = self._door.address  # the same after a restart, so that clients can reconnect
        self._clients = ClientSupervisor(parts, self._hosts, jobs, address, separation, self._launcher())
        self._limit_clients(self._settings.limits)
        self._retention = Retention(runtime, blobs, self._folder, lambda: self._clients.hosted, self._keeper.snapshot)
        self._services = services = Services(
            settings=self._live,
            runtime=runtime,
            store=records,
            blobs=blobs,
            progress=progress,
            monitor=monitor,
            attribution=attribution,
            clients=self._clients,
            hosts=self._hosts,
            boards=self._registry,
            audit=trail,
            submissions=Submissions(
                self._live, runtime, blobs, Admission(asyncio.get_running_loop().time), separation.refusal
            ),
            shares=FairShares(asyncio.get_running_loop().time, lambda: self._settings.limits),
            retention=self._retention,
            stop=self.stop,
            pulse=self._pulse,
            usage=Usage(lambda: runtime.state),
            on_demand=self._on_demand,
            addresses=addresses,
            warnings=self._warnings,
            separation=separation,
            page=self._page.url if self._page is not None else "",
            page_links=PageLinks(asyncio.get_running_loop().time),
        )
        self._limit_uploads(self._settings.limits)
        self._addresses = addresses
        self._authenticator = Authenticator(
            self._settings.limits,
            self._rules,
            admitting(services),
            self._clients.key,
            partial(trail.note, Principal(BY, Role.OPERATOR), "keys"),
            self._look_busy,
        )
        self._shown = self._watch(services)
        self._live.apply = self._apply
        self._take_over(jobs, resources.pools)

    def _launcher(self) -> LocalLauncher:
        """Starts the jobs of users who are no operators apart from the daemon's files, processes and network."""
        settings = self._settings
        files = (settings.daemon.tls_key, str(self._live.file or ""), os.environ.get("CREDENTIALS_DIRECTORY", ""))
        hidden = (self._folder, self._rules.keys.folder, *(Path(name) for name in files if name))
        boards = bool(settings.boards.listen) or any(device.rpc for device in settings.device)
        bounds = Bounds(hidden=hidden, readable=(self._folder / endpoints.DOOR,), network=boards)
        return LocalLauncher(bounds=bounds)

    def _watch(self, services: Services) -> WebServices:
        """Attach the listeners that count and keep events for views."""
        runtime, tally = services.runtime, Counters()
        usage, curves, recent = services.usage, Curves(services.progress), services.recent
        runtime.stream.attach(tally.take)
        runtime.stream.attach(usage.take, *usage.KINDS)
        runtime.stream.attach(curves.take, *curves.KINDS)
        runtime.stream.attach(recent.take, *recent.KINDS)
        return WebServices(
            services, self._authenticator, usage, tally, curves, recent, self._reader, self._origin, self._stop.is_set
        )

    async def _apply(self, new: Config, old: Config) -> None:
        """Apply changed settings. Raises Refused for a policy that cannot be used, and changes nothing then."""
        if (new.scheduler.policy, new.scheduler.goal) != (old.scheduler.policy, old.scheduler.goal):
            policy, trouble = choose_policy(new.scheduler)
            if trouble:
                raise Refused(trouble)
            await self._runtime.post(lambda: PolicyChosen(policy.name, new.scheduler.goal, "its settings"))
        self._settings = new
        self._authenticator.limits, self._keeper.settings = new.limits, new.backup
        self._services.blobs.bytes_max = new.limits.blob_bytes_max
        self._limit_uploads(new.limits)
        self._limit_clients(new.limits)
        self._hosts.lease_s = new.scheduler.host_lease_s
        self._services.monitor.look_every(new.guard.sentinel_interval_s)

    def _limit_uploads(self, limits: config.LimitsConfig) -> None:
        self._services.blobs.uploads.bytes_max = self._moved.job_bytes_max = limits.user_upload_bytes_max

    def _limits_of_programs(self) -> tuple[int, float]:
        return self._settings.limits.jobs_active_max, self._settings.scheduler.step_timeout_s

    def _limit_clients(self, limits: config.LimitsConfig) -> None:
        self._clients.memory.bytes_max, self._clients.cache_bytes_max = limits.client_bytes_max, limits.cache_bytes_max
        self._clients.tasks_max = limits.client_tasks_max

    def _take_over(self, jobs: Path, pools: Sequence[Pool]) -> None:
        """Adopt the clients that have survived, and kill all other processes of jobs."""
        survivors = find(self._runtime.state, jobs, pools)
        if strays := kill_strays(jobs, [jobs / str(one.job) for one in survivors if one.process is not None]):
            log.warning("killed what clients of an earlier life left behind: %s", strays)
        if (groups := control_group.delegated()) is not None:
            groups.clear(one.process.pid for one in survivors if one.process is not None)
        clear(jobs, survivors)
        self._clients.adopt(survivors)

    async def _loop(self) -> None:
        """Run the core's loop. Its error ends the daemon."""
        try:
            await self._runtime.run(self, lambda spans: span_rows(spans) + self._history.rows(spans))
        except Exception:
            log.critical("the scheduler is broken; the daemon ends", exc_info=True)
            self._exit_code = 70
            self.stop("the scheduler is broken", comes_back=not self._on_demand)

    def _listen(self, opened: tuple[Endpoint, ...], journal: Journal, console: Console) -> None:
        loop = asyncio.get_running_loop()
        for one in (*opened, self._door):
            self._authenticator.listen(one)
        comes_back = not self._on_demand  # a daemon on demand is started again by the next command only
        loop.add_signal_handler(signal.SIGTERM, self.stop, "SIGTERM", comes_back)
        loop.add_signal_handler(signal.SIGINT, self.stop, "SIGINT")
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        page = self._page.url if self._page is not None else ""
        whereabouts.write(
            self._folder,
            whereabouts.Whereabouts(
                os.getpid(), __version__, self._addresses, state_folder.started_at(), page, console.addresses
            ),
        )
        self._pulse.start()
        log.info("console at %s", " ".join(console.addresses))
        log.info("READY %s pid=%d state_dir=%s", " ".join(self._addresses), os.getpid(), self._folder)
        if self._page is not None:
            self._page.begin(self._shown)
            log.info("the page is at %s", self._page.url)
        self.manager.tell("READY=1")
        spawn(self.manager.feed(journal), "watchdog")
        spawn(self.manager.report(self._say(Headline(), journal)), "status line")
        self._look_busy()

    def _say(self, headline: Headline, journal: Journal) -> Callable[[], str]:
        runtime = self._runtime
        return lambda: headline.words(runtime.state, runtime.timeline, runtime.clock(), journal.stalled)

    def reload(self) -> None:
        """Read keys and settings again, on SIGHUP."""
        spawn(self._reload(), "reload")

    async def _reload(self) -> None:
        with self.manager.reloading():
            self._authenticator.look_at_keys()
            try:
                await self._live.reload(Reload())
            except AutoschedError as error:
                log.error("the settings stay as they are: %s", error)

    def _beat(self, lag_s: float, where: str) -> None:
        self._shown.tally.lag_s.add(lag_s)
        if (now := self._runtime.clock()) >= self._shown.usage.looked_at + LOOK_EVERY_S:
            self._shown.usage.look(now)
        if lag_s >= NOTICED_S:
            self._runtime.stream.publish(LoopStalled(lag_s, where))

    # Stop -------------------------------------------------------------------------------------------------------------

    def stop(self, why: str, comes_back: bool = False) -> None:
        """Begin to stop, and at the second call stop at once. Clients outlive a daemon that restarts."""
        if self._stop.is_set():
            os._exit(self._exit_code or 1)
        self._why, self._comes_back = why, comes_back
        self._stop.set()

    async def _end(self) -> None:
        """End the clients of a daemon that stops for good; their jobs go on from their records at the next start.
        Clients of a daemon that restarts go on with their steps, and reconnect."""
        self._authenticator.shut()
        await self._tracker.close()
        await self._boards.close()
        self._engine.stop(ends=not self._comes_back)
        if self._page is not None:
            await self._page.close()
        self._pulse.stop()
        try:
            async with asyncio.timeout(STOP_S):
                await (self._clients.leave("the daemon stops") if self._comes_back else self._clients.close())
                await self._authenticator.close()
        except TimeoutError:
            log.warning(
                "%d clients and %d connections did not end in time", len(self._clients.hosted), self._authenticator.open
            )

    def _look_busy(self) -> None:
        """Stop a daemon on demand after it has been idle for a while."""
        if not self._on_demand:
            return
        if self._idle_timer is not None:
            self._idle_timer.cancel()
        self._idle_timer = asyncio.get_running_loop().call_later(self._settings.daemon.idle_exit_s, self._stop_if_idle)

    def _stop_if_idle(self) -> None:
        if not self._runtime.state.active and not self._authenticator.open:
            self.stop(f"idle for {self._settings.daemon.idle_exit_s:g} s")

    # Performer --------------------------------------------------------------------------------------------------------

    def perform(self, action: Action) -> None:
        """Begin to perform an action of the core."""
        match action:
            case StartStep(step=step):  # most actions are of this kind
                self._host_of(step.job).start_step(step)
            case StartClient(job=job):
                self._clients.start(job)
            case LaunchClient(job=job, host=host):
                self._clients.launch(job, host)
            case StopClient(job=job, reason=reason):
                self._host_of(job).stop(job, reason)
            case RevokeStep(job=job):
                self._host_of(job).revoke_step(action)
            case EndJob(job=job):
                self._progress.get(job).close()
                self._look_busy()

    def _host_of(self, job: JobId) -> ClientSupervisor | ProgramJobs:
        """The component that acts for the job's client."""
        return self._programs if self._programs.has(job) else self._clients

    def changed(self, job: JobId) -> None:
        """Wake the callers that wait for a change of the job."""
        if job in self._runtime.state.jobs:
            self._progress.changed(job)
        else:
            self._progress.forget(job)
