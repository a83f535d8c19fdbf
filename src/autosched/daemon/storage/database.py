"""Where the database is, all of its tables, and what lies beside it."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from autosched.daemon.storage import audit_log, failure_cases, job_store, stage_times
from autosched.daemon.storage.journal import UNREADABLE, may_pass, open_beside, unreadable

DATABASE = "autosched.db"
TABLES = (*job_store.TABLES, *stage_times.TABLES, *audit_log.TABLES, *failure_cases.TABLES)


def snapshots(state_dir: Path) -> Path:
    """Where snapshots are."""
    return state_dir / "snapshots"


def backups(state_dir: Path) -> Path:
    """Where backups are."""
    return state_dir / "backups"


def has_traces(state_dir: Path, job: str) -> bool:
    """Whether a daemon with this state folder might know the job; for who asks while none runs. `job`: as people name
    it."""
    path = database(state_dir)
    if not path.exists() or not job.isdecimal() or (state_dir / "jobs" / job).exists():
        return path.exists()
    try:
        with contextlib.closing(open_beside(path)) as db:  # the client of an external job had its folder elsewhere
            return db.execute("SELECT 1 FROM records WHERE job = ?", (int(job[:15]),)).fetchone() is not None
    except UNREADABLE:
        return True  # a daemon will say what is wrong with it


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, all of it as of this moment, while a daemon may write to it.

    Raises Damaged and ConfigError.
    """
    try:
        with contextlib.closing(open_beside(path)) as db:
            yield db
    except UNREADABLE as error:
        raise unreadable(path, error) from None


def copy(path: Path, to: Path) -> None:
    """Write a database as it is at this moment to a new file. Raises Damaged and ConfigError for what cannot be read,
    OSError for what cannot be written."""
    with reading(path) as db:
        db.execute("COMMIT")  # of reading: a copy is one transaction by itself
        try:
            db.execute("VACUUM INTO ?", (str(to),))
        except sqlite3.Error as error:
            if may_pass(error):
                raise OSError(str(error)) from None
            raise


def database(state_dir: Path) -> Path:
    """The file."""
    return state_dir / DATABASE
