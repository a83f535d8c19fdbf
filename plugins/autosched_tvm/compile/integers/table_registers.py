"""Looks up entries of a table of 256 bytes in vector registers.

An instruction of AVX-512 VBMI selects 64 bytes out of 128, each by its own index. Two of them and a blend look up 64
entries at once; LLVM would load each entry separately.
"""

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.target import codegen

from autosched_tvm.tvm_types import Expr, PrimFunc, Target

FEATURE = "avx512vbmi"
"""LLVM name of the CPU feature."""
PERMUTE = "llvm.x86.avx512.vpermi2var.qi.512"
"""LLVM name of the instruction."""
ENTRIES, LANES = 256, 64


def available(target: Target) -> bool:
    """Returns whether a target's CPU has the instruction."""
    return target.kind.name == "llvm" and bool(codegen.llvm_cpu_has_features(FEATURE, target))


def is_used(function: PrimFunc) -> bool:
    """Returns whether a function reads tables."""
    loads: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tvm.ir.TensorLoad, loads.append))
    return any(_is_table(load.source) for load in loads)


def in_registers(function: PrimFunc) -> PrimFunc:
    """Returns a lowered function with vectors of entries looked up in registers, where its target allows it."""
    target = (function.attrs or {}).get("target")
    if target is None or not available(target):
        return function
    return function.with_body(tvm_ffi.structural.structural_map(function.body, (tvm.ir.TensorLoad, _looked_up)))


def _is_table(buffer: Expr) -> bool:
    extents = [int(extent) for extent in buffer.shape if isinstance(extent, tirx.IntImm)]  # of 32 or 64 bits
    return len(buffer.shape) == 1 and extents == [ENTRIES] and str(buffer.dtype) in ("uint8", "int8")


def _looked_up(load: Expr) -> Expr:
    table = load.source
    index = load.indices[-1]
    lanes = str(index.ty).partition("x")[2]
    if not _is_table(table) or isinstance(index, tirx.Ramp) or not lanes.isdigit() or LANES % int(lanes):
        return load
    if not (isinstance(index, tirx.Cast) and str(index.value.ty) == f"uint8x{lanes}"):
        return load
    count = int(lanes)
    places = index.value
    wide = tirx.Shuffle([places] * (LANES // count), list(range(LANES))) if count < LANES else places
    name = tirx.Var("places", f"uint8x{LANES}")
    signed = tirx.reinterpret(f"int8x{LANES}", name)

    def quarter(number: int) -> Expr:
        loaded = tirx.BufferLoad(table, [tirx.Ramp(number * LANES, 1, LANES)])
        return tirx.reinterpret(f"int8x{LANES}", loaded)

    def half(number: int) -> Expr:
        low, high = quarter(2 * number), quarter(2 * number + 1)
        return tirx.call_llvm_pure_intrin(f"int8x{LANES}", PERMUTE, low, signed, high)

    upper = tirx.LT(signed, tirx.Broadcast(tirx.const(0, "int8"), LANES))
    found = tirx.Select(upper, half(1), half(0))
    part = tirx.Shuffle([found], list(range(count))) if count < LANES else found
    return tirx.Let(name, wide, tirx.reinterpret(f"{table.dtype}x{lanes}", part))
