"""Sums over the last axis of a matrix: rows in parallel, several partial sums in one vector."""

from collections.abc import Mapping, Sequence
from typing import Any

from autosched_backend_autotvm.template_api import Knob, Value, factor, number

PARTS_MAX = 64
"""Maximum number of partial sums of a row."""


class MypatternTemplate:
    """Matches kernels with one computation, which sums up the last axis of a matrix."""

    def knobs(self, workload: Any, target: Any) -> Sequence[Knob] | None:
        """Returns the choices for a task; None for another kernel."""
        extents = _extents(workload)
        if target.kind.name != "llvm" or extents is None:
            return None
        rows, columns = extents
        return (
            factor("rows", rows, rows, "rows that one thread sums up one after the other"),
            factor("parts", columns, PARTS_MAX, "partial sums of a row"),
            Knob("unroll", (0, 1), (), "whether the partial sums are added up without a loop"),
        )

    def schedule(self, schedule: Any, config: Mapping[str, Value]) -> None:
        """Splits the sum into partial sums that are vectorised, and spreads the rows over threads."""
        block = schedule.get_sblock(_block(schedule))
        _, column = schedule.get_loops(block)
        _, part = schedule.split(column, [None, number(config, "parts")])
        partial = schedule.rfactor(part, factor_axis=1)
        row, outer, inner = schedule.get_loops(partial)
        schedule.reorder(row, outer, inner)
        schedule.vectorize(inner)
        row, part = schedule.get_loops(block)
        if config["unroll"]:
            schedule.unroll(part)
        outer, _ = schedule.split(row, [None, number(config, "rows")])
        schedule.parallel(outer)
        schedule.compute_at(partial, outer)


def _block(schedule: Any) -> str:
    (block,) = schedule.get_child_blocks(schedule.get_sblock("root"))
    return str(schedule.get(block).name_hint)


def _extents(workload: Any) -> tuple[int, int] | None:
    """Returns the numbers of rows and columns, if the kernel is one sum over the last axis of a matrix."""
    from tvm import s_tir

    schedule = s_tir.Schedule(workload)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    if len(blocks) != 1:
        return None
    content = schedule.get(blocks[0])
    loops = [int(variable.dom.extent) for variable in content.iter_vars]
    kinds = [int(variable.iter_type) for variable in content.iter_vars]
    if content.init is None or kinds != [0, 2] or len(content.reads) != 1:  # 0: a row, 2: summed up
        return None
    return loops[0], loops[1]
