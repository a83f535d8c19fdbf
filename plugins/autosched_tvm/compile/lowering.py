"""Lowers kernels with TVM's passes, and keeps small buffers on the stack and transcendental functions in vector
registers.

TVM takes each buffer above one kilobyte from a pool, including a tile of sums that fits into vector registers: this
costs a call for each tile, and stores that are never read. It is a fifth of the time of a pointwise convolution.

A search lowers thousands of kernels. Therefore passes whose work LLVM repeats are left out, as are checks of a kernel's
arguments, which are two thirds of the object code of a small kernel. See docs/decisions/037-cheap-trials.md.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import compilation_pipeline

from autosched_tvm.compile import nan_operands, targets
from autosched_tvm.compile.integers import table_registers, tile_instructions
from autosched_tvm.compile.vector_math import call_replacement
from autosched_tvm.tvm_types import IRModule, PrimFunc, Stmt, Target

PIPELINE = "autosched"
"""Name for `tirx.build(pipeline=)` and `relax.build(tir_pipeline=)`, registered by `install`."""
BASE = "s_tir"
STACK_BYTES_MAX = 8_192
SKIPPED = ("tirx.CommonSubexprElim", "tirx.RemoveNoOp")
"""Passes of TVM whose work LLVM repeats."""
Step = Callable[[Any], Any]
STEPS: tuple[tuple[Callable[[Any], bool], Step], ...] = (
    (tile_instructions.are_used, tile_instructions.requested),
    (table_registers.is_used, table_registers.in_registers),
    (call_replacement.is_used, call_replacement.in_registers),
    (nan_operands.are_lost, nan_operands.kept),
)
"""Changes of a lowered function; each with a test of whether a kernel needs it."""


def install() -> str:
    """Registers the pipeline with TVM; returns its name. Repeated calls are cheap."""
    call_replacement.mark_vectorizable()
    compilation_pipeline.register_tir_pipeline(PIPELINE, _factory)
    return PIPELINE


def _factory() -> tuple[Any, Any, Any]:
    lower, finalize_host, finalize_device = compilation_pipeline.get_tir_pipeline(BASE)

    def lowered(module: IRModule, context: Any) -> IRModule:
        # what a kernel needs is told before its loops are unrolled, while it is small
        steps = {name.name_hint: [s for needed, s in STEPS if needed(f)] for name, f in _kernels(module)}
        with _without(SKIPPED, context):
            changed = lower(module)
        # a buffer of a function that starts kernels is memory of the GPU, whatever its size
        small = _unchanged if any(_is_for_gpu(function) for _, function in _kernels(changed)) else _mark
        for name, function in _kernels(changed):
            changed.update_func(name, _completed(function, steps.get(name.name_hint, ()), small))
        return changed

    return tvm.transform.module_pass(lowered, opt_level=0, name="autosched.lower"), finalize_host, finalize_device


def is_possible(function: PrimFunc, target: Target) -> bool:
    """Returns whether TVM lowers a scheduled kernel."""
    lower, _, _ = compilation_pipeline.get_tir_pipeline(BASE)
    module = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    try:
        with target, tvm.transform.PassContext(opt_level=3):
            lower(tirx.transform.BindTarget(target.with_host("llvm"))(module))
    except Exception:  # TVM's passes raise various exceptions
        return False
    return True


def _kernels(module: IRModule) -> list[tuple[Any, Any]]:
    return [(name, function) for name, function in module.functions.items() if isinstance(function, tirx.PrimFunc)]


def _without(passes: Sequence[str], context: Any) -> Any:
    """Returns the context of passes without some of them."""
    return tvm.transform.PassContext(
        context.opt_level, context.required_pass, [*context.disabled_pass, *passes], context.instruments, context.config
    )


def _is_for_gpu(function: PrimFunc) -> bool:
    target = (function.attrs or {}).get("target")
    return target is not None and targets.is_gpu(target)


def _completed(function: PrimFunc, steps: Sequence[Step], small: Step) -> PrimFunc:
    """Returns a lowered function without checks of its arguments, and after further steps. `small`: what is done with
    its buffers."""
    callbacks = (tirx.AllocBuffer, small), (tirx.AssertStmt, lambda _: tirx.Evaluate(0))
    function = function.with_body(tvm_ffi.structural.structural_map(function.body, callbacks))
    for step in steps:
        function = step(function)
    return function


def _unchanged(allocation: Stmt) -> Stmt:
    return allocation


def _mark(allocation: Stmt) -> Stmt:
    buffer = allocation.buffer
    if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
        return allocation
    dtype = tvm.DataType(str(buffer.dtype))
    size = math.prod(int(extent) for extent in buffer.shape) * dtype.bits * dtype.lanes // 8
    if size > STACK_BYTES_MAX:
        return allocation
    return tirx.AllocBuffer(buffer, {**dict(allocation.annotations), call_replacement.ON_STACK: tirx.IntImm("bool", 1)})
