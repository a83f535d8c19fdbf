"""Reads a kernel without a schedule as a list of stages. Each stage computes a buffer, element by element."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from autosched_tvm.compile.kernel_sketches import has_root
from autosched_tvm.tvm_types import Expr, PrimFunc, Stmt, Type

COMBINERS = (tirx.Add, tirx.Mul, tirx.Max, tirx.Min)
"""Operations that may combine the terms of a reduction. All are associative and commutative."""


class NoRule(Exception):
    """No rule fits the kernel; the message gives the reason."""


@dataclass(frozen=True)
class Loop:
    """A variable that counts from 0 to its extent."""

    variable: Expr
    extent: int


@dataclass(frozen=True)
class Reduction:
    """Combination of a stage's terms into one element."""

    loops: tuple[Loop, ...]
    start: Any
    """Value before the first term."""
    combine: Any
    """Class of the expression that combines two values."""


@dataclass(frozen=True, eq=False)
class Computation:
    """`buffer[indices] = value` for all values of the loops; with a reduction, `value` is one term of it."""

    name: str
    loops: tuple[Loop, ...]
    buffer: Expr
    indices: tuple[Expr, ...]
    value: Expr
    reduction: Reduction | None = None

    @property
    def every_loop(self) -> tuple[Loop, ...]:
        """Loops over elements, then loops over terms."""
        return (*self.loops, *(self.reduction.loops if self.reduction else ()))

    @property
    def plain(self) -> bool:
        """Whether the indices are the loop variables, each used once, or loops of extent 1."""
        names = {loop.variable for loop in self.loops}
        used = [index for index in self.indices if isinstance(index, tirx.Var)]
        whole = all(index in names or zero(index) for index in self.indices)
        idle = [loop for loop in self.loops if loop.variable not in set(used)]
        return whole and len(set(used)) == len(used) and all(loop.extent == 1 for loop in idle)


@dataclass(frozen=True)
class Program:
    """A kernel's stages in order, and the buffers between them."""

    function: PrimFunc
    stages: tuple[Computation, ...]
    buffers: tuple[Expr, ...]
    """Buffers that are allocated inside the kernel."""


def read(function: PrimFunc) -> Program:
    """Returns the stages of a function. Raises NoRule for other functions than nests of plain loops."""
    if not has_root(function):
        raise NoRule("the kernel has no root block")
    root = function.body
    parts = root.block.body.seq if isinstance(root.block.body, tirx.SeqStmt) else [root.block.body]
    return Program(function, tuple(_stage(part) for part in parts), tuple(root.block.alloc_buffers))


def _stage(statement: Stmt) -> Computation:
    around = []
    while isinstance(statement, tirx.For):
        if statement.kind != tirx.ForKind.SERIAL or statement.annotations or not zero(statement.min):
            raise NoRule("a loop is scheduled already")
        around.append(statement.loop_var)
        statement = statement.body
    if not isinstance(statement, s_tir.SBlockRealize):
        raise NoRule("a loop holds something else than a block")
    block = statement.block
    values = [value for value in statement.iter_values if not zero(value)]
    if sorted(map(str, values)) != sorted(map(str, around)) or not all(isinstance(v, tirx.Var) for v in values):
        raise NoRule(f"the loops of {block.name_hint} are not its variables")
    if not isinstance(statement.predicate, tirx.IntImm) or not int(statement.predicate):
        raise NoRule(f"{block.name_hint} runs under a condition")
    if not isinstance(block.body, tirx.BufferStore) or block.alloc_buffers or block.match_buffers:
        raise NoRule(f"{block.name_hint} is more than one store")
    loops: dict[bool, list[Loop]] = {False: [], True: []}
    for variable in block.iter_vars:
        if not isinstance(variable.dom.extent, tirx.IntImm) or not zero(variable.dom.min):
            raise NoRule("a loop's length is known only when the kernel runs")
        if int(variable.iter_type) not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce):
            raise NoRule(f"{block.name_hint} has a loop that must run in order")
        reduced = int(variable.iter_type) == tirx.IterVar.CommReduce
        loops[reduced].append(Loop(variable.var, int(variable.dom.extent)))
    store = block.body
    made = Computation(str(block.name_hint), tuple(loops[False]), store.buffer, tuple(store.indices), store.value)
    if block.init is None:
        if loops[True]:
            raise NoRule(f"{block.name_hint} reduces without a start")
        return made
    return _reduction(made, block.init, tuple(loops[True]))


def _reduction(made: Computation, init: Stmt, loops: tuple[Loop, ...]) -> Computation:
    combined = made.value
    if not isinstance(init, tirx.BufferStore) or not isinstance(combined, COMBINERS):
        raise NoRule(f"{made.name} reduces in a way that no rule knows")
    sides = [combined.a, combined.b]
    terms = [side for side in sides if not _is_element(side, made)]
    if len(terms) != 1:
        raise NoRule(f"{made.name} does not add one term to its own element")
    if any(load.source.same_as(made.buffer) for load in nodes(terms[0], tvm.ir.TensorLoad)):
        raise NoRule(f"a term of {made.name} reads the result")
    return replace(made, value=terms[0], reduction=Reduction(loops, init.value, type(combined)))


def _is_element(side: Expr, made: Computation) -> bool:
    return (
        isinstance(side, tvm.ir.TensorLoad)
        and side.source.same_as(made.buffer)
        and all(tvm_ffi.structural_equal(a, b) for a, b in zip(side.indices, made.indices, strict=True))
    )


def zero(expression: Expr) -> bool:
    """Returns whether an expression is the integer 0."""
    return isinstance(expression, tirx.IntImm) and int(expression) == 0


def nodes(expression: Expr | Stmt, kind: Any) -> list[Expr]:
    """Returns all parts of an expression or a statement that are of a class."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (kind, found.append))
    return found


def substitute(expression: Expr, values: Mapping[Expr, Expr]) -> Expr:
    """Returns an expression with some of its variables replaced."""

    def value(variable: Expr) -> Expr:
        return values.get(variable, variable)

    return tvm_ffi.structural.structural_map(expression, (tirx.Var, value))


def shape_of(buffer: Expr) -> tuple[int, ...]:
    """Returns the shape of a buffer. Raises NoRule for a variable shape, and for elements that are not contiguous."""
    if not all(isinstance(size, tirx.IntImm) for size in buffer.ty.shape) or len(buffer.ty.strides):
        raise NoRule(f"the shape of {buffer.name} is not fixed")
    return tuple(int(size) for size in buffer.ty.shape)


def bytes_of(dtype: Type) -> int:
    """Returns the size of an element of a type in bytes."""
    kind = tvm.DataType(str(dtype))
    return max(1, int(kind.bits) * int(kind.lanes) // 8)


def flat(buffer: Expr, indices: Sequence[Any]) -> Expr:
    """Returns the offset of an element in its buffer, in elements."""
    place: Any = None
    for index, size in zip(indices, shape_of(buffer), strict=True):
        place = index if place is None else place * size + index
    return tirx.IntImm("int64", 0) if place is None else place
