"""How long stages took, by workload and circumstances, over all jobs: what estimates for a new job begin with.

A total is kept for each (workload, circumstances, stage) in the database (`autosched.records.identity` says which
circumstances are comparable; the column is called `target`), where it changes in the transaction of the event
that ended the step, so that no step counts twice. Those of the jobs of this life are also here: of all others only
their places on the disk are taken, however many there were.
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

IMPORT = "import"
"""The stage in which the client finds out under which circumstances it measures."""


class History:
    """Stage times of the past."""

    def __init__(self, runtime: Runtime, progress: ProgressRegistry) -> None:
        self._runtime, self._progress = runtime, progress
        self._totals: dict[tuple[str, str], dict[str, tuple[int, float]]] = {}
        """By workload and circumstances, for each stage: number of steps, and their seconds."""

    async def look_up(self, job: JobId) -> None:
        """Have at hand what the database knows of the job's tasks. Before that none of their steps counts.

        Nothing is written to a total that was not looked up, so none of those that are read here changes meanwhile;
        should two jobs ask at once, what the first one's steps have added stays.
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
        """Rows with the times of these ended steps, to be written with the event that ended them."""
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
            return None  # its client is ahead of what it was asked
        count, sum_s = totals.get(span.stage, (0, 0.0))
        totals[span.stage] = count, sum_s = count + 1, sum_s + took_s
        return stage_times.PUT, checked(workload, circumstances, span.stage, count, sum_s)

    async def recall(self, job: JobId) -> None:
        """Tell the core what is known of the job's tasks; returns when it knows."""
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
        """Key of the times that are comparable with those of a stage. An import ends before its identity is known."""
        known = None if stage == IMPORT else self._progress.get(job).identity
        return identity.circumstances(self._runtime.state.jobs[job].spec, known)

    def _keys(self, job: JobId) -> list[tuple[str, str]]:
        """The totals of a job's tasks, by workload and circumstances."""
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
