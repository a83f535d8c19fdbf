"""Progress of each job, counted from its records as they arrive, and from the store after a restart."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

from autosched.backend import Network
from autosched.daemon.storage.job_store import Found, JobStore
from autosched.model import Identity, IdentityFrom, JobId, Purpose, TaskIndex, TaskInfo
from autosched.network_status import NOT_MEASURED, NetworkStatus, standing_s
from autosched.records.network_estimate import network_s
from autosched.records.task_best import TaskBest

RECENT_TRIALS = 256
"""Number of trials over which the rate is computed: a few rounds, since results arrive in bursts."""
ETA_TRIALS_MIN = 4


@dataclass(slots=True)
class TaskProgress:
    """One task's trials."""

    info: TaskInfo
    trials: int = 0
    failed: int = 0
    first_s: float | None = None
    """Latency of the first valid trial."""
    best: TaskBest = field(default_factory=TaskBest)

    @property
    def best_s(self) -> float | None:
        """Latency of the best schedule, in seconds."""
        return self.best.best_s

    @property
    def default_s(self) -> float | None:
        """Latency without tuning, in seconds; None before the task's finals are complete."""
        return self.best.default_s


@dataclass(slots=True)
class JobProgress:
    """One job's trials."""

    network: Network | None = None
    status: NetworkStatus = NOT_MEASURED
    trials_total: int | None = None
    records: int = 0
    """Number of all records; only trials spend budget."""
    trials: int = 0
    disturbed: set[int] = field(default_factory=set)
    """Numbers of the records that other load disturbed."""
    failures: Counter[str] = field(default_factory=Counter)
    tasks: dict[TaskIndex, TaskProgress] = field(default_factory=dict)
    identities: list[IdentityFrom] = field(default_factory=list)
    """Identities of the records, by the first record that has each."""
    next_number: int = 0
    version: int = 0
    began_at: float | None = None
    """Time at which the job's client attached first since the daemon started, by the scheduler's clock."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_TRIALS))
    """Times at which the last trials arrived, by the scheduler's clock."""

    @property
    def failed(self) -> int:
        """Trials without a latency."""
        return self.failures.total()

    def plan(self, network: Network, trials: int, status: NetworkStatus = NOT_MEASURED) -> None:
        """Set what the client has reported after the import."""
        self.network, self.trials_total, self.status = network, trials, status
        old, self.tasks = self.tasks, {}
        for info in network.tasks:
            self.tasks[info.task] = task = old.get(info.task) or TaskProgress(info)
            task.info = info

    @property
    def identity(self) -> Identity | None:
        """Circumstances of the client's measurements; None before they are known."""
        return None if self.network is None else self.network.identity

    def identify(self, identity: Identity | None) -> IdentityFrom | None:
        """Set the identity of the next records. Returns it if it differs from that of the last records."""
        known = self.identities[-1] if self.identities else None
        if identity is None or (known is not None and known.identity == identity):
            return None
        if known is not None and known.number == self.next_number:
            self.identities.pop()  # nothing was measured under it
        self.identities.append(IdentityFrom(self.next_number, identity))
        return self.identities[-1]

    def add(self, record: Found) -> None:
        """Count a record."""
        measured, task = record.measurement, self.tasks.get(record.task)
        self.records += 1
        self.next_number = max(self.next_number, measured.number + 1)
        if measured.disturbed:
            self.disturbed.add(measured.number)
        if task is not None:
            task.best.add(measured)
        if measured.purpose is not Purpose.TRIAL:
            return
        self.trials += 1
        if record.failure is not None:
            self.failures[record.failure] += 1
        if task is not None:
            task.trials += 1
            task.failed += measured.best_s is None
            task.first_s = measured.best_s if task.first_s is None else task.first_s

    def tag(self, numbers: Collection[int]) -> None:
        """Mark records as disturbed by other load. Another schedule may become the best one."""
        self.disturbed.update(numbers)
        for task in self.tasks.values():
            task.best.tag(numbers)

    def close(self) -> None:
        """Drop the details that only later records could need, since the job has ended."""
        for task in self.tasks.values():
            task.best.close()

    def best_s(self, task: TaskIndex) -> float | None:
        """Latency of the best schedule of a task, in seconds."""
        known = self.tasks.get(task)
        return known.best_s if known is not None else None

    def came_from(self, task: TaskIndex) -> str:
        """Source of a task's best schedule in the record store; empty if the job has found it."""
        best = self.tasks[task].best.best
        return self.status.recalled.source(task, best.candidate.hex()) if best is not None else ""

    @property
    def estimate_s(self) -> float | None:
        """Sum over the tasks with the best schedule of each; None until each has one or was measured without any."""
        return self._whole({number: task.best_s for number, task in self.tasks.items()})

    @property
    def first_estimate_s(self) -> float | None:
        """Sum over the tasks with the first valid schedule of each."""
        return self._whole({number: task.first_s for number, task in self.tasks.items()})

    @property
    def untuned_s(self) -> dict[TaskIndex, float]:
        """Latency of one call of tasks without a search, measured in a build of the network."""
        return self.status.measured.untuned_s

    @property
    def whole_s(self) -> float | None:
        """Latency of the whole network: measured at the job's end, else expected; None if unknown."""
        return standing_s(self.estimate_s, self.status.comparison, self.status.measured.result_s)

    def _whole(self, latencies_s: dict[TaskIndex, float | None]) -> float | None:
        known = {number: latency_s for number, latency_s in latencies_s.items() if latency_s is not None}
        known = self.untuned_s | known
        return network_s([task.info for task in self.tasks.values()], known)

    def eta_s(self, now: float) -> float | None:
        """Seconds until the budget is spent, at the rate of the last trials; None if unknown, or when it is spent: the
        durations of finals, compilation and evaluation are not predicted."""
        if self.trials_total is None or self.began_at is None or len(self.recent) < ETA_TRIALS_MIN:
            return None
        if (left := self.trials_total - self.trials) <= 0:
            return None
        since = self.recent[0] if len(self.recent) == RECENT_TRIALS else self.began_at
        return left * (now - since) / len(self.recent)


