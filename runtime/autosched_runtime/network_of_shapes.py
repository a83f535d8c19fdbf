"""Networks of one model for several shapes, in one file: the shapes of the inputs decide which one runs."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from autosched_runtime.errors import InvalidInput
from autosched_runtime.inputs import Array
from autosched_runtime.network import Inputs, Network
from autosched_runtime.network_file import Opened, opened
from autosched_runtime.side_file import Tensor

if TYPE_CHECKING:
    from concurrent.futures import Future

    from autosched_runtime.padding import Padding
    from autosched_runtime.samples import Sample

VARIES = -1
"""Size of a dimension that differs between the shapes."""
Shapes = tuple[tuple[int, ...], ...]
"""Shapes of the inputs, in order."""


def loaded(path: str | os.PathLike[str], threads: int | None = None) -> "Network | NetworkOfShapes":
    """The network of a file. Raises NetworkError."""
    file = opened(Path(path))
    networks = _each(file, threads)
    if len(networks) == 1:
        return networks[0]
    if file.padding is None:
        return NetworkOfShapes(networks)
    from autosched_runtime import padding  # few programs need it

    return NetworkOfShapes(networks, padding.read(file.padding, file.networks))


def networks_of(path: str | os.PathLike[str], threads: int | None = None) -> list[Network]:
    """The networks of a file, one for each choice of shapes. Raises NetworkError."""
    return _each(opened(Path(path)), threads)


def _each(file: Opened, threads: int | None) -> list[Network]:
    return [Network(file.path, threads=threads, description=one) for one in file.networks]


class NetworkOfShapes:
    """Networks that differ in the shapes of their inputs, and share their weights. May be called from any number of
    threads."""

    def __init__(self, networks: list[Network], rule: "Padding | None" = None) -> None:
        """`rule`: how inputs of other sizes are padded; None: they are refused."""
        first, self.padding = networks[0], rule
        self.networks, self.path, self.threads = networks, first.path, first.threads
        descriptions = [network.description for network in networks]
        self.description = replace(
            first.description,
            inputs=_joined([one.inputs for one in descriptions]),
            outputs=_joined([one.outputs for one in descriptions]),
        )
        """That of the first network; sizes that differ are VARIES."""
        self._names = [tensor.name for tensor in first.description.inputs]
        self._by_shapes: dict[Shapes, Network] = {
            tuple(tensor.shape for tensor in network.description.inputs): network for network in networks
        }

    def run(self, inputs: Inputs) -> list[Array]:
        """The outputs in order. Raises InvalidInput for inputs that do not fit, NetworkError."""
        network, given, size = self._for(inputs)
        outputs = network.run(given)
        return outputs if size is None or self.padding is None else self.padding.cut(outputs, size)

    def submit(self, inputs: Inputs) -> "Future[list[Array]]":
        """As `run`, in another thread. Raises InvalidInput at once."""
        network, given, size = self._for(inputs)
        running = network.submit(given)
        return running if size is None or self.padding is None else _cut_later(running, self.padding, size)

    def samples(self) -> "list[Sample]":
        """Inputs of all shapes, with the outputs that the networks were verified with. Raises NetworkError."""
        return [sample for network in self.networks for sample in network.samples()]

    def close(self) -> None:
        """Free the memory. An inference afterwards raises NetworkError."""
        for network in self.networks:
            network.close()

    def _for(self, inputs: Inputs) -> tuple[Network, Inputs, int | None]:
        """The network for some inputs, its own inputs, and the size to which outputs are cut; None: they are not.

        Raises InvalidInput.
        """
        if isinstance(inputs, Mapping):
            if inputs.keys() != set(self._names):
                self.networks[0].arrays(inputs)  # raises an error that names them
            given = [inputs[name] for name in self._names]
        else:
            given = list(inputs)
            if len(given) != len(self._names):
                self.networks[0].arrays(inputs)
        shapes = tuple(map(np.shape, given))
        if (found := self._by_shapes.get(shapes)) is not None:
            return found, inputs, None
        if self.padding is None:
            raise InvalidInput(
                f"{self.path.name} has no network for {self._told(shapes)}; it has those for:"
                f" {'; '.join(map(self._told, self._by_shapes))}. Tune it with --shape for more"
            )
        size = self.padding.size_of(self._names, shapes)
        network = self.networks[self.padding.place_of(size)]
        return network, self.padding.padded(network.description.inputs, given, size), size

    def _told(self, shapes: Shapes) -> str:
        return ", ".join(
            f"{name!r} of {'x'.join(map(str, shape)) or 'a scalar'}"
            for name, shape in zip(self._names, shapes, strict=True)
        )


def _cut_later(running: "Future[list[Array]]", rule: "Padding", size: int) -> "Future[list[Array]]":
    """The outputs of a padded inference that runs in another thread, cut."""
    from concurrent.futures import Future  # few programs need it

    cut = Future[list[Array]]()

    def take(done: "Future[list[Array]]") -> None:
        if (error := done.exception()) is not None:
            cut.set_exception(error)
        else:
            cut.set_result(rule.cut(done.result(), size))

    running.add_done_callback(take)
    return cut


def _joined(tensors: list[tuple[Tensor, ...]]) -> tuple[Tensor, ...]:
    """Tensors with VARIES for sizes that differ."""
    return tuple(
        replace(
            first,
            shape=tuple(sizes[0] if len(set(sizes)) == 1 else VARIES for sizes in zip(*shapes, strict=True)),
        )
        for first, shapes in ((same[0], [tensor.shape for tensor in same]) for same in zip(*tensors, strict=True))
    )
