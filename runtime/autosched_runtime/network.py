"""A compiled network: loads it, and runs it with NumPy arrays."""

import ctypes
import math
import os
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from autosched_runtime import libraries, thread_pool, tvm_interface
from autosched_runtime.cpu_features import lacking
from autosched_runtime.errors import InvalidInput, NetworkError
from autosched_runtime.executable import Executable, executable_of
from autosched_runtime.inference_threads import THREADS, Context
from autosched_runtime.inputs import Array, array_at, dlpack_type, dtype_of, in_order
from autosched_runtime.network_file import SUFFIX, opened
from autosched_runtime.side_file import ALIGNMENT, Description, Tensor, refuse_other_machines
from autosched_runtime.tvm_interface import ARRAY, NONE, OBJECT_BYTES, TENSOR, DLTensor, Value
from autosched_runtime.weights import Weights

if TYPE_CHECKING:
    from concurrent.futures import Future

    from autosched_runtime.samples import Sample

Inputs = Mapping[str, Array] | Sequence[Array]
VIEWS_MAX = 64
"""Maximum number of addresses of an output that are remembered. TVM's allocator uses few of them."""
_word_at = ctypes.c_uint64.from_address
_DATA, _BYTE_OFFSET = OBJECT_BYTES + DLTensor.data.offset, OBJECT_BYTES + DLTensor.byte_offset.offset
"""Positions of a tensor's fields in its object."""
THREADS_PER_CORE_MAX = 32
"""Maximum number of threads for each core."""
LACKING = "Cannot find function"
"""TVM's words for a function that no library has registered."""
FEATURES_SAID = 8
"""Maximum number of CPU features that a message names."""


class Network:
    """A loaded network. May be called from any number of threads; each inference uses `threads` threads."""

    def __init__(
        self, path: str | os.PathLike[str], *, threads: int | None = None, description: Description | None = None
    ) -> None:
        """`path`: NAME.asn, or the library NAME.so with NAME.json beside it. `threads`: None: the number of cores that
        it was tuned for, if this process may use as many. `description`: that of one of the networks in the file; None:
        the first.

        Raises NetworkError.
        """
        if description is None:
            file = opened(Path(path))
            path, description = file.path, file.networks[0]
        self.path, self.description = Path(path), description
        if threads is not None and not 1 <= threads <= THREADS_PER_CORE_MAX * thread_pool.usable():
            raise InvalidInput(
                f"threads is {threads}: at least 1 is needed, at most {THREADS_PER_CORE_MAX} for each of the"
                f" {thread_pool.usable()} cores that this process may use, or None for what the network asks for"
            )
        self.threads = threads or thread_pool.default(self.description.cores)
        if self.path.suffix != SUFFIX:
            refuse_other_machines(self.path)
        _refuse_gpus(self.path, self.description)
        _refuse_other_cpus(self.path, self.description)
        self._forms = [(tensor.name, tensor.shape, dtype_of(tensor)) for tensor in self.description.inputs]
        self._executable: Executable | None = executable_of(self.path, self.description)
        self._spare: _Machine | None = self._new_machine()
        """The first machine, made here so that loading tells what is wrong."""
        self._machines: WeakKeyDictionary[Context, _Machine] = WeakKeyDictionary()
        """Virtual machines by the thread that runs kernels: a machine serves one thread at a time."""
        self._first: tuple[Context, _Machine] | None = None
        """The context of the first inference, which most programs use alone."""
        self._making = threading.Lock()

    def run(self, inputs: Inputs) -> list[Array]:
        """The outputs in order. Raises InvalidInput for inputs that do not fit, NetworkError."""
        arrays = self.arrays(inputs)
        context = THREADS.mine(self.threads)
        if context is None:
            return THREADS.run(self.threads, lambda context: self._machine_of(context).run(arrays))
        with context.running:
            thread_pool.use(self.threads)
            return self._machine_of(context).run(arrays)

    def submit(self, inputs: Inputs) -> "Future[list[Array]]":
        """As `run`, in another thread. Raises InvalidInput at once."""
        arrays = self.arrays(inputs)
        return THREADS.submit(self.threads, lambda context: self._machine_of(context).run(arrays))

    def arrays(self, inputs: Inputs) -> list[Array]:
        """The inputs in order, checked. Raises InvalidInput."""
        if type(inputs) is dict and len(inputs) == len(self._forms):  # the usual case, in half a microsecond
            found = []
            for name, shape, dtype in self._forms:
                array = inputs.get(name)
                if type(array) is not np.ndarray or array.dtype is not dtype or array.shape != shape:
                    break
                found.append(array)
            else:
                return found
        return in_order(self.description.inputs, inputs)

    def samples(self) -> list["Sample"]:
        """Inputs, with the outputs that the network was verified with; empty if none were kept. Raises
        NetworkError."""
        from autosched_runtime import samples  # few programs need them

        return samples.of(self.path, self.description)

    def bind(self, inputs: Inputs) -> "Bound":
        """A copy of the inputs, for `repeat`. Raises InvalidInput."""
        if self._executable is None:
            raise self._closed()
        bound = Bound(self.description.inputs, self._executable.weights)
        for memory, array in zip(bound.arrays, self.arrays(inputs), strict=True):
            memory[...] = array
        return bound

    def repeat(self, bound: "Bound", number: int) -> None:
        """Run a number of inferences one after the other; their outputs are dropped."""
        context = THREADS.mine(self.threads)
        if context is None:
            THREADS.run(self.threads, lambda context: self._machine_of(context).repeat(bound, number))
            return
        with context.running:
            thread_pool.use(self.threads)
            self._machine_of(context).repeat(bound, number)

    def timed(self, bound: "Bound", number: int) -> float:
        """Mean time of a number of inferences one after the other, in seconds."""
        started = time.perf_counter()
        self.repeat(bound, number)
        return (time.perf_counter() - started) / number

    def close(self) -> None:
        """Free the network's memory. An inference afterwards raises NetworkError."""
        with self._making:
            self._executable, self._first, self._spare = None, None, None
            self._machines.clear()

    def _machine_of(self, context: Context) -> "_Machine":
        """The virtual machine for a thread that runs kernels."""
        first = self._first
        if first is not None and first[0] is context:
            return first[1]
        with self._making:
            if (machine := self._machines.get(context)) is None:
                machine = self._machines[context] = self._spare or self._new_machine()
                self._spare = None
            if self._first is None:
                self._first = context, machine
            return machine

    def _new_machine(self) -> "_Machine":
        if self._executable is None:
            raise self._closed()
        return _Machine(self._executable, self.description)

    def _closed(self) -> NetworkError:
        return NetworkError(f"{self.path.name} is closed: load it again")