class Packed(Protocol):
    """A job's progress as bytes."""

    def __call__(self) -> JobProgress:
        """Unpack it."""


class ProgressRegistry:
    """The progress of all jobs. Lets callers wait for changes."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, JobProgress] = {}
        self.kept: dict[JobId, Packed] = {}
        """Progress from before the last restart, unpacked on request: most jobs have ended long ago."""
        self._news: dict[JobId, asyncio.Event] = {}
        # Versions must not repeat after a restart, or a user who waits would miss a change. They start from a clock
        # that runs faster than versions can grow.
        self._version = time.monotonic_ns() >> 6

    def load(self, store: JobStore) -> None:
        """Count all stored records."""
        for job, planned in store.networks():
            self.get(job).plan(*planned)
        for job, known in store.identities():
            self.get(job).identities.append(known)
        for record in store.found():
            self.get(record.job).add(record)

    @property
    def known(self) -> dict[JobId, JobProgress]:
        """Jobs that are unpacked; all others are in `kept`."""
        return self._jobs

    def get(self, job: JobId) -> JobProgress:
        """The progress of a job."""
        if (progress := self._jobs.get(job)) is None:
            packed = self.kept.pop(job, None)
            progress = self._jobs[job] = JobProgress() if packed is None else packed()
            progress.version = self._version
        return progress

    def forget(self, job: JobId) -> None:
        """Drop a job that was pruned."""
        self._jobs.pop(job, None)
        self.kept.pop(job, None)
        if (news := self._news.pop(job, None)) is not None:
            news.set()

    def changed(self, job: JobId) -> None:
        """Wake the callers that wait for a change of the job."""
        self._version += 1
        self.get(job).version = self._version
        if (news := self._news.pop(job, None)) is not None:
            news.set()

    async def wait(self, job: JobId, version: int, timeout_s: float) -> None:
        """Wait until the job has another version, for at most `timeout_s`."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.get(job).version == version:
                    await self._news.setdefault(job, asyncio.Event()).wait()
        except TimeoutError:
            pass
