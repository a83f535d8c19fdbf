"""Schedules by rule: for every kernel that no search has found a schedule for.

`kernel_ir` reads a kernel as a list of computations. `inlining` joins computations where that saves time,
`index_set_splitting` splits index space until no condition is left, and `elementwise`, `reduction` and `row_fusion`
write loop nests with vectors (`loop_nests`, `memory_access`). `parallelisation` says which loops are spread over cores,
`kernel_assembly` puts the loop nests together, `stage_inlining` joins the stages of kernels that no rule fits, and
`passes` applies all this to a module.
"""

from autosched_tvm.compile.rules.kernel_assembly import scheduled
from autosched_tvm.compile.rules.passes import (
    SCHEDULE,
    TUNED,
    by_rule,
    schedule_of,
    with_joined_stages,
    with_rules,
    with_views,
)

__all__ = ["SCHEDULE", "TUNED", "by_rule", "schedule_of", "scheduled", "with_joined_stages", "with_rules", "with_views"]
