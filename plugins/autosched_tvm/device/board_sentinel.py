"""Runs the sentinel on a board: fixed work that tells how fast the board is at present, and whether other programs run
there. Runs in a worker.

RPC gives wall-clock times alone. The fastest run is one during which nothing else ran; how much longer the others take
all together is what other programs took away.
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
"""Some 200 ms, in which another program that uses a quarter of the core is seen."""


def run(library: str, remote: Remote) -> DeviceNote:
    """Run the sentinel. `library`: file of its kernels, which is made when it is not there. Raises DeviceLost."""
    if not Path(library).exists():
        part = f"{library}.{os.getpid()}"  # one that is half written must not be found
        sentinel_kernels.build(part, remote.triple)
        Path(part).rename(library)
    with place_of(remote) as place:
        kernels = place.load(library)
        source, copy = (tvm.runtime.empty((sentinel_kernels.COPIED,), "int32", place.device) for _ in range(2))
        state = tvm.runtime.empty((1,), "int32", place.device)
        kernels["memory"](copy, source)  # a page that nothing was written to would be read from the cache

        def times_s(name: str, runs: int, *buffers: object) -> list[float]:
            timed = kernels.time_evaluator(name, place.device, number=1, repeat=runs)
            return [max(float(seconds), 1e-9) for seconds in timed(*buffers).results]

        memory_s = min(times_s("memory", MEMORY_RUNS, source, copy))
        core = times_s("core", CORE_RUNS, state)
        watched_s, core_s = sum(core), min(core)
        return DeviceNote(core_s, memory_s, watched_s - CORE_RUNS * core_s, watched_s)
