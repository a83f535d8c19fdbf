"""Paths of the database and of the folders beside it, and access to it from outside the daemon."""

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from autosched.daemon.storage import audit_log, failure_cases, job_store, stage_times
from autosched.daemon.storage.journal import UNREADABLE, may_pass, open_beside, unreadable

DATABASE = "autosched.db"
TABLES = (*job_store.TABLES, *stage_times.TABLES, *audit_log.TABLES, *failure_cases.TABLES)


def snapshots(state_dir: Path) -> Path:
    """Folder of snapshots."""
    return state_dir / "snapshots"


def backups(state_dir: Path) -> Path:
    """Folder of backups."""
    return state_dir / "backups"


def has_traces(state_dir: Path, job: str) -> bool:
    """Whether a daemon with this state folder may know a job; for programs that ask while no daemon runs. `job`: the
    job's name or number."""
    path = database(state_dir)
    if not path.exists() or not job.isdecimal() or (state_dir / "jobs" / job).exists():
        return path.exists()
    try:
        with contextlib.closing(open_beside(path)) as db:  # the client of an external job has its folder elsewhere
            return db.execute("SELECT 1 FROM records WHERE job = ?", (int(job[:15]),)).fetchone() is not None
    except UNREADABLE:
        return True  # the daemon will report the damage


@contextlib.contextmanager
def reading(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading, in one transaction, while a daemon may write to it.

    Raises Damaged and ConfigError.
    """
    try:
        with contextlib.closing(open_beside(path)) as db:
            yield db
    except UNREADABLE as error:
        raise unreadable(path, error) from None


def copy(path: Path, to: Path) -> None:
    """Write the present content of a database to a new file. Raises Damaged and ConfigError if the database cannot be
    read, OSError if the file cannot be written."""
    with reading(path) as db:
        db.execute("COMMIT")  # end the transaction of `reading`: VACUUM must not run in one
        try:
            db.execute("VACUUM INTO ?", (str(to),))
        except sqlite3.Error as error:
            if may_pass(error):
                raise OSError(str(error)) from None
            raise


def database(state_dir: Path) -> Path:
    """Path of the database."""
    return state_dir / DATABASE
