"""The lock of a folder, which one process can hold at a time."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

LOCK = "lock"


def take(folder: Path) -> int | None:
    """Create the folder, for this user only, and lock it; the lock is held until the returned file descriptor closes.
    Returns None if another process holds it. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    with suppress(OSError):  # on a full disk the lock holds, and does not say for whom
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
    return lock


def holder(folder: Path) -> int | None:
    """Id of the process that holds the lock; None if none does."""
    try:
        with (folder / LOCK).open("r+") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read())
    except (OSError, ValueError):
        return None
    return None
