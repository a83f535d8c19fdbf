"""What a template is, and the machine that it is for."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Any

from autosched_backend_autotvm.space import Admit, Knob, Space, Value
from autosched_backend_autotvm.templates.kernel import Kernel, prepare
from autosched_backend_autotvm.templates.nest import Nest

ACCUMULATORS_MIN = 8
"""Two multiply-adds a cycle, each four cycles until its result can be used: fewer leave units idle."""
SLACK = 1
"""Registers by which an estimate of their need may be too high."""


@dataclass(frozen=True)
class Machine:
    """What a template asks of a CPU."""

    vector_bytes: int
    registers: int
    """Vector registers."""
    threads: int


@dataclass(frozen=True)
class Template:
    """A family of schedules for one task, numbered by its space."""

    name: str
    """What it computes, its layout and its target: "conv2d_nchwc.llvm"."""
    nest: Nest
    knobs: tuple[Knob, ...]
    run: Callable[[Kernel, Mapping[str, Value]], None]
    admit: Admit | None = None
    doubt: Admit | None = None

    def space(self) -> Space:
        """All configurations."""
        return self._space

    @cached_property
    def _space(self) -> Space:
        return Space(self.name, self.knobs, self.admit, self.doubt)

    def apply(self, schedule: Any, config: Mapping[str, Value]) -> None:
        """Schedule the task so; the trace has no sampling in it. Raises what TVM raises when it does not fit."""
        self.run(prepare(schedule, self.nest), config)


def number(config: Mapping[str, Value], knob: str) -> int:
    """A numeric knob's value."""
    value = config[knob]
    assert isinstance(value, int), f"knob {knob} has no number"
    return value


def word(config: Mapping[str, Value], knob: str) -> str:
    """A knob's value that is a word."""
    value = config[knob]
    assert isinstance(value, str), f"knob {knob} has no word"
    return value


def divisors(extent: int) -> tuple[int, ...]:
    """All, ascending."""
    small = [d for d in range(1, math.isqrt(extent) + 1) if extent % d == 0]
    return tuple(sorted({*small, *(extent // d for d in small)}))


def factor(name: str, extent: int, most: int, meaning: str, unit: int = 1) -> Knob:
    """A knob for a tile's extent: `unit` times each divisor of `extent / unit`; those above `most` may be added."""
    values = tuple(d * unit for d in divisors(extent // unit))
    within = tuple(value for value in values if value <= most) or values[:1]
    return Knob(name, within, tuple(value for value in values if value not in within), meaning)


def lanes(extent: int, element_bytes: int, machine: Machine) -> int:
    """The longest vector that divides an axis, at most a register."""
    most = max(1, machine.vector_bytes // element_bytes)
    return math.gcd(extent, 1 << (most.bit_length() - 1))


def fits(
    knobs: Sequence[Knob], tile: Callable[[Mapping[str, Value]], tuple[int, int]], registers: int
) -> Callable[[Mapping[str, Value]], str | None]:
    """Whether a tile of (vectors, rows of scalars) is neither more than the registers hold nor too small to be fast."""

    def need(config: Mapping[str, Value]) -> int:
        across, along = tile(config)
        # What is used once comes straight from memory, as an operand of the multiply-add.
        return across * along + 1 if 1 in (across, along) else across * along + across + 1

    def size(config: Mapping[str, Value]) -> int:
        across, along = tile(config)
        return across * along

    every = ({k.name: v for k, v in zip(knobs, values, strict=True)} for values in product(*(k.values for k in knobs)))
    sizes = [size(config) for config in every if need(config) <= registers + SLACK]
    least = min(ACCUMULATORS_MIN, max(sizes, default=1))

    def admit(config: Mapping[str, Value]) -> str | None:
        if sizes and need(config) > registers + SLACK:
            return f"a tile of {size(config)} vectors does not fit {registers} registers"
        if size(config) < least:
            return f"a tile of {size(config)} vectors leaves arithmetic units idle"
        return None

    return admit
