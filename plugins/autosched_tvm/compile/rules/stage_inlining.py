"""Joins the stages of kernels that have no schedule at all, so that compiling them ends in time.

A fused kernel of a quantised network has up to 80 stages: every rounding is six of them. LLVM takes half a minute for
that many loop nests over the same memory, and a fiftieth of it for what is left here.
"""

from typing import Any

import tvm

STAGES_MAX = 8
"""Maximum number of stages that a kernel keeps as they are."""


def joined(function: Any) -> Any:
    """A function whose stages are computed where the next one reads them, if there are many."""
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}), debug_mask=0, enable_check=False)
    try:
        stages = schedule.get_child_blocks(schedule.get_sblock("root"))
    except Exception:  # TVM's errors have no common class; a function without such stages
        return function
    if len(stages) <= STAGES_MAX:
        return function
    for stage in stages:
        if len(schedule.get_consumers(stage)) == 1:
            try:
                schedule.compute_inline(stage)
            except Exception:  # a sum, or one whose results are read in another order than they are written
                continue
    return schedule.mod["main"]
