"""Templates, and the machine for which they are made."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from autosched_backend_autotvm.config_space import Admit, ConfigSpace, Insight, Knob, Rule, Value
from autosched_backend_autotvm.templates.fused_kernel import Kernel, prepare
from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis
from autosched_backend_autotvm.templates.template_version import version_of
from autosched_tvm.tvm_types import Schedule

SUMS_MIN = 4
"""Minimum number of vectors of sums in a tile. Two multiply-adds a cycle with a latency of four cycles need eight."""
SPILL_MAX = 1.25
"""Maximum ratio of a tile's registers to those of the machine. For a small excess the compiler may find room."""
WASTE_MAX = 1.2
"""Maximum ratio of the elements that tiles cover to those that are computed."""


@dataclass(frozen=True)
class Machine:
    """Properties of a CPU that templates use."""

    vector_bytes: int
    registers: int
    """Number of vector registers."""
    threads: int


@dataclass(frozen=True)
class Template:
    """Family of schedules for one task, numbered by its space."""

    name: str
    """Operator, layout and target: "conv2d_nchwc.llvm"."""
    nest: KernelAnalysis
    knobs: tuple[Knob, ...]
    run: Callable[[Kernel, Mapping[str, Value]], None]
    admit: Admit | None = None
    doubt: Admit | None = None
    insight: Insight | None = None
    prepare: Callable[[Any, KernelAnalysis], Kernel] = prepare
    """Function that fuses what can be fused, before the schedule."""
    makers: tuple[str, ...] = ()
    """Modules outside this package that generate code for a configuration."""

    def space(self) -> ConfigSpace:
        """Returns all configurations."""
        return self._space

    @cached_property
    def _space(self) -> ConfigSpace:
        version = version_of(self.run.__module__, *self.makers)
        return ConfigSpace(self.name, self.knobs, self.admit, self.doubt, self.insight, version)

    def apply(self, schedule: Schedule, config: Mapping[str, Value]) -> None:
        """Applies a configuration to the task; the trace contains no sampling. Raises TVM's exceptions where it does
        not fit."""
        self.run(self.prepare(schedule, self.nest), config)


def number(config: Mapping[str, Value], knob: str) -> int:
    """Returns a numeric knob's value."""
    value = config[knob]
    assert isinstance(value, int), f"knob {knob} has no number"
    return value


def word(config: Mapping[str, Value], knob: str) -> str:
    """Returns the value of a knob with words."""
    value = config[knob]
    assert isinstance(value, str), f"knob {knob} has no word"
    return value


def divisors(extent: int) -> tuple[int, ...]:
    """Returns all divisors, ascending."""
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return tuple(sorted({*small, *(extent // d for d in small)}))


def factor(name: str, extent: int, most: int, meaning: str, unit: int = 1) -> Knob:
    """Returns a knob for a tile's extent: `unit` times each divisor of `extent / unit`. Values above `most` may be
    added."""
    values = tuple(d * unit for d in divisors(extent // unit))
    within = tuple(value for value in values if value <= most) or values[:1]
    return Knob(name, within, tuple(value for value in values if value not in within), meaning)


def pieces(name: str, extent: int, most: int, meaning: str, unit: int = 1) -> Knob:
    """Returns a knob for a tile's extent, a multiple of `unit`, that need not divide the axis: the last tile is cut
    off.

    Values with little wasted computation are searched; those with more, and those above `most`, may be added.
    """
    whole = extent // unit
    values = range(1, whole + 1)
    within = tuple(v * unit for v in values if v * unit <= most and -(-whole // v) * v <= WASTE_MAX * whole)
    found = within or (unit,)
    return Knob(name, found, tuple(v * unit for v in values if v * unit not in found), meaning)


def lanes(extent: int, element_bytes: int, machine: Machine) -> int:
    """Returns the longest vector that divides an axis, at most a register."""
    most = max(1, machine.vector_bytes // element_bytes)
    return math.gcd(extent, 1 << (most.bit_length() - 1))


def fits(knobs: Sequence[Knob], tile: Callable[[Mapping[str, Value]], tuple[int, int]], registers: int) -> Rule:
    """Returns a rule that rejects tiles of (vectors, rows of scalars) far from the number of registers. Near it, an
    insight and a cost model judge better than a rule."""
    most = SPILL_MAX * registers

    names = [knob.name for knob in knobs]

    def judged(values: Sequence[Value]) -> tuple[int, bool]:
        """Returns the vectors of a tile, and whether they fit with their operands."""
        across, along = tile(dict(zip(names, values, strict=True)))
        # What is used once comes straight from memory, as an operand of the multiply-add.
        need = across * along + (1 if 1 in (across, along) else across + 1)
        return across * along, need <= most

    # A search asks this of hundreds of thousands of configurations, and they are few tiles.
    known = {values: judged(values) for values in product(*(knob.values for knob in knobs))}
    sizes = [size for size, fitting in known.values() if fitting]
    least = min(SUMS_MIN, max(sizes, default=1))

    def admit(config: Mapping[str, Value]) -> str | None:
        values = tuple(config[name] for name in names)
        size, fitting = known.get(values) or judged(values)
        if sizes and not fitting:
            return f"a tile of {size} vectors does not fit {registers} registers"
        if size < least:
            return f"a tile of {size} vectors leaves arithmetic units idle"
        return None

    return Rule(tuple(names), admit)
