"""Meanings of the values of a quantised network. Each value has at most one."""

from dataclasses import dataclass, field
from typing import Any

from autosched_tvm.compile.frontend.node_builder import Array


@dataclass(frozen=True)
class Quantised:
    """Integers: the float tensor that they represent, and their quantisation parameters."""

    real: str
    scale: str
    zero: str
    kind: int
    """Element type, as an ONNX type number."""
    axis: int = 1
    """Axis of a per-channel scale."""


@dataclass(frozen=True)
class Levels:
    """The integers of a quantised tensor, as uint8."""

    name: str
    zero: int
    """Integer that represents 0."""
    scale: float


@dataclass
class Real:
    """Real numbers that quantised tensors represent."""

    forms: dict[str, Quantised] = field(default_factory=dict)
    """These tensors, by name, the first one first."""
    levels: Levels | None = None
    """Their integers in memory; None: not made yet."""

    @property
    def first(self) -> Quantised | None:
        """The first of these tensors; None: there is none."""
        return next(iter(self.forms.values()), None)


@dataclass(frozen=True)
class Weights:
    """Real numbers: constant 8-bit weights times a scale."""

    numbers: Array
    """Weights, int8, with zero point 0."""
    scales: Array
    axis: int
    """Axis of a per-channel scale."""


@dataclass(frozen=True)
class Scale:
    """A scale that is computed at run time: the product of these tensors."""

    factors: tuple[str, ...]


@dataclass(frozen=True)
class Bias:
    """A bias that is quantised at run time: a float vector divided by the scale of a product."""

    real: str
    factors: tuple[str, ...]
    """Tensors whose product is the divisor."""


@dataclass(frozen=True)
class Product:
    """An int32 product of quantised tensors, represented as `real` divided by each of `scales`. The scales are computed
    at run time."""

    real: str
    scales: tuple[str, ...]
    operator: str
    operands: tuple[str, str]
    attributes: dict[str, Any]
    added: tuple[Bias, ...] = ()
    """Biases that were added to the integers."""


Meaning = Quantised | Real | Weights | Scale | Bias | Product
