"""Answers the calls of one attached client, or of its helper on another host."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial

from msgspec import Struct

from autosched.core import placement
from autosched.core.events import Event, StagesFreed, StepEnded
from autosched.daemon.answers import ANSWERS, Caller
from autosched.daemon.boards.board_sessions import BoardSessions
from autosched.daemon.devices.attribution_handler import AttributionHandler
from autosched.daemon.devices.device_monitor import DeviceMonitor
from autosched.daemon.event_stream.daemon_events import recorded
from autosched.daemon.jobs import similar_jobs
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.jobs.stage_history import History
from autosched.daemon.runtime import Runtime
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.job_store import Found, JobStore, Planned, received_now
from autosched.daemon.storage.moved_files import MovedFiles
from autosched.daemon.storage.record_lookup import Asking, RecordLookup
from autosched.errors import NotFound, Refused, RequestError
from autosched.model import (
    DEVICE_POOL,
    HOST_POOL,
    TRIALS_MAX,
    HostName,
    JobId,
    Outcome,
    Purpose,
    Record,
    StepId,
    at_host,
)
from autosched.network_status import NetworkStatus
from autosched.protocol import (
    AddArtifacts,
    AddProgram,
    AddRecord,
    Artifact,
    BoardAccess,
    EarlierJob,
    EndStep,
    GetBlob,
    GetBoard,
    GetKnown,
    GetOrder,
    GetRanker,
    GetRankers,
    GetRecords,
    GetSimilarJobs,
    GetTimings,
    GetUnknownPrograms,
    JobOrder,
    KnownSchedules,
    KnownTimings,
    Method,
    PlanNetwork,
    PutBlob,
    PutMoved,
    RankerPart,
    Rankers,
    ReportStatus,
    SimilarJobs,
    TagRecords,
    UnknownPrograms,
)
from autosched.records import latency_bound


class Parts(Struct, frozen=True):
    """The parts of the daemon that answer clients."""

    runtime: Runtime
    store: JobStore
    history: History
    blobs: Blobs
    progress: ProgressRegistry
    monitor: DeviceMonitor
    attribution: AttributionHandler
    moved: MovedFiles
    boards: BoardSessions
    lookup: RecordLookup | None
    """None: there is no record store."""


class ClientSession:
    """Session of one connection.

    A report that arrives twice, late or out of order counts once: ids of steps are never used again, and numbers of
    records only grow. The end of a step that has ended already gets the same answer as before.
    """

    CALLER = Caller.CLIENT

    def __init__(self, job: JobId, lost: Callable[[], bool], parts: Parts) -> None:
        """`lost`: whether the client was given up meanwhile, or has another connection."""
        self._job = job
        self._lost = lost
        self._runtime, self._store, self._history = parts.runtime, parts.store, parts.history
        self._blobs, self._progress, self._monitor = parts.blobs, parts.progress, parts.monitor
        self._attribution, self._lookup, self._moved = parts.attribution, parts.lookup, parts.moved
        self._boards = parts.boards
        self._told = False
        """Whether the client was told, on this connection, what earlier jobs know about its network."""

    def handle(self, method: Method) -> Awaitable[Struct | None]:
        """Begin to answer one call. Its changes are queued when this returns: a step's end follows its records."""
        answer = ANSWERS.answer(self.CALLER, self, method)
        return answer if inspect.isawaitable(answer) else _found(answer)

    @ANSWERS.to(PutBlob, Caller.CLIENT)
    def _put_blob(self, method: PutBlob) -> Awaitable[Struct]:
        return self._blobs.put(method, f"job {self._job}")

    @ANSWERS.to(PutMoved, Caller.CLIENT, Caller.HELPER)
    def _put_moved(self, method: PutMoved) -> Awaitable[Struct]:
        return self._moved.of(self._job).put(method, f"job {self._job}")

    @ANSWERS.to(GetBlob, Caller.CLIENT, Caller.HELPER)
    def _file(self, method: GetBlob) -> Awaitable[Struct]:
        moved = self._moved.of(self._job)
        return (self._blobs if moved.size(method.sha256) is None else moved).get(method)

    @ANSWERS.to(GetRecords, Caller.CLIENT)
    def _records(self, method: GetRecords) -> Awaitable[Struct]:
        if method.job not in self._runtime.state.jobs:
            raise NotFound(f"there is no job {method.job}")
        return self._store.records(method.job, method.after)

    @ANSWERS.to(GetOrder, Caller.CLIENT, Caller.HELPER)
    async def _order(self, method: GetOrder) -> JobOrder:
        await self._store.flush()  # records of an earlier client must be there to be fetched
        state, progress = self._runtime.state, self._progress.get(self._job)
        spec = state.jobs[self._job].spec
        host = state.jobs[self._job].host
        lanes = state.queues.get(at_host(HOST_POOL, host))
        devices = state.queues.get(at_host(DEVICE_POOL + spec.device, host))
        teachers = spec.learn_from or progress.status.recalled.teachers
        return JobOrder(
            job=self._job,
            spec=spec,
            network=progress.network,
            status=progress.status,
            records=progress.records,
            lanes=len(lanes.pool.units) if lanes is not None else 0,
            devices=len(devices.pool.units) if devices is not None else 0,
            device_cores=len(devices.pool.units[0].cores) if devices is not None else 0,
            units_elsewhere=placement.units_elsewhere(state, state.jobs[self._job]),
            host_cores=self._cores_of_lanes(self._host),
            host=self._host,
            board=devices is not None and devices.pool.units[0].is_board,
            age_s=max(0.0, self._runtime.clock() - state.jobs[self._job].submitted_at),
            identities=tuple(progress.identities),
            earlier=tuple(self._earlier(job) for job in dict.fromkeys(teachers) if job in state.jobs),
        )

    def _cores_of_lanes(self, host: HostName) -> tuple[int, ...]:
        lanes = self._runtime.state.queues.get(at_host(HOST_POOL, host))
        return tuple(core for unit in lanes.pool.units for core in unit.cores) if lanes is not None else ()

    def _earlier(self, job: JobId) -> EarlierJob:
        network = self._progress.get(job).network
        workloads = {info.task: info.workload for info in network.tasks} if network is not None else {}
        return EarlierJob(job, self._runtime.state.jobs[job].spec, workloads)

    @property
    def _host(self) -> HostName:
        """Host of the peer."""
        return self._runtime.state.jobs[self._job].host

    @ANSWERS.to(GetSimilarJobs, Caller.CLIENT)
    async def _similar(self, method: GetSimilarJobs) -> SimilarJobs:
        """Find past jobs of similar networks. The event loop runs other work between two jobs."""
        jobs, found = self._runtime.state.jobs, []
        for number in similar_jobs.latest(jobs[self._job].spec, jobs.values()):
            await asyncio.sleep(0)
            progress = self._progress.get(number)
            if number in jobs and progress.network is not None and progress.records:
                found.append(similar_jobs.PastJob(number, progress.network.tasks, progress.records))
        return SimilarJobs(tuple(self._earlier(job) for job in similar_jobs.choose(method.tasks, found)))

    @ANSWERS.to(GetKnown, Caller.CLIENT)
    async def _known(self, method: GetKnown) -> KnownSchedules:
        if self._lookup is None or self._runtime.state.jobs[self._job].spec.fresh:
            return KnownSchedules()
        return await self._lookup.known(method, self._asking())

    @ANSWERS.to(GetTimings, Caller.CLIENT)
    async def _timings(self, method: GetTimings) -> KnownTimings:
        if self._lookup is None:
            return KnownTimings({})
        return await self._lookup.timings(method, self._asking())

    def _asking(self) -> Asking:
        job = self._runtime.state.jobs[self._job]
        return Asking(job.id, job.owner, job.spec.backend)

    @ANSWERS.to(GetRankers, Caller.CLIENT)
    async def _rankers(self, method: GetRankers) -> Rankers:
        return Rankers() if self._lookup is None else await self._lookup.rankers(method.device)

    @ANSWERS.to(GetRanker, Caller.CLIENT)
    async def _ranker(self, method: GetRanker) -> RankerPart:
        return RankerPart() if self._lookup is None else await self._lookup.ranker(method)

    @ANSWERS.to(GetBoard, Caller.CLIENT)
    async def _board(self, method: GetBoard) -> BoardAccess:
        running = self._runtime.state.steps.get(method.step)
        if running is None or running.job != self._job:
            raise self._stale(method.step)
        return await self._boards.access(method.step)

    @ANSWERS.to(GetUnknownPrograms, Caller.CLIENT)
    async def _unknown_programs(self, method: GetUnknownPrograms) -> UnknownPrograms:
        unknown = await self._lookup.unknown_programs(method.workloads) if self._lookup is not None else ()
        return UnknownPrograms(tuple(unknown))

    @ANSWERS.to(AddProgram, Caller.CLIENT)
    async def _add_program(self, method: AddProgram) -> None:
        if self._lookup is not None:
            await self._lookup.add_program(method)

    @ANSWERS.to(PlanNetwork, Caller.CLIENT)
    def _plan(self, method: PlanNetwork) -> Awaitable[None]:
        if not 0 <= method.trials <= TRIALS_MAX:
            raise RequestError(f"a budget of {method.trials} trials is out of range: 0 to {TRIALS_MAX}")
        indices = [info.task for info in method.network.tasks]
        if len(set(indices)) != len(indices) or 0 in indices:
            raise RequestError("a network's tasks are numbered from 1, each with its own number")
        progress, planned = self._progress.get(self._job), Planned(method.network, method.trials, method.status)
        progress.plan(*planned)
        stored = self._store.plan(self._job, planned, progress.identify(method.network.identity))
        return self._reported(method.status, stored)

    @ANSWERS.to(ReportStatus, Caller.CLIENT)
    def _report_status(self, method: ReportStatus) -> Awaitable[None]:
        self._progress.get(self._job).status = method.status
        return self._reported(method.status, self._store.set_status(self._job, method.status))

    def _reported(self, status: NetworkStatus, stored: asyncio.Future[None]) -> Awaitable[None]:
        self._runtime.tell(partial(self._freed, status))
        told, self._told = self._told, True
        return self._added(stored) if told else self._planned(stored)

    def _freed(self, status: NetworkStatus) -> Event | None:
        job = self._runtime.state.jobs[self._job]
        same = (job.movable, job.divisible) == (status.movable, status.divisible)
        return None if job.state.ended or same else StagesFreed(self._job, status.movable, status.divisible)

    async def _planned(self, stored: asyncio.Future[None]) -> None:
        await stored
        await self._history.recall(self._job)
        self._attribution.tell_all(self._job)
        self._progress.changed(self._job)

    @ANSWERS.to(AddRecord, Caller.CLIENT)
    def _add_record(self, method: AddRecord) -> Awaitable[None]:
        if self._lost():
            raise Refused(f"this client of job {self._job} was given up; its record was not kept")
        progress = self._progress.get(self._job)
        known = method.record.purpose is Purpose.KNOWN  # measured by an earlier job
        record = method.record if known else received_now(method.record)
        if record.number >= TRIALS_MAX:
            raise RequestError(f"record {record.number} is out of range: a job has at most {TRIALS_MAX}")
        if record.number < progress.next_number:
            return self._refuse_stored(record.number)
        if not known and (why := self._impossible(record)):
            raise RequestError(f"record {record.number} of job {self._job}: {why}; its backend measures wrongly")
        durable = self._store.add_record(
            self._job, progress.records, record, *self._attribution.recorded(self._job, record)
        )
        progress.add(Found.of(self._job, record))
        if record.purpose is Purpose.TRIAL:
            progress.recent.append(self._runtime.clock())
        if record.unit in self._runtime.state.slots:
            self._monitor.of(record.unit).recorded(self._job, record.number, self._runtime.clock())
        self._runtime.stream.publish(recorded(self._job, record))
        self._progress.changed(self._job)
        return durable

    def _impossible(self, record: Record) -> str:
        """Why a record's latencies cannot be right; empty if they can."""
        task, slot = self._progress.get(self._job).tasks.get(record.task), self._runtime.state.slots.get(record.unit)
        cores = len(slot.unit.cores) if slot is not None and slot.unit.accelerator is None else 0
        return latency_bound.impossible(record.latency_s or (), task.info.flops if task is not None else 0.0, cores)

    async def _refuse_stored(self, number: int) -> None:
        await self._store.flush()  # a client that gets this answer does not send the record again
        raise Refused(f"record {number} of job {self._job} is stored already")

    @ANSWERS.to(TagRecords, Caller.CLIENT)
    def _tag(self, method: TagRecords) -> Awaitable[None]:
        own = [number for number in method.numbers if number < self._progress.get(self._job).next_number]
        return self._monitor.tag(self._job, own, method.reason)

    @ANSWERS.to(EndStep, Caller.CLIENT)
    def _end_step(self, method: EndStep) -> Awaitable[None]:
        if method.outcome is Outcome.LOST:
            raise RequestError("a client that can speak has not lost a step: say done or failed")
        state, ended = self._runtime.state, self._runtime.timeline.ended
        if method.step not in state.steps and method.step not in ended and method.step <= state.last_step:
            return self._end_of_old(method)

        def happened() -> Event | None:
            step = state.steps.get(method.step)
            if step is None and ended.get(method.step) == (self._job, method.outcome.value):
                return None  # a repeated report: steps that ended just now are remembered
            if step is None or step.job != self._job or self._lost():
                raise self._stale(method.step)
            if method.note is not None and len(step.units) == 1:  # noted before the device's next step begins
                self._monitor.noted(step.units[0], method.note, self._runtime.clock())
            self._attribution.ended(step, method.outcome, method.error)
            return StepEnded(method.step, method.outcome, method.load, method.error, method.worked_s)

        return self._runtime.post(happened)

    async def _end_of_old(self, method: EndStep) -> None:
        """Answer the report of a step that ended before; the first answer may have been lost."""
        await self._runtime.post(lambda: None)
        span = await self._store.span(method.step)
        if span is None or (span.job, span.outcome) != (self._job, method.outcome.value):
            raise self._stale(method.step)

    def _stale(self, step: StepId) -> Refused:
        return Refused(f"stale step: {step} is not running for job {self._job}; its end was not counted")

    @ANSWERS.to(AddArtifacts, Caller.CLIENT)
    def _add_artifacts(self, method: AddArtifacts) -> Awaitable[None]:
        artifacts = []
        for file in method.files:
            if (size := self._blobs.size(file.sha256)) is None:
                raise NotFound(f"the file {file.name} is not uploaded: no complete blob has the hash {file.sha256}")
            artifacts.append(Artifact(file.name, file.sha256, size))
            self._blobs.uploads.used(file.sha256)
        return self._added(self._store.add_artifacts(self._job, artifacts))

    async def _added(self, stored: asyncio.Future[None]) -> None:
        await stored
        self._progress.changed(self._job)


async def _found(answer: Struct | None) -> Struct | None:
    """An answer that is there already."""
    return answer
