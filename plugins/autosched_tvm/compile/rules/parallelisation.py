"""Chooses the kernels that run on several cores of a device, and the loops that are spread over them.

TVM gives each thread one run of consecutive values of a parallel loop; all runs but the last have equal length. The
longest run determines the time: three values on two cores take as long as four.
"""

import math
from collections.abc import Sequence

import tvm

from autosched_tvm.compile.rules import memory_access
from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, bytes_of, nodes
from autosched_tvm.tvm_types import Target

SERIAL_S_MIN = 5e-6
"""Minimum time of a stage on one core for which threads pay off, in seconds. A fork and join of TVM's pool takes 1 to 4
microseconds on two cores, and half of the data is in another core's cache afterwards."""
BYTES_PER_S = 40e9
"""Memory accesses of one core to its L1 and L2 caches, in bytes per second."""
CALL_S = 1e-9
"""Time of a transcendental function for one element of a vector, in seconds."""
IMBALANCE_MAX = 1.05
"""Maximum ratio of the longest run of a parallel loop to the mean. Loops are fused until it is reached."""


def worthwhile(stage: Computation, cores: int) -> bool:
    """Returns whether a stage is spread over threads."""
    if cores < 2:
        return False
    steps = math.prod(loop.extent for loop in stage.every_loop)
    calls = sum("if_then_else" not in str(call.op.name) for call in nodes(stage.value, tvm.ir.Call))
    return steps * (_bytes_per_step(stage) / BYTES_PER_S + calls * CALL_S) >= SERIAL_S_MIN


def cores_for(stage: Computation, cores: int) -> int:
    """Returns the number of cores on which a stage runs, of those that there are."""
    return cores if worthwhile(stage, cores) else 1


def cores_of(target: Target) -> int:
    """Returns the number of cores of a target."""
    return int(target.attrs.get("num-cores", 1))


def shared(loops: Sequence[Loop], cores: int) -> int:
    """Returns the number of outer loops that are fused into one parallel loop; 0 where there is nothing to share.

    The smallest number that keeps all cores equally busy, or that comes nearest to it.
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
    """Returns the values of a parallel loop on the busiest core, relative to the mean of all cores."""
    return math.ceil(steps / cores) * cores / steps


def _bytes_per_step(stage: Computation) -> int:
    return sum(bytes_of(one.buffer.ty.dtype) for one in (memory_access.store_of(stage), *memory_access.loads_of(stage)))