class Bound:
    """Memory for a network's inputs, as arrays and, with its weights, as TVM's arguments."""

    def __init__(self, tensors: Sequence[Tensor], weights: Weights) -> None:
        self.arrays: list[Array] = []
        self.count = len(tensors) + len(weights.values)
        """Number of arguments."""
        self._values = (Value * max(1, self.count))()
        self._values[len(tensors) : self.count] = weights.values[:]
        self._holds: list[object] = [weights]
        for tensor, value in zip(tensors, self._values, strict=False):
            dtype = dtype_of(tensor)
            size = math.prod(tensor.shape) * dtype.itemsize
            memory = np.zeros(size + ALIGNMENT, np.uint8)  # NumPy aligns its arrays to 16 bytes
            begin = -memory.ctypes.data % ALIGNMENT
            self.arrays.append(memory[begin : begin + size].view(dtype).reshape(tensor.shape))
            made, holds = tvm_interface.tensor_object(memory.ctypes.data + begin, tensor.shape, *dlpack_type(dtype))
            value.type, value.content = TENSOR, ctypes.addressof(made)
            self._holds += [made, holds]
        self.address = ctypes.addressof(self._values)


class _Machine:
    """One of TVM's virtual machines for a network, with memory for its inputs. Serves one thread at a time."""

    def __init__(self, executable: Executable, description: Description) -> None:
        self._own = executable.new_machine()
        self._main = tvm_interface.method(self._own, "main")
        self._inputs = Bound(description.inputs, executable.weights)
        self._memory = self._inputs.arrays
        self._result = Value()
        at = ctypes.addressof(self._result)
        self._result_type = ctypes.c_int32.from_address(at)
        self._result_content = ctypes.c_uint64.from_address(at + Value.content.offset)
        self._call = tvm_interface.library().TVMFFIFunctionCall
        self._release = tvm_interface.library().TVMFFIObjectDecRef
        self._result_address = at
        self._arguments = self._main.address, self._inputs.address, self._inputs.count, at
        self._outputs = [_Output(tensor) for tensor in description.outputs]
        self._repeated: Bound | None = None
        """The inputs of the last `repeat`: TVM's machine refers to its last arguments until it has others, or ends."""

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """The outputs of an inference, in order."""
        for memory, array in zip(self._memory, arrays, strict=True):
            memory[...] = array
        if self._call(*self._arguments):
            self._again(self._arguments)
        result = self._result_content.value
        try:
            return [self._outputs[0].copied(result)] if self._result_type.value == TENSOR else self._several(result)
        finally:
            self._release(result)
            self._result_type.value = NONE

    def _several(self, content: int) -> list[Array]:
        """The outputs in TVM's array."""
        if self._result_type.value != ARRAY:
            raise NetworkError(f"the network returns a value of TVM's type {self._result.type}, which is no tensor")
        first, count = (ctypes.c_uint64 * 2).from_address(content + OBJECT_BYTES)
        values = (Value * count).from_address(first)
        return [output.copied(value.content) for output, value in zip(self._outputs, values, strict=True)]

    def _again(self, arguments: tuple[int, int, int, int]) -> None:
        """Run a failed inference once more if it lacked a function of the library that few networks need."""
        error = tvm_interface.raised()
        if LACKING not in str(error):
            raise error
        libraries.open_extra()
        if self._call(*arguments):
            raise tvm_interface.raised()

    def repeat(self, bound: "Bound", number: int) -> None:
        """Run a number of inferences, at least one, and drop their outputs."""
        earlier, self._repeated = self._repeated, bound
        call, release = self._call, self._release
        arguments = self._main.address, bound.address, bound.count, self._result_address
        result, kind = self._result_content, self._result_type
        for _ in range(number):
            if call(*arguments):
                self._again(arguments)
            release(result.value)
            kind.value = NONE
        del earlier  # not before others have taken its place


