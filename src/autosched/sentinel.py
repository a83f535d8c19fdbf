"""Sentinel: fixed work that measures the present speed of a device's cores.

    python -m autosched.sentinel 1,2

prints the times on cores 1 and 2 as JSON. Hashing depends on the core alone, copying also on the caches and the memory.
The least CPU time of several repeats counts: it is the speed that the core can reach at present.
"""

import ctypes
import hashlib
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec
from msgspec import Struct

from autosched import machine

HASHED_BYTES = 256 * 1024
"""Bytes to hash, which fit the L2 cache: 0.2 to 1 ms."""
COPIED_BYTES = 8 * 1024 * 1024
"""Bytes to copy, more than the L2 cache of today's cores: some ms."""
REPEATS = 7
CORES_MAX = 16
"""Maximum cores to measure, the first ones of larger devices: each core needs two buffers."""


class SentinelTimes(Struct, frozen=True):
    """Times of the sentinel's two halves on the slowest core, in seconds."""

    core_s: float
    memory_s: float


def run_sentinel(cores: tuple[int, ...]) -> SentinelTimes:
    """Run the sentinel on all of these cores at once; takes about 20 ms."""
    with ThreadPoolExecutor(CORES_MAX, "sentinel") as threads:
        found = list(threads.map(_pace_of, cores[:CORES_MAX]))
    return SentinelTimes(max(one.core_s for one in found), max(one.memory_s for one in found))


def _pace_of(core: int) -> SentinelTimes:
    """Times on one core, in a thread that is pinned to it. Both halves release the interpreter lock."""
    machine.pin([core])
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


if __name__ == "__main__":  # the daemon measures devices that no client may use
    sys.stdout.buffer.write(msgspec.json.encode(run_sentinel(tuple(int(core) for core in sys.argv[1].split(",")))))
