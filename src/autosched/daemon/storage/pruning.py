"""Removes ended jobs from the database.

A job goes in one transaction: the rows of its steps and results go, and what is left of its events in the journal is
that it is not known any more. So events keep their numbers, and a replay of all of them, which a version with another
state needs, comes to what is known now. Records stay, unless it is said otherwise; so do stage times, poison and audit.
"""

from collections.abc import Container, Iterable, Iterator
from pathlib import Path

import msgspec
from msgspec import Struct

from autosched.core.events import Event, JobPruned, StepEnded
from autosched.core.state import State
from autosched.daemon.storage.batched_statements import Statement
from autosched.daemon.storage.journal import Decided, Journal
from autosched.model import JobId, StepId

MARK = "pruned"
"""In `header`: the last event that was changed. A snapshot that does not cover it cannot be gone on from."""
ADD_MARK = f"INSERT INTO header VALUES ('{MARK}', ?) ON CONFLICT DO UPDATE SET count = max(count, excluded.count)"
AMONG = "IN (SELECT value FROM json_each(?))"
BLANK = (
    "UPDATE journal SET event = ?1, crc = journal_crc(seq, now, ?1, started)"
    " WHERE seq IN (SELECT value FROM json_each(?2))"
)
MEASURED = (
    # The last row stays: its number must not be given again, since snapshots and the record store count from there.
    "DELETE FROM records WHERE job = ? AND rowid < (SELECT max(rowid) FROM records)",
    "DELETE FROM marks WHERE job = ?",
    "DELETE FROM tags WHERE job = ? AND id < (SELECT max(id) FROM tags)",
    "DELETE FROM networks WHERE job = ?",
    "DELETE FROM identities WHERE job = ?",
)


class Trace(Struct):
    """Where a job is spoken of."""

    events: list[int] = []
    steps: list[StepId] = []


def over(state: State, older_than_s: float, keep: int, hosted: Container[JobId]) -> list[JobId]:
    """The jobs that ended longer ago, the oldest first.

    Left out are the `keep` that ended last, those that still have a client, and those whose records another job is made
    from or learns from.
    """
    ended = [job for job in state.jobs.values() if job.ended_at is not None]
    ended.sort(key=lambda job: (job.ended_at or 0.0, job.id))
    wanted = {job.spec.records_from for job in state.jobs.values()}
    wanted.update(one for job in state.jobs.values() if not job.state.ended for one in job.spec.learn_from)
    until = state.now - older_than_s
    return [
        job.id
        for job in ended[: max(0, len(ended) - keep)]
        if (job.ended_at or 0.0) <= until and not (job.steps or job.id in hosted or job.id in wanted)
    ]


class Tracing:
    """Looks for jobs in the rows of the journal, from the first one on.

    Rows of long ago do not say which steps they started: what came before them has to be decided again, so it stays.
    """

    def __init__(self, jobs: Iterable[JobId]) -> None:
        self.found = {job: Trace([], []) for job in jobs}
        """The rows of each job, complete once all rows were read."""
        self._of: dict[StepId, JobId] = {}

    def look(self, seq: int, event: Event, started: Decided | None) -> None:
        """At the next row."""
        for step in started or ():
            if step.job in self.found:
                self._of[step.id] = step.job
                self.found[step.job].steps.append(step.id)
        job: JobId | None = self._of.get(event.step) if isinstance(event, StepEnded) else getattr(event, "job", None)
        if job in self.found:
            self.found[job].events.append(seq)
        if started is None:
            for job in [job for job, trace in self.found.items() if trace.events]:
                del self.found[job]


def statements(job: JobId, trace: Trace, *, records: bool) -> Iterator[Statement]:
    """Statements that remove a job, to be run together with the event that says so; `records`: its measurements too."""
    yield BLANK, (msgspec.msgpack.encode(JobPruned(job)), _listed(trace.events))
    yield ADD_MARK, (max(trace.events),)
    yield f"DELETE FROM spans WHERE step {AMONG}", (_listed(trace.steps),)
    yield "DELETE FROM artifacts WHERE job = ?", (job,)
    for statement in MEASURED if records else ():
        yield statement, (job,)


def mark(journal: Journal) -> int:
    """The last event that was changed by pruning; 0: none was."""
    found = [count for (count,) in journal.rows("SELECT count FROM header WHERE name = ?", MARK)]
    return found[0] if found and isinstance(found[0], int) else 0


async def counts_of_records(journal: Journal) -> dict[JobId, int]:
    """How many records each job has."""
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
