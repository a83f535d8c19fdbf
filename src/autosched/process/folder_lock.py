"""The lock of a state folder, by which one process has it at a time."""

import fcntl
import os
from pathlib import Path

LOCK = "lock"


def take(folder: Path) -> int | None:
    """Make the folder, for this user only, and lock it for this process; the lock lives as long as the returned file
    descriptor. None: another process has it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
