"""Schedules stages without a reduction: vectors along the loop that is cheapest to read and write.

    for the other loops
        for parts of a register's length: one vector

A transposition reads along one loop and writes along another. The loop of the reads is then split into parts of a cache
line outside the vectors, so that each line is used completely while it is in the L1 cache.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import tvm
from tvm import tirx

from autosched_tvm.compile.rules import index_set_splitting, loop_nests, memory_access, parallelisation
from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, bytes_of, nodes, substitute
from autosched_tvm.tvm_types import Expr, Stmt

LINE_BYTES = 64
SPLITS_MAX = 12
"""Maximum number of loop splits that remove divisions from a stage's indices."""
UNROLLED_MAX = 4
"""Maximum number of iterations of a loop that is unrolled inside others."""


def statements(stage: Computation, vector_bytes: int, cores: int) -> list[Stmt]:
    """Returns the loop nests that compute a stage."""
    parts = [part for box in index_set_splitting.boxes(stage) for part in undivided(box.stage)]
    return [_nest(merged(part), vector_bytes, cores) for part in parts]


def undivided(stage: Computation) -> list[Computation]:
    """Returns the parts of a stage with loops split where an index divides their variable, as after a reshape."""
    done, waiting = [], [stage]
    for _ in range(SPLITS_MAX):
        if not waiting:
            break
        part = waiting.pop()
        if (found := _division(part)) is None:
            done.append(part)
            continue
        loop, length = found
        rest = loop.extent % length
        if rest:  # the iterations after the last multiple form a separate part
            waiting.append(index_set_splitting.part(part, loop, loop.extent - rest, loop.extent))
            part = index_set_splitting.part(part, loop, 0, loop.extent - rest)
            loop = next(one for one in part.loops if one.variable.same_as(loop.variable))
        waiting.append(cut(part, loop, length))
    return [*done, *waiting]


def merged(stage: Computation) -> Computation:
    """Returns a stage with neighbouring loops fused where all its accesses are contiguous across both."""
    loops = list(stage.loops)
    values: dict[Any, Any] = {}
    number = len(loops) - 1
    while number > 0:
        before, after = loops[number - 1], loops[number]
        shown = replace(
            stage, loops=tuple(loops), value=substitute(stage.value, values),
            indices=tuple(substitute(index, values) for index in stage.indices),
        )  # fmt: skip
        if _contiguous(shown, number):
            joint = Loop(
                tirx.Var(f"{before.variable.name}_{after.variable.name}", str(before.variable.ty)),
                before.extent * after.extent,
            )
            length = loop_nests.number(joint.variable, after.extent)
            own = {
                before.variable: tirx.floordiv(joint.variable, length),
                after.variable: tirx.floormod(joint.variable, length),
            }
            if before.extent == 1:
                own = {before.variable: loop_nests.number(joint.variable, 0), after.variable: joint.variable}
            elif after.extent == 1:
                own = {before.variable: joint.variable, after.variable: loop_nests.number(joint.variable, 0)}
            values = {variable: substitute(value, own) for variable, value in values.items()} | own
            loops[number - 1 : number + 1] = [joint]
        number -= 1
    return replace(
        stage, loops=tuple(loops), value=substitute(stage.value, values),
        indices=tuple(substitute(index, values) for index in stage.indices),
    )  # fmt: skip


def _contiguous(stage: Computation, number: int) -> bool:
    """Returns whether, in each access, the loop before the loop `number` continues where this one ends."""
    before, after = stage.loops[number - 1], stage.loops[number]
    if 1 in (before.extent, after.extent):
        return True
    if memory_access.conditional(stage, before) or memory_access.conditional(stage, after):
        return False
    if _outside(stage, before) or _outside(stage, after):
        return False
    for one in (memory_access.store_of(stage), *memory_access.loads_of(stage)):
        outer, inner = one.steps[number - 1], one.steps[number]
        if outer is None or inner is None or outer != inner * after.extent:
            return False
    return True


def _outside(stage: Computation, loop: Loop) -> bool:
    """Returns whether a loop's variable is used outside the index of a load."""
    inside = sum(
        variable.same_as(loop.variable)
        for load in nodes(stage.value, tvm.ir.TensorLoad)
        for index in load.indices
        for variable in nodes(index, tirx.Var)
    )
    every = sum(variable.same_as(loop.variable) for variable in nodes(stage.value, tirx.Var))
    return bool(every > inside)


def _division(stage: Computation) -> tuple[Loop, int] | None:
    """Returns a loop whose variable is divided in an index, and the divisor."""
    by_variable = {loop.variable: loop for loop in stage.loops}
    for expression in (stage.value, *stage.indices):
        for division in nodes(expression, (tirx.FloorDiv, tirx.FloorMod)):
            loop = by_variable.get(division.a) if isinstance(division.a, tirx.Var) else None
            if loop is None or not isinstance(division.b, tirx.IntImm):
                continue
            divisor = int(division.b)
            if 1 < divisor < loop.extent:
                return loop, divisor
    return None


