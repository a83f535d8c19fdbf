"""Schedules of our own kernels: one with drawn decisions for the searches, and one without a search."""

from collections.abc import Callable
from typing import Any

import tvm

from autosched_tvm.compile.attention import attention_sketch, computation
from autosched_tvm.compile.integers import (
    depthwise_sketch,
    dot_sketch,
    nibble_sketch,
    nibbles,
    product,
    tile_sketch,
    winograd_sketch,
)
from autosched_tvm.tvm_types import IRModule, PrimFunc

_ROUNDED = (product.DOT, product.DEPTHWISE)
"""Blocks of sums that are multiplied by scales, rounded, and often looked up in a table before they are stored."""
ROUNDING_REGISTERS = 8
"""Number of vector registers, of 32, that are left free for the factors and tables of this. Otherwise sums are
spilt."""
ROOT = "root"
"""Name of the block that contains all others."""
_SKETCHES: dict[str, Callable[[Any, Any, int | None], None]] = {
    product.DOT: dot_sketch.apply, product.DEPTHWISE: depthwise_sketch.apply,
    product.TILE_DOT: tile_sketch.apply, product.WINOGRAD: winograd_sketch.apply, nibbles.NAME: nibble_sketch.apply,
    computation.DOT: attention_sketch.apply,
}  # fmt: skip
"""Schedule function, by the name of the block of sums."""
_PLAIN: dict[str, Callable[[Any, Any], None]] = {
    product.DOT: dot_sketch.apply_plain, product.WINOGRAD: winograd_sketch.apply_plain,
}  # fmt: skip
"""The same for kernels that schedules are compared with."""


def has_root(function: PrimFunc) -> bool:
    """Returns whether a function consists of blocks below a root. TVM's scatter operators are one block without."""
    return isinstance(function.body, tvm.s_tir.SBlockRealize) and function.body.block.name_hint == ROOT


def sampled(workload: IRModule, seed: int) -> Any | None:
    """Returns a schedule of a task's workload with drawn tile sizes, from which each search of decisions starts; None
    for a workload without such sums."""
    return _scheduled(workload, seed, None)


def by_rule(function: PrimFunc, registers: int) -> PrimFunc | None:
    """Returns a function with tile sizes that suit most shapes; None for one without such sums. `registers`: number of
    vector registers of the CPU."""
    schedule = _scheduled(tvm.IRModule({"main": function}), 1, registers)
    return None if schedule is None else schedule.mod["main"]


def plain(function: PrimFunc) -> PrimFunc:
    """Returns a function with its sums of 8-bit products in vectors, and else without a schedule."""
    if not has_root(function):
        return function
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}), debug_mask=0, enable_check=False)
    for block in schedule.get_child_blocks(schedule.get_sblock(ROOT)):
        if (apply := _PLAIN.get(str(schedule.get(block).name_hint))) is not None:
            apply(schedule, block)
            return schedule.mod["main"]
    return function


def _scheduled(workload: IRModule, seed: int, registers: int | None) -> Any | None:
    if not has_root(workload["main"]):
        return None
    schedule = tvm.s_tir.Schedule(workload, seed=seed, debug_mask=0, enable_check=False)
    blocks = schedule.get_child_blocks(schedule.get_sblock(ROOT))
    names = {str(schedule.get(block).name_hint) for block in blocks}
    for name in _SKETCHES.keys() & names:
        if registers is not None and registers >= 32 and name in _ROUNDED:
            registers -= ROUNDING_REGISTERS
        try:
            _SKETCHES[name](schedule, schedule.get_sblock(name), registers)
        # TVM raises various exceptions, for example for an epilogue that does not follow the loops of the sums
        except Exception:
            return None
        return schedule
    return None
