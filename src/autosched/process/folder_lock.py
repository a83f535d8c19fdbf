"""The lock of a state folder, by which one process has it at a time."""

import fcntl
import os
from pathlib import Path

LOCK = "lock"


def take(folder: Path) -> int | None:
    """Lock a folder for this process; the lock lives as long as the returned file descriptor. None: another process
    has it. Raises OSError."""
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
