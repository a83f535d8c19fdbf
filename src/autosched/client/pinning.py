"""Pins threads of steps and their process to cores."""

import asyncio
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import TypeVar

from autosched import machine
from autosched.backend import Lease
from autosched.model import is_lane

T = TypeVar("T")


def keep_to(cores: Sequence[int]) -> None:
    """Pin this process to the host's cores; clients that users start are not pinned yet.

    On another machine than the daemon's, the core numbers may not exist; nothing happens then.
    """
    if wanted := set(cores) & os.sched_getaffinity(0):
        os.sched_setaffinity(0, wanted)


def on_lane(lease: Lease) -> bool:
    """Whether the step runs on a host lane."""
    return is_lane(lease.units[0])


async def in_thread(pool: Executor, lease: Lease, work: Callable[[], T]) -> T:
    """Run work in a thread. The thread is pinned to the cores of a host lane. A step on a device only waits for a
    process that is pinned to the device, and so stays off the device's cores."""

    def run() -> T:
        home = os.sched_getaffinity(0)
        if on_lane(lease):
            with suppress(OSError):  # its cpuset has changed: a build is right on any core
                machine.pin(lease.cores)
        try:
            return work()
        finally:
            os.sched_setaffinity(0, home)

    return await asyncio.get_running_loop().run_in_executor(pool, run)
