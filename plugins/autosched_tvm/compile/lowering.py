"""Lowers kernels with TVM's passes, and keeps small buffers on the stack and transcendental functions in vector
registers.

TVM takes each buffer above one kilobyte from a pool, including a tile of sums that fits into vector registers: this
costs a call for each tile, and stores that are never read. It is a fifth of the time of a pointwise convolution.
"""

import math
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.tirx import compilation_pipeline

from autosched_tvm.compile.integers import table_registers, tile_instructions
from autosched_tvm.compile.vector_math import call_replacement

PIPELINE = "autosched"
"""Name for `tirx.build(pipeline=)` and `relax.build(tir_pipeline=)`, registered by `install`."""
BASE = "s_tir"
STACK_BYTES_MAX = 8_192


def install() -> str:
    """Registers the pipeline with TVM; returns its name. Repeated calls are cheap."""
    call_replacement.mark_vectorizable()
    compilation_pipeline.register_tir_pipeline(PIPELINE, _factory)
    return PIPELINE


def _factory() -> tuple[Any, Any, Any]:
    lower, finalize_host, finalize_device = compilation_pipeline.get_tir_pipeline(BASE)

    def lowered(module: Any, _context: Any) -> Any:
        changed = lower(module)
        for name, function in changed.functions.items():
            if isinstance(function, tirx.PrimFunc):
                changed.update_func(name, _completed(function))
        return call_replacement.in_registers(changed)

    return tvm.transform.module_pass(lowered, opt_level=0, name="autosched.lower"), finalize_host, finalize_device


def _completed(function: Any) -> Any:
    """Returns a lowered function with its small buffers on the stack, and with the setup that its instructions need."""
    body = tvm_ffi.structural.structural_map(function.body, (tirx.AllocBuffer, _mark))
    return table_registers.in_registers(function.with_body(tile_instructions.asking(body)))


def _mark(allocation: Any) -> Any:
    buffer = allocation.buffer
    if not all(isinstance(extent, tirx.IntImm) for extent in buffer.shape):
        return allocation
    dtype = tvm.DataType(str(buffer.dtype))
    size = math.prod(int(extent) for extent in buffer.shape) * dtype.bits * dtype.lanes // 8
    if size > STACK_BYTES_MAX:
        return allocation
    return tirx.AllocBuffer(buffer, {**dict(allocation.annotations), call_replacement.ON_STACK: tirx.IntImm("bool", 1)})
