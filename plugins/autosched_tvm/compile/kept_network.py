"""The network that this process imported, for a compilation that follows in the same process.

Layouts and fusion take up to half of the time of a compilation, and are the same in both.
"""

from dataclasses import dataclass
from typing import Any

from autosched_tvm.compile.layouts.layout_variants import Offer
from autosched_tvm.compile.model_sources import Source


@dataclass(frozen=True)
class LoadedNetwork:
    """A prepared model, and what was made of it."""

    source: Source
    cleaned: Any
    """Relax module before layouts and fusion."""
    offer: Offer | None = None
    """Its variants; None if they are not made yet."""


_kept: dict[tuple[str, str, str, bool], LoadedNetwork] = {}
"""At most one network, by file of the prepared model, target, layout, and whether Winograd's algorithm is offered."""


def keep(prepared: str, target: str, layout: str, network: LoadedNetwork, *, winograd: bool) -> None:
    """Keeps a network in place of the one before."""
    _kept.clear()
    _kept[prepared, target, layout, winograd] = network


def take(prepared: str, target: str, layout: str, *, winograd: bool) -> LoadedNetwork | None:
    """Returns the network of a prepared model, and keeps it no longer; None if this process did not import it."""
    return _kept.pop((prepared, target, layout, winograd), None)
