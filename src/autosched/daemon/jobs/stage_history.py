"""Durations of stages by workload and circumstances over all jobs, from which estimates for a new job start.

The database keeps a total for each (workload, circumstances, stage); `autosched.records.identity` defines comparable
circumstances, in the column `target`. A total changes in the same transaction as the event that ended the step, so that
no step counts twice. Only the totals of jobs since the daemon started are in memory.
"""

from collections.abc import Iterable

import msgspec

from autosched.core.events import Event, HistoryRecalled
from autosched.daemon.jobs.progress import ProgressRegistry
from autosched.daemon.runtime import Runtime
from autosched.daemon.storage import stage_times
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.schema import checked
from autosched.model import NETWORK_TASK, JobId, Outcome, StageHistory, TaskIndex
from autosched.protocol import Span
from autosched.records import identity
from autosched.stages import IMPORT


class History:
    """Durations of earlier stages."""

    def __init__(self, runtime: Runtime, progress: ProgressRegistry) -> None:
        self._runtime, self._progress = runtime, progress
        self._totals: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
        """Number of steps and their seconds, by (workload, circumstances) and stage."""

    async def look_up(self, job: JobId) -> None:
        """Read the totals of a job's tasks from the database. Steps count only after this.

        A total that was not read is not written, so that none changes while it is read. When two jobs read the same
        total, steps that the first one has added stay.
        """
        missing: dict[str, list[str]] = {}
        for workload, circumstances in self._keys(job):
            if (workload, circumstances) not in self._totals:
                missing.setdefault(circumstances, []).append(workload)
        for circumstances, workloads in missing.items():
            listed = msgspec.json.encode(workloads).decode()
            found = await self._runtime.journal.read(stage_times.OF_WORKLOADS, circumstances, listed)
            for workload in workloads:
                self._totals.setdefault((workload, circumstances), {})
            for name, stage, count, sum_s in found:
                assert isinstance(name, str) and isinstance(stage, str)
                assert isinstance(count, int) and isinstance(sum_s, float)
                self._totals[name, circumstances].setdefault(stage, (count, sum_s))

    def rows(self, spans: Iterable[Span]) -> tuple[Statement, ...]:
        """Rows with the durations of ended steps, to be written with the event that ended them."""
        return tuple([row for span in spans if (row := self._row(span)) is not None])

    def _row(self, span: Span) -> Statement | None:
        workload = self._workload(span.job, span.task)
        if span.outcome != Outcome.DONE or span.ended_at is None or workload is None:
            return None
        if span.job in self._runtime.sharing:
            return None  # other steps slowed it down
        took_s = span.worked_s if span.worked_s is not None else span.ended_at - span.started_at
        circumstances = self._circumstances(span.job, span.stage)
        if (totals := self._totals.get((workload, circumstances))) is None:
            return None  # its totals are not read yet
        count, sum_s = totals.get(span.stage, (0, 0.0))
        totals[span.stage] = count, sum_s = count + 1, sum_s + took_s
        return stage_times.PUT, checked(workload, circumstances, span.stage, count, sum_s)

    async def recall(self, job: JobId) -> None:
        """Tell the core the average durations of the job's tasks; returns when it has them."""
        await self.look_up(job)
        at_import, later = self._circumstances(job, IMPORT), self._circumstances(job)
        stages = tuple(
            StageHistory(task, stage, sum_s / count, count)
            for task, workload in self._workloads(job).items()
            for circumstances in dict.fromkeys((at_import, later))
            for stage, (count, sum_s) in sorted(self._totals.get((workload, circumstances), {}).items())
            if circumstances == (at_import if stage == IMPORT else later)
        )

        def recalled() -> Event | None:
            ended = self._runtime.state.jobs[job].state.ended
            return HistoryRecalled(job, stages) if stages and not ended else None

        await self._runtime.post(recalled)

    def _circumstances(self, job: JobId, stage: str = "") -> str:
        """Key of the circumstances of a stage. An import ends before the job's identity is known."""
        known = None if stage == IMPORT else self._progress.get(job).identity
        return identity.circumstances(self._runtime.state.jobs[job].spec, known)

    def _keys(self, job: JobId) -> list[tuple[str, str]]:
        """Keys of the totals of a job's tasks: workload and circumstances."""
        workloads, circumstances = self._workloads(job), self._circumstances(job)
        keys = [(workload, circumstances) for workload in workloads.values()]
        return list(dict.fromkeys([*keys, (workloads[NETWORK_TASK], self._circumstances(job, IMPORT))]))

    def _workloads(self, job: JobId) -> dict[TaskIndex, str]:
        tasks = {index: task.info.workload for index, task in self._progress.get(job).tasks.items()}
        return {NETWORK_TASK: self._runtime.state.jobs[job].spec.model, **tasks}

    def _workload(self, job: JobId, task: TaskIndex) -> str | None:
        if task == NETWORK_TASK:
            return self._runtime.state.jobs[job].spec.model
        known = self._progress.get(job).tasks.get(task)
        return known.info.workload if known is not None else None
