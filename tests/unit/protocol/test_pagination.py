"""Pages: the number of requests."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from autosched.model import Record
from autosched.protocol import GetRecords, ListSpans, RecordPage, Span, SpanList
from autosched.protocol.pagination import answered, records_of, steps_beside, steps_since
from samples import job_view, records

NOW = 1_000.0
SPANS = [Span(n, 1, 1, "build", ("host/0",), n, float(n), n + 1.0 if n < 8 else None, "done") for n in range(1, 9)]


class Pages:
    """A daemon with these spans, two in a page."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        """The step before the first one that it counts as recent."""
        self.asked: list[ListSpans] = []

    def answer(self, asked: ListSpans) -> SpanList:
        self.asked.append(asked)
        after = max(asked.after, self.first if asked.last_s is not None else 0)
        found = [span for span in SPANS if span.step > after]
        return SpanList(tuple(found[:2]), NOW, len(found) > 2)


@pytest.mark.parametrize(
    ("last_s", "until", "steps", "pages"),
    [
        (None, None, range(1, 9), 4),
        (994.5, None, range(5, 9), 3),  # the fourth ended at 5.0, ten milliseconds before
        (None, 3.5, range(1, 4), 2),
        (994.5, 5.5, [5], 2),
    ],
)
def test_steps_are_asked_for_as_far_as_they_are_wanted(
    last_s: float | None, until: float | None, steps: Sequence[int], pages: int
) -> None:
    daemon = Pages(first=3)
    spans, now = answered(steps_since(last_s, until), daemon.answer)
    assert [span.step for span in spans] == list(steps)
    assert (now, len(daemon.asked)) == (NOW, pages)


def test_the_steps_beside_a_job_are_those_until_its_end() -> None:
    daemon, job = Pages(), replace(job_view(), submitted_at=2.0, now=NOW - 5.0, ended_at=4.5)
    spans, _ = answered(steps_beside(job), daemon.answer)
    assert [span.step for span in spans] == [1, 2, 3, 4]
    assert daemon.asked[0].last_s is not None
    assert daemon.asked[0].last_s > NOW - job.submitted_at, "asked for later than the job"


def test_records_come_in_order_and_an_empty_page_is_the_last() -> None:
    asked: list[int] = []

    def answer(method: GetRecords) -> RecordPage:
        asked.append(method.after)
        some: tuple[Record, ...] = tuple(records()[method.after : method.after + 2])
        return RecordPage(some, True)

    assert answered(records_of(7), answer) == records()
    assert asked == [*range(0, len(records()), 2), len(records())][: len(asked)]
