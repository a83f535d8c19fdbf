"""Where the database is, all of its tables, and what lies beside it."""

from pathlib import Path

from autosched.daemon.access import audit
from autosched.daemon.devices import verdicts
from autosched.daemon.disk import history, snapshot, store

DATABASE = "autosched.db"
TABLES = (*store.TABLES, *history.TABLES, *audit.TABLES, *verdicts.TABLES)


def snapshots(state_dir: Path) -> Path:
    """Where snapshots are."""
    return state_dir / snapshot.FOLDER


def backups(state_dir: Path) -> Path:
    """Where backups are."""
    return state_dir / "backups"


def database(state_dir: Path) -> Path:
    """The file."""
    return state_dir / DATABASE
