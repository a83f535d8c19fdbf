"""Constant weights, and the forms in which kernels read them.

Each form is made once, for all kernels and all layout variants of a network. The kernels of an unrolled loop share
their weights.
"""

from collections.abc import Callable, Hashable
from typing import Any

from tvm import relax

from autosched_tvm.compile.layouts.packing import Array
from autosched_tvm.tvm_types import Expr


class Weight:
    """A constant of a network, and its forms."""

    def __init__(self, array: Array) -> None:
        self.array = array
        self._forms: dict[Hashable, Any] = {}

    def form(self, name: Hashable, pack: Callable[[Array], Array]) -> Expr:
        """Returns the Relax constant of a form that `pack` makes; equal names mean equal forms."""
        if name not in self._forms:
            self._forms[name] = relax.const(pack(self.array))
        return self._forms[name]
