"""Compares a record store with its daemon's database: the store must have each record exactly once."""

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
from sqlalchemy import select

from autosched.daemon.storage.database import DATABASE
from autosched.model import JobId, Record
from autosched.recordstore.keys import candidate_digest
from autosched.recordstore.opening import Database
from autosched.recordstore.tables import JOBS, MEASUREMENTS

Row = tuple[JobId, int, bytes, tuple[float, ...]]
"""Job, trial, digest of the candidate, samples in seconds."""
COLUMNS = (JOBS.c.number, MEASUREMENTS.c.record, MEASUREMENTS.c.digest, MEASUREMENTS.c.samples_s)


def stored(url: str) -> list[Row]:
    """Returns all measurements of a store with one daemon."""
    with contextlib.closing(Database(url)) as database, database.transaction() as connection:
        found = connection.execute(select(*COLUMNS).join(JOBS, JOBS.c.id == MEASUREMENTS.c.job_id)).all()
    return [
        (job, trial, digest, msgspec.json.decode(samples_s, type=tuple[float, ...]))
        for job, trial, digest, samples_s in found
    ]


def durable(folder: Path) -> int:
    """Returns the number of records in a daemon's own database."""
    with contextlib.closing(sqlite3.connect(f"file:{folder / DATABASE}?mode=ro", uri=True)) as db:
        return int(db.execute("SELECT count(*) FROM records").fetchone()[0])


def violations(records: Mapping[JobId, Sequence[Record]], rows: Sequence[Row]) -> list[str]:
    """Returns the records that the store lacks, has twice, or has without the daemon."""
    wanted = Counter(
        (job, one.number, candidate_digest(one.candidate), one.latency_s) for job, own in records.items() for one in own
    )
    found = Counter(rows)
    lost, more = wanted - found, found - wanted
    return [f"record {trial} of job {job} is lost in the store" for job, trial, *_ in lost] + [
        f"record {row[1]} of job {row[0]} is in the store {found[row]} times, in the daemon's database {wanted[row]}"
        for row in more
    ]
