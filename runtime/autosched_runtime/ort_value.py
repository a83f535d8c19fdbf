"""Arrays and bindings with the names that onnxruntime has: `OrtValue`, `IOBinding`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from autosched_runtime.errors import InvalidInput
from autosched_runtime.inputs import Array, array_at, onnx_type

CPU = "cpu"
_ONNX_TYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 9: "bool", 10: "float16",
    11: "float64", 12: "uint32", 13: "uint64",
}  # fmt: skip
"""NumPy's types by their numbers in ONNX (onnx.proto, TensorProto.DataType)."""


class OrtValue:
    """An array."""

    def __init__(self, array: Array) -> None:
        self._array = array

    @staticmethod
    def ortvalue_from_numpy(numpy_obj: Array, device_type: str = CPU, device_id: int = 0) -> "OrtValue":
        """The value of an array. On the CPU it shares the array's memory."""
        _on_cpu(device_type)
        return OrtValue(np.ascontiguousarray(numpy_obj).reshape(np.shape(numpy_obj)))

    @staticmethod
    def ortvalue_from_shape_and_type(
        shape: Sequence[int], element_type: Any, device_type: str = CPU, device_id: int = 0
    ) -> "OrtValue":
        """A value with memory of its own. `element_type`: a type of NumPy, or ONNX's number of one."""
        _on_cpu(device_type)
        return OrtValue(np.zeros(tuple(shape), _dtype(element_type)))

    @staticmethod
    def from_dlpack(data: Any, is_bool_tensor: bool = False) -> "OrtValue":
        """The value of another library's tensor, whose memory it shares."""
        array = np.from_dlpack(data)
        return OrtValue(array.view(bool) if is_bool_tensor else array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return np.asarray(self._array, dtype)

    def __dlpack__(self, **words: Any) -> Any:
        return self._array.__dlpack__(**words)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()

    def numpy(self) -> Array:
        """The array."""
        return self._array

    def update_inplace(self, np_arr: Array) -> None:
        """Copy an array of the same shape and type into this value."""
        if np_arr.shape != self._array.shape or np_arr.dtype != self._array.dtype:
            raise InvalidInput(
                f"the value is {self._array.dtype} {self.shape()}, the array {np_arr.dtype} {np_arr.shape}"
            )
        self._array[...] = np_arr

    def shape(self) -> list[int]:
        """Its sizes."""
        return list(self._array.shape)

    def data_type(self) -> str:
        """Its type, such as "tensor(float)"."""
        return onnx_type(str(self._array.dtype))

    def element_type(self) -> int:
        """ONNX's number of the type of its elements."""
        return next(number for number, name in _ONNX_TYPES.items() if name == str(self._array.dtype))

    def data_ptr(self) -> int:
        """The address of its first element."""
        return int(self._array.ctypes.data)

    def tensor_size_in_bytes(self) -> int:
        """Its size."""
        return int(self._array.nbytes)

    def device_name(self) -> str:
        """The kind of its device."""
        return CPU

    def has_value(self) -> bool:
        """Whether it has one: always."""
        return True

    is_tensor = has_value

    def is_tensor_sequence(self) -> bool:
        """Whether it is a sequence: never."""
        return False

    is_sparse_tensor = is_tensor_sequence


class IOBinding:
    """Inputs and outputs of `InferenceSession.run_with_iobinding`."""

    def __init__(self, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        """The names that the session has."""
        self._names, self._output_names = tuple(inputs), tuple(outputs)
        self._inputs: dict[str, Array] = {}
        self._outputs: dict[str, Array | None] = {}
        """Memory of bound outputs, in the order of binding; None: memory of the result."""
        self._results: dict[str, Array] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Array) -> None:
        """Bind an input to an array."""
        self._check(name, self._names, "input")
        self._inputs[name] = arr_on_cpu

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory at an address."""
        _on_cpu(device_type)
        self.bind_cpu_input(name, array_at(buffer_ptr, tuple(shape), _dtype(element_type)))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value."""
        self.bind_cpu_input(name, ortvalue.numpy())

    def bind_output(
        self, name: str, device_type: str = CPU, device_id: int = 0, element_type: Any = None,
        shape: Sequence[int] | None = None, buffer_ptr: int | None = None,
    ) -> None:  # fmt: skip
        """Bind an output to memory at an address, or to new memory."""
        _on_cpu(device_type)
        self._check(name, self._output_names, "output")
        self._outputs[name] = (
            None if buffer_ptr is None or shape is None else array_at(buffer_ptr, tuple(shape), _dtype(element_type))
        )

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an output to a value, which it is written into."""
        self._check(name, self._output_names, "output")
        self._outputs[name] = ortvalue.numpy()

    def inputs(self) -> dict[str, Array]:
        """The bound inputs."""
        return self._inputs

    def take(self, results: Sequence[Array]) -> None:
        """Keep the bound outputs of an inference. Raises InvalidInput if one does not fit its memory."""
        found = dict(zip(self._output_names, results, strict=True))
        for name, memory in self._outputs.items():
            if memory is not None and (memory.shape != found[name].shape or memory.dtype != found[name].dtype):
                raise InvalidInput(
                    f"output {name!r} is {found[name].dtype} {found[name].shape}; the memory that it is bound to is"
                    f" {memory.dtype} {memory.shape}"
                )
        self._results = {}
        for name, memory in self._outputs.items():
            if memory is not None:
                memory[...] = found[name]
            self._results[name] = found[name] if memory is None else memory

    def copy_outputs_to_cpu(self) -> list[Array]:
        """The bound outputs of the last inference, in the order in which they were bound."""
        return list(self._results.values())

    def get_outputs(self) -> list[OrtValue]:
        """The bound outputs of the last inference, as values."""
        return [OrtValue(array) for array in self._results.values()]

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self._inputs = {}

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self._outputs, self._results = {}, {}

    def synchronize_inputs(self) -> None:
        """Nothing is under way."""

    synchronize_outputs = synchronize_inputs

    @staticmethod
    def _check(name: str, known: Sequence[str], what: str) -> None:
        if name not in known:
            raise InvalidInput(f"there is no {what} {name!r}; the {what}s are: {', '.join(known)}")


def _on_cpu(device_type: str) -> None:
    if device_type != CPU:
        raise InvalidInput(f"device {device_type!r}: a compiled network runs on the CPU; use {CPU!r}")


def _dtype(element_type: Any) -> np.dtype[Any]:
    return np.dtype(_ONNX_TYPES[element_type] if isinstance(element_type, int) else element_type)
