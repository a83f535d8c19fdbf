"""How far each job is: counted from its records as they arrive, and again from the store after a restart."""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol

from autosched.backend import Network
from autosched.daemon.disk.store import Found, Store
from autosched.measured.shares import network_s
from autosched.model import JobId, Purpose, TaskIndex, TaskInfo

RECENT_TRIALS = 256
"""The rate of trials is taken over this many: a few rounds, so that it does not jump with each burst of results."""
ETA_TRIALS_MIN = 4


@dataclass(slots=True)
class TaskProgress:
    """One task's trials."""

    info: TaskInfo
    trials: int = 0
    failed: int = 0
    best_s: float | None = None
    first_s: float | None = None
    """Latency of its first valid trial."""
    default_s: float | None = None
    """Latency without tuning, when it had its finals."""
    finals: list[Found] = field(default_factory=list)
    """The last ones; they are over when the last of them is the default."""


@dataclass(slots=True)
class JobProgress:
    """One job's trials."""

    network: Network | None = None
    trials_total: int | None = None
    records: int = 0
    """All of them; trials are those that spend budget."""
    trials: int = 0
    disturbed: set[int] = field(default_factory=set)
    """Numbers of the records that something slowed down."""
    failures: Counter[str] = field(default_factory=Counter)
    tasks: dict[TaskIndex, TaskProgress] = field(default_factory=dict)
    next_trial: int = 0
    version: int = 0
    began_at: float | None = None
    """When this life of the daemon saw the job's client first; scheduler clock, as below."""
    recent: deque[float] = field(default_factory=lambda: deque(maxlen=RECENT_TRIALS))
    """When the last trials arrived."""

    @property
    def failed(self) -> int:
        """Trials without a latency."""
        return self.failures.total()

    def plan(self, network: Network, trials: int) -> None:
        """The client has told what there is to tune."""
        self.network, self.trials_total = network, trials
        old, self.tasks = self.tasks, {}
        for info in network.tasks:
            self.tasks[info.task] = task = old.get(info.task) or TaskProgress(info)
            task.info = info

    def add(self, record: Found) -> None:
        """Count a record."""
        self.records += 1
        self.next_trial = max(self.next_trial, record.trial + 1)
        if record.disturbed:
            self.disturbed.add(record.trial)
        if record.purpose is not Purpose.TRIAL:
            self._add_retake(record)
            return
        self.trials += 1
        if record.failure is not None:
            self.failures[record.failure] += 1
        if (task := self.tasks.get(record.task)) is None:
            return
        task.trials += 1
        if record.best_s is None:
            task.failed += 1
        else:
            task.best_s = record.best_s if task.best_s is None else min(task.best_s, record.best_s)
            task.first_s = task.first_s if task.first_s is not None else record.best_s

    def _add_retake(self, record: Found) -> None:
        """A candidate measured again may lower the best; when the finals are over, they alone decide."""
        if (task := self.tasks.get(record.task)) is None:
            return
        if record.purpose is Purpose.NETWORK:
            return  # which latencies are left of the task, the client knows; the report tells
        if record.purpose is Purpose.AGAIN:
            task.best_s = min((s for s in (task.best_s, record.best_s) if s is not None), default=None)
            return
        if task.finals and task.finals[-1].purpose is Purpose.DEFAULT:
            task.finals.clear()  # they are held again
        task.finals.append(record)
        self._decide(task)

    def tag(self, trials: Iterable[int]) -> None:
        """Something disturbed these records, which may change who has won finals."""
        self.disturbed.update(trials)
        for task in self.tasks.values():
            if any(record.trial in self.disturbed for record in task.finals):
                self._decide(task)

    def _decide(self, task: TaskProgress) -> None:
        if not task.finals or task.finals[-1].purpose is not Purpose.DEFAULT:
            return
        latencies_s = [r.fastest_s if r.trial in self.disturbed else r.best_s for r in task.finals]
        task.default_s = latencies_s[-1]
        task.best_s = min((s for s in latencies_s if s is not None), default=task.best_s)

    @property
    def estimate_s(self) -> float | None:
        """Latency of the whole network with the best schedule of each task; None until each task has one."""
        return self._whole({number: task.best_s for number, task in self.tasks.items()})

    @property
    def first_estimate_s(self) -> float | None:
        """The same with the first valid schedule of each task."""
        return self._whole({number: task.first_s for number, task in self.tasks.items()})

    def _whole(self, latencies_s: dict[TaskIndex, float | None]) -> float | None:
        known = {number: latency_s for number, latency_s in latencies_s.items() if latency_s is not None}
        return network_s([task.info for task in self.tasks.values()], known)

    def eta_s(self, now: float) -> float | None:
        """Seconds until the budget is spent, at the rate of the last trials; None when that cannot be said, or it is
        spent: finals, compiling and evaluating take as long as they take."""
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


class Ledger:
    """The progress of all jobs, and who waits for news of it."""

    def __init__(self) -> None:
        self._jobs: dict[JobId, JobProgress] = {}
        self.kept: dict[JobId, Packed] = {}
        """Counted in an earlier life, and unpacked when somebody asks: most jobs have ended long ago."""
        self._news: dict[JobId, asyncio.Event] = {}
        # Versions must not repeat after a restart, or a user who waits for news would miss some: they start from a
        # clock that is faster than anything here can change.
        self._version = time.monotonic_ns() >> 6

    def load(self, store: Store) -> None:
        """Count what is stored."""
        for job, network, trials in store.networks():
            self.of(job).plan(network, trials)
        for record in store.found():
            self.of(record.job).add(record)

    @property
    def known(self) -> dict[JobId, JobProgress]:
        """What was counted or looked at in this life; the rest is still in `kept`."""
        return self._jobs

    def of(self, job: JobId) -> JobProgress:
        """The progress of a job."""
        if (progress := self._jobs.get(job)) is None:
            packed = self.kept.pop(job, None)
            progress = self._jobs[job] = JobProgress() if packed is None else packed()
            progress.version = self._version
        return progress

    def forget(self, job: JobId) -> None:
        """The job is not known any more."""
        self._jobs.pop(job, None)
        self.kept.pop(job, None)
        if (news := self._news.pop(job, None)) is not None:
            news.set()

    def changed(self, job: JobId) -> None:
        """Wake whoever waits for news of the job."""
        self._version += 1
        self.of(job).version = self._version
        if (news := self._news.pop(job, None)) is not None:
            news.set()

    async def wait(self, job: JobId, version: int, timeout_s: float) -> None:
        """Wait until the job has another version, at most so long."""
        try:
            async with asyncio.timeout(timeout_s):
                while self.of(job).version == version:
                    await self._news.setdefault(job, asyncio.Event()).wait()
        except TimeoutError:
            pass
