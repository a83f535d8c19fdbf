"""Limits that a client sets itself: of the memory of each worker, and of the number of its processes and threads."""

import os
import resource

from autosched import formatting

MEMORY_BYTES = "AUTOSCHED_MEMORY_BYTES"
"""Environment variable of a client with the maximum bytes of each of its workers; 0: no limit."""

TASKS = "AUTOSCHED_TASKS_MAX"
"""Environment variable of a client with its maximum number of processes and threads; empty: no limit."""

NO_MEMORY = "std::bad_alloc"
"""Words of C++ programs that get no memory."""


def most() -> int:
    """The maximum bytes of a worker of this client; 0: no limit."""
    given = os.environ.get(MEMORY_BYTES, "")
    return int(given) if given.isdecimal() else 0


def limit() -> None:
    """Let this process, and those that it starts, take no more than that of memory of their own (RLIMIT_DATA)."""
    if wanted := most():
        _lower(resource.RLIMIT_DATA, wanted)


def limit_tasks() -> None:
    """Let this process and all that it starts have no more processes and threads than that (RLIMIT_NPROC). The kernel
    counts those of its user in its user namespace, so that it is for programs that run apart; root's have no limit."""
    given = os.environ.get(TASKS, "")
    if given.isdecimal():
        _lower(resource.RLIMIT_NPROC, int(given))


def _lower(which: int, wanted: int) -> None:
    """Set a limit for good, unless it is lower already."""
    _, hard = resource.getrlimit(which)
    new = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(which, (new, new))


def out_of_memory() -> str:
    """A sentence about a lack of memory, with the setting that bounds it."""
    if not (bound := most()):
        return "the machine has too little memory"
    return f"it needs more memory than {formatting.size(bound)}, which is limits.client_bytes_max"


def explained(error: Exception) -> str:
    """The message of an error about a lack of memory, in words; empty for other errors."""
    if isinstance(error, MemoryError):
        return out_of_memory()
    return str(error).replace(NO_MEMORY, out_of_memory()) if NO_MEMORY in str(error) else ""
