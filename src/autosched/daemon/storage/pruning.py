"""Removes ended jobs from the database.

A job is removed in one transaction: rows of its steps and results are deleted, and its events in the journal are
replaced by its removal. Events keep their numbers, and a replay of all events, which a version with another state
needs, gives the present state. Records stay unless the caller says otherwise; stage times, blocked candidates and the
audit trail always stay.
"""

from collections.abc import Container, Iterable, Iterator
from operator import itemgetter
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.core.events import Event, JobPruned, StepEnded
from autosched.core.state import State
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.journal import Decided, Journal
from autosched.model import JobId, StepId

MARK = "pruned"
"""Row of `header`: the last event that pruning changed. A snapshot that does not cover this event cannot be used."""
ADD_MARK = f"INSERT INTO header VALUES ('{MARK}', ?) ON CONFLICT DO UPDATE SET count = max(count, excluded.count)"
AMONG = "IN (SELECT value FROM json_each(?))"
BLANK = (
    "UPDATE journal SET event = ?1, crc = journal_crc(seq, now, ?1, started)"
    " WHERE seq IN (SELECT value FROM json_each(?2))"
)
MEASURED = (
    # The last row stays: its number must not be given again, because snapshots and the record store count from it.
    "DELETE FROM records WHERE job = ? AND rowid < (SELECT max(rowid) FROM records)",
    "DELETE FROM disturbances WHERE job = ? AND id < (SELECT max(id) FROM disturbances)",
    "DELETE FROM networks WHERE job = ?",
    "DELETE FROM network_status WHERE job = ?",
    "DELETE FROM identities WHERE job = ?",
)


class Trace(Struct):
    """The rows of the journal and the steps that belong to a job."""

    events: list[int] = []
    steps: list[StepId] = []


def over(state: State, older_than_s: float, keep: int, hosted: Container[JobId]) -> list[JobId]:
    """Jobs that ended more than `older_than_s` ago, the oldest first.

    Excluded are the `keep` latest ones, jobs with a client, and jobs whose records warm-start or seed another job.
    """
    ended = [(job.end.at, job.id, job) for job in state.jobs.values() if job.end is not None]
    ended.sort(key=itemgetter(0, 1))
    wanted = {job.spec.records_from for job in state.jobs.values()}
    wanted.update(one for job in state.jobs.values() if not job.state.ended for one in job.spec.learn_from)
    until = state.now - older_than_s
    return [
        number
        for ended_at, number, job in ended[: max(0, len(ended) - keep)]
        if ended_at <= until and not (job.steps or number in hosted or number in wanted)
    ]


class Tracing:
    """Finds the rows of jobs in the journal, read from the first row on."""

    def __init__(self, jobs: Iterable[JobId]) -> None:
        self.found = {job: Trace([], []) for job in jobs}
        """The rows of each job; complete after all rows were read."""
        self._of: dict[StepId, JobId] = {}

    def look(self, seq: int, event: Event, started: Decided) -> None:
        """Read the next row."""
        for step in started:
            if step.job in self.found:
                self._of[step.id] = step.job
                self.found[step.job].steps.append(step.id)
        job: JobId | None = self._of.get(event.step) if isinstance(event, StepEnded) else getattr(event, "job", None)
        if job in self.found:
            self.found[job].events.append(seq)


def statements(job: JobId, trace: Trace, *, records: bool) -> Iterator[Statement]:
    """Statements that remove a job, to be run together with the event of its removal; `records`: also its
    measurements."""
    yield BLANK, (msgspec.msgpack.encode(JobPruned(job)), _listed(trace.events))
    yield ADD_MARK, (max(trace.events),)
    yield f"DELETE FROM spans WHERE step {AMONG}", (_listed(trace.steps),)
    yield "DELETE FROM artifacts WHERE job = ?", (job,)
    for statement in MEASURED if records else ():
        yield statement, (job,)


def mark(journal: Journal) -> int:
    """The last event that pruning changed; 0 if there is none."""
    found = [count for (count,) in journal.rows("SELECT count FROM header WHERE name = ?", MARK)]
    return found[0] if found and isinstance(found[0], int) else 0


async def counts_of_records(journal: Journal) -> dict[JobId, int]:
    """The number of records of each job."""
    rows = await journal.read("SELECT job, count(*) FROM records GROUP BY job")
    return {job: count for job, count in rows if isinstance(job, int) and isinstance(count, int)}


async def result_files(journal: Journal) -> list[tuple[JobId, str]]:
    """Content hashes of all jobs' results, each with its job."""
    rows = await journal.read("SELECT job, sha256 FROM artifacts")
    return [(job, sha256) for job, sha256 in rows if isinstance(job, int) and isinstance(sha256, str)]


def unknown_folders(jobs: Path, state: State) -> list[Path]:
    """Work folders of jobs that were pruned."""
    found = [path for path in jobs.iterdir() if path.name.isdecimal()] if jobs.is_dir() else []
    return [path for path in found if int(path.name) not in state.jobs and int(path.name) <= state.last_job]


def _listed(numbers: Iterable[int]) -> str:
    return msgspec.json.encode(list(numbers)).decode()
