"""Puts a kernel together again from the loop nests of its stages."""

from typing import Any

import tvm
from tvm import s_tir, tirx

from autosched.tvm import targets
from autosched.tvm.rules import elementwise, inline, nest, reduction, threads
from autosched.tvm.rules.stage import Program, Stage, nodes, read, shape_of
from autosched.tvm.winograd import kernel as winograd


def scheduled(function: Any, target: Any) -> Any:
    """A function without a schedule, under that of the rules. Raises NoRule."""
    if (made := winograd.by_rule(function, targets.vector_registers(target), threads.cores_of(target))) is not None:
        return made
    program = inline.joined(read(function))
    for stage in program.stages:
        shape_of(stage.buffer)
        for load in nodes(stage.value, tvm.ir.TensorLoad):
            shape_of(load.source)
    place = reduction.Place(
        targets.vector_bits(target) // 8, targets.vector_registers(target), threads.cores_of(target)
    )
    return _Assembly(program, place).made()


class _Assembly:
    def __init__(self, program: Program, place: reduction.Place) -> None:
        self.program, self.place = program, place
        self.buffers = list(program.buffers)

    def made(self) -> Any:
        """The function."""
        parts, waiting = [], list(self.program.stages)
        while waiting:
            stage = waiting.pop(0)
            if stage.reduction is None:
                parts += elementwise.statements(stage, self.place.vector_bytes, self.place.cores)
                continue
            after = self._after(stage, waiting)
            if after is not None:
                waiting.remove(after)
                self.buffers = [buffer for buffer in self.buffers if not buffer.same_as(stage.buffer)]
            parts.append(reduction.statement(stage, after, self.place, self.buffers))
        root = self.program.function.body.block
        block = s_tir.SBlock(
            list(root.iter_vars), list(root.reads), list(root.writes), root.name_hint, nest.sequence(parts), None,
            self.buffers, list(root.match_buffers), root.annotations,
        )  # fmt: skip
        return self.program.function.with_body(s_tir.SBlockRealize([], tirx.IntImm("bool", 1), block))

    def _after(self, stage: Stage, waiting: list[Stage]) -> Stage | None:
        """The stage that only needs `stage` to be written with it."""
        if not any(buffer.same_as(stage.buffer) for buffer in self.program.buffers):
            return None
        readers = [
            one
            for one in waiting
            if any(load.source.same_as(stage.buffer) for load in nodes(one.value, tvm.ir.TensorLoad))
        ]
        if len(readers) != 1 or not reduction.follows(readers[0], stage):
            return None
        # What else it reads must be there already.
        read_too = {load.source for load in nodes(readers[0].value, tvm.ir.TensorLoad)}
        later = [one.buffer for one in waiting if one is not readers[0]]
        if any(buffer.same_as(other) for buffer in later for other in read_too):
            return None
        return readers[0]
