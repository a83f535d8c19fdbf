"""Builds the statements of loop nests."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from autosched_tvm.compile.rules import parallelisation
from autosched_tvm.compile.rules.kernel_ir import Loop
from autosched_tvm.tvm_types import Expr, Stmt

Body = Callable[[Any], Any]
"""Returns the statements of a loop for the value of its variable."""
SERIAL, VECTORIZED, UNROLLED, PARALLEL = (
    tirx.ForKind.SERIAL,
    tirx.ForKind.VECTORIZED,
    tirx.ForKind.UNROLLED,
    tirx.ForKind.PARALLEL,
)


def number(like: Expr, value: int) -> Expr:
    """Returns an integer of a variable's type."""
    return tirx.IntImm(str(like.ty), value)


def loop(of: Loop, suffix: str, extent: int, kind: Any, body: Body) -> Stmt:
    """Returns a loop over `extent` values that is part of another loop; one value needs no loop."""
    if extent == 1:
        return body(number(of.variable, 0))
    variable = tirx.Var(f"{of.variable.name}{suffix}", str(of.variable.ty))
    return tirx.For(variable, number(variable, 0), number(variable, extent), kind, body(variable))


def around(loops: Sequence[Loop], body: Callable[[dict[Any, Any]], Any], *, cores: int = 1) -> Stmt:
    """Returns nested loops, the first one outermost. `body` receives the value of each loop's variable.

    On several cores, outer loops are fused into one parallel loop.
    """

    def inner(rest: Sequence[Loop], values: dict[Expr, Expr]) -> Stmt:
        if not rest:
            return body(values)
        first = rest[0]
        return loop(
            first, "", first.extent, SERIAL, lambda value: inner(rest[1:], {**values, first.variable: value})
        )  # fmt: skip

    count = parallelisation.shared(loops, cores) if cores > 1 else 0
    joined, rest = [one for one in loops[:count] if one.extent > 1], loops[count:]
    alone = {one.variable: number(one.variable, 0) for one in loops[:count] if one.extent == 1}
    if not joined:
        return inner(loops, {})
    whole = Loop(joined[0].variable, math.prod(one.extent for one in joined))

    def spread(place: Expr) -> Stmt:
        values, inside = dict(alone), whole.extent
        for one in joined:
            inside //= one.extent
            value = place if inside == 1 else place // number(one.variable, inside)
            values[one.variable] = value if one is joined[0] else value % number(one.variable, one.extent)
        return inner(rest, values)

    return loop(whole, "" if len(joined) == 1 else "_joined", whole.extent, PARALLEL, spread)


@dataclass(frozen=True)
class Piece:
    """A run of equal parts of a loop: `count` times `length` values from `start`."""

    start: int
    count: int
    length: int


def pieces(extent: int, lengths: Sequence[int]) -> list[Piece]:
    """Splits a loop into parts of the given lengths, the first one as often as it fits. The rest is the last piece."""
    found, start = [], 0
    for length in lengths:
        count = (extent - start) // length
        if count:
            found.append(Piece(start, count, length))
            start += count * length
    if start < extent:
        found.append(Piece(start, 1, extent - start))
    return found


def vector(of: Loop, lanes: int, body: Body) -> Stmt:
    """Returns one vector. `body` receives the lane."""
    return loop(of, "_v", lanes, VECTORIZED, body)


def vectors(of: Loop, piece: Piece, body: Body, *, cores: int = 1) -> Stmt:
    """Returns a piece of a loop with each part as one vector. `body` receives the value of the loop's variable.

    On several cores, the parts are spread over them.
    """

    def part(number: Expr) -> Stmt:
        return vector(of, piece.length, lambda lane: body(number * piece.length + lane + piece.start))

    return loop(of, "_o", piece.count, SERIAL if cores == 1 else PARALLEL, part)


def sequence(statements: Sequence[Stmt]) -> Stmt:
    """Returns the statements as one sequence."""
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
