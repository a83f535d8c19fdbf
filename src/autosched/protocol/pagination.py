"""Iterates over paged answers: a generator yields requests, one page after the other.

The caller, who has a connection, sends them: `answered`, `answered_async`.
"""

from collections.abc import Awaitable, Callable, Generator
from typing import TypeVar

from autosched.model import JobId, Record
from autosched.protocol.jobs import JobView
from autosched.protocol.operations import ListSpans, Span, SpanList
from autosched.protocol.transfer import GetRecords, RecordPage

Q = TypeVar("Q")
A = TypeVar("A")
T = TypeVar("T")
Steps = Generator[ListSpans, SpanList, tuple[list[Span], float]]
"""The steps, and the daemon's time, in seconds of its scheduler clock."""
ASKED_LATER_S = 60.0
"""Maximum seconds between requesting a job and its steps: its time is counted back from the daemon's present time."""


def answered(asking: Generator[Q, A, T], ask: Callable[[Q], A]) -> T:
    """Answer the generator's requests until it returns."""
    try:
        question = next(asking)
        while True:
            question = asking.send(ask(question))
    except StopIteration as end:
        found: T = end.value
        return found


async def answered_async(asking: Generator[Q, A, T], ask: Callable[[Q], Awaitable[A]]) -> T:
    """Like `answered`, for coroutines."""
    try:
        question = next(asking)
        while True:
            question = asking.send(await ask(question))
    except StopIteration as end:
        found: T = end.value
        return found


def records_of(job: JobId) -> Generator[GetRecords, RecordPage, list[Record]]:
    """All records of a job, in the order in which they were measured."""
    records: list[Record] = []
    more = True
    while more:
        page = yield GetRecords(job=job, after=len(records))
        records += page.records
        more = page.more and bool(page.records)
    return records


def steps_since(last_s: float | None = None, until: float | None = None) -> Steps:
    """All steps of the last `last_s` seconds, or all. `until`: steps that started after this moment are not wanted."""
    page = yield ListSpans(last_s=last_s)
    spans = list(page.spans)
    while page.more and page.spans and (until is None or spans[-1].started_at <= until):
        page = yield ListSpans(after=spans[-1].step, last_s=last_s)
        spans += page.spans
    if last_s is not None:
        spans = [span for span in spans if span.ended_at is None or span.ended_at > page.now - last_s]
    return [span for span in spans if until is None or span.started_at <= until], page.now


def steps_beside(job: JobView) -> Steps:
    """Steps of a job, and of all other jobs in its time."""
    return steps_since(job.now - job.submitted_at + ASKED_LATER_S, job.ended_at)
