"""Selects the winner: the schedule of each task that a network is compiled with. Pure.

Candidates that measurements cannot distinguish are tied. Noise would select another of them each time; a fixed rule
selects the same one, so that two tunings with the same records give the same module.
"""

from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from math import inf

from autosched.model import Record, TaskIndex
from autosched.records.record_selection import by_task
from autosched.records.statistics import interval

SAMPLES_LEAST = 6
"""Minimum samples for an interval; fewer are noise."""
TIE_WITHIN = 1.02
"""Maximum latency of a tied candidate relative to the fastest, so that wide intervals do not admit slow ones."""

Ratios = Mapping[bytes, float]
"""Latency of candidates on other devices, divided by the best latency there."""


def order(records: Iterable[Record], elsewhere: Mapping[TaskIndex, Ratios] | None = None) -> list[Record]:
    """The valid records of several tasks, the winner of each task first, without failures."""
    found = by_task(record for record in records if record.best_s is not None)
    return [record for task in sorted(found) for record in ranked(found[task], (elsewhere or {}).get(task, {}))]


def ranked(records: Sequence[Record], elsewhere: Ratios | None = None) -> list[Record]:
    """Valid records of one task, one of each candidate, the winner first.

    First come the candidates tied with the fastest, ordered by their ratio on other devices if known, then by code
    size, then by the digest of the candidate. The others follow by latency.
    """
    known = elsewhere or {}
    ordered = sorted(records, key=lambda record: (record.best_s or inf, _digest(record)))
    tie = [record for record in ordered if are_tied(ordered[0], record)]
    names = {record.candidate for record in tie}
    rest = [record for record in ordered if record.candidate not in names]
    tie.sort(key=lambda record: (known.get(record.candidate, inf), code_bytes(record), _digest(record)))
    return tie + rest


def in_order(records: Sequence[Record]) -> list[Record]:
    """Valid records of one task, one of each candidate. Keeps the order of `ranked`; ranks records in another order."""
    valid = [record for record in records if record.best_s is not None]
    if not valid:
        return []
    fastest = min(valid, key=lambda record: (record.best_s or inf, _digest(record)))
    return valid if are_tied(fastest, valid[0]) else ranked(valid)


def are_tied(fastest: Record, other: Record) -> bool:
    """Whether measurements cannot distinguish a candidate from the fastest one.

    Equal object code is tied. Otherwise the samples decide, in pairs if both have the same number, since those were
    measured in turns: the 95 % interval of their ratios contains 1, or the intervals of both overlap.
    """
    if fastest.candidate == other.candidate or (fastest.code and fastest.code == other.code):
        return True
    few = min(len(fastest.latency_s), len(other.latency_s)) < SAMPLES_LEAST
    if few or fastest.disturbed or other.disturbed:
        return False
    if (other.best_s or inf) > TIE_WITHIN * (fastest.best_s or inf):
        return False
    if len(fastest.latency_s) == len(other.latency_s):
        ratios = [b / a for a, b in zip(fastest.latency_s, other.latency_s, strict=True)]
        return interval(ratios)[0] <= 1.0
    return interval(other.latency_s)[0] <= interval(fastest.latency_s)[1]


def code_bytes(record: Record) -> int:
    """Bytes of a record's object code, with which its name begins; without a name, more than any."""
    return int(record.code[:8], 16) if record.code else 2**32


def _digest(record: Record) -> bytes:
    return blake2b(record.candidate, digest_size=8).digest()
