"""The best measurement of one task, kept record by record; always equals `record_selection.best` of all records.

Every output of a best latency while a job runs uses a `TaskBest`: the views of jobs, the page, `top`, the console, the
metrics and the curves of reports.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from msgspec import Struct, structs

from autosched.model import Purpose, Record
from autosched.records import record_selection

DIGEST_BYTES = 8


def short_digest(candidate: bytes) -> bytes:
    """A short name of a schedule, of DIGEST_BYTES."""
    return blake2b(candidate, digest_size=DIGEST_BYTES).digest()


class Measurement(Struct, frozen=True, array_like=True):
    """The part of a record that decides which candidate of a task is the best one."""

    number: int
    candidate: bytes
    """Digest of the candidate, of DIGEST_BYTES."""
    purpose: Purpose
    median_s: float | None
    """Median latency of the repeats in seconds; None for a failure."""
    fastest_s: float | None
    disturbed: bool = False

    @classmethod
    def of(cls, record: Record) -> "Measurement":
        """That part of a record."""
        undisturbed = structs.replace(record, disturbed="")
        fastest_s = min(record.latency_s, default=None)
        return cls(
            record.number,
            short_digest(record.candidate),
            record.purpose,
            undisturbed.best_s,
            fastest_s,
            bool(record.disturbed),
        )

    @property
    def best_s(self) -> float | None:
        """Like `Record.best_s`."""
        return self.fastest_s if self.disturbed else self.median_s


@dataclass(slots=True)
class TaskBest:
    """The best of a task's measurements so far. A trial takes constant time, a disturbed or final one linear time."""

    measurements: list[Measurement] = field(default_factory=list)
    best: Measurement | None = None
    """The fastest valid measurement; None if there is none."""
    lasting: dict[bytes, Measurement] = field(default_factory=dict)
    """The deciding measurement of each candidate outside of finals."""
    default: Measurement | None = None
    """The task without tuning, if its last finals are complete."""
    searched_only: bool = True
    """Whether there were no finals and no check of the whole network so far."""

    @property
    def best_s(self) -> float | None:
        """Latency of the best one, in seconds."""
        return self.best.best_s if self.best is not None else None

    @property
    def default_s(self) -> float | None:
        """Latency without tuning, in seconds; None before the task's finals are complete."""
        return self.default.best_s if self.default is not None else None

    def add(self, measurement: Measurement) -> None:
        """Add a measurement."""
        self.measurements.append(measurement)
        before = self.lasting.get(measurement.candidate)
        if before is None or record_selection.replaces(measurement, before):
            self.lasting[measurement.candidate] = measurement
        self.searched_only &= measurement.purpose in (Purpose.TRIAL, Purpose.AGAIN, Purpose.KNOWN)
        was_best = before is not None and self.best is not None and self.best.number == before.number
        if was_best or not self.searched_only:
            self._decide()
        elif self.lasting[measurement.candidate] is measurement:
            self.best = record_selection.fastest([self.best, measurement] if self.best is not None else [measurement])

    def tag(self, numbers: Collection[int]) -> None:
        """Tag measurements as disturbed."""
        if not any(one.number in numbers for one in self.measurements):
            return
        self.measurements = [
            structs.replace(one, disturbed=True) if one.number in numbers else one for one in self.measurements
        ]
        self.lasting = {one.candidate: one for one in record_selection.latest_undisturbed(self.measurements)}
        self._decide()

    def close(self) -> None:
        """Drop all measurements but the deciding ones, after the end of the job."""
        last = record_selection.finals(self.measurements)
        self.measurements = [*(one for one in [self.best] if one is not None and one not in last), *last]
        self.lasting = {one.candidate: one for one in record_selection.latest_undisturbed(self.measurements)}

    def _decide(self) -> None:
        last = record_selection.finals(self.measurements)
        self.default = last[-1] if last else None
        self.best = record_selection.fastest(record_selection.deciding(self.measurements, self.lasting.values()))


def of(records: Iterable[Record]) -> TaskBest:
    """The best of one task's records."""
    found = TaskBest()
    for record in records:
        found.add(Measurement.of(record))
    return found
