"""The configurations of one task: knobs with their values, numbered in a mixed radix. Knows no TVM."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from autosched.errors import RequestError

Value: TypeAlias = int | str | tuple[int, ...]
Config: TypeAlias = dict[str, Value]
Admit: TypeAlias = Callable[[Mapping[str, Value]], str | None]
Numbers: TypeAlias = NDArray[np.float64]
Insight: TypeAlias = Callable[[Mapping[str, Numbers]], Mapping[str, Numbers]]
"""From the values of all numeric knobs, for many configurations at once, to what a template can tell from them."""
PROMISE = "promise"
"""Column of an insight by which configurations are ranked before anything is measured."""


@dataclass(frozen=True)
class Rule:
    """Why some configurations are left out, as a few knobs tell: so it need not be asked for each configuration."""

    names: tuple[str, ...]
    ask: Admit

    def __call__(self, config: Mapping[str, Value]) -> str | None:
        """The reason, if there is one."""
        return self.ask(config)


SHOWN_MAX = 24
"""Values of a knob that are printed before the rest is only counted."""


@dataclass(frozen=True)
class Knob:
    """One choice of a template."""

    name: str
    values: tuple[Value, ...]
    """Values to search, in an order in which neighbours are alike."""
    spare: tuple[Value, ...] | range = ()
    """Further values that are legal for this task but not searched unless a user adds them."""
    meaning: str = ""

    def legal(self, value: Value) -> bool:
        """Whether the template can do something with it."""
        return value in self.values or value in self.spare


@dataclass(frozen=True)
class ConfigSpace:
    """The product of all knobs; the first knob's digit is the least significant one of an index."""

    template: str
    knobs: tuple[Knob, ...]
    admit: Admit | None = field(default=None, compare=False, repr=False)
    """Why a configuration cannot work."""
    doubt: Admit | None = field(default=None, compare=False, repr=False)
    """Why it would be slow. A user who restricts a space knows better: then this is not asked."""
    insight: Insight | None = field(default=None, compare=False, repr=False)
    version: str = ""
    """Version of the template: in another one, the same configuration may be another schedule."""
    kernel: str = ""
    """The main computation, without fused operators: the same for siblings."""

    def __post_init__(self) -> None:
        for knob in self.knobs:
            if not knob.values:
                raise RequestError(
                    f"template {self.template}: knob {knob.name} has no legal value for this task;"
                    f" {_legal(knob)}, so add one of those with `enlarge`, or do not restrict this knob"
                )

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Number of values, knob by knob."""
        return tuple(len(knob.values) for knob in self.knobs)

    @property
    def identity(self) -> dict[str, str]:
        """In which tasks a configuration means the same."""
        return {"template": self.template, "version": self.version, "kernel": self.kernel}

    @property
    def size(self) -> int:
        """Number of configurations, those that are not admitted included; may exceed 64 bits."""
        return math.prod(self.radices)

    def digits(self, index: int) -> tuple[int, ...]:
        """Which value of each knob. Raises IndexError."""
        if not 0 <= index < self.size:
            raise IndexError(f"configuration {index} of {self.size}")
        found = []
        for radix in self.radices:
            index, digit = divmod(index, radix)
            found.append(digit)
        return tuple(found)

    def index(self, digits: Sequence[int]) -> int:
        """The number of a configuration given as digits. Raises IndexError."""
        total = 0
        for digit, radix in zip(reversed(digits), reversed(self.radices), strict=True):
            if not 0 <= digit < radix:
                raise IndexError(f"digit {digit} of {radix}")
            total = total * radix + int(digit)
        return total

    def config(self, index: int) -> Config:
        """Each knob's value."""
        return self.chosen(self.digits(index))

    def chosen(self, digits: Sequence[int]) -> Config:
        """Each knob's value."""
        return {knob.name: knob.values[digit] for knob, digit in zip(self.knobs, digits, strict=True)}

    def find(self, config: Mapping[str, object]) -> int | None:
        """A configuration's number; None if it has other knobs or values. Lists count as tuples, as JSON has them."""
        if config.keys() != {knob.name for knob in self.knobs}:
            return None
        digits = []
        for knob in self.knobs:
            value = _read(config[knob.name])
            if value is None or value not in knob.values:
                return None
            digits.append(knob.values.index(value))
        return self.index(digits)

    def admits(self, config: Mapping[str, Value]) -> str | None:
        """Why a configuration would surely fail or be slow; None if nothing is known against it."""
        return next((reason for ask in (self.admit, self.doubt) if ask is not None and (reason := ask(config))), None)

    def restrict(self, wanted: Mapping[str, Sequence[object]]) -> "ConfigSpace":
        """Keep only these values. One mapping serves tasks of many sizes, so what fits only others is left out.

        Raises RequestError for an unknown knob, a value of another kind, and when nothing of a knob is left.
        """
        changed = self._changed(wanted, lambda _, fitting: fitting)
        return replace(changed, doubt=None) if wanted else changed

    def enlarge(self, wanted: Mapping[str, Sequence[object]]) -> "ConfigSpace":
        """Add these values, also to a knob that has a single one and so was no choice. Raises RequestError."""
        return self._changed(wanted, lambda knob, fitting: tuple(dict.fromkeys((*knob.values, *fitting))))

    def describe(self) -> str:
        """All knobs and their values, for a user to read."""
        width = max((len(knob.name) for knob in self.knobs), default=0)
        lines = [f"template {self.template}: {self.size} configurations, {len(self.knobs)} knobs"]
        for knob in self.knobs:
            lines.append(f"  {knob.name:<{width}}  {len(knob.values):>4}: {_listed(knob.values)}")
            if knob.meaning:
                lines.append(f"  {'':<{width}}        {knob.meaning}")
            if knob.spare:
                lines.append(f"  {'':<{width}}        may be added: {_listed(knob.spare)}")
        return "\n".join(lines)

    def _changed(
        self, wanted: Mapping[str, Sequence[object]], merge: Callable[[Knob, tuple[Value, ...]], tuple[Value, ...]]
    ) -> "ConfigSpace":
        known = {knob.name: knob for knob in self.knobs}
        fitting = {}
        for name, values in wanted.items():
            if name not in known:
                raise RequestError(
                    f"template {self.template} has no knob {name!r}; it has: {', '.join(known) or 'none at all'}"
                )
            fitting[name] = self._fitting(known[name], values)
        knobs = tuple(
            replace(knob, values=merge(knob, fitting[knob.name])) if knob.name in fitting else knob
            for knob in self.knobs
        )
        return replace(self, knobs=knobs)

    def _fitting(self, knob: Knob, values: Sequence[object]) -> tuple[Value, ...]:
        """Those of the values that are legal here, at least one. Raises RequestError."""
        where = f"template {self.template}, knob {knob.name}"
        if isinstance(values, str) or not isinstance(values, Sequence):
            raise RequestError(f"{where}: give a list of values, not {values!r}; {_legal(knob)}")
        kind = type(next(iter((*knob.values, *knob.spare[:1]))))
        found: list[Value] = []
        for given in values:
            value = _read(given)
            if value is None or type(value) is not kind:
                raise RequestError(f"{where}: {given!r} is not {_KINDS[kind]}; {_legal(knob)}")
            if knob.legal(value) and value not in found:
                found.append(value)
        if not found:
            given_text = _listed(tuple(value for value in map(_read, values) if value is not None)) or "an empty list"
            raise RequestError(f"{where}: {given_text} leaves no legal value for this task; {_legal(knob)}")
        return tuple(found)


_KINDS: dict[type, str] = {int: "a whole number", str: "a word", tuple: "a list of whole numbers"}


def _read(given: object) -> Value | None:
    """A knob's value as a template knows it; None for what cannot be one."""
    if isinstance(given, bool):
        return None
    if isinstance(given, int | str):
        return given
    if isinstance(given, list | tuple) and all(isinstance(item, int) and not isinstance(item, bool) for item in given):
        return tuple(given)
    return None


def _legal(knob: Knob) -> str:
    legal = [text for text in (_listed(knob.values), _listed(knob.spare)) if text]
    return f"legal are: {', '.join(legal)}" if legal else "there is no legal value at all"


def _listed(values: Sequence[Value]) -> str:
    if isinstance(values, range):
        step = f" in steps of {values.step}" if values.step != 1 else ""
        return f"{values[0]} to {values[-1]}{step}" if values else ""
    shown = ", ".join(_text(value) for value in values[:SHOWN_MAX])
    return shown + (f" and {len(values) - SHOWN_MAX} more" if len(values) > SHOWN_MAX else "")


def _text(value: Value) -> str:
    return "x".join(str(item) for item in value) if isinstance(value, tuple) else str(value)
