"""The daemon's process in its environment: garbage collector, limits of the system."""

import asyncio
import contextlib
import gc
import resource
from collections.abc import Callable, Collection

COLLECT_AFTER = (200_000, 50, 10)
"""Objects made and not freed between two looks of Python's collector at what is new; and how many of these looks lie
between two at what is older."""
IDLE_EVERY_S = 60.0
FILES_BESIDE = 256
"""Open files that are no connections: database, uploads, logs, processes."""


def spare_the_collector(held: contextlib.ExitStack) -> None:
    """Keep Python's garbage collector away from the objects that exist before the daemon serves.

    A collection of 100,000 objects holds the loop up for 10 ms, and for 100 ms where they are not in the caches. Later
    objects are collected when many have gathered: steps, connections and refusals leave no cycles. With 1,000 clients
    the collector took 20 to 30 ms every few seconds.
    """
    gc.collect()
    gc.freeze()
    held.callback(gc.unfreeze)
    held.callback(gc.set_threshold, *gc.get_threshold())
    gc.set_threshold(*COLLECT_AFTER)


async def collect_when_idle(active: Collection[object], decisions: Callable[[], int]) -> None:
    """For ever: collect garbage when no job is active, once after each time that one was."""
    seen = decisions()
    while True:
        await asyncio.sleep(IDLE_EVERY_S)
        if not active and decisions() != seen:
            seen = decisions()
            gc.unfreeze()
            gc.collect()
            gc.freeze()


def allow_connections(wanted: int) -> None:
    """Let this process have this number of connections open, and the files it needs, as far as the system permits."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = wanted + FILES_BESIDE
    if hard != resource.RLIM_INFINITY:
        files = min(files, hard)
    if soft not in (resource.RLIM_INFINITY, hard) and soft < files:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, hard))
