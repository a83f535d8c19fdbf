"""Configurations of one task: knobs with their values, numbered in a mixed radix. Does not use TVM."""

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
"""Maps the values of all numeric knobs, for many configurations at once, to quantities that a template derives from
them."""
PROMISE = "promise"
"""Column of an insight that ranks configurations before anything is measured."""


@dataclass(frozen=True)
class Rule:
    """Condition on a few knobs that rejects configurations, and need not be evaluated for each one."""

    names: tuple[str, ...]
    ask: Admit

    def __call__(self, config: Mapping[str, Value]) -> str | None:
        """Returns the reason for a rejection, if there is one."""
        return self.ask(config)


SHOWN_MAX = 24
"""Maximum number of values of a knob that are printed; the rest is counted."""


@dataclass(frozen=True)
class Knob:
    """One choice of a template."""

    name: str
    values: tuple[Value, ...]
    """Values to search, ordered such that neighbours are similar."""
    spare: tuple[Value, ...] | range = ()
    """Further legal values, which are searched only if a user adds them."""
    meaning: str = ""

    def legal(self, value: Value) -> bool:
        """Returns whether the template accepts the value."""
        return value in self.values or value in self.spare


@dataclass(frozen=True)
class ConfigSpace:
    """Product of all knobs. The first knob's digit is the least significant one of an index."""

    template: str
    knobs: tuple[Knob, ...]
    admit: Admit | None = field(default=None, compare=False, repr=False)
    """Returns the reason why a configuration cannot work."""
    doubt: Admit | None = field(default=None, compare=False, repr=False)
    """Returns the reason why a configuration would be slow. Ignored in a space that a user restricts."""
    insight: Insight | None = field(default=None, compare=False, repr=False)
    version: str = ""
    """Version of the template. In another version, the same configuration may be another schedule."""
    kernel: str = ""
    """Main computation without fused operators: equal for siblings."""

    def __post_init__(self) -> None:
        for knob in self.knobs:
            if not knob.values:
                raise RequestError(
                    f"template {self.template}: knob {knob.name} has no legal value for this task;"
                    f" {_legal(knob)}, so add one of those with `enlarge`, or do not restrict this knob"
                )

    @cached_property
    def radices(self) -> tuple[int, ...]:
        """Number of values of each knob."""
        return tuple(len(knob.values) for knob in self.knobs)

    @property
    def identity(self) -> dict[str, str]:
        """Identity of the tasks in which a configuration means the same."""
        return {"template": self.template, "version": self.version, "kernel": self.kernel}

    @property
    def size(self) -> int:
        """Number of configurations, including rejected ones; may exceed 64 bits."""
        return math.prod(self.radices)

    def digits(self, index: int) -> tuple[int, ...]:
        """Returns the index of each knob's value. Raises IndexError."""
        if not 0 <= index < self.size:
            raise IndexError(f"configuration {index} of {self.size}")
        found = []
        for radix in self.radices:
            index, digit = divmod(index, radix)
            found.append(digit)
        return tuple(found)

    def index(self, digits: Sequence[int]) -> int:
        """Returns the number of a configuration given as digits. Raises IndexError."""
        total = 0
        for digit, radix in zip(reversed(digits), reversed(self.radices), strict=True):
            if not 0 <= digit < radix:
                raise IndexError(f"digit {digit} of {radix}")
            total = total * radix + int(digit)
        return total

    def config(self, index: int) -> Config:
        """Returns each knob's value."""
        return self.chosen(self.digits(index))

    def chosen(self, digits: Sequence[int]) -> Config:
        """Returns each knob's value."""
        return {knob.name: knob.values[digit] for knob, digit in zip(self.knobs, digits, strict=True)}

    def find(self, config: Mapping[str, object]) -> int | None:
        """Returns a configuration's number; None if it has other knobs or values. Lists count as tuples, since JSON has
        no tuples."""
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
        """Returns the reason why a configuration would fail or be slow; None if there is none."""
        return next((reason for ask in (self.admit, self.doubt) if ask is not None and (reason := ask(config))), None)

    def restrict(self, wanted: Mapping[str, Sequence[object]]) -> "ConfigSpace":
        """Returns the space with these values only. One mapping serves tasks of many sizes, so values that fit only
        other tasks are left out.

        Raises RequestError for an unknown knob, a value of another kind, and when no value of a knob is left.
        """
        changed = self._changed(wanted, lambda _, fitting: fitting)
        return replace(changed, doubt=None) if wanted else changed

    def enlarge(self, wanted: Mapping[str, Sequence[object]]) -> "ConfigSpace":
        """Returns the space with these values added, even for a knob with a single value. Raises RequestError."""
        return self._changed(wanted, lambda knob, fitting: tuple(dict.fromkeys((*knob.values, *fitting))))

    def describe(self) -> str:
        """Returns all knobs and their values, for messages."""
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
        """Returns the values that are legal here, at least one. Raises RequestError."""
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
    """Returns a knob's value in the template's types; None for other values."""
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
