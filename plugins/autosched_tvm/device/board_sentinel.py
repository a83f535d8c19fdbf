"""Runs the sentinel on a board: fixed work that tells how fast the board is at present. Runs in a worker."""

import os
from pathlib import Path

import tvm

from autosched_tvm.compile import sentinel_kernels
from autosched_tvm.device.place import place_of
from autosched_tvm.worker_messages import Remote

REPEATS = 7
"""Runs of each half: the fastest counts, which shows how fast the board can be at present."""


def run(library: str, remote: Remote) -> tuple[float, float]:
    """How long the halves `core` and `memory` took, in seconds. `library`: file of the kernels, which is made when it
    is not there.

    Raises DeviceLost.
    """
    if not Path(library).exists():
        part = f"{library}.{os.getpid()}"  # one that is half written must not be found
        sentinel_kernels.build(part, remote.triple)
        Path(part).rename(library)
    with place_of(remote) as place:
        kernels = place.load(library)
        source, copy = (tvm.runtime.empty((sentinel_kernels.COPIED,), "int32", place.device) for _ in range(2))
        state = tvm.runtime.empty((1,), "int32", place.device)
        kernels["memory"](copy, source)  # a page that nothing was written to would be read from the cache

        def best_s(name: str, *buffers: object) -> float:
            timed = kernels.time_evaluator(name, place.device, number=1, repeat=REPEATS)
            return float(min(timed(*buffers).results))

        return best_s("core", state), best_s("memory", source, copy)
