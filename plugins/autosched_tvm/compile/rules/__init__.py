"""Schedules by rule, for kernels without a schedule from a search.

`kernel_ir` reads a kernel as a list of computations. `inlining` joins computations where that saves time,
`index_set_splitting` splits the index space until no condition is left, and `elementwise`, `reduction` and `row_fusion`
write loop nests with vectors (`loop_nests`, `memory_access`). `parallelisation` chooses the loops that are spread over
cores, `kernel_assembly` combines the loop nests, `stage_inlining` joins the stages of kernels that no rule fits, `gpu`
spreads kernels over the threads of a GPU, and `passes` applies the rules to a module.
"""

from autosched_tvm.compile.rules.kernel_assembly import scheduled
from autosched_tvm.compile.rules.passes import (
    NO_RULE,
    SCHEDULE,
    TUNED,
    by_rule,
    schedule_of,
    with_joined_stages,
    with_plain_sums,
    with_rules,
    with_views,
)

__all__ = [
    "NO_RULE",
    "SCHEDULE",
    "TUNED",
    "by_rule",
    "schedule_of",
    "scheduled",
    "with_joined_stages",
    "with_plain_sums",
    "with_rules",
    "with_views",
]
