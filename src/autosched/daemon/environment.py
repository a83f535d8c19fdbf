"""The daemon's process: garbage collector and limits of the system."""

import asyncio
import contextlib
import gc
import os
import resource
from collections.abc import Callable, Collection
from pathlib import Path

from autosched.errors import ConfigError

COLLECT_AFTER = (200_000, 50, 10)
"""Thresholds of Python's garbage collector: new objects between two collections of the youngest generation, and numbers
of collections between two of the next older ones."""
IDLE_EVERY_S = 60.0
"""Seconds between two checks for an idle daemon."""
FILES_BESIDE = 1_024
"""Number of open files besides those of authenticated connections: strangers, database, uploads, logs, processes."""
FILES_MIN = 32
"""Number of open files with which a daemon runs one job."""


def spare_the_collector(held: contextlib.ExitStack) -> None:
    """Exclude the objects that exist before the daemon serves from garbage collection, and collect rarely.

    A collection of 100,000 objects blocks the event loop for 10 ms, and for 100 ms if they are not in the caches.
    Steps, connections and refusals leave no cycles, so that later objects need few collections. With 1,000 clients the
    default settings took 20 to 30 ms every few seconds.
    """
    gc.collect()
    gc.freeze()
    held.callback(gc.unfreeze)
    held.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(*COLLECT_AFTER)


async def collect_when_idle(active: Collection[object], decisions: Callable[[], int]) -> None:
    """Collect garbage whenever no job is active and decisions were made since the last time. Never returns."""
    seen = decisions()
    while True:
        await asyncio.sleep(IDLE_EVERY_S)
        if not active and decisions() != seen:
            seen = decisions()
            gc.unfreeze()
            gc.collect()
            gc.freeze()


def check_proc(proc: Path = Path("/proc")) -> None:
    """Raises ConfigError unless /proc has the processes of this one's namespace, under their numbers here."""
    try:
        known = os.readlink(proc / "self")
    except OSError:
        known = ""
    if known != str(os.getpid()):
        raise ConfigError(
            f"{proc} is not mounted for these processes, whose load and end a daemon reads there; mount it, as root:"
            f" mount -t proc proc {proc}"
        )


def allow_connections(wanted: int) -> None:
    """Raise the limit of open files for a number of connections, as far as the system permits.

    Raises ConfigError if it permits too few for any work.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES_MIN:
        raise ConfigError(
            f"this process may open {hard} files at once (ulimit -Hn), and a daemon needs {FILES_MIN};"
            f" raise the limit: ulimit -n {wanted + FILES_BESIDE}"
        )
    files = wanted + FILES_BESIDE
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
