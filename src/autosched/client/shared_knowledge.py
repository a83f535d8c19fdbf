"""Asks the daemon what other jobs know about a network: schedules, measurements, rankers and timings."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec import structs

from autosched.backend import Earlier, Network
from autosched.client import job_files, ranker_fetch
from autosched.client.daemon_session import DaemonSession
from autosched.client.plan import known_schedules, rounds
from autosched.client.round_work import Timed
from autosched.errors import NotFound
from autosched.model import JobId, JobSpec, Program, Record, TaskIndex, TaskInfo
from autosched.network_status import NOTHING_RECALLED, Recalled
from autosched.protocol import (
    AddProgram,
    Done,
    EarlierJob,
    GetKnown,
    GetSimilarJobs,
    GetTimings,
    GetUnknownPrograms,
    KnownSchedules,
    KnownTimings,
    RecordPage,
    SimilarJobs,
    UnknownPrograms,
    pagination,
)
from autosched.records import record_selection

log = logging.getLogger(__name__)

DESCRIBE_S = 10.0
"""Maximum seconds to send the programs of a network's workloads; the next job of the network sends the rest."""


class Known(NamedTuple):
    """Schedules of a network's tasks that other jobs measured."""

    recalled: Recalled
    """The schedules that are taken over."""
    records: Sequence[Record] = ()
    """New records of these schedules."""
    hints: Mapping[TaskIndex, tuple[bytes, ...]] = {}
    """First candidates of each task."""


class SharedKnowledge:
    """Asks the daemon what other jobs know, and keeps the answers for this job. A job that is `fresh` asks nothing."""

    def __init__(self, line: DaemonSession, workdir: Path) -> None:
        self._line, self._workdir = line, workdir
        self.teachers: list[Earlier] = []
        """Jobs that warm-start this one, with their records."""
        self.recalled_before: Recalled | None = None
        """Known schedules that an earlier client of the job took over; None if there was no earlier client."""
        self.elsewhere: dict[TaskIndex, dict[bytes, float]] = {}
        """Ratio of each known schedule on other devices, see `KnownSchedule.elsewhere`; by task and candidate."""
        self.timings: dict[str, Timed] = {}
        """Latencies measured by other jobs, by the digest of the object code."""

    async def records_of(self, job: JobId) -> list[Record]:
        """Fetch the records of a job."""
        return await pagination.answered_async(
            pagination.records_of(job), lambda asked: self._line.ask(asked, RecordPage)
        )

    async def fetch_teachers(self, spec: JobSpec, jobs: Iterable[EarlierJob]) -> None:
        """Fetch the records of jobs that warm-start this one. Jobs that the user did not name may be missing."""
        for one in jobs:
            try:
                model = await job_files.fetch_model(self._line, one.spec, self._workdir / "earlier" / str(one.job))
                records = record_selection.tried(await self.records_of(one.job))
            except NotFound as error:
                if spec.learn_from:
                    raise
                log.warning("nothing is learned from job %d, which was pruned meanwhile: %s", one.job, error)
            else:
                self.teachers.append(Earlier(one.job, one.spec, model, one.workloads, tuple(records)))

    async def find_teachers(self, spec: JobSpec, network: Network, recalled: Recalled) -> Recalled:
        """Query which earlier jobs can warm-start the search, if the user named none. Returns `recalled` with them.

        A client that resumes a job uses the jobs that an earlier client was told.
        """
        if spec.fresh or spec.learn_from or spec.records_from is not None:
            return recalled
        if self.recalled_before is not None:
            teachers = self.recalled_before.teachers
        elif rounds.budget(network, spec.trials, recalled):
            similar = (await self._line.ask(GetSimilarJobs(tasks=network.tasks), SimilarJobs)).jobs
            await self.fetch_teachers(spec, similar)
            teachers = tuple(one.job for one in self.teachers)
        else:
            teachers = ()
        return structs.replace(recalled, teachers=teachers)

    async def recall(self, spec: JobSpec, network: Network, taken: Collection[TaskIndex], next_number: int) -> Known:
        """Query the record store for schedules of the network's tasks. `taken`: tasks for which this job has records of
        known schedules.

        A client that resumes a job uses the schedules that an earlier client took over.
        """
        assert network.identity is not None
        if spec.fresh or spec.records_from is not None:
            return Known(NOTHING_RECALLED)
        known: dict[TaskIndex, KnownSchedules] = {}
        for info in network.tasks:
            asked = GetKnown(
                workload=info.workload, identity=network.identity, template=info.template, count=known_schedules.ASKED
            )
            found = known[info.task] = await self._line.ask(asked, KnownSchedules)
            if found.trouble:
                log.warning("nothing is taken over: %s", found.trouble)
                break
        goes_on = spec.names_latency and spec.trials != 0
        recall = known_schedules.recall(network, spec.trials, known, next_number, goes_on=goes_on)
        self.elsewhere = {
            task: {one.candidate: one.elsewhere for one in (*found.own, *found.hints) if one.elsewhere}
            for task, found in known.items()
        }
        if self.recalled_before is not None and set(taken).issuperset(self.recalled_before.taken):
            return Known(self.recalled_before, (), recall.hints)
        return Known(recall.recalled, recall.records, recall.hints)

    async def rankers(self, spec: JobSpec, network: Network, recalled: Recalled) -> Mapping[str, bytes]:
        """Fetch the rankers of the device model, by operator family; none where all tasks have known schedules."""
        assert network.identity is not None
        known = len(recalled.taken) == len(network.tasks)
        if known or spec.fresh or not network.identity.device:
            return {}
        return await ranker_fetch.fetch(self._line, network.identity.device)

    async def describe(self, network: Network, program_of: Callable[[TaskInfo], Program | None]) -> None:
        """Send the record store the programs of workloads that it lacks."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DESCRIBE_S):
                asked = GetUnknownPrograms(workloads=tuple({info.workload for info in network.tasks}))
                unknown = set((await self._line.ask(asked, UnknownPrograms)).workloads)
                for info in network.tasks:
                    if info.workload not in unknown:
                        continue
                    unknown.remove(info.workload)
                    program = await asyncio.to_thread(program_of, info)
                    if program is not None:
                        await self._line.ask(AddProgram(task=info, program=program), Done)

    async def look_up(self, spec: JobSpec, network: Network, codes: Sequence[str]) -> None:
        """Query the record store for latencies of object code measured by other jobs."""
        if not codes or network.identity is None or spec.fresh:
            return
        asked = GetTimings(codes=tuple(codes), identity=network.identity)
        for code, known in (await self._line.ask(asked, KnownTimings)).found.items():
            self.timings[code] = Timed(known.latency_s, known.source)
