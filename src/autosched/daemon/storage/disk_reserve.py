"""Space that is kept for the time when the disk is full: for the journal, and for a prune, which makes room.

Two files of the state folder take the space. They are deleted when it is needed, and made again when there is plenty.
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

JOURNAL, PRUNE = "reserve-journal", "reserve-prune"
"""Names of the files, by what they are kept for."""
BYTES = {JOURNAL: 12 * 1024**2, PRUNE: 4 * 1024**2}
PLENTY = 8
"""The disk has this many times the size of a file left when the file is made."""
LOW_BYTES = 1024**2
"""A disk with less free space than this is full."""
FULL_WORDS = "the disk is full: the journal uses what was kept for that; free some space, or: autosched db prune"


def is_full(folder: Path) -> bool:
    """Whether the disk of a folder is full."""
    return _free_bytes(folder) < LOW_BYTES


def make(folder: Path) -> bool:
    """Take the space, as far as there is plenty; returns whether all of it is taken."""
    for name, size in BYTES.items():
        path = folder / name
        if path.exists() or _free_bytes(folder) < PLENTY * size:
            continue
        part = path.with_suffix(".part")
        try:
            with open(os.open(part, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
                os.posix_fallocate(file.fileno(), 0, size)
            part.rename(path)
        except OSError:  # a quota, or a file system that cannot
            with suppress(OSError):
                part.unlink(missing_ok=True)
    return all((folder / name).exists() for name in BYTES)


def release(folder: Path, name: str) -> bool:
    """Give the space of one file back to the disk if it is full; returns whether there was any."""
    if not is_full(folder):
        return False
    try:
        (folder / name).unlink()
    except OSError:
        return False
    return True


def _free_bytes(folder: Path) -> int:
    try:
        found = os.statvfs(folder)
    except OSError:  # it is still to be made
        return sys.maxsize
    return found.f_bavail * found.f_frsize
