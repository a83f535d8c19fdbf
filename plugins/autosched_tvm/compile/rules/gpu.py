"""Schedules by rule for GPUs: those of TVM's dlight, and one for what it leaves.

A kernel whose loops are not spread over threads cannot be compiled for a GPU, so each kernel gets a schedule.
"""

import math

import tvm
from tvm import s_tir, tirx
from tvm.s_tir import dlight

from autosched.errors import ModelRejected
from autosched_tvm.compile import kernel_sketches, lowering
from autosched_tvm.compile.rules import stage_inlining
from autosched_tvm.compile.rules.kernel_ir import NoRule, nodes
from autosched_tvm.compile.task_extraction import SCHEDULED
from autosched_tvm.tvm_types import BlockRV, Expr, IRModule, PrimFunc, Schedule, Stmt, Target

THREADS = 256
"""Threads of a block in the last rule."""


def scheduled(function: PrimFunc, target: Target) -> PrimFunc:
    """Returns a kernel scheduled for a GPU. Raises NoRule for one that no rule spreads over its threads."""
    written = _starts_threads(function.body)  # TVM's scatters and sorts are written for a GPU, without a schedule
    if not kernel_sketches.has_root(function):
        if written:
            return function
        raise NoRule("it is written for a CPU")
    joined = stage_inlining.joined(function)
    if written:
        return _each_result_by_a_thread(joined)
    gpu = dlight.gpu
    rules = (gpu.Matmul(), gpu.GEMV(), gpu.Reduction(), gpu.GeneralReduction(), gpu.Transpose(), gpu.Fallback())
    for attempt in (rules, (gpu.Fallback(),)):
        try:
            with target:
                found = dlight.ApplyDefaultSchedule(*attempt)(tvm.IRModule({"main": joined}))["main"]
        except Exception:  # TVM's rules raise various exceptions for kernels that they do not expect
            continue
        if is_spread(found) and _sums_are_sums(found) and lowering.is_possible(found, target):
            return found
    return _each_result_by_a_thread(joined)


def refuse_kernels_of_cpus(module: IRModule) -> None:
    """Raises ModelRejected for a fused network with a kernel whose loops are fixed and use no threads of a GPU."""
    for variable, function in module.functions_items():
        if isinstance(function, tirx.PrimFunc) and (function.attrs or {}).get(SCHEDULED) and not _has_threads(function):
            raise ModelRejected(
                f"the network has a layer whose kernel ({str(variable.name_hint)[:60]}) is written for CPUs, such as a"
                " recurrent one (LSTM, GRU). Tune it for a CPU: --target auto --device cpu"
            )


def plain(function: PrimFunc) -> PrimFunc:
    """Returns a kernel in which each thread computes one result of each computation, which TVM's rules did not change.
    Raises NoRule."""
    if kernel_sketches.has_root(function):
        return _each_result_by_a_thread(function)
    if _starts_threads(function.body):
        return function
    raise NoRule("it is written for a CPU")


def is_spread(function: PrimFunc) -> bool:
    """Returns whether all computations of a kernel run in threads of a GPU."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}), debug_mask=0, enable_check=False)
    return all(_is_bound(schedule, block) for block in _blocks(schedule))


def _sums_are_sums(function: PrimFunc) -> bool:
    """Returns whether each reduction of a kernel still only combines its result with another term. TVM's rules may
    write the computation that follows into each step of a sum, which makes it wrong."""
    for block in nodes(function.body, s_tir.SBlock):
        stores = nodes(block.body, tirx.BufferStore)
        if len(stores) == 1 and not _combines(stores[0]):  # one with several finds a maximum and its place
            return False
    return True


def _combines(store: Expr) -> bool:
    """Returns whether a store does not depend on the element that it replaces, or is an operation of it and a term."""
    if not any(load.source.same_as(store.buffer) for load in nodes(store.value, tvm.ir.TensorLoad)):
        return True
    terms = [getattr(store.value, name, None) for name in ("a", "b")]
    return any(isinstance(term, tvm.ir.TensorLoad) and term.source.same_as(store.buffer) for term in terms)


def _has_threads(function: PrimFunc) -> bool:
    """Returns whether some of a kernel runs in threads of a GPU."""
    loops = nodes(function.body, tirx.For)
    return _starts_threads(function.body) or any(loop.thread_binding is not None for loop in loops)


def _starts_threads(statement: Stmt) -> bool:
    """Returns whether a statement starts threads of a GPU itself."""
    return any(str(one.attr_key) == "thread_extent" for one in nodes(statement, tirx.AttrStmt))


def _is_bound(schedule: Schedule, block: BlockRV) -> bool:
    loops = (schedule.get(loop) for loop in schedule.get_loops(block))
    return _starts_threads(schedule.get(block).body) or any(loop.thread_binding is not None for loop in loops)


def _blocks(schedule: Schedule) -> list[BlockRV]:
    """Returns the blocks of a kernel, without its root."""
    return list(schedule.get_child_blocks(schedule.get_sblock("root")))


def _each_result_by_a_thread(function: PrimFunc) -> PrimFunc:
    """Returns a kernel in which each thread computes one result of each computation. Raises NoRule."""
    schedule = s_tir.Schedule(tvm.IRModule({"main": function}), debug_mask=0, enable_check=False)
    try:
        for block in _blocks(schedule):
            if not _is_bound(schedule, block):
                _bind(schedule, block)
    except (s_tir.ScheduleError, RuntimeError, TypeError, ValueError) as error:
        words = str(error).strip().splitlines()[-1][:200]
        raise NoRule(f"its loops cannot be spread over threads: {words}") from error
    return schedule.mod["main"]


def _bind(schedule: Schedule, block: BlockRV) -> None:
    loops = schedule.get_loops(block)
    kinds = [int(var.iter_type) for var in schedule.get(block).iter_vars]
    own = [loop for loop, kind in zip(loops, kinds, strict=False) if kind == tirx.IterVar.DataPar]
    rest = [loop for loop, kind in zip(loops, kinds, strict=False) if kind != tirx.IterVar.DataPar]
    if not own:  # one result
        own = [schedule.add_unit_loop(rest[0] if rest else block)]
    schedule.reorder(*own, *rest)
    count = math.prod(int(schedule.get(loop).extent) for loop in own)
    blocks, threads = schedule.split(schedule.fuse(*own), factors=[None, min(THREADS, count)])
    schedule.bind(blocks, "blockIdx.x")
    schedule.bind(threads, "threadIdx.x")
