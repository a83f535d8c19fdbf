"""Schedules reductions: several accumulators in vector registers, along elements or along terms.

Along elements, where neighbouring elements read neighbouring terms:

    for the other loops
        for tiles of rows times vectors of elements
            accumulators = start
            for all terms: accumulators = combine(accumulators, terms)
            result = what follows(accumulators)

Along terms, where the terms of one element are contiguous: the lanes of the accumulators are combined at the end.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.compile.rules import loop_nests, memory_access, parallelisation
from autosched_tvm.compile.rules.elementwise import cut, lanes_of, undivided
from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, nodes, substitute
from autosched_tvm.tvm_types import Expr, Stmt

VECTORS_MAX = 4
"""Maximum number of vectors in a row of a tile."""
JOINED_LEAST, JOINED_USUAL_MAX = 2, 3
"""Minimum and maximum number of values of another loop that join a tile of one vector with many rows."""
JOINED_MAX = 8
"""Maximum number of values that join a tile with few rows. Each reads a part of the memory of its own, and a CPU
prefetches few at once."""
JOINED_TERMS_MIN = 32
"""Minimum number of terms of an element for a tile that several values of another loop join. LLVM unrolls the loops
over fewer terms, and a large tile then spills its accumulators."""
OTHER_REGISTERS = 4
"""Number of registers that are left beside the accumulators of a tile with few rows."""
BLOCK_MIN = 4
"""Minimum number of channels in a block whose loop is innermost."""
ROWS_MAX = 12
"""Maximum number of rows of a tile."""
ADD_CYCLES, ADDS_PER_CYCLE, LOADS_PER_CYCLE = 4, 2, 2
"""Latency and throughput of a multiply-add, and throughput of loads, for the choice of a tile. Recent CPUs agree."""
STEP_CYCLES = 1
"""Cycles of each step of a sum besides its loads and multiply-adds."""


@dataclass(frozen=True)
class Place:
    """Surroundings of a loop nest."""

    vector_bytes: int
    registers: int
    cores: int


def statement(stage: Computation, after: Computation | None, place: Place, buffers: list[Expr]) -> Stmt:
    """Returns the loop nests of a reduction. `after`: the stage that computes each element's final value in the same
    order, if there is one. New buffers are appended to `buffers`."""
    parts = [_nest(part, after, place, buffers) for part in undivided(stage)]
    return loop_nests.sequence(parts)


def _nest(stage: Computation, after: Computation | None, place: Place, buffers: list[Expr]) -> Stmt:
    lanes = lanes_of(stage, place.vector_bytes)
    loops = stage.every_loop
    costs = [memory_access.cost(stage, number, lanes) for number in range(len(loops))]
    usable = [number for number, loop in enumerate(loops) if loop.extent > 1] or [0]
    best = min(usable, key=lambda number: (round(costs[number], 6), number >= len(stage.loops), -number))
    if best >= len(stage.loops):
        return _Work(stage, after, place, buffers, lanes).along_terms(best - len(stage.loops))
    stage = _with_long_innermost(stage, lanes)
    vector, joint = stage.loops[best], None
    if (found := _joint(stage, best, lanes, place)) is not None:
        cut_at = next(number for number, loop in enumerate(stage.loops) if loop is found[0])
        stage = cut(stage, *found)
        joint = stage.loops[cut_at + 1]
    number = next(n for n, loop in enumerate(stage.loops) if loop.variable.same_as(vector.variable))
    return _Work(stage, after, place, buffers, lanes).along_elements(number, joint)


def _with_long_innermost(stage: Computation, lanes: int) -> Computation:
    """Returns a stage whose innermost loop over terms is a block of channels instead of a few columns of a window.

    LLVM unrolls a short loop, and moves the loads of all its steps to the beginning: more than the registers hold
    beside the accumulators.
    """
    assert stage.reduction is not None
    if not stage.reduction.loops or (last := stage.reduction.loops[-1]).extent >= lanes:
        return stage
    for loop, steps in _steps_of_terms(stage):
        if None in steps:
            stage = _in_blocks(stage, loop, lanes)
    found = _steps_of_terms(stage)
    blocks = ((loop, steps) for loop, steps in found if loop.extent >= BLOCK_MIN and None not in steps)
    long = [(max(map(_distance, steps)), loop) for loop, steps in blocks]
    distance, inner = min(long, key=lambda pair: pair[0], default=(math.inf, last))
    innermost = next((steps for loop, steps in reversed(found) if loop.extent > 1), found[-1][1])
    if distance >= max(map(_distance, innermost)):
        return stage
    loops = (*(loop for loop, _ in found if loop is not inner), inner)
    assert stage.reduction is not None
    return replace(stage, reduction=replace(stage.reduction, loops=loops))


def _in_blocks(stage: Computation, loop: Loop, lanes: int) -> Computation:
    """Returns a stage with a loop over terms cut into the blocks into which indices divide it, if there are some."""
    whole = [id(one) for one in stage.every_loop]
    for size in (lanes, lanes // 2, lanes // 4):
        if size >= BLOCK_MIN and loop.extent > size and loop.extent % size == 0:
            found = cut(stage, loop, size)
            if not any(None in steps for one, steps in _steps_of_terms(found) if id(one) not in whole):
                return found
    return stage


def _steps_of_terms(stage: Computation) -> list[tuple[Loop, list[int | None]]]:
    """Returns the loops over terms, each with the steps of all loads along it."""
    loads, first = memory_access.loads_of(stage), len(stage.loops)
    terms = stage.every_loop[first:]
    return [(loop, [load.steps[first + number] for load in loads]) for number, loop in enumerate(terms)]


def _distance(step: int | None) -> float:
    return math.inf if step is None else abs(step)


def _joint(stage: Computation, number: int, lanes: int, place: Place) -> tuple[Loop, int] | None:
    """Returns a loop of which several values join a tile, and their number, where the vectors' loop is too short for a
    tile, as with blocks of output channels. These values share the operands that are not read along vectors.

    The tile has enough accumulators to hide the latency of an addition, and at least two values join it if a row has
    only one vector. Each core keeps a tile.
    """
    loads = memory_access.loads_of(stage)
    alone = [load for load in loads if load.steps[number] == 0]
    along = [load for load in loads if load.steps[number] == 1]
    assert stage.reduction is not None
    terms = math.prod(loop.extent for loop in stage.reduction.loops)
    rows = _rows(stage, number, lanes)
    vectors = _vectors(stage.loops[number], rows, lanes, place.registers)
    tile = vectors * (1 if rows is None else min(rows.extent, ROWS_MAX))
    least = max(
        math.ceil(ADD_CYCLES * ADDS_PER_CYCLE / tile), JOINED_LEAST if stage.loops[number].extent <= lanes else 1
    )
    most = max((place.registers - OTHER_REGISTERS) // tile, JOINED_USUAL_MAX if vectors == 1 else 1)
    if least == 1 or not alone or not along or terms < JOINED_TERMS_MIN:
        return None
    cores = parallelisation.cores_for(stage, place.cores)
    outer = math.prod(loop.extent for one, loop in enumerate(stage.loops) if one != number and loop is not rows)
    for other, loop in enumerate(stage.loops):
        shared = all(load.steps[other] == 0 for load in alone) and any(load.steps[other] != 0 for load in along)
        each = max(1, loop.extent // math.ceil(cores * loop.extent / outer))
        if other != number and shared and (count := _joined(loop, least, min(most, JOINED_MAX, each))) > 1:
            return loop, count
    return None


def _joined(loop: Loop, least: int, most: int) -> int:
    """Returns how many values of a loop join a tile: the first divisor from `least` to `most`, else the last below."""
    divisors = [count for count in range(1, most + 1) if loop.extent % count == 0]
    return next((count for count in divisors if count >= least), divisors[-1])


def _rows(stage: Computation, number: int, lanes: int) -> Loop | None:
    """Returns the loop whose values share what is read along the vectors, if there is one. It is tiled too.

    Of several, the innermost one that is long enough for a tile: neighbouring rows of a tile are then near each
    other in memory.
    """
    loads = memory_access.loads_of(stage)
    best, found = (0, 0), None
    for other, loop in enumerate(stage.loops):
        if other == number or loop.extent == 1:
            continue
        shared = sum(load.steps[other] == 0 and load.steps[number] == 1 for load in loads)
        if shared and (rank := (shared, min(loop.extent, ROWS_MAX))) >= best:
            best, found = rank, loop
    if found is None and not any(load.steps[number] == 0 for load in loads):
        near = [loop for other, loop in enumerate(stage.loops) if other != number and loop.extent > 1]
        return near[-1] if near and stage.loops[number].extent <= lanes else None
    return found


def _vectors(vector: Loop, rows: Loop | None, lanes: int, registers: int) -> int:
    """Returns the number of vectors of a row in a tile: two where rows share them, else enough to hide the latency of
    an addition."""
    whole = max(1, vector.extent // lanes)
    most = VECTORS_MAX if rows is None else 2 if registers <= 16 else VECTORS_MAX
    return max((n for n in range(1, most + 1) if whole % n == 0), default=1) if whole < 2 * most else most


class _Work:
    def __init__(
        self, stage: Computation, after: Computation | None, place: Place, buffers: list[Expr], lanes: int
    ) -> None:
        assert stage.reduction is not None
        self.stage, self.after, self.place, self.buffers, self.lanes = stage, after, place, buffers, lanes
        self.reduction = stage.reduction
        self.dtype = str(stage.buffer.ty.dtype)
        self.joint: Loop | None = None
        self.cores = parallelisation.cores_for(stage, place.cores)

    # Along elements ---------------------------------------------------------------------------------------------

    def along_elements(self, number: int, joint: Loop | None) -> Stmt:
        """Writes vectors of neighbouring elements. All values of the loop `joint` belong to each tile."""
        vector = self.stage.loops[number]
        self.joint = joint
        rows = _rows(self.stage, number, self.lanes)
        most = _vectors(vector, rows, self.lanes, self.place.registers)
        wide = [most * self.lanes, self.lanes]
        across = most * (joint.extent if joint is not None else 1)
        high = [self._height(rows, across)] if rows is not None else [1]
        others = [loop for loop in self.stage.loops if loop is not vector and loop is not rows and loop is not joint]

        def tiles(values: dict[Expr, Expr]) -> Any:
            return loop_nests.sequence([
                self._tile_loops(values, rows, row, vector, column)
                for row in loop_nests.pieces(rows.extent if rows is not None else 1, high)
                for column in loop_nests.pieces(vector.extent, wide)
            ])  # fmt: skip

        return loop_nests.around(others, tiles, cores=self.cores)

    def _tile_loops(
        self, values: dict[Expr, Expr], rows: Loop | None, row: loop_nests.Piece, vector: Loop, column: loop_nests.Piece
    ) -> Any:
        def tile(y: Any, x: Any) -> Any:
            first = {} if rows is None else {rows.variable: (y * row.length + row.start)}
            return self._tile(values, rows, first, row.length, vector, x * column.length + column.start, column.length)

        def across(y: Expr | None) -> Any:
            return loop_nests.loop(vector, "_o", column.count, loop_nests.SERIAL, lambda x: tile(y, x))

        if rows is None:
            return across(None)
        return loop_nests.loop(rows, "_o", row.count, loop_nests.SERIAL, across)

    def _tile(
        self, values: dict[Expr, Expr], rows: Loop | None, first: dict[Any, Any], height: int, vector: Loop,
        start: Expr, width: int,
    ) -> Any:  # fmt: skip
        """Computes `height` times `width` elements in registers."""
        lanes = self.lanes if width % self.lanes == 0 else width
        joined = self.joint.extent if self.joint is not None else 1
        vectors = [(y, z, x) for y in range(height) for z in range(joined) for x in range(0, width, lanes)]
        sums = self._accumulators(len(vectors) * lanes)

        def each(body: Any) -> Any:
            """Unrolls `body` for each vector of the tile: values of the variables, index of the accumulator."""

            def one(number: int, lane: Expr) -> Expr:
                y, z, x = vectors[number]
                own = {**values, vector.variable: start + x + lane}
                if rows is not None:
                    own[rows.variable] = first[rows.variable] + y
                if self.joint is not None:
                    own[self.joint.variable] = loop_nests.number(self.joint.variable, z)
                return body(own, lane + number * lanes)

            return loop_nests.sequence(
                [loop_nests.vector(vector, lanes, partial(one, number)) for number in range(len(vectors))]
            )

        def begin(_own: dict[Any, Any], place: Any) -> Expr:
            return tirx.BufferStore(sums, self.reduction.start, [place])

        def add(terms: dict[Any, Any]) -> Expr:
            def one(own: dict[Any, Any], place: Any) -> Expr:
                value = substitute(self.stage.value, {**own, **terms})
                return tirx.BufferStore(sums, self.reduction.combine(sums[place], value), [place])

            return each(one)

        def end(own: dict[Any, Any], place: Any) -> Any:
            return self._finish(own, sums[place])

        return loop_nests.sequence([each(begin), loop_nests.around(self._terms(), add), each(end)])

    def _height(self, rows: Loop, across: int) -> int:
        """Returns the number of rows of a tile that takes the least time for all rows and fits into the registers."""
        most = max(1, min(ROWS_MAX, rows.extent, (self.place.registers - across - 1) // across))

        def cycles(height: int) -> float:
            return STEP_CYCLES + max(
                height * across / ADDS_PER_CYCLE, (height + across) / LOADS_PER_CYCLE, float(ADD_CYCLES)
            )

        def time(height: int) -> tuple[float, bool]:
            tiles, rest = divmod(rows.extent, height)
            return tiles * cycles(height) + (cycles(rest) if rest else 0.0), bool(rest)

        return min(range(most, 0, -1), key=time)

    # Along terms ------------------------------------------------------------------------------------------------

    def along_terms(self, number: int) -> Stmt:
        """Writes vectors of neighbouring terms of one element."""
        vector = self.reduction.loops[number]
        lanes = min(self.lanes, vector.extent)
        count = min(VECTORS_MAX, vector.extent // lanes)
        width = count * lanes
        terms = [loop for loop in self._terms() if loop is not vector]
        others = list(self.stage.loops)

        def element(values: dict[Expr, Expr]) -> Stmt:
            sums, total = self._accumulators(width), self._accumulators(1)
            zero = loop_nests.number(vector.variable, 0)

            def combine(into: Expr, place: Expr, value: Expr) -> Stmt:
                return tirx.BufferStore(into, self.reduction.combine(into[place], value), [place])

            def add(own: dict[Expr, Expr]) -> Stmt:
                """Combines the terms of all values of the vector's loop."""

                def term(value: Expr) -> Expr:
                    return substitute(self.stage.value, {**values, **own, vector.variable: value})

                def step(piece: loop_nests.Piece, outer: Expr) -> Stmt:
                    start = outer * piece.length + piece.start
                    if piece.length < lanes:
                        return loop_nests.loop(
                            vector,
                            "_t",
                            piece.length,
                            loop_nests.SERIAL,
                            lambda t: combine(total, zero, term(start + t)),
                        )
                    return loop_nests.sequence([
                        loop_nests.vector(vector, lanes, partial(lane_of, start, first))
                        for first in range(0, piece.length, lanes)
                    ])  # fmt: skip

                def lane_of(start: Expr, first: int, lane: Expr) -> Stmt:
                    return combine(sums, lane + first, term(start + first + lane))

                return loop_nests.sequence([
                    loop_nests.loop(vector, "_o", piece.count, loop_nests.SERIAL, partial(step, piece))
                    for piece in loop_nests.pieces(vector.extent, [width, lanes])
                ])  # fmt: skip

            def begin(first: int, lane: Expr) -> Stmt:
                return tirx.BufferStore(sums, self.reduction.start, [lane + first])

            halves, left = [], lanes
            while left % 2 == 0:
                left //= 2
                halves.append(left)

            def fold(first: int, lane: Expr) -> Stmt:
                return combine(sums, lane, sums[lane + first])

            firsts = range(0, width, lanes)
            return loop_nests.sequence([
                *(loop_nests.vector(vector, lanes, partial(begin, first)) for first in firsts),
                tirx.BufferStore(total, self.reduction.start, [zero]),
                loop_nests.around(terms, add),
                *(loop_nests.vector(vector, lanes, partial(fold, first)) for first in firsts[1:]),
                *(loop_nests.vector(vector, half, partial(fold, half)) for half in halves),
                *(combine(total, zero, sums[loop_nests.number(vector.variable, n)]) for n in range(left)),
                self._finish(values, total[zero]),
            ])  # fmt: skip

        return loop_nests.around(others, element, cores=self.cores)

    # Both -------------------------------------------------------------------------------------------------------

    def _terms(self) -> Sequence[Loop]:
        """Returns the loops over terms, in the order of the kernel."""
        return self.reduction.loops

    def _accumulators(self, size: int) -> Expr:
        buffer = tirx.decl_buffer([size], self.dtype, f"{self.stage.buffer.name}_acc{len(self.buffers)}", scope="local")
        self.buffers.append(buffer)
        return buffer

    def _finish(self, values: dict[Expr, Expr], result: Expr) -> Stmt:
        """Writes an element's final value."""
        indices = [substitute(index, values) for index in self.stage.indices]
        if self.after is None:
            return tirx.BufferStore(self.stage.buffer, result, indices)
        pairs = zip(own_variables(self.after, self.stage), indices, strict=True)
        names = {variable: index for variable, index in pairs if variable is not None}
        after = self.after
        for loop in after.loops:
            names.setdefault(
                loop.variable, loop_nests.number(loop.variable, 0)
            )  # all others are mapped: its extent is 1

        def load(node: Expr) -> Expr:
            return result if node.source.same_as(self.stage.buffer) else substitute(node, names)

        value = _mapped(after.value, load, names)
        return tirx.BufferStore(after.buffer, value, [substitute(index, names) for index in after.indices])


