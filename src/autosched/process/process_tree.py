"""Processes that belong together: a process with its descendants, and all that carry the mark of a folder.

The mark is a limit of the process, which its descendants inherit even if they begin a session of their own, leave their
parent or empty their environment: the soft limit of file locks, which Linux has not enforced since 2.4 (setrlimit(2)).
"""

import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

RLIMIT_LOCKS = 10
"""Number of that limit, which the module `resource` does not name."""
MARK_BITS = 60
MARK_WORDS = "Max file locks"
"""Name of the limit in /proc/PID/limits."""


def mark(folder: Path) -> int:
    """The mark of the processes of a folder."""
    return int.from_bytes(hashlib.sha256(os.fsencode(folder)).digest()[:8], "big") >> (64 - MARK_BITS)


def wear(folder: Path) -> None:
    """Mark this process and all that it starts from now on. Does nothing if the limit was lowered before."""
    _, most = resource.getrlimit(RLIMIT_LOCKS)
    with suppress(OSError, ValueError):
        resource.setrlimit(RLIMIT_LOCKS, (mark(folder), most))


def mark_of(pid: int) -> int | None:
    """The mark of a process; None if it has none, or has ended."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return None
    words = next((line.removeprefix(MARK_WORDS).split() for line in lines if line.startswith(MARK_WORDS)), [""])
    return int(words[0]) if words[0].isdecimal() else None


def members(pid: int) -> Iterator[int]:
    """A process and its descendants, as far as their parents live."""
    yield pid
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError):
                for child in Path(f"/proc/{pid}/task/{thread}/children").read_text().split():
                    yield from members(int(child))


def resident_bytes(pid: int | str) -> int:
    """Resident memory of one process in bytes; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def tree_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants in bytes; pages that they share count several times."""
    return sum(map(resident_bytes, members(pid)))


def exact_tree_bytes(pid: int) -> int:
    """Memory of a process and its descendants, where each page counts once (proportional set size). Takes milliseconds
    for each gigabyte."""
    return sum(map(_exact_bytes, members(pid)))


def _exact_bytes(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration, ValueError):
        return resident_bytes(pid)  # another user's, or ended
