"""Prunes ended jobs, by a command, in a running daemon or without one, or as the settings say."""

import asyncio
import contextlib
import shutil
from collections.abc import Awaitable, Callable, Container
from functools import partial
from pathlib import Path

from autosched.config import RetentionConfig
from autosched.core.actions import Action
from autosched.core.events import DeadlineReached, Event, JobPruned
from autosched.daemon.access.audit import Audit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.recovery import backups, maintenance, repair, snapshot
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.runtime import BY, Runtime, spawn
from autosched.daemon.storage import database, disk_reserve, pruning
from autosched.daemon.storage.blob_store import Blobs
from autosched.daemon.storage.journal import Journal
from autosched.daemon.storage.pruning import Trace, Tracing
from autosched.errors import AutoschedError, Refused
from autosched.model import JobId
from autosched.protocol import Prune, Pruned
from autosched.protocol.roles import Role

JOBS_MAX = 10_000
"""Maximum number of jobs that are pruned at once."""
ROWS = 100
"""Maximum rows of the journal that are read in one turn of the event loop; five times as many took 1 to 3 ms."""
AT_ONCE = 8
"""Maximum jobs that one commit deletes, since it delays all other commits."""
YOUNG_S = 86_400.0
"""Seconds for which a file without a job is kept, since a submission may follow its upload."""
FIRST_S, EVERY_S = 3_600.0, 86_400.0
"""Seconds from a start to the first automatic prune, and between two of them."""


