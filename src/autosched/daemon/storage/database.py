"""Where the database is, all of its tables, and what lies beside it."""

import contextlib
from pathlib import Path

from autosched.daemon.access import audit
from autosched.daemon.devices import attribution_handler
from autosched.daemon.jobs import stage_history
from autosched.daemon.recovery import snapshot
from autosched.daemon.storage import job_store
from autosched.daemon.storage.journal import UNREADABLE, open_beside

DATABASE = "autosched.db"
TABLES = (*job_store.TABLES, *stage_history.TABLES, *audit.TABLES, *attribution_handler.TABLES)


def snapshots(state_dir: Path) -> Path:
    """Where snapshots are."""
    return state_dir / snapshot.FOLDER


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


def database(state_dir: Path) -> Path:
    """The file."""
    return state_dir / DATABASE
