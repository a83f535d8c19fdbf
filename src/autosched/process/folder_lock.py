"""The lock of a state folder, which one process can hold at a time."""

import fcntl
import os
from pathlib import Path

LOCK = "lock"


def take(folder: Path) -> int | None:
    """Create the folder, for this user only, and lock it; the lock is held until the returned file descriptor closes.
    None if another process holds it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
