"""Inlines stages that are cheap to recompute, or that are read only once."""

from collections.abc import Sequence
from dataclasses import replace

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.compile.rules.index_set_splitting import boxes, is_conditional
from autosched_tvm.compile.rules.kernel_ir import Computation, Program, nodes, substitute
from autosched_tvm.tvm_types import Expr

AGAIN_MAX = 4.0
"""Maximum reads per element of a stage whose arithmetic is repeated at each read."""
NODES_MAX = 400
"""Maximum number of memory accesses in an inlined expression. Larger ones compile slowly."""
CHEAP = ("if_then_else", "likely", "reinterpret", "ret")
"""Calls that cost no more than an addition; all others count as functions."""


def joined(program: Program) -> Program:
    """Returns a program with stages inlined where that saves time."""
    stages, buffers = list(program.stages), list(program.buffers)
    for buffer in program.buffers:
        written = [stage for stage in stages if stage.buffer.same_as(buffer)]
        readers = [stage for stage in stages if _loads(stage, buffer)]
        if len(written) == 1 and readers and _may_join(written[0], readers):
            stages = [_inlined(stage, written[0]) for stage in stages if stage is not written[0]]
            buffers.remove(buffer)
    return replace(program, stages=tuple(stages), buffers=tuple(buffers))


def _may_join(stage: Computation, readers: Sequence[Computation]) -> bool:
    if stage.reduction or not stage.plain:
        return False
    size = len(nodes(stage.value, tvm.ir.TensorLoad))
    if any(size * len(_loads(reader, stage.buffer)) > NODES_MAX for reader in readers):
        return False
    conditional = is_conditional(stage) or bool(nodes(stage.value, tirx.Select))
    if conditional and any(reader.reduction for reader in readers):
        return False
    if moves(stage.value) and not conditional:
        return True
    elements = 1
    for loop in stage.loops:
        elements *= loop.extent
    reads = sum(_reads(reader, stage.buffer) for reader in readers)
    return reads <= elements or (not heavy(stage.value) and reads < AGAIN_MAX * elements)


def _loads(reader: Computation, buffer: Expr) -> list[Expr]:
    return [load for load in nodes(reader.value, tvm.ir.TensorLoad) if load.source.same_as(buffer)]


def _reads(reader: Computation, buffer: Expr) -> int:
    """Returns the number of reads of a buffer's elements by a stage."""
    return sum(box.size * len(_loads(box.stage, buffer)) for box in boxes(reader))


def _inlined(reader: Computation, stage: Computation) -> Computation:
    """Returns the reader with the stage's expression in place of its loads."""

    def load(node: Expr) -> Expr:
        if not node.source.same_as(stage.buffer):
            return node
        pairs = zip(stage.indices, node.indices, strict=True)
        return substitute(stage.value, {own: given for own, given in pairs if isinstance(own, tirx.Var)})

    value = tvm_ffi.structural.structural_map(reader.value, (tvm.ir.TensorLoad, load))
    return replace(reader, value=value)


def moves(value: Expr) -> bool:
    """Returns whether an expression only reads an element, and at most casts it."""
    while isinstance(value, tirx.Cast):
        value = value.value
    return isinstance(value, tvm.ir.TensorLoad | tirx.IntImm | tirx.FloatImm)


def heavy(value: Expr) -> bool:
    """Returns whether an expression contains a function, or a division of floating-point numbers."""
    calls = [str(call.op.name).rpartition(".")[2] for call in nodes(value, tvm.ir.Call)]
    return any(name not in CHEAP for name in calls) or bool(nodes(value, tirx.Div))
