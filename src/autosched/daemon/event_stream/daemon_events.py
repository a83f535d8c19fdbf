"""Events of a running daemon, and how each is written: as a line of words, and as JSON.

Events and actions of the core are told as they are. Where they say too little for people, such as the mere number of a
step that ended, a type of this file takes their place. A type that is added here is in logs, monitor and page at once.
"""

import logging
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from autosched.core import actions, events
from autosched.model import JobId, Record, Step, StepId, TaskIndex, UnitName

TEXT_CHARS = 1_000
"""Maximum length of one text: the buffer of a slow reader is bounded in bytes, too."""


class StepStarted(Struct, frozen=True):
    """A step has its lease, and its client is told."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    waited_s: float
    """Since its task became ready."""


class StepEnded(Struct, frozen=True):
    """A step has given its units back."""

    step: StepId
    job: JobId
    task: TaskIndex
    stage: str
    units: tuple[UnitName, ...]
    outcome: str
    waited_s: float
    held_s: float
    worked_s: float | None = None
    """How long the stage itself ran; the rest of the lease is what the hand-over cost."""
    error: str = ""


class Recorded(Struct, frozen=True):
    """A measurement is over."""

    job: JobId
    task: TaskIndex
    trial: int
    purpose: str
    unit: UnitName
    latency_s: float | None
    failure: str = ""
    detail: str = ""


class RecordsTagged(Struct, frozen=True):
    """Measurements were found to be disturbed."""

    job: JobId
    records: int
    reason: str


class DeviceDrifts(Struct, frozen=True):
    """A device is slower than it was."""

    unit: UnitName
    reason: str


class DeviceSteady(Struct, frozen=True):
    """A device is again as it was, or its new pace is taken for its own."""

    unit: UnitName


class DeviceDisturbed(Struct, frozen=True):
    """Other programs used a device's cores during a step."""

    unit: UnitName
    share: float
    """Share of one core."""


class CandidatePoisoned(Struct, frozen=True):
    """A candidate has failed twice, and is not run any more."""

    number: int
    workload: str
    reason: str


class Calibrated(Struct, frozen=True):
    """How good the estimates were so far, told at the end of each job."""

    job: JobId
    steps: int
    mape: float | None
    coverage_p90: float | None


class Commanded(Struct, frozen=True):
    """A user asks for a change; the audit trail has it too."""

    who: str
    role: str
    address: str
    command: str
    about: str


class SubmissionRefused(Struct, frozen=True):
    """Too many submissions wait already."""

    who: str
    reason: str


class LoopStalled(Struct, frozen=True):
    """The daemon's loop was late by enough seconds for people to notice."""

    lag_s: float
    where: str = ""
    """Stack during the stall, the innermost call first."""


class Kept(Struct, frozen=True):
    """A snapshot or a backup was made."""

    kind: str
    folder: str


class Said(Struct, frozen=True):
    """A message of a part of the daemon."""

    level: int
    source: str
    text: str


class Dropped(Struct, frozen=True):
    """In place of happenings for which their reader was too slow."""

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
    | CandidatePoisoned
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
    Recorded: logging.DEBUG,
    DeviceDrifts: logging.WARNING,
    DeviceDisturbed: logging.WARNING,
    CandidatePoisoned: logging.WARNING,
    Dropped: logging.WARNING,
    LoopStalled: logging.WARNING,
    SubmissionRefused: logging.WARNING,
    actions.ReplacePolicy: logging.ERROR,
}


class DaemonEvent(Struct, frozen=True):
    """Something that happened, and when."""

    at: float
    """Scheduler clock, seconds."""
    wall_s: float
    """Unix time, for people only: it jumps."""
    what: What

    @property
    def name(self) -> str:
        """By which people and filters know it."""
        return type(self.what).__name__

    @property
    def job(self) -> JobId | None:
        """The job that it concerns."""
        return getattr(_inner(self.what), "job", None)

    @property
    def units(self) -> tuple[UnitName, ...]:
        """The units that it concerns."""
        inner = _inner(self.what)
        unit = getattr(inner, "unit", "")
        unit = getattr(unit, "name", unit)
        return (unit,) if unit else getattr(inner, "units", ())

    @property
    def level(self) -> int:
        """How much it matters, on the scale of `logging`."""
        return self.what.level if type(self.what) is Said else _LEVELS.get(type(self.what), logging.INFO)

    def text(self) -> str:
        """One line of words, without a time."""
        if isinstance(self.what, Said):
            return self.what.text
        return " ".join([self.name, *(f"{name}={_word(value)}" for name, value in fields(self.what))])

    def line(self) -> str:
        """One line of words with the time of day, as a monitor shows it."""
        at = datetime.fromtimestamp(self.wall_s).astimezone()
        return f"{at:%H:%M:%S}.{at.microsecond // 1000:03d} {self.text()}"

    def json(self) -> bytes:
        """One JSON object."""
        head: dict[str, object] = {"what": self.name, "at": round(self.at, 6), "time": round(self.wall_s, 3)}
        return msgspec.json.encode(head | dict(fields(self.what)))


def recorded(job: JobId, record: Record) -> Recorded:
    """A record without its candidate."""
    failure = "" if record.failure is None else record.failure.value
    purpose, device = record.purpose.value, record.device
    return Recorded(job, record.task, record.trial, purpose, device, record.best_s, failure, record.detail)


def _inner(what: What) -> object:
    """The subject of an event: an action may only carry a step."""
    step = getattr(what, "step", None)
    return step if isinstance(step, Step) else what


def fields(what: What) -> Iterator[tuple[str, Any]]:
    """Names and values that fit a line: numbers, words and names of units; nothing that is empty."""
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
