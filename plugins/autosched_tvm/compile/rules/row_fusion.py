"""Finds the rows of a kernel: parts that all its stages compute from the same part of other stages only.

A softmax or a layer normalisation passes over each row several times. If all stages of a row are computed before the
next row begins, the row stays in the L1 cache, and intermediate results need the memory of one row only. A block of
channels is such a row of a pool or a depthwise convolution, which reads its padded copy.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, Program, bytes_of, nodes, shape_of, substitute
from autosched_tvm.tvm_types import Expr

ROW_BYTES_MAX = 1024 * 1024
"""Maximum size of the intermediate results of a row in bytes. Larger rows do not stay in the L2 cache."""


@dataclass(frozen=True)
class Rows:
    """A program of one row, and the loops over rows around it."""

    loops: tuple[Loop, ...]
    program: Program
    """Program whose buffers hold one row. Its stages use the variables of `loops`."""


def rows_of(program: Program) -> Rows | None:
    """Returns the rows of a program; None if reductions read what other rows read too, as products do."""
    stages = program.stages
    if len(stages) < 2 or not any(stage.reduction for stage in stages):
        return None
    if not all(any(stage.buffer.same_as(buffer) for stage in stages) for buffer in program.buffers):
        return None
    depth = _depth(program)
    shape = shape_of(stages[-1].buffer)[:depth]
    if math.prod(shape) < 2:
        return None
    found = _of_one_row(program, depth)
    if not all(_reduces_its_row(stage, found) for stage in found.program.stages if stage.reduction):
        return None
    if all(math.prod(loop.extent for loop in stage.loops) == 1 for stage in found.program.stages):
        return None
    handed_on = sum(math.prod(shape_of(buffer)) * bytes_of(buffer.ty.dtype) for buffer in found.program.buffers)
    return found if handed_on <= ROW_BYTES_MAX else None


def _reduces_its_row(stage: Computation, found: Rows) -> bool:
    """Returns whether a reduction of a row reads nothing that other rows read; or only elements that all rows read, for
    a single result. The sums of a product do neither."""
    rows = {loop.variable for loop in found.loops if loop.extent > 1}
    loads = nodes(stage.value, tvm.ir.TensorLoad)
    others = [load for load in loads if not any(load.source.same_as(buffer) for buffer in found.program.buffers)]
    single = math.prod(loop.extent for loop in stage.loops) == 1
    return all(_variables(load) >= rows or (single and not _variables(load) & rows) for load in others)


def _variables(load: Expr) -> set[Expr]:
    return {variable for index in load.indices for variable in nodes(index, tirx.Var)}


def _depth(program: Program) -> int:
    """Returns the number of leading dimensions over which all stages loop together."""
    stages = program.stages
    depth = min(len(stage.indices) for stage in stages)
    if any(not stage.plain for stage in stages):
        return 0
    shapes = [shape_of(stage.buffer) for stage in stages]
    while depth and any(shape[:depth] != shapes[0][:depth] for shape in shapes):
        depth -= 1
    for stage in stages:
        for load in nodes(stage.value, tvm.ir.TensorLoad):
            if any(load.source.same_as(other.buffer) for other in stages):
                same = 0
                pairs = zip(load.indices, stage.indices, shapes[0], strict=False)
                for read, own, size in pairs:
                    if size > 1 and not tvm_ffi.structural_equal(read, own):
                        break
                    same += 1
                depth = min(depth, same)
    return depth


def _of_one_row(program: Program, depth: int) -> Rows:
    shape = shape_of(program.stages[0].buffer)[:depth]
    loops = tuple(
        Loop(tirx.Var(f"row{number}", str(program.stages[0].loops[0].variable.ty)), size)
        for number, size in enumerate(shape)
    )
    scratch = {
        buffer: tirx.decl_buffer(list(shape_of(buffer)[depth:]) or [1], str(buffer.ty.dtype), buffer.name)
        for buffer in program.buffers
    }
    stages = [_one_row(stage, loops, scratch) for stage in program.stages]
    stages = _softmax(stages) or stages
    return Rows(loops, replace(program, stages=tuple(stages), buffers=tuple(scratch.values())))


def _one_row(stage: Computation, loops: tuple[Loop, ...], scratch: dict[Expr, Expr]) -> Computation:
    """Returns a stage for the row that the loops' variables select."""
    depth = len(loops)
    names = {own: loop.variable for own, loop in zip(stage.indices, loops, strict=False) if isinstance(own, tirx.Var)}

    def inside(indices: Any) -> list[Expr]:
        return [substitute(index, names) for index in indices[depth:]] or [tirx.IntImm(str(indices[0].ty), 0)]

    def load(node: Expr) -> Expr:
        small = scratch.get(node.source)
        return node if small is None else tirx.BufferLoad(small, inside(node.indices))

    value = substitute(tvm_ffi.structural.structural_map(stage.value, (tvm.ir.TensorLoad, load)), names)
    small = scratch.get(stage.buffer)
    indices = [substitute(index, names) for index in stage.indices] if small is None else inside(stage.indices)
    own = tuple(loop for loop in stage.loops if loop.variable not in names)
    return replace(
        stage, loops=own, buffer=stage.buffer if small is None else small, indices=tuple(indices), value=value
    )


def _softmax(stages: list[Computation]) -> list[Computation] | None:
    """Returns the stages of a softmax, whose exponents are not positive and whose sum is at least 1; None for other
    stages.

    With these bounds, the exponential takes fewer steps, and a reciprocal of the sum cannot overflow: one division per
    row. Quotients then differ by at most one unit in the last place.
    """
    greatest = [one for one in stages if one.reduction and one.reduction.combine is tirx.Max]
    powers = [one for one in stages if any(_is_power(one, most) for most in greatest)]
    sums = [one for one in stages if any(_is_sum(one, power) for power in powers)]
    if not sums:
        return None

    def negative(stage: Computation) -> Computation:
        exponent = stage.value.args[0]
        return replace(stage, value=tirx.exp(tirx.min(exponent, tirx.const(0.0, str(exponent.ty)))))

    return [negative(one) if one in powers else _multiplied(one, sums) for one in stages]


def _is_power(stage: Computation, greatest: Computation) -> bool:
    """Returns whether a stage is e**(x - m) of each x, where m is their maximum."""
    call = stage.value
    if not isinstance(call, tvm.ir.Call) or str(call.op.name) != "tirx.exp" or not isinstance(call.args[0], tirx.Sub):
        return False
    x, most = call.args[0].a, call.args[0].b
    return (
        isinstance(x, tvm.ir.TensorLoad)
        and isinstance(most, tvm.ir.TensorLoad)
        and most.source.same_as(greatest.buffer)
        and isinstance(greatest.value, tvm.ir.TensorLoad)
        and greatest.value.source.same_as(x.source)
    )


def _is_sum(stage: Computation, power: Computation) -> bool:
    """Returns whether a stage adds up the results of another one."""
    return (
        stage.reduction is not None
        and stage.reduction.combine is tirx.Add
        and isinstance(stage.value, tvm.ir.TensorLoad)
        and stage.value.source.same_as(power.buffer)
    )


def _multiplied(stage: Computation, sums: list[Computation]) -> Computation:
    """Returns a stage that multiplies by the reciprocals of these sums instead of dividing."""

    def product(node: Expr) -> Expr:
        if any(isinstance(node.b, tvm.ir.TensorLoad) and node.b.source.same_as(one.buffer) for one in sums):
            return node.a * (tirx.const(1.0, str(node.b.ty)) / node.b)
        return node

    return replace(stage, value=tvm_ffi.structural.structural_map(stage.value, (tirx.Div, product)))
