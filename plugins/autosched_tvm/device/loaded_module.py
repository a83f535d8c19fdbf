"""Loads, runs and times a compiled network: on the cores of this process, on a GPU, or on a board."""

import tempfile
import time
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from autosched.backend import Timing
from autosched.errors import RequestError
from autosched.records.statistics import summarize
from autosched.runtime_errors import in_words
from autosched_runtime.inputs import in_order
from autosched_runtime.network import Network
from autosched_runtime.side_file import Description, described, files_of
from autosched_runtime.weights import Weights
from autosched_tvm.compile.side_file import read_side
from autosched_tvm.device.place import HERE, Place
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import DeviceTensor


class LoadedModule:
    """A loaded network. May be called from any number of threads; each inference uses `threads` threads."""

    def __init__(self, path: Path, *, threads: int | None = None, place: Place | None = None) -> None:
        """`threads`: number of threads; None: the number of cores that it was tuned for, if there are as many. `place`:
        None: this process.

        Raises NotFound or RequestError.
        """
        with in_words():
            self.path, side = files_of(path)
            self.info = read_side(side)
            self._description = described(side)
            self.place = place or HERE
            self._network: Network | _OnDevice
            if self.place is HERE:
                self._network = Network(self.path, threads=threads, description=self._description)
                self.threads = self._network.threads
            else:
                self._network = _OnDevice(self.path, self.place, self._description)
                self.threads = threads or self.info.cores

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """The outputs in order. Raises RequestError for inputs that do not fit."""
        with in_words():
            return self._network.run(inputs)

    def evaluate(self, inputs: Mapping[str, Array] | Sequence[Array] | None = None, *, budget_s: float = 5.0) -> Timing:
        """Latency of one inference, repeated for about `budget_s` seconds."""
        bound = self.bind(random_inputs(self.info.inputs) if inputs is None else inputs)
        deadline = time.perf_counter() + budget_s
        self.sample(bound, 1)
        once_s = self.sample(bound, 1)
        number = max(1, int(0.02 / max(once_s, 1e-9)))
        samples = [once_s] if number == 1 else []
        while len(samples) < 3 or (time.perf_counter() < deadline and len(samples) < 200):
            samples.append(self.sample(bound, number))
        return summarize(self.info.build, samples)

    def machine(self) -> Any:
        """A new virtual machine of TVM for the network, which may be instrumented, at its place."""
        from tvm import relax

        return relax.VirtualMachine(self.place.load(str(self.path)), self.place.device)

    @cached_property
    def _weights(self) -> list[DeviceTensor]:
        """The weights outside of the library, at its place."""
        return weights_at(self.place, self.path, self._description)

    def bind(self, inputs: Mapping[str, Array] | Sequence[Array]) -> Any:
        """Inputs in the form of `sample`, where the network runs. Raises RequestError."""
        with in_words():
            return self._network.bind(inputs)

    def sample(self, bound: Any, number: int) -> float:
        """Mean latency of `number` calls in a row, in seconds."""
        if isinstance(self._network, _OnDevice):
            return self._network.sample(bound, number)
        return self._network.timed(bound, number)

    def call(self, bound: Any) -> None:
        """Run one inference, with the inputs of `bind`."""
        with in_words():
            self._network.repeat(bound, 1)

    def tensors(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Any]:
        """Arguments of `machine`: the inputs, then the weights, as TVM's tensors at its place."""
        with in_words():
            return [*(self.place.tensor(array) for array in in_order(self._description.inputs, inputs)), *self._weights]


def weights_at(place: Place, library: Path, description: Description) -> list[DeviceTensor]:
    """Copies of a network's weights at a place. Raises NetworkError."""
    with library.open("rb") as file:
        return [place.tensor(array) for array in Weights(file, description).arrays]


class _OnDevice:
    """A network on a GPU or a board."""

    def __init__(self, library: Path, place: Place, description: Description) -> None:
        from tvm import relax

        self._place, self._wanted = place, description.inputs
        try:
            with tempfile.TemporaryDirectory(prefix="autosched-board-") as folder:
                sent = Path(folder) / library.name
                with library.open("rb") as file:  # without the weights behind it
                    sent.write_bytes(file.read(description.library.size if description.library else -1))
                self._machine = relax.VirtualMachine(place.load(str(sent)), place.device)
            self._main = self._machine["main"]
            self._weights = weights_at(place, library, description)
        except Exception as error:  # the loader of another program's file may raise any exception
            raise RequestError(
                f"{library} cannot be loaded: {str(error).strip().splitlines()[-1][:300]}. Compile it again with:"
                " autosched compile ID"
            ) from error

    def bind(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[DeviceTensor]:
        """A copy of the inputs on the device, then the weights there."""
        return [*(self._place.tensor(array) for array in in_order(self._wanted, inputs)), *self._weights]

    def run(self, inputs: Mapping[str, Array] | Sequence[Array]) -> list[Array]:
        """The outputs in order."""
        found = self._main(*self.bind(inputs))
        return [found.numpy()] if hasattr(found, "numpy") else [one.numpy() for one in found]

    def sample(self, tensors: Sequence[DeviceTensor], number: int) -> float:
        """Mean latency of a number of calls in a row, by the device's clock."""
        timer = self._machine.time_evaluator("main", self._place.device, number=number)
        return float(timer(*tensors).mean)

    def repeat(self, tensors: Sequence[DeviceTensor], number: int) -> None:
        """Run a number of inferences one after the other."""
        for _ in range(number):
            self._main(*tensors)
