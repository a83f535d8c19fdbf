"""How long stages took, by workload and target, over all jobs: what estimates for a new job begin with.

A total is kept for each (workload, target, stage) and changes in the transaction of the event that ended the step, so
that no step counts twice.
"""

from collections.abc import Iterable

import msgspec

from autosched.core.events import Event, HistoryRecalled
from autosched.daemon.disk.journal import Statement
from autosched.daemon.disk.schema import checked
from autosched.daemon.runtime import Runtime
from autosched.daemon.telling.progress import Ledger
from autosched.model import NETWORK_TASK, JobId, JobSpec, Outcome, StageHistory, TaskIndex
from autosched.protocol import Span

TABLES = (
    "CREATE TABLE IF NOT EXISTS stage_times (workload TEXT, target TEXT, stage TEXT, count INTEGER, sum_s REAL,"
    " crc INTEGER, PRIMARY KEY (workload, target, stage)) STRICT, WITHOUT ROWID",
)
ADD = (
    "INSERT INTO stage_times VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET"
    " count = count + 1, sum_s = sum_s + excluded.sum_s,"
    " crc = crc(workload, target, stage, count + 1, sum_s + excluded.sum_s)"
)
FIND = (
    "SELECT workload, stage, count, sum_s FROM stage_times WHERE target = ?"
    " AND workload IN (SELECT value FROM json_each(?))"
)


class History:
    """Stage times of the past. Reads do not wait for writes that are under way."""

    def __init__(self, runtime: Runtime, ledger: Ledger) -> None:
        self._runtime, self._ledger = runtime, ledger

    def rows(self, spans: Iterable[Span]) -> tuple[Statement, ...]:
        """What these ended steps teach, to be written with the event that ended them."""
        return tuple(row for span in spans if (row := self._row(span)) is not None)

    def _row(self, span: Span) -> Statement | None:
        workload = self._workload(span.job, span.task)
        if span.outcome != Outcome.DONE.value or span.ended_at is None or workload is None:
            return None
        if span.job in self._runtime.sharing:
            return None  # other steps slowed it down
        took_s = span.worked_s if span.worked_s is not None else span.ended_at - span.started_at
        return ADD, checked(workload, where(self._runtime.state.jobs[span.job].spec), span.stage, 1, took_s)

    async def recall(self, job: JobId) -> None:
        """Tell the core what is known of the job's tasks; returns when it knows."""
        tasks = (NETWORK_TASK, *self._ledger.of(job).tasks)
        workloads = {task: found for task in tasks if (found := self._workload(job, task)) is not None}
        wanted = msgspec.json.encode(sorted(set(workloads.values()))).decode()
        known: dict[str, list[tuple[str, float, int]]] = {}
        place = where(self._runtime.state.jobs[job].spec)
        for workload, stage, count, sum_s in await self._runtime.journal.read(FIND, place, wanted):
            assert isinstance(workload, str) and isinstance(stage, str)
            assert isinstance(count, int) and isinstance(sum_s, float)
            known.setdefault(workload, []).append((stage, sum_s / count, count))
        stages = tuple(
            StageHistory(task, *times) for task, workload in workloads.items() for times in known.get(workload, ())
        )

        def recalled() -> Event | None:
            ended = self._runtime.state.jobs[job].state.ended
            return HistoryRecalled(job, stages) if stages and not ended else None

        await self._runtime.post(recalled)

    def _workload(self, job: JobId, task: TaskIndex) -> str | None:
        if task == NETWORK_TASK:
            return self._runtime.state.jobs[job].spec.model
        known = self._ledger.of(job).tasks.get(task)
        return known.info.workload if known is not None else None


def where(spec: JobSpec) -> str:
    """Where times and failures of one workload are comparable: one backend, one target, one kind of device."""
    return f"{spec.backend} {spec.target} on {spec.device}"
