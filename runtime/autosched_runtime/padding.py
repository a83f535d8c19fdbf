"""Inputs of sizes for which there is no network: padded to the next larger one, their outputs cut back.

One size varies: a number of tokens, of frames. Whether the outputs of a padded call are those of an exact one was
checked by running both when the networks were packed.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from autosched_runtime.errors import InvalidInput
from autosched_runtime.inputs import Array, in_order
from autosched_runtime.side_file import Description, Tensor


@dataclass(frozen=True)
class Extent:
    """The size of an output along an axis: `factor` times the size of the inputs, and `offset`."""

    axis: int
    factor: int
    offset: int


@dataclass(frozen=True)
class Padding:
    """How inputs are padded, and outputs cut."""

    axes: Mapping[str, int]
    """The axis of each input that varies, by its name."""
    outputs: tuple[Extent | None, ...]
    """How each output varies; None: it does not."""
    least: int
    """Smallest size."""
    sizes: tuple[int, ...]
    """Sizes for which there are networks, in order."""
    ones: frozenset[str] = frozenset()
    """Inputs that are padded with ones, such as masks of what is to be ignored; all others are with zeros."""

    def told(self) -> dict[str, Any]:
        """The form in a manifest."""
        outputs = [one and {"axis": one.axis, "factor": one.factor, "offset": one.offset} for one in self.outputs]
        return {"axes": dict(self.axes), "outputs": outputs, "least": self.least, "ones": sorted(self.ones)}

    def size_of(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> int:
        """The size of some inputs, by their names and shapes. Raises InvalidInput."""
        found = {
            name: shape[self.axes[name]] if len(shape) > self.axes[name] else None
            for name, shape in zip(names, shapes, strict=True)
            if name in self.axes
        }
        sizes = set(found.values())
        (size,) = sizes if len(sizes) == 1 else (None,)
        if size is None:
            raise InvalidInput(f"the inputs differ in their size: {found}")
        if not self.least <= size <= self.sizes[-1]:
            raise InvalidInput(
                f"the inputs have the size {size}, and networks are there for {self.least} to {self.sizes[-1]}"
            )
        return size

    def place_of(self, size: int) -> int:
        """The number of the network for a size."""
        return bisect_left(self.sizes, size)

    def padded(self, wanted: Sequence[Tensor], inputs: Any, size: int) -> list[Array]:
        """The inputs with zeros or ones behind them. `wanted`: inputs of the network that runs. Raises InvalidInput."""
        exact = [
            replace(tensor, shape=self.resized(tensor.name, tensor.shape, size)) for tensor in wanted
        ]  # fmt: skip
        arrays = []
        for tensor, array in zip(wanted, in_order(exact, inputs), strict=True):
            if tensor.name in self.axes:
                memory = (np.ones if tensor.name in self.ones else np.zeros)(tensor.shape, array.dtype)
                memory[(slice(None),) * self.axes[tensor.name] + (slice(size),)] = array
                array = memory
            arrays.append(array)
        return arrays

    def cut(self, outputs: Sequence[Array], size: int) -> list[Array]:
        """The outputs that belong to inputs of a size."""
        return [
            array if one is None
            else array[(slice(None),) * one.axis + (slice(one.factor * size + one.offset),)].copy()
            for one, array in zip(self.outputs, outputs, strict=True)
        ]  # fmt: skip

    def resized(self, name: str, shape: tuple[int, ...], size: int) -> tuple[int, ...]:
        """The shape of an input of a size. `shape`: with another size."""
        axis = self.axes.get(name)
        return shape if axis is None else (*shape[:axis], size, *shape[axis + 1 :])


def read(told: Mapping[str, Any], networks: Sequence[Description]) -> Padding:
    """The padding in a manifest. `networks`: those of the file, the smallest first."""
    axes = {str(name): int(axis) for name, axis in told["axes"].items()}
    name, axis = next(iter(axes.items()))
    sizes = [next(one.shape[axis] for one in network.inputs if one.name == name) for network in networks]
    outputs = (one and Extent(one["axis"], one["factor"], one["offset"]) for one in told["outputs"])
    return Padding(axes, tuple(outputs), int(told["least"]), tuple(sizes), frozenset(told.get("ones", ())))


def possible(networks: Sequence[Description], least: int) -> Padding | str:
    """The padding by which networks could take all sizes from the least one; or why there is none.

    One size must vary alike in all inputs that vary, and outputs must be linear in it.
    """
    axes: dict[str, int] = {}
    sizes: tuple[int, ...] = ()
    for same in zip(*(one.inputs for one in networks), strict=True):
        varying = _varying(same)
        if len(varying) > 1:
            return f"several sizes of input {same[0].name!r} vary"
        for axis, found in varying.items():
            if sizes and found != sizes:
                return "several sizes vary, each by itself"
            axes[same[0].name], sizes = axis, found
    if not sizes:
        return "no size varies"
    outputs: list[Extent | None] = []
    for same in zip(*(one.outputs for one in networks), strict=True):
        varying = _varying(same)
        extents = [_linear(axis, sizes, found) for axis, found in varying.items()]
        if len(extents) > 1 or None in extents:
            return f"the shape of output {same[0].name!r} does not follow that of the inputs"
        outputs.append(extents[0] if extents else None)
    return Padding(axes, tuple(outputs), least, sizes)


def _varying(same: Sequence[Tensor]) -> dict[int, tuple[int, ...]]:
    """The sizes along each axis that varies."""
    along = enumerate(zip(*(one.shape for one in same), strict=True))
    return {axis: sizes for axis, sizes in along if len(set(sizes)) > 1}


def _linear(axis: int, sizes: Sequence[int], found: Sequence[int]) -> Extent | None:
    """How an output follows the inputs; None if it is not linear."""
    factor, rest = divmod(found[-1] - found[0], sizes[-1] - sizes[0])
    offset = found[0] - factor * sizes[0]
    if rest or any(factor * size + offset != one for size, one in zip(sizes, found, strict=True)):
        return None
    return Extent(axis, factor, offset)
