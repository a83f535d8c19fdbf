"""Checks inputs against what a network takes."""

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from autosched_runtime.errors import InvalidInput, NetworkError
from autosched_runtime.side_file import Tensor

Array = np.ndarray[Any, Any]
"""An array of any shape and type."""
_KINDS = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
"""DLPack's number of a kind of numbers, by NumPy's letter for it."""
_ONNX_NAMES = {"float32": "float", "float64": "double"}
"""ONNX Runtime's names of types of numbers, by NumPy's, where they differ."""
_BFLOAT16, _BFLOAT16_KIND = "bfloat16", 4


def dtype_of(tensor: Tensor) -> np.dtype[Any]:
    """NumPy's type of a tensor's elements. Raises NetworkError for a type that NumPy lacks."""
    try:
        if tensor.dtype == _BFLOAT16:
            import ml_dtypes

            found: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
            return found
        return np.dtype(tensor.dtype)
    except (ImportError, TypeError) as error:
        more = ". Install ml_dtypes" if isinstance(error, ImportError) else ""
        raise NetworkError(f"{tensor} has a type that NumPy lacks{more}") from error


def dlpack_type(dtype: np.dtype[Any]) -> tuple[int, int]:
    """DLPack's number of the kind, and the bits, of NumPy's type."""
    return _KINDS.get(dtype.kind, _BFLOAT16_KIND), 8 * dtype.itemsize


def onnx_type(name: str) -> str:
    """ONNX Runtime's name of a tensor's type, such as "tensor(float)", by NumPy's name of the type of its elements."""
    return f"tensor({_ONNX_NAMES.get(name, name)})"


def array_at(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """An array that shows the memory at an address."""
    size = math.prod(shape) * dtype.itemsize
    if size == 0:
        return np.empty(shape, dtype)
    return np.frombuffer(memoryview((ctypes.c_uint8 * size).from_address(address)), dtype).reshape(shape)


def in_order(wanted: Sequence[Tensor], given: Mapping[str, Any] | Sequence[Any]) -> list[Array]:
    """The given arrays in the order of the inputs. Raises InvalidInput for a wrong name, number, shape or type."""
    names = [tensor.name for tensor in wanted]
    if isinstance(given, Mapping):
        if unknown := [name for name in given if name not in names]:
            raise InvalidInput(f"the module has no input {unknown[0]!r}; its inputs are: {', '.join(map(repr, names))}")
        if lacking := [name for name in names if name not in given]:
            raise InvalidInput(f"input {lacking[0]!r} is missing; the module wants: {', '.join(map(str, wanted))}")
        given = [given[name] for name in names]
    if len(given) != len(wanted):
        raise InvalidInput(f"{len(given)} inputs given, {len(wanted)} wanted: {', '.join(map(str, wanted))}")
    return [_fitting(tensor, value) for tensor, value in zip(wanted, given, strict=True)]


def _fitting(tensor: Tensor, value: Any) -> Array:
    """A value as an array. Numbers in lists get the type that is wanted."""
    try:
        array = np.asarray(value)
    except ValueError as error:  # lists of different lengths
        raise InvalidInput(f"input {tensor} was given as no array: {error}") from None
    dtype = dtype_of(tensor)
    if isinstance(value, list | tuple) and np.can_cast(array.dtype, dtype, "same_kind"):
        array = array.astype(dtype)
    if array.shape != tensor.shape or array.dtype != dtype:
        raise InvalidInput(_why(tensor, array))
    return array


def _why(tensor: Tensor, array: Array) -> str:
    size = math.prod(tensor.shape)
    way = f"convert it, for example: x.astype({tensor.dtype!r}).reshape({tensor.shape})"
    return (
        f"input {tensor} was given as {array.dtype} {'x'.join(map(str, array.shape)) or 'scalar'};"
        f" {way if array.size == size else f'it takes {size} numbers, and these are {array.size}'}"
    )
