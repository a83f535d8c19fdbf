"""Reads a daemon's recording as a load: each job's steps with their recorded times.

The daemon's database is only read, also while it runs. Types of rows are defined here again, with the necessary fields
only: a later version may write more. Steps that were lost with their client or daemon are left out; the recording
contains their repetitions.
"""

import contextlib
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched.errors import NotFound, RequestError
from autosched.model import (
    NETWORK_TASK,
    OWN_HOST,
    Goal,
    HostName,
    JobId,
    JobLoad,
    JobSpec,
    Outcome,
    Pool,
    PoolName,
    StepId,
    TaskIndex,
    Unit,
    UnitName,
    at_host,
)
from autosched.stages import SELECT

DATABASE = "autosched.db"


class RecordedStep(Struct, frozen=True, kw_only=True):
    """An ended step, by the scheduler's clock in seconds."""

    stage: str
    pools: tuple[PoolName, ...]
    """Pools that the client requested."""
    units: tuple[UnitName, ...]
    queued_at: float
    started_at: float
    ended_at: float
    worked_s: float | None = None
    """Seconds that the stage itself ran; None if the client did not report it."""

    @property
    def held_s(self) -> float:
        """Seconds that it held its units."""
        return self.ended_at - self.started_at


Round = tuple[RecordedStep, ...]
"""Steps of different stages."""


class RecordedJob(Struct, frozen=True, kw_only=True):
    """One job: its network's steps before and after, and its tasks' rounds between them, in parallel."""

    job: JobId
    spec: JobSpec
    arrived_at: float
    client_start_s: float
    """Seconds from its submission until its client was connected."""
    before: Round
    tasks: Mapping[TaskIndex, tuple[Round, ...]]
    order: tuple[TaskIndex, ...]
    """The task of each round, in the order in which rounds began."""
    after: Round
    ended_at: float
    """End of its last step."""
    complete: bool
    """Whether its client reported the end. Otherwise the job was stopped, failed, or still runs."""

    def steps(self) -> Iterator[RecordedStep]:
        """All steps, task by task."""
        yield from self.before
        for rounds in self.tasks.values():
            for steps in rounds:
                yield from steps
        yield from self.after


class Recording(Struct, frozen=True, kw_only=True):
    """The recorded jobs of a daemon."""

    pools: tuple[Pool, ...]
    """As they were declared last."""
    policy: str
    """The policy that decided last; empty if the journal does not contain it."""
    goal: Goal
    jobs: tuple[RecordedJob, ...]
    """Jobs with an ended step, in the order of their arrival."""


class _Kind(Struct, frozen=True):
    type: str


class _Resources(Struct, frozen=True):
    pools: tuple[Pool, ...]
    policy: str = ""
    goal: Goal = Goal.BALANCED


class _Lent(Struct, frozen=True):
    pools: tuple[Pool, ...]


class _Joined(Struct, frozen=True):
    unit: Unit
    pool: PoolName


class _Placed(Struct, frozen=True):
    job: JobId
    host: HostName | None
    """None: no host could be reached; another event follows when one can be."""


class _Submitted(Struct, frozen=True):
    job: JobId
    spec: JobSpec


class _Attached(Struct, frozen=True):
    job: JobId
    load: JobLoad


class _Ended(Struct, frozen=True):
    step: StepId
    load: JobLoad | None = None


class _Chosen(Struct, frozen=True):
    policy: str
    goal: Goal = Goal.BALANCED


class _Span(Struct, frozen=True):
    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    queued_at: float
    started_at: float
    ended_at: float
    outcome: str
    worked_s: float | None = None


class _Notes:
    """Jobs and pools, from the events."""

    def __init__(self, job_of: Mapping[StepId, JobId]) -> None:
        self.pools: dict[PoolName, Pool] = {}
        self.policy, self.goal = "", Goal.BALANCED
        self.submitted: dict[JobId, tuple[float, JobSpec]] = {}
        self.attached_at: dict[JobId, float] = {}
        self.complete: dict[JobId, None] = {}
        self._job_of = job_of
        self._host_of: dict[JobId, HostName] = {}
        self._asked: dict[tuple[JobId, str], tuple[PoolName, ...]] = {}

    def take(self, now: float, event: bytes) -> None:
        """Keep the relevant facts of an event."""
        match _decode(event, _Kind).type:
            case "ResourcesDeclared":
                resources = _decode(event, _Resources)
                self.pools |= {pool.name: pool for pool in resources.pools}
                self.policy, self.goal = resources.policy, resources.goal
            case "HostJoined":
                self.pools |= {pool.name: pool for pool in _decode(event, _Lent).pools}
            case "BoardJoined":
                joined = _decode(event, _Joined)
                known = self.pools.get(joined.pool)
                others = tuple(unit for unit in known.units if unit.name != joined.unit.name) if known else ()
                self.pools[joined.pool] = Pool(joined.pool, (*others, joined.unit))
            case "ClientPlaced":
                placed = _decode(event, _Placed)
                if placed.host is not None:
                    self._host_of[placed.job] = placed.host
            case "PolicyChosen":
                chosen = _decode(event, _Chosen)
                self.policy, self.goal = chosen.policy, chosen.goal
            case "JobSubmitted":
                job = _decode(event, _Submitted)
                self.submitted[job.job] = now, job.spec
            case "ClientAttached":
                attached = _decode(event, _Attached)
                self.attached_at.setdefault(attached.job, now)
                self._hear(attached.job, attached.load)
            case "StepEnded":
                ended = _decode(event, _Ended)
                if ended.load is not None and ended.step in self._job_of:
                    self._hear(self._job_of[ended.step], ended.load)

    def _hear(self, job: JobId, load: JobLoad) -> None:
        for task in load.tasks:
            if task.resources_next:
                host = self._host_of.get(job, OWN_HOST)
                self._asked[job, task.stage_next] = tuple(at_host(pool, host) for pool in task.resources_next)
        if load.complete:
            self.complete[job] = None

    def pools_of(self, span: _Span) -> tuple[PoolName, ...]:
        """Pools that the client requested, or those of the step's units if the request is not recorded."""
        if (asked := self._asked.get((span.job, span.stage))) is not None:
            return asked
        units = set(span.units)
        return tuple(name for name, pool in self.pools.items() if units & {unit.name for unit in pool.units})


