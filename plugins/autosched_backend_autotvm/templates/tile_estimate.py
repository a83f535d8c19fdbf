"""Estimates a tile of sums before anything is measured: the multiply-adds that a core can do in its inner loop.

A step of the sum multiplies each of `across` vectors with each of `along` numbers. The core begins two multiply-adds
and two loads a cycle, a sum can be used again after four cycles, and what does not fit the registers is stored and
loaded at each step. The rest (caches, order of the loops, what the compiler does) is left to who measures.
"""

import numpy as np

from autosched_backend_autotvm.config_space import PROMISE, Numbers

LATENCY_CYCLES = 4.0
PER_CYCLE = 2.0
"""Multiply-adds, and loads."""
WRITE_CYCLES = 2.0
"""To begin and to write back a vector of sums."""
TILE_CYCLES = 8.0
"""To come from one tile to the next."""


def tile(
    across: Numbers, along: Numbers, *, steps: Numbers | float, waste: Numbers | float, registers: int,
    filled: Numbers | float = 1.0,
) -> dict[str, Numbers]:  # fmt: skip
    """Columns for a cost model, the last one the logarithm of the share of the core's speed that may be expected.

    `steps`: of the sum, in one go. `waste`: what all tiles cover, by what there is to compute. `filled`: share of a
    vector's lanes that are used.
    """
    sums = across * along
    loads = across + along
    need = np.where(np.minimum(across, along) == 1, sums + 1, sums + across + 1)
    spilt = np.maximum(0.0, need - registers)
    memory = (loads + 2.0 * spilt) / PER_CYCLE + spilt  # what does not fit is stored too, one a cycle
    cycles = np.maximum(LATENCY_CYCLES, np.maximum(sums / PER_CYCLE, memory))
    around = (WRITE_CYCLES * sums + TILE_CYCLES) / steps
    share = sums / PER_CYCLE / (cycles + around) / waste * filled
    return {
        "tile.sums": np.log2(sums), "tile.loads": loads / sums, "tile.spilt": spilt,
        "tile.waste": np.log2(np.broadcast_to(np.asarray(waste, float), sums.shape)), PROMISE: np.log2(share),
    }  # fmt: skip


def wasted(extent: int, piece: Numbers) -> Numbers:
    """Elements that pieces of an axis cover, over its extent."""
    return np.ceil(extent / piece) * piece / extent


def imbalance(pieces: Numbers, threads: int) -> Numbers:
    """Pieces that the busiest thread computes, by the mean of all: each has one run of neighbouring pieces."""
    return np.ceil(pieces / threads) * threads / pieces
