"""Selects records: the best of a task, those to be measured again, and the finalists.

All functions are pure and take records in the order in which they were measured. A disturbance can only slow a kernel
down, so a disturbed latency counts as an upper bound until its candidate has an undisturbed one.
"""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol, TypeVar

from autosched.model import Failure, Purpose, Record, TaskIndex

FINALISTS_MAX = 3
"""Maximum finalists besides the default. The lowest of hundreds of noisy latencies is partly luck; one close to it may
be better."""
FINALISTS_WITHIN = 1.10
"""Maximum latency of a finalist relative to the best one. Three short samples are not wrong by more."""
ATTEMPTS_MAX = 2
"""Maximum re-measurements of a disturbed candidate. Bounds the work on a permanently noisy device."""
FINALS = (Purpose.FINAL, Purpose.DEFAULT)


class Measured(Protocol):
    """A record, or the part of it that these rules need."""

    @property
    def number(self) -> int:
        """Number within the job, in the order of measurement."""

    @property
    def candidate(self) -> Hashable:
        """The identity of the schedule."""

    @property
    def purpose(self) -> Purpose:
        """Why it was measured."""

    @property
    def disturbed(self) -> object:
        """True if other load made it slower."""

    @property
    def best_s(self) -> float | None:
        """Latency in seconds; None for a failure."""


M = TypeVar("M", bound=Measured)


def by_task(records: Iterable[Record]) -> dict[TaskIndex, list[Record]]:
    """The records of each task."""
    tasks: dict[TaskIndex, list[Record]] = {}
    for record in records:
        tasks.setdefault(record.task, []).append(record)
    return tasks


def effective(records: Iterable[Record]) -> list[Record]:
    """Valid records of a job: of each task its finals if it has them, otherwise one record of each candidate.

    If a candidate was wrong in the network, the finals no longer decide: the next best may not have been in them.
    """
    return [record for own in by_task(records).values() for record in deciding(own, latest_undisturbed(own))]


def deciding(records: Sequence[M], lasting: Iterable[M]) -> list[M]:
    """The valid records of one task, given the deciding record of each of its candidates."""
    return list(lasting) if wrong_in_network(records) else finals(records) or list(lasting)


def wrong_in_network(records: Iterable[M]) -> set[Hashable]:
    """Candidates of a task with wrong results in the whole network, which no later measurement of their kernels
    changes."""
    return {record.candidate for record in records if record.purpose is Purpose.NETWORK}


def tried(records: Iterable[Record]) -> list[Record]:
    """Records for a search: one of each candidate that it selected, in the order of selection."""
    searched = [record for record in records if record.purpose not in FINALS]
    return [record for own in by_task(searched).values() for record in latest_undisturbed(own)]


def best(records: Sequence[Record]) -> Record | None:
    """The fastest valid record of one task; None if there is none."""
    return fastest(effective(records))


def fastest(records: Iterable[M]) -> M | None:
    """The fastest valid record, the first of equal ones; None if there is none."""
    valid = [record for record in records if record.best_s is not None]
    return min(valid, key=lambda record: (record.best_s or 0.0, record.number), default=None)


def latest_undisturbed(records: Iterable[M]) -> list[M]:
    """One record of each candidate of a task: the last undisturbed one, otherwise the last, in the order of the
    first."""
    chosen: dict[Hashable, M] = {}
    for record in records:
        before = chosen.get(record.candidate)
        if before is None or replaces(record, before):
            chosen[record.candidate] = record
    return list(chosen.values())


def replaces(record: M, before: M) -> bool:
    """Whether a later record of a candidate replaces the earlier one. A wrong result in the network stays."""
    return before.purpose is not Purpose.NETWORK and bool(before.disturbed or not record.disturbed)


def is_final(records: Sequence[Record]) -> bool:
    """Whether a task has had undisturbed finals, and no trial after them."""
    last = finals(records)
    return bool(last) and not any(record.disturbed for record in last)


def finalists(records: Sequence[Record]) -> list[bytes]:
    """The candidates of a task that may be its best, the fastest first; without the default."""
    searched = [record for record in latest_undisturbed(records) if record.purpose is not Purpose.DEFAULT]
    valid = sorted((best_s, record.number, record.candidate) for record in searched if (best_s := record.best_s))
    return [candidate for best_s, _, candidate in valid[:FINALISTS_MAX] if best_s <= FINALISTS_WITHIN * valid[0][0]]


def suspects(records: Iterable[Record]) -> list[bytes]:
    """Candidates of a task with disturbed measurements only, the fastest first."""
    found = [
        record
        for record in latest_undisturbed(record for record in records if record.purpose not in FINALS)
        if record.disturbed and (record.latency_s or record.failure is Failure.RUN_TIMEOUT)
    ]
    found.sort(key=lambda record: (record.best_s is None, record.best_s, record.number))
    return [record.candidate for record in found]


def finals(records: Sequence[M]) -> list[M]:
    """The last complete finals of a task: the default is measured last."""
    records = [record for record in records if record.purpose is not Purpose.NETWORK]
    end = len(records)
    while end and records[end - 1].purpose is not Purpose.DEFAULT:
        if records[end - 1].purpose not in FINALS:
            return []  # a trial came after these finals
        end -= 1
    begin = end - 1
    while begin > 0 and records[begin - 1].purpose is Purpose.FINAL:
        begin -= 1
    return list(records[max(begin, 0) : end])