class _Output:
    """Copies one output out of TVM's memory."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor = tensor
        self._dtype = dtype_of(tensor)
        self._views: dict[int, Array] = {}
        """Arrays by the address of the memory that they show."""

    def copied(self, address: int) -> Array:
        """The output as an array of its own. `address`: of TVM's tensor."""
        begin = _word_at(address + _DATA).value + _word_at(address + _BYTE_OFFSET).value
        view = self._views.get(begin)
        return (self._view(address, begin) if view is None else view).copy()

    def _view(self, address: int, begin: int) -> Array:
        fields = DLTensor.from_address(address + OBJECT_BYTES)
        shape = tuple((ctypes.c_int64 * fields.dimensions).from_address(fields.shape)) if fields.dimensions else ()
        if shape != self._tensor.shape or (fields.kind, fields.bits) != dlpack_type(self._dtype):
            raise NetworkError(
                f"output {self._tensor} has another shape or type, {shape}: its .json belongs to another .so"
            )
        if len(self._views) >= VIEWS_MAX:
            self._views.clear()
        view = array_at(begin, shape, self._dtype)
        self._views[begin] = view
        return view


def _refuse_gpus(path: Path, description: Description) -> None:
    if description.target.get("kind") == "cuda":
        raise NetworkError(
            f"{path} was compiled for a GPU ({description.target.get('arch', 'of unknown architecture')}), and this"
            " runtime runs networks for CPUs alone. Tune the model for a CPU as well: autosched tune MODEL --device cpu"
        )


def _refuse_other_cpus(path: Path, description: Description) -> None:
    if missing := lacking(description.features):
        more = f" and {len(missing) - FEATURES_SAID} more" if len(missing) > FEATURES_SAID else ""
        raise NetworkError(
            f"{path} was compiled for a CPU with {', '.join(missing[:FEATURES_SAID])}{more}, which this machine's CPU"
            " lacks or its hypervisor withholds: it would end this process with SIGILL. Tune the model on this machine;"
            " or on another one with the --target that `autosched doctor` prints here"
        )
