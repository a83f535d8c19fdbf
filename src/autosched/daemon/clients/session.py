"""What an attached client may ask and tell."""

from collections.abc import Callable, Sequence

from msgspec import Struct

from autosched.config import DEVICE_POOL, HOST_POOL
from autosched.core.events import Event, StepEnded
from autosched.daemon.devices.guard import Guard
from autosched.daemon.devices.verdicts import Verdicts
from autosched.daemon.disk.blobs import Blobs
from autosched.daemon.disk.history import History
from autosched.daemon.disk.store import Store, found
from autosched.daemon.runtime import Runtime
from autosched.daemon.telling.happenings import recorded
from autosched.daemon.telling.progress import Ledger
from autosched.errors import NotFound, Refused, RequestError, WireError
from autosched.model import TRIALS_MAX, JobId, Outcome, Purpose, StepId
from autosched.protocol import (
    AddArtifact,
    AddRecord,
    Artifact,
    Done,
    EarlierJob,
    EndStep,
    GetBlob,
    GetOrder,
    GetRecords,
    JobOrder,
    Method,
    PlanNetwork,
    PutBlob,
    TagRecords,
)


class Parts(Struct, frozen=True):
    """The parts of the daemon that clients speak to."""

    runtime: Runtime
    store: Store
    past: History
    blobs: Blobs
    ledger: Ledger
    guard: Guard
    verdicts: Verdicts


class ClientSession:
    """One client's connection. `lost` tells whether it was given up meanwhile, or has another connection.

    What is said twice, too late or out of order counts once: steps are named by their ids, which are never used again,
    and records by their numbers, which grow. An end that is known already is answered as it was.
    """

    def __init__(self, job: JobId, lost: Callable[[], bool], parts: Parts) -> None:
        self._job = job
        self._lost = lost
        self._runtime, self._store, self._past = parts.runtime, parts.store, parts.past
        self._blobs, self._ledger, self._guard = parts.blobs, parts.ledger, parts.guard
        self._verdicts = parts.verdicts

    async def handle(self, method: Method) -> Struct:
        """Answer one call."""
        match method:
            case AddRecord():
                return await self._add_record(method)
            case TagRecords(trials=trials, reason=reason):
                return self._tag(trials, reason)
            case EndStep():
                return await self._end_step(method)
            case GetOrder():
                return await self._order()
            case PlanNetwork():
                return await self._plan(method)
            case AddArtifact(name=name, sha256=sha256):
                return await self._add_artifact(name, sha256)
            case PutBlob():
                return await self._blobs.put(method)
            case GetBlob():
                return await self._blobs.get(method)
            case GetRecords(job=job, after=after):
                if job not in self._runtime.state.jobs:
                    raise NotFound(f"there is no job {job}")
                return await self._store.records(job, after)
        raise WireError(f"a client may not ask for {type(method).__name__}")

    async def _order(self) -> JobOrder:
        await self._store.flush()  # what an earlier client sent must be there to be fetched
        state, progress = self._runtime.state, self._ledger.of(self._job)
        spec = state.jobs[self._job].spec
        lanes, devices = state.queues.get(HOST_POOL), state.queues.get(DEVICE_POOL + spec.device)
        return JobOrder(
            job=self._job,
            spec=spec,
            network=progress.network,
            records=progress.records,
            lanes=len(lanes.pool.units) if lanes is not None else 0,
            devices=len(devices.pool.units) if devices is not None else 0,
            device_cores=len(devices.pool.units[0].cores) if devices is not None else 0,
            host_cores=tuple(core for unit in lanes.pool.units for core in unit.cores) if lanes is not None else (),
            earlier=tuple(self._earlier(job) for job in dict.fromkeys(spec.learn_from)),
        )

    def _earlier(self, job: JobId) -> EarlierJob:
        network = self._ledger.of(job).network
        workloads = {info.task: info.workload for info in network.tasks} if network is not None else {}
        return EarlierJob(job, self._runtime.state.jobs[job].spec, workloads)

    async def _plan(self, method: PlanNetwork) -> Done:
        if not 0 <= method.trials <= TRIALS_MAX:
            raise RequestError(f"a budget of {method.trials} trials is out of range: 0 to {TRIALS_MAX}")
        indices = [info.task for info in method.network.tasks]
        if len(set(indices)) != len(indices) or 0 in indices:
            raise RequestError("a network's tasks are numbered from 1, each with its own number")
        self._ledger.of(self._job).plan(method.network, method.trials)
        await self._store.plan(self._job, method.network, method.trials)
        await self._past.recall(self._job)
        self._verdicts.tell_all(self._job)
        self._ledger.changed(self._job)
        return Done()

    async def _add_record(self, method: AddRecord) -> Done:
        # No await before the write is queued: records and the end of their step stay in order.
        if self._lost():
            raise Refused(f"this client of job {self._job} was given up; its record was not kept")
        progress, record = self._ledger.of(self._job), method.record
        if record.trial >= TRIALS_MAX:
            raise RequestError(f"trial {record.trial} is out of range: a job has at most {TRIALS_MAX}")
        if record.trial < progress.next_trial:
            await self._store.flush()  # who hears that it is stored will not say it again
            raise Refused(f"trial {record.trial} of job {self._job} is stored already")
        durable = self._store.add_record(
            self._job, progress.records, record, *self._verdicts.recorded(self._job, record)
        )
        progress.add(found(self._job, record))
        if record.purpose is Purpose.TRIAL:
            progress.recent.append(self._runtime.clock())
        if record.device in self._runtime.state.slots:
            self._guard.recorded(record.device, self._job, record.trial)
        self._runtime.stream.publish(recorded(self._job, record))
        self._ledger.changed(self._job)
        await durable
        return Done()

    def _tag(self, trials: Sequence[int], reason: str) -> Done:
        own = [trial for trial in trials if trial < self._ledger.of(self._job).next_trial]
        self._guard.tag(self._job, own, reason)
        return Done()

    async def _end_step(self, method: EndStep) -> Done:
        if method.outcome is Outcome.LOST:
            raise RequestError("a client that can speak has not lost a step: say done or failed")

        known = False

        def ended() -> Event | None:
            nonlocal known
            step = self._runtime.state.steps.get(method.step)
            known = step is None
            if known:
                return None
            if step is None or step.job != self._job or self._lost():
                raise self._stale(method.step)
            if method.device is not None and len(step.units) == 1:  # before the next step on the device begins
                self._guard.noted(step.units[0], method.device, self._runtime.clock())
            self._verdicts.ended(step, method.outcome, method.error)
            return StepEnded(method.step, method.outcome, method.load, method.error, method.worked_s)

        await self._runtime.post(ended)
        if known and await self._outcome_of(method.step) != (self._job, method.outcome.value):
            raise self._stale(method.step)
        return Done()

    def _stale(self, step: StepId) -> Refused:
        return Refused(f"stale step: {step} is not running for job {self._job}; its end was not counted")

    async def _outcome_of(self, step: StepId) -> tuple[JobId, str] | None:
        """Whose step it was that has ended, and how; its client may not have heard the answer, or a daemon died."""
        if (known := self._runtime.timeline.ended.get(step)) is not None or step > self._runtime.state.last_step:
            return known
        span = await self._store.span(step)
        return None if span is None else (span.job, span.outcome)

    async def _add_artifact(self, name: str, sha256: str) -> Done:
        size = self._blobs.size(sha256)
        if size is None:
            raise NotFound(f"the file {name} is not uploaded: no complete blob has the hash {sha256}")
        await self._store.add_artifact(self._job, Artifact(name, sha256, size))
        self._ledger.changed(self._job)
        return Done()
