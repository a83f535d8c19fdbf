"""Estimates the multiply-adds per cycle of a tile's inner loop before anything is measured.

A step of the sum multiplies each of `across` vectors with each of `along` numbers. The core issues two multiply-adds
and two loads a cycle, a sum can be used again after four cycles, and values that do not fit into the registers are
stored and loaded at each step. Measurements decide the rest (caches, order of the loops, the compiler).
"""

import numpy as np

from autosched_backend_autotvm.config_space import PROMISE, Numbers

LATENCY_CYCLES = 4.0
PER_CYCLE = 2.0
"""Number of multiply-adds, and of loads, per cycle."""
WRITE_CYCLES = 2.0
"""Cycles to start and to write back a vector of sums."""
TILE_CYCLES = 8.0
"""Cycles between two tiles."""


def tile(
    across: Numbers, along: Numbers, *, steps: Numbers | float, waste: Numbers | float, registers: int,
    filled: Numbers | float = 1.0,
) -> dict[str, Numbers]:  # fmt: skip
    """Returns columns for a cost model; the last one is the logarithm of the expected share of the core's peak.

    `steps`: steps of the sum in one tile. `waste`: ratio of the covered elements to the computed ones. `filled`: share
    of a vector's lanes that are used.
    """
    sums = across * along
    loads = across + along
    need = np.where(np.minimum(across, along) == 1, sums + 1, sums + across + 1)
    spilt = np.maximum(0.0, need - registers)
    memory = (loads + 2.0 * spilt) / PER_CYCLE + spilt  # spilt values are stored too, one per cycle
    cycles = np.maximum(LATENCY_CYCLES, np.maximum(sums / PER_CYCLE, memory))
    around = (WRITE_CYCLES * sums + TILE_CYCLES) / steps
    share = sums / PER_CYCLE / (cycles + around) / waste * filled
    return {
        "tile.sums": np.log2(sums), "tile.loads": loads / sums, "tile.spilt": spilt,
        "tile.waste": np.log2(np.broadcast_to(np.asarray(waste, float), sums.shape)), PROMISE: np.log2(share),
    }  # fmt: skip


def wasted(extent: int, piece: Numbers) -> Numbers:
    """Returns the ratio of the elements that pieces of an axis cover to its extent."""
    return np.ceil(extent / piece) * piece / extent


def imbalance(pieces: Numbers, threads: int) -> Numbers:
    """Returns the ratio of the busiest thread's pieces to the mean. Each thread has one run of neighbouring pieces."""
    return np.ceil(pieces / threads) * threads / pieces
