"""Types of the daemon's events, with their text and JSON.

Events and actions of the core are published as they are. Where these have too little information, such as only the
number of an ended step, a type of this file replaces them. A type that is added here appears in logs, monitor and page.
"""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from autosched.core import actions, events
from autosched.model import JobId, Record, Step, StepId, TaskIndex, UnitName
from autosched.protocol import BlockCandidates, TagRecords

TEXT_CHARS = 1_000
"""Maximum number of characters of a text, which bounds the memory of a reader's buffer."""


class StepStarted(Struct, frozen=True):
    """A step has its lease, and the order was sent to its client."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    waited_s: float
    """Seconds since the task became ready."""


class StepEnded(Struct, frozen=True):
    """A step has ended and returned its units."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    outcome: str
    waited_s: float
    held_s: float
    worked_s: float | None = None
    """Seconds for which the stage ran; the rest of the lease is the hand-over."""
    error: str = ""


class Recorded(Struct, frozen=True):
    """A measurement was recorded."""

    job: JobId
    task: TaskIndex
    number: int
    purpose: str
    unit: UnitName
    latency_s: float | None
    failure: str = ""
    detail: str = ""


class RecordsTagged(Struct, frozen=True):
    """Records were tagged as disturbed."""

    job: JobId
    records: int
    reason: str


class DeviceDrifts(Struct, frozen=True):
    """A device has become slower."""

    unit: UnitName
    reason: str


class DeviceSteady(Struct, frozen=True):
    """A device has its old pace again, or its new pace has become the baseline."""

    unit: UnitName


class DeviceDisturbed(Struct, frozen=True):
    """Other programs used a device's cores during a step."""

    unit: UnitName
    share: float
    """Share of one core."""


class CandidateBlocked(Struct, frozen=True):
    """A candidate was blocked after repeated failures."""

    number: int
    workload: str
    reason: str


class Calibrated(Struct, frozen=True):
    """Accuracy of the estimates so far, published at the end of each job."""

    job: JobId
    steps: int
    mape: float | None
    coverage_p90: float | None


class Commanded(Struct, frozen=True):
    """A user gave a command that changes state; the audit trail has it, too."""

    who: str
    role: str
    address: str
    command: str
    about: str


class SubmissionRefused(Struct, frozen=True):
    """A submission was refused, since too many wait."""

    who: str
    reason: str


class LoopStalled(Struct, frozen=True):
    """The daemon's event loop was late by a noticeable time."""

    lag_s: float
    where: str = ""
    """Stack during the stall, the innermost call first."""


class Kept(Struct, frozen=True):
    """A snapshot or a backup was made."""

    kind: str
    folder: str


class DeviceUnreachable(Struct, frozen=True):
    """A board cannot be reached, or is gone and can be rebooted; or a GPU is lost or broken."""

    unit: UnitName
    reason: str


class ClientNews(Struct, frozen=True):
    """A message for a job's client, about its records or candidates."""

    job: JobId
    news: TagRecords | BlockCandidates


class Said(Struct, frozen=True):
    """A log message of a module."""

    level: int
    source: str
    text: str


class Dropped(Struct, frozen=True):
    """Stands for events that a reader's buffer had no room for."""

    count: int


What = (
    events.Event
    | actions.Action
    | StepStarted
    | StepEnded
    | Recorded
    | RecordsTagged
    | DeviceDrifts
    | DeviceSteady
    | DeviceDisturbed
    | DeviceUnreachable
    | CandidateBlocked
    | ClientNews
    | Calibrated
    | Commanded
    | SubmissionRefused
    | LoopStalled
    | Kept
    | Said
    | Dropped
)

_LEVELS: dict[type, int] = {
    events.DeadlineReached: logging.DEBUG,
    ClientNews: logging.DEBUG,
    DeviceUnreachable: logging.DEBUG,  # UnitDrained says it
    actions.LaunchClient: logging.DEBUG,  # ClientPlaced says it
    Recorded: logging.DEBUG,
    DeviceDrifts: logging.WARNING,
    DeviceDisturbed: logging.WARNING,
    CandidateBlocked: logging.WARNING,
    Dropped: logging.WARNING,
    LoopStalled: logging.WARNING,
    SubmissionRefused: logging.WARNING,
    actions.ReplacePolicy: logging.ERROR,
}


class DaemonEvent(Struct, frozen=True):
    """An event with its time."""

    at: float
    """Time by the scheduler's clock, in seconds."""
    wall_s: float
    """Unix time, only for display: it may jump."""
    what: What

    @property
    def name(self) -> str:
        """Name of the event's type, for display and filters."""
        return type(self.what).__name__

    @property
    def job(self) -> JobId | None:
        """The job of the event; None without one."""
        return getattr(_inner(self.what), "job", None)

    @property
    def units(self) -> tuple[UnitName, ...]:
        """The units of the event."""
        inner = _inner(self.what)
        unit = getattr(inner, "unit", "")
        unit = getattr(unit, "name", unit)
        return (unit,) if unit else getattr(inner, "units", ())

    @property
    def level(self) -> int:
        """Level of `logging`."""
        return self.what.level if type(self.what) is Said else _LEVELS.get(type(self.what), logging.INFO)

    def text(self) -> str:
        """The event in one line, without a time."""
        if isinstance(self.what, Said):
            return self.what.text
        return " ".join([self.name, *(f"{name}={_word(value)}" for name, value in fields(self.what))])

    def line(self) -> str:
        """The event in one line with the time of day, for the monitor."""
        at = datetime.fromtimestamp(self.wall_s).astimezone()
        return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} {self.text()}"

    def json(self) -> bytes:
        """The event as a JSON object."""
        head: dict[str, object] = {"what": self.name, "at": round(self.at, 6), "time": round(self.wall_s, 3)}
        return msgspec.json.encode(head | dict(fields(self.what)))


def recorded(job: JobId, record: Record) -> Recorded:
    """The event of a record, without the candidate."""
    failure = "" if record.failure is None else record.failure.value
    purpose, device = record.purpose.value, record.unit
    return Recorded(job, record.task, record.number, purpose, device, record.best_s, failure, record.detail)


def _inner(what: What) -> object:
    """The object with the event's job and units: of an action its step, if it has one."""
    step = getattr(what, "step", None)
    return step if isinstance(step, Step) else what


def fields(what: What) -> Iterator[tuple[str, Any]]:
    """Names and values of an event's fields that fit into a line, without empty ones."""
    for name in what.__struct_fields__:
        value = getattr(what, name)
        if isinstance(value, Step):
            yield from (("step", value.id), ("job", value.job), ("task", value.task), ("stage", value.stage))
            yield "units", ",".join(value.units)
        elif name == "failure" and isinstance(value, Struct):  # of a job
            yield name, getattr(value, "message", "")[:TEXT_CHARS]
        elif name == "spec":
            yield from ((part, getattr(value, part)) for part in ("name", "backend", "target", "device"))
        elif name == "units":
            yield name, ",".join(value)
        elif isinstance(value, str):
            if value:
                yield name, value if isinstance(what, Said) else str(value)[:TEXT_CHARS]
        elif isinstance(value, int | float):
            yield name, value


def _word(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    return text if text.isprintable() and " " not in text else msgspec.json.encode(text).decode()