class Retention:
    """Prunes jobs, one command at a time."""

    def __init__(
        self,
        runtime: Runtime,
        blobs: Blobs,
        folder: Path,
        hosted: Callable[[], Container[JobId]],
        covered: Callable[[], Awaitable[bool]],
    ) -> None:
        """`folder`: the state folder; `hosted`: returns the jobs that have a client; `covered`: makes a snapshot, and
        returns whether it could."""
        self._runtime, self._blobs, self._folder = runtime, blobs, folder
        self._hosted, self._covered = hosted, covered
        self._busy = asyncio.Lock()

    async def prune(self, wish: Prune) -> Pruned:
        """Prune, or only report what would be pruned. Raises Refused."""
        if self._busy.locked():
            raise Refused("jobs are being pruned already; wait for the end of that. See:  autosched audit")
        async with self._busy:
            disk_reserve.release(self._folder, disk_reserve.PRUNE)
            state = self._runtime.state
            over = pruning.over(state, wish.older_than_s, wish.keep, self._hosted())
            traces = await self._trace(over[:JOBS_MAX])
            told = await self._foreseen(traces, more=len(over) > JOBS_MAX)
            if wish.dry_run:
                return told
            if traces:
                await self._cover(max(trace.events[-1] for trace in traces.values()))
            jobs = list(traces)
            for first in range(0, len(jobs), AT_ONCE):
                chosen = jobs[first : first + AT_ONCE]
                await asyncio.gather(*(self._forget(job, traces[job], records=wish.records) for job in chosen))
            files, file_bytes = await self._sweep()
            gone = tuple(job for job in jobs if job not in state.jobs)
            return Pruned(gone, told.steps, told.records, files, file_bytes, len(state.jobs), told.more)

    async def follow(self, settings: Callable[[], RetentionConfig], audit: Audit) -> None:
        """Prune as the settings say, until cancelled."""
        pause_s = FIRST_S
        while True:
            await asyncio.sleep(pause_s)
            pause_s, wanted = EVERY_S, settings()
            if not wanted.days:
                continue
            wish = Prune(wanted.days * 86_400.0, wanted.keep, wanted.records, False)
            with contextlib.suppress(AutoschedError):  # the audit trail has the error
                await audit.of(Principal(BY, Role.OPERATOR), wish, self.prune(wish))

    async def _trace(self, jobs: list[JobId]) -> dict[JobId, Trace]:
        """Where in the journal these jobs are, as far as they can go."""
        tracing, last = Tracing(jobs), 0
        while jobs:
            rows = await self._runtime.journal.events(last, ROWS)
            if not rows:
                break
            for last, event, steps in rows:
                tracing.look(last, event, steps)
        return tracing.found

    async def _foreseen(self, traces: dict[JobId, Trace], *, more: bool) -> Pruned:
        counts = await pruning.counts_of_records(self._runtime.journal)
        records = sum(count for job, count in counts.items() if job in traces)
        files = self._blobs.unneeded(await self._needed(traces), YOUNG_S)
        sizes = [path.stat().st_size for path in files]
        steps = sum(len(trace.steps) for trace in traces.values())
        left = len(self._runtime.state.jobs) - len(traces)
        return Pruned(tuple(traces), steps, records, len(files), sum(sizes), left, more)

    async def _needed(self, gone: Container[JobId] = ()) -> set[str]:
        """Files to which the remaining jobs refer."""
        results = await pruning.result_files(self._runtime.journal)
        specs = [job.spec for job in self._runtime.state.jobs.values() if job.id not in gone]
        given = (sha256 for spec in specs for sha256 in (spec.model, spec.inputs) if sha256 is not None)
        return {*given, *(sha256 for job, sha256 in results if job not in gone)}

    async def _cover(self, last: int) -> None:
        """Make a snapshot after all rows that change, so that a restart does not read them."""
        if snapshot.last(database.snapshots(self._folder)) > last:
            return
        await self._runtime.post(DeadlineReached)  # a last row that belongs to no job
        if not await self._covered():
            raise Refused(f"nothing was pruned: {self._runtime.journal.worry or 'no snapshot could be made'}")

    async def _forget(self, job: JobId, trace: Trace, *, records: bool) -> None:
        def pruned() -> Event | None:
            return JobPruned(job) if job in self._runtime.state.jobs and job not in self._hosted() else None

        await self._runtime.post(pruned, tuple(pruning.statements(job, trace, records=records)))

    async def _sweep(self) -> tuple[int, int]:
        """Delete the files to which no job refers, those of an interrupted prune included. Returns number and bytes."""
        count, size = 0, 0
        for path in self._blobs.unneeded(await self._needed(), YOUNG_S):
            if any(path.name in (job.spec.model, job.spec.inputs) for job in self._runtime.state.jobs.values()):
                continue  # a job was submitted for it meanwhile
            taken = self._blobs.take_away(path)
            size += taken.stat().st_size
            count += 1
            await asyncio.to_thread(taken.unlink)
        for folder in pruning.unknown_folders(self._folder / "jobs", self._runtime.state):
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)
        return count, size


# Without a daemon -----------------------------------------------------------------------------------------------------


class _NoPerformer:
    """Performer for a state without clients and users."""

    def perform(self, action: Action) -> None:
        """Do nothing: there are no clients."""

    def changed(self, job: JobId) -> None:
        """Do nothing: there are no waiting users."""


def prune(folder: Path, wish: Prune, who: Principal) -> Pruned:
    """Prune the state of a daemon that does not run. The caller holds its lock. Raises NotFound and others."""

    backups.there(database.database(folder))
    disk_reserve.release(folder, disk_reserve.PRUNE)

    async def work() -> Pruned:
        repair.see_to(folder, accept_data_loss=False)
        with contextlib.closing(Journal(database.database(folder), *database.TABLES)) as journal:
            runtime = recover(journal, database.snapshots(folder)).runtime
            audit = Audit(journal, runtime.stream)
            journal.start()
            loop = spawn(runtime.run(_NoPerformer()), "the scheduler's loop")
            retention = Retention(runtime, Blobs(folder / "blobs", 0), folder, tuple, partial(_covered, folder))
            try:
                told = await audit.of(who, wish, retention.prune(wish))
            finally:
                runtime.halt()
                await loop
            assert isinstance(told, Pruned)
            return told

    return asyncio.run(work())


async def _covered(folder: Path) -> bool:
    await asyncio.to_thread(maintenance.make_snapshot, folder)
    return True
