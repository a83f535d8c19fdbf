"""Runs the sentinel on a board: fixed work that measures its present speed, and other programs' load. Runs in a worker.

RPC gives wall-clock times only. The fastest run is an undisturbed one; the excess of the others is the time of other
programs.
"""

import os
from pathlib import Path

import tvm

from autosched.model import DeviceNote
from autosched_tvm.compile import sentinel_kernels
from autosched_tvm.device.place import place_of
from autosched_tvm.worker_messages import Remote

MEMORY_RUNS = 7
CORE_RUNS = 100
"""Number of runs: some 200 ms, in which another program that uses a quarter of the core is detected."""


def run(library: str, remote: Remote) -> DeviceNote:
    """Run the sentinel. `library`: file of its kernels, created if missing. Raises DeviceLost."""
    if not Path(library).exists():
        part = f"{library}.{os.getpid()}"  # a partly written file must not be found
        sentinel_kernels.build(part, remote.triple)
        Path(part).rename(library)
    with place_of(remote) as place:
        kernels = place.load(library)
        source, copy = (tvm.runtime.empty((sentinel_kernels.COPIED,), "int32", place.device) for _ in range(2))
        state = tvm.runtime.empty((1,), "int32", place.device)
        kernels["memory"](copy, source)  # a page without any write would be read from the cache

        def times_s(name: str, runs: int, *buffers: object) -> list[float]:
            timed = kernels.time_evaluator(name, place.device, number=1, repeat=runs)
            return [max(float(seconds), 1e-9) for seconds in timed(*buffers).results]

        memory_s = min(times_s("memory", MEMORY_RUNS, source, copy))
        core = times_s("core", CORE_RUNS, state)
        watched_s, core_s = sum(core), min(core)
        return DeviceNote(core_s, memory_s, watched_s - CORE_RUNS * core_s, watched_s)
