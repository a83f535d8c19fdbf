"""Joins the stages of kernels without a schedule, which limits their compile time.

A fused kernel of a quantised network has up to 80 stages: each rounding is six of them. LLVM takes half a minute for
that many loop nests over the same memory, and a fiftieth of it after inlining.
"""

import tvm

from autosched_tvm.compile.integers import product
from autosched_tvm.tvm_types import PrimFunc

STAGES_MAX = 8
"""Maximum number of stages of a kernel that is left unchanged."""


def joined(function: PrimFunc) -> PrimFunc:
    """Returns a function whose stages are inlined into their readers, if there are many."""
    schedule = tvm.s_tir.Schedule(tvm.IRModule({"main": function}), debug_mask=0, enable_check=False)
    try:
        stages = schedule.get_child_blocks(schedule.get_sblock("root"))
    except Exception:  # TVM's errors have no common class; the function lacks such stages
        return function
    if len(stages) <= STAGES_MAX:
        return function
    for stage in stages:
        costly = str(schedule.get(stage).name_hint) == product.POINTS  # the sums read each point several times
        if not costly and len(schedule.get_consumers(stage)) == 1:
            try:
                schedule.compute_inline(stage)
            except Exception:  # a reduction, or a stage whose results are read in another order than they are written
                continue
    return schedule.mod["main"]