def _mapped(value: Expr, load: Any, names: dict[Expr, Expr]) -> Expr:
    """Returns a value with its loads replaced, and its variables elsewhere."""
    hidden: dict[Any, Any] = {}

    def hide(node: Expr) -> Expr:
        stand_in = tirx.Var("load", str(node.ty))
        hidden[stand_in] = substitute(load(node), hidden)  # the index of a load may be loaded itself
        return stand_in

    shown = tvm_ffi.structural.structural_map(value, (tvm.ir.TensorLoad, hide))
    return substitute(substitute(shown, names), hidden)


def own_variables(after: Computation, stage: Computation) -> list[Any | None]:
    """Returns the variable of `after` for each dimension of `stage.buffer`; None for a dimension of size 1."""
    load = next(one for one in nodes(after.value, tvm.ir.TensorLoad) if one.source.same_as(stage.buffer))
    return [index if isinstance(index, tirx.Var) else None for index in load.indices]


def follows(after: Computation, stage: Computation) -> bool:
    """Returns whether a stage computes each element from the element of `stage` at the same place only."""
    loads = [one for one in nodes(after.value, tvm.ir.TensorLoad) if one.source.same_as(stage.buffer)]
    if not loads or after.reduction or not stage.plain:
        return False
    sizes = {loop.variable: loop.extent for loop in after.loops}
    wanted = math.prod(loop.extent for loop in stage.loops)
    for load in loads:
        used = [index for index in load.indices if isinstance(index, tirx.Var)]
        if not all(isinstance(index, tirx.Var | tirx.IntImm) for index in load.indices):
            return False
        if len(set(used)) != len(used) or math.prod(sizes.get(v, 0) for v in used) != wanted:
            return False
        if not all(tvm_ffi.structural_equal(a, b) for a, b in zip(load.indices, loads[0].indices, strict=True)):
            return False
    covered = set(used)
    return all(loop.extent == 1 or loop.variable in covered for loop in after.loops)
