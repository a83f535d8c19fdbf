"""Threads of steps, and the cores that they and their process run on."""

import asyncio
import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from typing import TypeVar

from autosched.backend import Lease
from autosched.model import HOST_POOL

T = TypeVar("T")


def pin(cores: Iterable[int]) -> None:
    """Keep the calling thread on these cores; without any, where it is."""
    if wanted := set(cores):
        os.sched_setaffinity(0, wanted)


def keep_to(cores: Sequence[int]) -> None:
    """Keep this process on the host's cores: a client that its user started by hand is not there yet.

    On another machine than the daemon's these numbers may mean nothing, and then nothing happens.
    """
    if wanted := set(cores) & os.sched_getaffinity(0):
        os.sched_setaffinity(0, wanted)


def on_lane(lease: Lease) -> bool:
    """Whether the step runs on a host lane."""
    return lease.units[0].startswith(f"{HOST_POOL}/")


async def in_thread(pool: Executor, lease: Lease, work: Callable[[], T]) -> T:
    """Run in a thread of its own. On a host lane it is pinned there; on a device it only waits for a process that is
    pinned there itself, so it stays off the device's cores."""

    def run() -> T:
        home = os.sched_getaffinity(0)
        pin(lease.cores if on_lane(lease) else ())
        try:
            return work()
        finally:
            os.sched_setaffinity(0, home)

    return await asyncio.get_running_loop().run_in_executor(pool, run)
