"""Splits a fused kernel into its main computation, the preparation of its inputs, and the operators after it."""

from dataclasses import dataclass
from typing import Any

import tvm
from tvm import s_tir, tirx

from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis, NotUnderstood, nodes, read
from autosched_tvm.tvm_types import BlockRV, IRModule, LoopRV, Schedule


@dataclass
class Kernel:
    """Blocks of a kernel under a schedule. `prepare` leaves exactly these."""

    schedule: Any
    nest: KernelAnalysis
    anchor: Any
    """The main computation. It writes a buffer that only `out` reads."""
    pads: list[Any]
    """Blocks that make a padded copy of an input."""
    out: Any
    """Block that writes the results, with everything fused into it. Its loops are the result's dimensions."""
    rest: Any | None
    """Block that moves the results to another shape; None without one."""

    def loops(self) -> dict[str, LoopRV]:
        """Returns the loops of `out`, by the role of the dimension."""
        return dict(zip(self.nest.roles, self.schedule.get_loops(self.out), strict=True))


def understand(workload: IRModule) -> KernelAnalysis:
    """Returns the main computation of a workload with one function, "main". Raises NotUnderstood."""
    schedule = s_tir.Schedule(workload, debug_mask=0, enable_check=False)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    anchors = [block for block in blocks if schedule.get(block).init is not None]
    if len(anchors) != 1:
        found = ", ".join(str(schedule.get(block).name_hint) for block in anchors)
        raise NotUnderstood(
            f"{len(anchors)} computations sum something up ({found})" if anchors else "nothing is summed up"
        )
    for block in blocks:
        _check_plain(schedule, block)
    return read(workload["main"], schedule.get(anchors[0]))


def prepare(schedule: Schedule, nest: KernelAnalysis) -> Kernel:
    """Fuses what can be fused. Raises TVM's exceptions, and NotUnderstood."""
    anchor = schedule.get_sblock(nest.block)
    pads = _prepare_inputs(schedule, anchor)
    after = _after(schedule, anchor)
    for block in after[:-1]:
        schedule.compute_inline(block)
    last = after[-1] if after else None
    if last is not None and _is_elementwise(schedule, anchor, last):
        return Kernel(schedule, nest, anchor, pads, last, None)
    return Kernel(schedule, nest, anchor, pads, schedule.cache_write(anchor, 0, "global"), last)


def _check_plain(schedule: Schedule, block: BlockRV) -> None:
    """Raises NotUnderstood unless each loop is one of the block's variables."""
    content = schedule.get(block)
    loops = schedule.get_loops(block)
    if len(loops) != len(content.iter_vars):
        raise NotUnderstood(f"the kernel is scheduled already ({content.name_hint})")


def _prepare_inputs(schedule: Schedule, anchor: BlockRV) -> list[Any]:
    """Inlines elementwise blocks, and keeps those that pad."""
    kept: list[Any] = []
    waiting = list(schedule.get_producers(anchor))
    while waiting:
        block = waiting.pop(0)
        waiting += schedule.get_producers(block)
        if _pads(schedule, block) and not any(schedule.get(block).same_as(schedule.get(one)) for one in kept):
            kept.append(block)
        else:
            schedule.compute_inline(block)
    return kept


def _pads(schedule: Schedule, block: BlockRV) -> bool:
    """Returns whether elements depend on a condition. Such a block gets a buffer, since the main computation reads it
    many times."""
    store = schedule.get(block).body
    if not isinstance(store, tirx.BufferStore):
        return True
    return bool(nodes(store.value, tirx.Select)) or any(
        str(call.op.name).endswith("if_then_else") for call in nodes(store.value, tvm.ir.Call)
    )


def _after(schedule: Schedule, anchor: BlockRV) -> list[Any]:
    """Returns all blocks that depend on the main computation, in the order of the kernel. Raises NotUnderstood."""
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    names = [str(schedule.get(block).name_hint) for block in blocks]
    after = blocks[names.index(str(schedule.get(anchor).name_hint)) + 1 :]
    if outputs := [block for block in after if not schedule.get_consumers(block)][1:]:
        raise NotUnderstood(f"the kernel has {len(outputs) + 1} results")
    return list(after)


def _is_elementwise(schedule: Schedule, anchor: BlockRV, last: BlockRV) -> bool:
    """Returns whether a block computes each element from the element of the main computation at the same place."""
    content = schedule.get(last)
    variables = content.iter_vars
    result = schedule.get(anchor).body.buffer
    if [int(v.dom.extent) for v in variables] != [int(extent) for extent in result.shape]:
        return False
    loads = [load for load in nodes(content.body.value, tvm.ir.TensorLoad) if load.source.same_as(result)]
    places = [*(load.indices for load in loads), content.body.indices]
    return bool(loads) and all(
        (isinstance(index, tirx.Var) and index.same_as(variable.var))
        or (isinstance(index, tirx.IntImm) and int(variable.dom.extent) == 1)
        for indices in places
        for index, variable in zip(indices, variables, strict=True)
    )