def cut(stage: Computation, loop: Loop, length: int) -> Computation:
    """Returns a stage with a loop over elements or over terms split into parts of a length."""
    dtype = str(loop.variable.ty)
    outer = Loop(tirx.Var(f"{loop.variable.name}_o", dtype), loop.extent // length)
    inner = Loop(tirx.Var(f"{loop.variable.name}_i", dtype), length)
    value = {loop.variable: outer.variable * loop_nests.number(outer.variable, length) + inner.variable}

    def parts(loops: Sequence[Loop]) -> tuple[Loop, ...]:
        return tuple(part for one in loops for part in ((outer, inner) if one is loop else (one,)))

    reduction = stage.reduction
    if reduction is not None:
        reduction = replace(reduction, loops=parts(reduction.loops))
    made = replace(stage, loops=parts(stage.loops), reduction=reduction)
    spans = {one.variable: (0, one.extent) for one in made.every_loop}

    def shown(expression: Expr) -> Expr:
        return index_set_splitting.simplified(substitute(expression, value), spans)

    return replace(made, value=shown(stage.value), indices=tuple(shown(index) for index in stage.indices))


def _nest(stage: Computation, vector_bytes: int, cores: int) -> Stmt:
    lanes = lanes_of(stage, vector_bytes)
    if not stage.loops:
        return tirx.BufferStore(stage.buffer, stage.value, list(stage.indices))
    costs = [memory_access.cost(stage, number, lanes) for number in range(len(stage.loops))]
    best = min(range(len(costs)), key=lambda number: (costs[number], -number))
    vector = stage.loops[best]
    others = [loop for loop in stage.loops if loop is not vector]
    line = _line(stage, best)
    others.sort(key=lambda loop: loop is line)
    cores = parallelisation.cores_for(stage, cores)
    outside = all(loop.extent == 1 for loop in others)

    def store(values: dict[Expr, Expr]) -> Stmt:
        indices = [substitute(index, values) for index in stage.indices]
        return tirx.BufferStore(stage.buffer, substitute(stage.value, values), indices)

    def vectors(values: dict[Expr, Expr]) -> Stmt:
        def one(value: Expr) -> Stmt:
            return store({**values, vector.variable: value})

        own = cores if outside else 1
        pieces = loop_nests.pieces(vector.extent, [lanes])
        return loop_nests.sequence([loop_nests.vectors(vector, piece, one, cores=own) for piece in pieces])

    if line is None:
        return loop_nests.around(others, vectors, cores=cores)
    return _transposed(stage, vector, line, others, store, lanes, cores)


def _line(stage: Computation, vector: int) -> Loop | None:
    """Returns the loop along which a read is contiguous, where the vectors' loop is strided."""
    for one in memory_access.loads_of(stage):
        if one.steps[vector] not in (0, 1):
            for number, loop in enumerate(stage.loops):
                if one.steps[number] == 1 and loop.extent > 1:
                    return loop
    return None


def _transposed(
    stage: Computation, vector: Loop, line: Loop, others: list[Loop], store: Any, lanes: int, cores: int
) -> Stmt:
    """Writes tiles of a cache line times a vector."""
    length = LINE_BYTES // bytes_of(stage.buffer.ty.dtype)
    around = [loop for loop in others if loop is not line]
    spread = loop_nests.PARALLEL if cores > 1 and all(loop.extent == 1 for loop in around) else loop_nests.SERIAL

    def tiles(values: dict[Expr, Expr]) -> Stmt:
        def tile(rows: loop_nests.Piece, columns: loop_nests.Piece, row: Expr, column: Expr) -> Stmt:
            def one(inside: Expr, lane: Expr) -> Stmt:
                return store({
                    **values, line.variable: row * rows.length + inside + rows.start,
                    vector.variable: column * columns.length + lane + columns.start,
                })  # fmt: skip

            return loop_nests.loop(
                line, "_i", rows.length, loop_nests.SERIAL,
                lambda inside: loop_nests.vector(vector, columns.length, lambda lane: one(inside, lane)),
            )  # fmt: skip

        def across(rows: loop_nests.Piece, columns: loop_nests.Piece, row: Expr) -> Stmt:
            return loop_nests.loop(
                vector, "_o", columns.count, loop_nests.SERIAL, lambda column: tile(rows, columns, row, column)
            )

        return loop_nests.sequence([
            loop_nests.loop(line, "_o", rows.count, spread, partial(across, rows, columns))
            for rows in loop_nests.pieces(line.extent, [length])
            for columns in loop_nests.pieces(vector.extent, [lanes])
        ])  # fmt: skip

    return loop_nests.around(around, tiles, cores=cores)


def lanes_of(stage: Computation, vector_bytes: int) -> int:
    """Returns the number of elements in a vector, for the widest type that a stage computes with."""
    types = [stage.buffer.ty.dtype, *(load.ty for load in nodes(stage.value, tvm.ir.TensorLoad))]
    widest = max(bytes_of(dtype) for dtype in types)
    return max(1, vector_bytes // max(4, widest))
