"""Memory access pattern of a stage: the step of each access along each loop."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
from tvm import sym, tirx

from autosched_tvm.compile.rules import index_set_splitting
from autosched_tvm.compile.rules.kernel_ir import Computation, Loop, flat, nodes
from autosched_tvm.tvm_types import Expr

GATHERED = 1.0
"""Cost of a single element that is read or written, in accesses to a whole vector."""


@dataclass(frozen=True)
class Access:
    """A read or a write of a stage."""

    buffer: Expr
    steps: tuple[int | None, ...]
    """Distance in elements between two values of each loop; None where it varies."""


def store_of(stage: Computation) -> Access:
    """Returns the write of a stage."""
    return _access(stage.buffer, stage.indices, stage.every_loop)


def loads_of(stage: Computation) -> list[Access]:
    """Returns the reads of a stage."""
    found = nodes(stage.value, tvm.ir.TensorLoad)
    return [_access(load.source, load.indices, stage.every_loop) for load in found]


def conditional(stage: Computation, loop: Loop) -> bool:
    """Returns whether a condition on the loop's variable decides what is computed."""
    conditions = [choice.condition for choice in nodes(stage.value, tirx.Select)]
    conditions += [c.args[0] for c in nodes(stage.value, tvm.ir.Call) if str(c.op.name).endswith("if_then_else")]
    return any(variable.same_as(loop.variable) for condition in conditions for variable in nodes(condition, tirx.Var))


def cost(stage: Computation, number: int, lanes: int) -> float:
    """Returns the cost of an element with vectors along the loop `number`, in accesses to one vector."""
    loop = stage.every_loop[number]
    width = max(1, min(lanes, loop.extent))
    accesses = [load.steps[number] for load in loads_of(stage)]
    if number < len(stage.loops):
        accesses.append(store_of(stage).steps[number])
    alone = sum(step not in (0, 1) for step in accesses) + 4 * conditional(stage, loop)
    return GATHERED * alone + (1 + len(accesses) - alone) / width


def _access(buffer: Expr, indices: Sequence[Any], loops: Sequence[Loop]) -> Access:
    place = index_set_splitting.simplified(flat(buffer, indices), {loop.variable: (0, loop.extent) for loop in loops})
    steps: list[int | None] = []
    for loop in loops:
        if not any(variable.same_as(loop.variable) for variable in nodes(place, tirx.Var)):
            steps.append(0)
            continue
        parts = sym.detect_linear_equation(place, [loop.variable])
        steps.append(int(parts[0]) if len(parts) == 2 and isinstance(parts[0], tirx.IntImm) else None)
    return Access(buffer, tuple(steps))
