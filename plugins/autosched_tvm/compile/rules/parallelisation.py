"""Decides which kernels run on several cores of a device, and which of their loops are spread over them.

TVM gives each thread one run of neighbouring values of a parallel loop, all runs equally long but the last. So the time
of a loop is that of its longest run: three values on two cores take as long as four.
"""

import math
from collections.abc import Sequence
from typing import Any

import tvm

from autosched_tvm.compile.rules import memory_access
from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, bytes_of, nodes

SERIAL_S_MIN = 5e-6
"""Time of a stage on one core, in seconds, from which threads pay off. A fork and a join of TVM's pool take 1 to 4
microseconds on two cores, and half of the data lies in the cache of another core afterwards."""
BYTES_PER_S = 40e9
"""Memory accesses of one core, in bytes a second, of data that lie in its cache or the next one."""
CALL_S = 1e-9
"""Time of a transcendental function for one element of a vector, in seconds."""
IMBALANCE_MAX = 1.05
"""Longest run of a parallel loop, by the mean one, from which no more loops are joined."""


def worthwhile(stage: Computation, cores: int) -> bool:
    """Whether a stage is spread over threads."""
    if cores < 2:
        return False
    steps = math.prod(loop.extent for loop in stage.every_loop)
    calls = sum("if_then_else" not in str(call.op.name) for call in nodes(stage.value, tvm.ir.Call))
    return steps * (_bytes_per_step(stage) / BYTES_PER_S + calls * CALL_S) >= SERIAL_S_MIN


def cores_of(target: Any) -> int:
    """Number of cores that a target names."""
    return int(target.attrs.get("num-cores", 1))


def shared(loops: Sequence[Loop], cores: int) -> int:
    """Number of loops, from the outermost, that are joined to one parallel loop; 0 when there is nothing to share.

    As few as keep all cores equally busy; where none do, those that come nearest to it.
    """
    best, best_imbalance, steps = 0, float(cores), 1
    for number, loop in enumerate(loops, 1):
        steps *= loop.extent
        if (found := imbalance(steps, cores)) < best_imbalance:
            best, best_imbalance = number, found
        if best_imbalance <= IMBALANCE_MAX:
            break
    return best


def imbalance(steps: int, cores: int) -> float:
    """Values of a parallel loop that the busiest core has, by the mean of all cores."""
    return math.ceil(steps / cores) * cores / steps


def _bytes_per_step(stage: Computation) -> int:
    return sum(bytes_of(one.buffer.ty.dtype) for one in (memory_access.store_of(stage), *memory_access.loads_of(stage)))
