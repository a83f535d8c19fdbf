"""Assembles a kernel from the loop nests of its stages."""

import dataclasses

import tvm
from tvm import s_tir, tirx

from autosched_tvm.compile import kernel_sketches, targets
from autosched_tvm.compile.rules import elementwise, inlining, loop_nests, parallelisation, reduction, row_fusion
from autosched_tvm.compile.rules.kernel_ir import Computation, Program, nodes, read, shape_of, substitute
from autosched_tvm.compile.winograd import kernel as winograd
from autosched_tvm.tvm_types import Expr, PrimFunc, Stmt, Target


def scheduled(function: PrimFunc, target: Target) -> PrimFunc:
    """Returns a function without a schedule, scheduled by the rules. Raises NoRule."""
    registers = targets.vector_registers(target)
    made = winograd.by_rule(function, registers, parallelisation.cores_of(target))
    if made is None:
        made = kernel_sketches.by_rule(function, registers)
    if made is not None:
        return made
    program = inlining.joined(read(function))
    for stage in program.stages:
        shape_of(stage.buffer)
        for load in nodes(stage.value, tvm.ir.TensorLoad):
            shape_of(load.source)
    place = reduction.Place(
        targets.vector_bits(target) // 8, targets.vector_registers(target), parallelisation.cores_of(target)
    )
    return _Assembly(program, place).made()


class _Assembly:
    def __init__(self, program: Program, place: reduction.Place) -> None:
        self.program, self.place = program, place
        self.buffers = list(program.buffers)

    def made(self) -> PrimFunc:
        """Returns the function."""
        found = row_fusion.rows_of(self.program)
        body = loop_nests.sequence(self._statements(self.program, self.place)) if found is None else self._rows(found)
        root = self.program.function.body.block
        block = s_tir.SBlock(
            list(root.iter_vars), list(root.reads), list(root.writes), root.name_hint, body, None,
            self.buffers, list(root.match_buffers), root.annotations,
        )  # fmt: skip
        return self.program.function.with_body(s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block))

    def _rows(self, found: row_fusion.Rows) -> Stmt:
        """Writes all stages of a row, then those of the next one."""
        cores = self.place.cores
        spread = any(parallelisation.worthwhile(stage, cores) for stage in self.program.stages)
        self.buffers = [*found.program.buffers]
        alone = dataclasses.replace(self.place, cores=1)

        def row(values: dict[Expr, Expr]) -> Stmt:
            stages = tuple(_for(stage, values) for stage in found.program.stages)
            return loop_nests.sequence(self._statements(dataclasses.replace(found.program, stages=stages), alone))

        return loop_nests.around(found.loops, row, cores=cores if spread else 1)

    def _statements(self, program: Program, place: reduction.Place) -> list[Stmt]:
        parts, waiting = [], list(program.stages)
        while waiting:
            stage = waiting.pop(0)
            if stage.reduction is None:
                parts += elementwise.statements(stage, place.vector_bytes, place.cores)
                continue
            after = self._after(stage, waiting)
            if after is not None:
                waiting.remove(after)
                self.buffers = [buffer for buffer in self.buffers if not buffer.same_as(stage.buffer)]
            parts.append(reduction.statement(stage, after, place, self.buffers))
        return parts

    def _after(self, stage: Computation, waiting: list[Computation]) -> Computation | None:
        """Returns a stage that can be written together with `stage`, since it reads each result at the same place."""
        if not any(buffer.same_as(stage.buffer) for buffer in self.buffers):
            return None
        readers = [
            one
            for one in waiting
            if any(load.source.same_as(stage.buffer) for load in nodes(one.value, tvm.ir.TensorLoad))
        ]
        if len(readers) != 1 or not reduction.follows(readers[0], stage):
            return None
        # its other inputs must exist already
        read_too = {load.source for load in nodes(readers[0].value, tvm.ir.TensorLoad)}
        later = [one.buffer for one in waiting if one is not readers[0]]
        if any(buffer.same_as(other) for buffer in later for other in read_too):
            return None
        return readers[0]


def _for(stage: Computation, values: dict[Expr, Expr]) -> Computation:
    """Returns a stage with values in place of variables."""
    indices = tuple(substitute(index, values) for index in stage.indices)
    return dataclasses.replace(stage, indices=indices, value=substitute(stage.value, values))
