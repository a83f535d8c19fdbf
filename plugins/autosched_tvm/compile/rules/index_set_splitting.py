"""Splits the index space of a stage into boxes in which its conditions are constant.

A concatenation, a padding or a slice with a border is one expression with conditions on its indices, which prevent
vectorisation. In each box the conditions are constant, and a plain copy remains.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import tvm
from tvm import sym, tirx

from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, nodes, substitute
from autosched_tvm.tvm_types import Expr

BOXES_MAX = 64
"""Maximum number of boxes of a stage. A stage that needs more stays whole."""
COMPARISONS = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.EQ, tirx.NE)


@dataclass(frozen=True)
class Box:
    """A part of a stage, with its own value and indices. Its loops begin at 0."""

    stage: Computation
    size: int
    """Number of elements (for a reduction, of terms) that are computed."""


Spans = dict[Any, tuple[int, int]]


def boxes(stage: Computation) -> list[Box]:
    """Returns the parts of a stage, which cover each element once."""
    spans = {loop.variable: (0, loop.extent) for loop in stage.every_loop}
    if not _conditions(stage.value):
        return [_box(stage, spans)]
    free = [loop.variable for loop in stage.loops]
    waiting = [spans]
    done: list[Spans] = []
    while waiting:
        if len(waiting) + len(done) > BOXES_MAX:
            return [_box(stage, spans)]
        part = waiting.pop()
        value = simplified(stage.value, part)
        if (cut := next(_cuts(value, part, free), None)) is None:
            done.append(part)
            continue
        variable, place = cut
        low, high = part[variable]
        waiting += [{**part, variable: (place, high)}, {**part, variable: (low, place)}]
    return [_box(stage, part) for part in done]


def is_conditional(stage: Computation) -> bool:
    """Returns whether a condition of a stage changes with its loops."""
    if not _conditions(stage.value):  # simplification takes longer
        return False
    spans = {loop.variable: (0, loop.extent) for loop in stage.every_loop}
    return any(True for _ in _cuts(simplified(stage.value, spans), spans, [loop.variable for loop in stage.loops]))


def part(stage: Computation, loop: Loop, low: int, high: int) -> Computation:
    """Returns the part of a stage in which a loop runs from `low` to `high` (exclusive)."""
    spans = {one.variable: (0, one.extent) for one in stage.every_loop}
    return _box(stage, {**spans, loop.variable: (low, high)}).stage


def simplified(expression: Expr, spans: Mapping[Any, tuple[int, int]]) -> Expr:
    """Returns an expression, simplified for variables within spans."""
    analyzer = sym.Analyzer()
    for variable, (low, high) in spans.items():
        analyzer.bind(variable, tvm.ir.Range(low, high))
    try:
        return analyzer.simplify(expression, steps=4)
    except TypeError:  # TVM's simplifier mixes indices of 32 and of 64 bits
        return expression


def _cuts(value: Expr, spans: Spans, free: list[Expr]) -> Iterator[tuple[Any, int]]:
    """Yields the places where a condition of a value changes inside the spans: variable, and first index after the
    change."""
    for condition in _conditions(value):
        for comparison in nodes(condition, COMPARISONS):
            for variable, place in _borders(comparison, free):
                low, high = spans[variable]
                if low < place < high:
                    yield variable, place


def _conditions(value: Expr) -> list[Expr]:
    selected = [choice.condition for choice in nodes(value, tirx.Select)]
    called = [call.args[0] for call in nodes(value, tvm.ir.Call) if str(call.op.name).endswith("if_then_else")]
    return [*called, *selected]


def _borders(comparison: Expr, free: list[Expr]) -> list[tuple[Any, int]]:
    """Returns the places where a comparison of one variable may change its value."""
    left, right = comparison.a, comparison.b
    used = set(nodes(left, tirx.Var)) | set(nodes(right, tirx.Var))
    if len(used) != 1 or not used <= set(free) or nodes(left, tvm.ir.TensorLoad) or nodes(right, tvm.ir.TensorLoad):
        return []
    (variable,) = used
    steps = sym.detect_linear_equation(left - right, [variable])
    if len(steps) != 2 or not all(isinstance(step, tirx.IntImm) for step in steps):
        return []
    slope, offset = (int(step) for step in steps)
    if slope == 0:
        return []
    # slope * v + offset compared with 0: every comparison is constant between floor(root), floor(root) + 1 and beyond.
    below = -offset // slope
    return [(variable, below), (variable, below + 1)]


def _box(stage: Computation, spans: Spans) -> Box:
    """Returns the part of a stage within spans, with loops from 0."""
    moved = {variable: variable + low for variable, (low, _high) in spans.items() if low}
    lengths = {variable: (0, high - low) for variable, (low, high) in spans.items()}
    size = 1
    for _low, length in lengths.values():
        size *= length
    value = simplified(substitute(stage.value, moved), lengths)
    indices = tuple(simplified(substitute(index, moved), lengths) for index in stage.indices)
    loops = tuple(Loop(loop.variable, lengths[loop.variable][1]) for loop in stage.loops)
    return Box(replace(stage, loops=loops, indices=indices, value=value), size)
