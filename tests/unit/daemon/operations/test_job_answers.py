"""Answers about a job's records: reported trials can be read, and a full disk delays no reader for long."""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from autosched.daemon.operations import job_answers
from autosched.protocol import GetRecords, RecordPage


class Store:
    """Has one record more once it is flushed."""

    def __init__(self, writes: bool) -> None:
        self._writes, self.written = writes, False

    async def flush(self) -> None:
        if not self._writes:
            await asyncio.Event().wait()
        await asyncio.sleep(0)
        self.written = True

    async def records(self, _job: int, _after: int) -> RecordPage:
        return RecordPage((), self.written)


@pytest.mark.parametrize("writes", [True, False])
def test_unreadable_records_are_left_out_of_answers(writes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_answers, "WRITTEN_WITHIN_S", 60.0 if writes else 0.0)
    session: Any = SimpleNamespace(
        was_pruned=lambda _job: True, services=SimpleNamespace(store=Store(writes))
    )  # fmt: skip
    page = asyncio.run(job_answers._records(session, GetRecords(job=1, after=0)))
    assert page.more is writes
