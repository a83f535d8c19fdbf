"""Counts the single flipped bits of a daemon's database that are detected at its start.

``python benchmarks/bit_flips.py`` prints one JSON object. One bit, anywhere in the database file or in its write-ahead
log, is flipped, and the database is checked as at a start. `found`: detected ones among those that change anything.
`harmless`: bits in space that is never read, so that another program sees the same content as before.
"""

import argparse
import asyncio
import hashlib
import json
import shutil
import sqlite3
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random

from autosched.backend import Network
from autosched.core.events import ClientAttached, ClientLost, Event, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.daemon.access.audit import Audit
from autosched.daemon.access.peer_identity import Principal
from autosched.daemon.event_stream.stream import Stream
from autosched.daemon.recovery import backups
from autosched.daemon.recovery.state_recovery import recover
from autosched.daemon.storage import database
from autosched.daemon.storage.commit_mark import CommitMark
from autosched.daemon.storage.job_store import JobStore, Planned, span_rows
from autosched.daemon.storage.journal import Journal
from autosched.daemon.storage.schema import checked
from autosched.daemon.storage.stage_times import PUT
from autosched.errors import AutoschedError
from autosched.model import (
    Identity,
    IdentityFrom,
    JobLoad,
    JobSpec,
    Outcome,
    Pool,
    Purpose,
    Record,
    TaskInfo,
    TaskLoad,
    Unit,
)
from autosched.network_status import NOT_MEASURED
from autosched.protocol import Artifact, Span
from autosched.protocol.roles import Role

NETWORK = Network(
    tasks=tuple(TaskInfo(task=task, name=f"conv2d {task}", workload=f"{task:016x}") for task in range(1, 6))
)
ROUND = ("build", "profile", "build", "profile")


def main() -> None:
    """Flips bits and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flips", type=int, default=1_000, help="in the file, and a third as many in the log")
    parser.add_argument("--jobs", type=int, default=10)
    parser.add_argument("--records", type=int, default=120, help="of each job")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        path = database.database(Path(folder) / "state")
        path.parent.mkdir()
        fill(path, args.jobs, args.records)
        log = killed_copy(path, Path(folder) / "killed", also=300)
        told = {"file": flip(path, args.flips, Random(1)), "log": flip(log, args.flips // 3, Random(2))}
        sizes = {"file_bytes": path.stat().st_size, "log_bytes": log.stat().st_size}
    found, missed = (sum(getattr(one, name) for one in told.values()) for name in ("found", "missed"))
    parts = {name: asdict(one) for name, one in told.items()}
    print(json.dumps({"found_share": found / max(1, found + missed), **parts, **sizes}, indent=1))


# What is damaged ------------------------------------------------------------------------------------------------------


def fill(path: Path, jobs: int, records: int) -> None:
    """Runs a number of jobs, with the daemon's own code."""

    async def run() -> None:
        journal = Journal(path, *database.TABLES)
        core = recover(journal, path.parent / "no snapshots").runtime.scheduler
        store, audit = JobStore(journal), Audit(journal, Stream(lambda: 0.0))
        journal.start()

        async def happens(event: Event, also: tuple[Span, ...] = ()) -> list[int]:
            now = core.state.now + 1.0
            started = core.handle(now, event).steps
            times = [(PUT, checked("w", "mock auto on cpu", span.stage, 1, 0.5)) for span in also]
            await journal.append(now, event, started, (*span_rows(also), *times))
            return [step.id for step in started]

        await happens(ResourcesDeclared((Pool("host", (Unit("host/0", (0,)),)),), 600.0, 60.0))
        for job in range(core.state.last_job + 1, core.state.last_job + 1 + jobs):
            audit.note(Principal("a user", Role.USER), "submit", f"job {job}")
            await happens(JobSubmitted(job, JobSpec(name=f"net{job}", model="0" * 64, trials=records)))
            identity = IdentityFrom(0, Identity(target="auto", device="a CPU"))
            store.plan(job, Planned(NETWORK, records, NOT_MEASURED), identity)
            steps = await happens(ClientAttached(job, _load(ROUND[0])))
            for number in range(1, len(ROUND)):
                (step,) = steps
                for trial in range(records * (number - 1) // 3, records * number // 3):
                    store.add_record(job, trial, _record(trial))
                span = Span(step, job, 1, ROUND[number - 1], ("host/0",), 0.0, 1.0, 2.0, "done", 0.5)
                load = _load(ROUND[number]) if number < len(ROUND) - 1 else JobLoad(complete=True)
                steps = await happens(StepEnded(step, Outcome.DONE, load), (span,))
            store.tag(job, [1, 2], "other load")
            store.add_artifacts(job, [Artifact("net.so", hashlib.sha256(str(job).encode()).hexdigest(), 100)])
            await happens(ClientLost(job, "it ended"))
        await store.flush()
        journal.close()

    asyncio.run(run())


def _load(stage: str) -> JobLoad:
    return JobLoad(tasks=(TaskLoad(task=1, resources_next=("host",), stage_next=stage),))


def _record(trial: int) -> Record:
    purpose = Purpose.FINAL if trial % 6 == 5 else Purpose.TRIAL
    candidate = hashlib.sha256(str(trial).encode()).digest() * 12
    latency_s = (0.1, 0.2, 0.3 + trial)
    return Record(task=1 + trial % 5, number=trial, candidate=candidate, latency_s=latency_s, purpose=purpose)


def killed_copy(path: Path, folder: Path, also: int) -> Path:
    """Copies the state of a daemon that dies after `also` more events to a new folder; returns its log."""
    folder.mkdir()

    async def run() -> None:
        journal = Journal(path, *database.TABLES)
        recover(journal, path.parent / "no snapshots")
        journal.start()
        for _ in range(also):
            await journal.append(1e6, ClientLost(1, "again"))
        for file in (path, Path(f"{path}-wal"), CommitMark(path).path):
            shutil.copy(file, folder / file.name)
        journal.close()

    asyncio.run(run())
    return folder / f"{path.name}-wal"


# How ------------------------------------------------------------------------------------------------------------------


@dataclass
class Told:
    """Counts of flipped bits."""

    found: int = 0
    harmless: int = 0
    """Number of bits without effect on readers."""
    missed: int = 0


def flip(file: Path, flips: int, rng: Random) -> Told:
    """Flips bits of the file, a database or its log, one at a time."""
    path = file.with_name(database.DATABASE)
    sound = {part: part.read_bytes() for part in file.parent.iterdir()}
    whole, told = contents(path), Told()
    for _ in range(flips):
        for part in file.parent.iterdir():
            part.unlink()
        for part, content in sound.items():
            part.write_bytes(content)
        changed = bytearray(sound[file])
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        file.write_bytes(changed)
        try:
            backups.verify(path)
        except AutoschedError:
            told.found += 1
        else:
            same = contents(path) == whole
            told.harmless += same
            told.missed += not same
    return told


def contents(path: Path) -> list[object]:
    """Returns all content, as another program reads it."""
    db = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        form = db.execute("PRAGMA user_version").fetchone()
        schema = db.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").fetchall()
        ordered = db.execute("SELECT body FROM records ORDER BY job, ordinal").fetchall()
        return [form, schema, ordered, *(db.execute(f"SELECT * FROM {name}").fetchall() for name in names)]
    except (sqlite3.Error, UnicodeDecodeError) as error:
        return [str(error)]
    finally:
        db.close()


if __name__ == "__main__":
    main()
