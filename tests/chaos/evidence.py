"""Evidence of a run: the clients' own logs, the acknowledgements to their user, and the database."""

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from autosched import policy_registry
from autosched.core.actions import EndJob
from autosched.core.events import JobCancelRequested, JobSubmitted
from autosched.core.scheduler import Scheduler
from autosched.daemon.storage.database import DATABASE
from autosched.daemon.storage.journal import EVENT, STEPS
from autosched.model import JobId, JobSpec, JobState, Record, TaskIndex
from autosched.protocol import Span
from chaos.witness import HELPER

USER = "user.jsonl"
LOGS = "logs"


@dataclass
class LoggedStep:
    """One step, as its client logged it."""

    job: str
    pid: int
    task: TaskIndex
    stage: str
    units: tuple[str, ...]
    others: tuple[str, ...]
    """Processes that used one of its units when it began; expected to be empty."""
    began_at: float
    ended_at: float | None = None
    """End of the step; None: its client died before."""
    ok: bool = False
    measured: list[tuple[str, tuple[float, ...]]] = field(default_factory=list)
    """Candidates and their latencies."""
    codes: dict[str, str | None] = field(default_factory=dict)
    """Name of the object code of each candidate that was built or came to be measured; None: it failed to build."""


@dataclass
class Life:
    """One client of a job, from its start to its end."""

    pid: int
    steps: list[LoggedStep] = field(default_factory=list)

    def acknowledged(self) -> list[LoggedStep]:
        """Returns the steps whose end is stored and acknowledged: the client got another step for their task."""
        last = {step.task: id(step) for step in self.steps}
        return [step for step in self.steps if id(step) != last[step.task]]


@dataclass
class Evidence:
    """All evidence of a run."""

    lives: dict[str, list[Life]] = field(default_factory=dict)
    """Clients by the job's name."""
    helpers: dict[str, list[Life]] = field(default_factory=dict)
    """Helpers of clients on other hosts, by the job's name."""
    told: list[dict[str, Any]] = field(default_factory=list)
    """Messages to the user, in order."""
    jobs: dict[JobId, JobSpec] = field(default_factory=dict)
    cancels: set[JobId] = field(default_factory=set)
    ends: dict[JobId, list[JobState]] = field(default_factory=dict)
    spans: dict[tuple[JobId, TaskIndex], list[Span]] = field(default_factory=dict)
    """Ended steps, by job and task."""
    records: dict[JobId, list[Record]] = field(default_factory=dict)

    def of(self, job: JobId) -> list[Life]:
        """Returns the successive clients of a job."""
        return self.lives.get(self.jobs[job].name, [])

    def helpers_of(self, job: JobId) -> list[Life]:
        """Returns the helpers of its clients."""
        return self.helpers.get(self.jobs[job].name, [])

    @property
    def steps(self) -> list[LoggedStep]:
        """Returns all steps that clients and helpers have begun."""
        everything = (*self.lives.values(), *self.helpers.values())
        return [step for lives in everything for life in lives for step in life.steps]


def read(folder: Path) -> Evidence:
    """Reads the evidence of an idle lab."""
    evidence = Evidence(told=lines(folder / USER))
    for path in sorted((folder / LOGS).iterdir()):
        kind = evidence.helpers if path.suffix == HELPER else evidence.lives
        kind[path.stem] = lives(path.stem, lines(path))
    db = sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True)
    try:
        _read_database(db, evidence)
    finally:
        db.close()
    return evidence


def lines(path: Path) -> list[dict[str, Any]]:
    """Returns the lines of a JSON log; the last one may be incomplete while it is written."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def lives(job: str, log: list[dict[str, Any]]) -> list[Life]:
    """Returns the clients that wrote these lines, in order of their start."""
    found: dict[int, Life] = {}
    numbered: dict[tuple[int, int], LoggedStep] = {}
    running: dict[tuple[int, TaskIndex], LoggedStep] = {}
    for line in log:
        pid = line["pid"]
        match line["event"]:
            case "born":
                found[pid] = Life(pid)
            case "began":
                words = {name: line[name] for name in ("task", "stage")}
                units, others = tuple(line["units"]), tuple(line["others"])
                if (begun := numbered.get((pid, line["step"]))) is not None:
                    begun.others, begun.ended_at, begun.ok = begun.others + others, None, False
                    continue
                step = LoggedStep(job=job, pid=pid, units=units, others=others, began_at=line["at"], **words)
                found[pid].steps.append(step)
                numbered[pid, line["step"]] = running[pid, step.task] = step
            case "ended":
                numbered[pid, line["step"]].ended_at, numbered[pid, line["step"]].ok = line["at"], line["ok"]
            case "built":
                running[pid, line["task"]].codes.update(line["codes"])
            case "measured":
                running[pid, line["task"]].measured.append((line["candidate"], tuple(line["latency_s"])))
    return list(found.values())


def _read_database(db: sqlite3.Connection, evidence: Evidence) -> None:
    scheduler = Scheduler(policies=policy_registry.Installed())
    for now, event_bytes, started in db.execute("SELECT now, event, started FROM journal ORDER BY seq"):
        event = EVENT.decode(event_bytes)
        if isinstance(event, JobSubmitted):
            evidence.jobs[event.job] = event.spec
        elif isinstance(event, JobCancelRequested):
            evidence.cancels.add(event.job)
        for action in scheduler.handle(now, event, STEPS.decode(started)).actions:
            if isinstance(action, EndJob):
                evidence.ends.setdefault(action.job, []).append(action.state)
    spans: dict[tuple[JobId, TaskIndex], list[Span]] = defaultdict(list)
    for (body,) in db.execute("SELECT body FROM spans ORDER BY step"):
        span = msgspec.msgpack.decode(body, type=Span)
        spans[span.job, span.task].append(span)
    records: dict[JobId, list[Record]] = defaultdict(list)
    for job, body in db.execute("SELECT job, body FROM records ORDER BY job, ordinal"):
        records[job].append(msgspec.msgpack.decode(body, type=Record))
    evidence.spans, evidence.records = dict(spans), dict(records)
