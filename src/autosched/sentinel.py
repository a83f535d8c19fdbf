"""Sentinel: fixed work that tells how fast the cores of a device are at present.

    python -m autosched.sentinel 1,2

prints the times on cores 1 and 2 as JSON. The work knows nothing of tuning: hashing needs the core alone, copying needs
the caches and the memory too. The best of some repeats counts, in processor time of its thread, so that it says how
fast the core can be at present.
"""

import ctypes
import hashlib
import os
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

HASHED_BYTES = 256 * 1024
"""Fits the L2 cache: 0.2 to 1 ms of hashing."""
COPIED_BYTES = 8 * 1024 * 1024
"""Larger than the L2 cache of today's cores: a copy takes some ms."""
REPEATS = 7
CORES_MAX = 16
"""Each core needs two buffers; of larger devices the first cores speak for all."""


class SentinelTimes(Struct, frozen=True):
    """How long the sentinel's two halves took on the slowest core, in seconds."""

    core_s: float
    memory_s: float


def run_sentinel(cores: tuple[int, ...]) -> SentinelTimes:
    """Run the sentinel on all of these cores at once; it takes some 20 ms."""
    with ThreadPoolExecutor(CORES_MAX, "sentinel") as threads:
        found = list(threads.map(_pace_of, cores[:CORES_MAX]))
    return SentinelTimes(max(one.core_s for one in found), max(one.memory_s for one in found))


def _pace_of(core: int) -> SentinelTimes:
    """In a thread of its own, which ends with it. Both halves let other threads of this process run meanwhile."""
    os.sched_setaffinity(0, {core})
    text = bytes(HASHED_BYTES)
    source, target = (ctypes.create_string_buffer(COPIED_BYTES) for _ in range(2))
    ctypes.memset(source, 1, COPIED_BYTES)
    return SentinelTimes(
        _best_s(lambda: hashlib.sha256(text)), _best_s(lambda: ctypes.memmove(target, source, COPIED_BYTES))
    )


def _best_s(work: Callable[[], object]) -> float:
    work()  # fetches code and data
    times = []
    for _ in range(REPEATS):
        began_at = time.thread_time_ns()
        work()
        times.append(time.thread_time_ns() - began_at)
    return max(min(times), 1) / 1e9


if __name__ == "__main__":  # the daemon measures a device on which no client may work
    sys.stdout.buffer.write(msgspec.json.encode(run_sentinel(tuple(int(core) for core in sys.argv[1].split(",")))))