def read(path: Path) -> Recording:
    """The recording in a database file or a state folder. Raises NotFound or RequestError."""
    file = path / DATABASE if path.is_dir() else path
    if not file.is_file():
        raise NotFound(f"there is no recording at {path}; name a daemon's state folder or the {DATABASE} in it")
    try:
        with contextlib.closing(_open(file)) as db:
            spans = [_decode(body, _Span) for (body,) in db.execute("SELECT body FROM spans ORDER BY step")]
            notes = _Notes({span.step: span.job for span in spans})
            for now, event in db.execute("SELECT now, event FROM journal ORDER BY seq"):
                notes.take(now, event)
    except sqlite3.Error as error:
        raise RequestError(f"{file} is no recording of a daemon ({error})") from None
    except msgspec.MsgspecError as error:
        raise RequestError(f"{file} has a row that this version cannot read: {error}") from None
    jobs = _jobs(spans, notes)
    if not jobs:
        raise NotFound(f"no step of any job has ended in {file}, so there is nothing to go by; tune something first")
    return Recording(pools=tuple(notes.pools.values()), policy=notes.policy, goal=notes.goal, jobs=jobs)


def _open(file: Path) -> sqlite3.Connection:
    """Open the database in one transaction, so that all tables are of the same moment."""
    uri = file.absolute().as_uri()
    db = sqlite3.connect(f"{uri}?mode=ro", uri=True, timeout=10.0, isolation_level=None)
    try:
        db.execute("BEGIN")
        db.execute("SELECT 1 FROM journal LIMIT 1")
    except sqlite3.Error:
        db.close()
        if Path(f"{file}-wal").exists():
            raise
        # A folder without write permission cannot hold the files that readers share with a writer; none writes there.
        db = sqlite3.connect(f"{uri}?immutable=1", uri=True, isolation_level=None)
    return db


def _decode(body: bytes, kind: type[Any]) -> Any:
    return msgspec.msgpack.decode(body, type=kind)


def _jobs(spans: Iterable[_Span], notes: _Notes) -> tuple[RecordedJob, ...]:
    by_job: dict[JobId, list[_Span]] = {}
    for span in spans:
        if span.outcome != Outcome.LOST.value and span.job in notes.submitted and notes.pools_of(span):
            by_job.setdefault(span.job, []).append(span)
    jobs = [_job(job, mine, notes) for job, mine in by_job.items()]
    return tuple(sorted(jobs, key=lambda job: (job.arrived_at, job.job)))


def _job(job: JobId, spans: list[_Span], notes: _Notes) -> RecordedJob:
    """Build a job. The network's steps come before the first round or after the last one began; others are of a client
    that resumed and imported again."""
    arrived_at, spec = notes.submitted[job]
    rounds = _rounds(span for span in spans if span.task != NETWORK_TASK)
    rounds.sort(key=lambda steps: (steps[0].queued_at, steps[0].step))
    first_at, last_at = (rounds[0][0].started_at, rounds[-1][0].started_at) if rounds else (float("inf"),) * 2
    network = [span for span in spans if span.task == NETWORK_TASK]
    tasks: dict[TaskIndex, tuple[Round, ...]] = {}
    for steps in rounds:
        tasks[steps[0].task] = (*tasks.get(steps[0].task, ()), _steps(steps, notes))
    return RecordedJob(
        job=job,
        spec=spec,
        arrived_at=arrived_at,
        client_start_s=max(0.0, notes.attached_at.get(job, arrived_at) - arrived_at),
        before=_steps([span for span in network if span.started_at < first_at], notes),
        tasks=tasks,
        order=tuple(steps[0].task for steps in rounds),
        after=_steps([span for span in network if span.started_at > last_at], notes),
        ended_at=max(span.ended_at for span in spans),
        complete=job in notes.complete,
    )


def _rounds(spans: Iterable[_Span]) -> list[list[_Span]]:
    """A task's steps in order, split before each select, and before each repeated stage: a round that measures
    candidates again has no select."""
    rounds: list[list[_Span]] = []
    current: dict[TaskIndex, list[_Span]] = {}
    for span in spans:
        steps = current.get(span.task)
        if steps is None or span.stage == SELECT or any(step.stage == span.stage for step in steps):
            steps = current[span.task] = []
            rounds.append(steps)
        steps.append(span)
    return rounds


def _steps(spans: Iterable[_Span], notes: _Notes) -> Round:
    return tuple(
        RecordedStep(
            stage=span.stage,
            pools=notes.pools_of(span),
            units=span.units,
            queued_at=span.queued_at,
            started_at=span.started_at,
            ended_at=span.ended_at,
            worked_s=span.worked_s,
        )
        for span in spans
    )
