"""Steps that the schedules of integer kernels share."""

import math
from typing import Any

from autosched_tvm.compile.integers import product

VECTOR = 16
"""Number of values of a vector where nothing is tiled."""


def joined(schedule: Any, anchor: Any) -> Any:
    """The block whose loops the sums follow, after what lies between has become part of it."""
    chain = [anchor]
    while after := schedule.get_consumers(chain[-1]):
        chain.append(after[0])
    at = max(number for number, block in enumerate(chain) if size(schedule, block) <= size(schedule, chain[1]))
    for block in (*chain[1:at], *chain[at + 1 : -1]):
        schedule.compute_inline(block)
    if chain[at + 1 :]:  # the results are used several times each
        spread(schedule, chain[-1])
    kept = {str(schedule.get(block).name_hint) for block in (anchor, chain[at], chain[-1])}
    for block in schedule.get_child_blocks(schedule.get_sblock("root")):
        name = str(schedule.get(block).name_hint)
        if name == product.BORDER:
            spread(schedule, block)
        elif name not in (*kept, product.IMAGE):
            schedule.compute_inline(block)
    return chain[at]


def size(schedule: Any, block: Any) -> int:
    """Number of values that a block computes, each as often as it is computed."""
    return math.prod(int(schedule.get(loop).extent) for loop in schedule.get_loops(block))


def spread(schedule: Any, block: Any) -> None:
    """Compute a block by itself, in vectors."""
    *outer, columns = schedule.get_loops(block)
    schedule.parallel(schedule.fuse(*outer) if len(outer) > 1 else outer[0])
    schedule.vectorize(schedule.split(columns, [None, VECTOR])[1])


def drawn(schedule: Any, loop: Any, most: int) -> Any:
    """A factor of a loop, drawn."""
    return schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most)[1]


def extent(schedule: Any, loop: Any) -> int:
    """Number of values of a loop."""
    return int(schedule.get(loop).extent)


def factors(size: int, most: int) -> list[int]:
    """The factors of a number up to another."""
    return [factor for factor in range(1, most + 1) if size % factor == 0]
