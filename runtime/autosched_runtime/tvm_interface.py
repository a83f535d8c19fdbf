"""The C interface of TVM's runtime, through ctypes: values, tensors, calls and errors.

The layouts are those of tvm-ffi 0.1.14, include/tvm/ffi/c_api.h. Every function here raises NetworkError with TVM's
words if TVM reports an error.
"""

import ctypes
from collections.abc import Sequence
from functools import cache

from autosched_runtime import libraries
from autosched_runtime.errors import NetworkError, OutOfMemory

NONE, INT, BOOL, TEXT, TENSOR, ARRAY = 0, 1, 2, 8, 70, 71
"""Type indices of values. TEXT: a pointer to characters that end with a zero."""
FIRST_OBJECT = 64
"""Smallest type index of values that are objects."""
OBJECT_BYTES = 24
"""Size of the header of an object, behind which its fields begin."""
CPU = 1
"""DLPack's number of the device CPU."""
POOLED = 2
"""TVM's allocator that keeps memory for the next inference."""
_OWNED_HERE = 1 << 32 | 1
"""Reference counts of an object that belongs to Python: one strong, one weak reference."""
_MESSAGE_MAX = 600
"""Maximum characters of TVM's messages that are passed on."""


class Value(ctypes.Structure):
    """A value of any type: a number, a pointer, or a reference to an object."""

    _fields_ = (("type", ctypes.c_int32), ("padding", ctypes.c_uint32), ("content", ctypes.c_uint64))


class DLTensor(ctypes.Structure):
    """A tensor's description, as DLPack has it (dlpack.h, version 1)."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("kind", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_uint64),
        ("strides", ctypes.c_uint64),
        ("byte_offset", ctypes.c_uint64),
    )


class TensorObject(ctypes.Structure):
    """A tensor that belongs to Python. TVM counts references to it, and never reaches zero."""

    _fields_ = (
        ("references", ctypes.c_uint64),
        ("type", ctypes.c_int32),
        ("padding", ctypes.c_uint32),
        ("deleter", ctypes.c_uint64),
        ("tensor", DLTensor),
    )


class _Characters(ctypes.Structure):
    """A text with a length."""

    _fields_ = (("data", ctypes.c_void_p), ("size", ctypes.c_size_t))


class Handle:
    """A reference to an object of TVM, which ends with this object."""

    __slots__ = ("_release", "address")

    def __init__(self, address: int) -> None:
        self.address = address
        self._release = library().TVMFFIObjectDecRef

    def __del__(self) -> None:
        if self.address:
            self._release(self.address)


@cache
def library() -> ctypes.CDLL:
    """TVM's library, with the types of its functions."""
    found = libraries.opened()
    found.TVMFFIFunctionCall.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int32, ctypes.c_void_p)
    found.TVMFFIObjectDecRef.argtypes = (ctypes.c_void_p,)
    return found


@cache
def function(name: str) -> Handle:
    """A function that TVM has registered by its name."""
    encoded = name.encode()
    text = ctypes.create_string_buffer(encoded)
    wanted, found = _Characters(ctypes.addressof(text), len(encoded)), ctypes.c_void_p()
    if library().TVMFFIFunctionGetGlobal(ctypes.byref(wanted), ctypes.byref(found)) != 0 or not found.value:
        raise NetworkError(f"TVM's runtime has no function {name}: its files are of another version")
    return Handle(found.value)


Argument = str | int | bool | Handle


def call(callee: Handle, *arguments: Argument) -> Handle:
    """The object that a function of TVM returns; an empty handle if it returns none."""
    result = _called(callee, arguments)
    return Handle(result.content if result.type >= FIRST_OBJECT else 0)


def method(module: Handle, name: str) -> Handle:
    """A function of a module of TVM; an empty handle if it has none of that name."""
    return call(function("ffi.ModuleGetFunction"), module, name, False)


def number(callee: Handle, *arguments: Argument) -> int:
    """The whole number that a function of TVM returns."""
    return int(_called(callee, arguments).content)


def _called(callee: Handle, arguments: Sequence[Argument]) -> Value:
    values = (Value * max(1, len(arguments)))()
    texts = []
    for value, argument in zip(values, arguments, strict=False):
        if isinstance(argument, Handle):
            value.type, value.content = ctypes.c_int32.from_address(argument.address + 8).value, argument.address
        elif isinstance(argument, str):
            texts.append(ctypes.create_string_buffer(argument.encode(errors="surrogateescape")))
            value.type, value.content = TEXT, ctypes.addressof(texts[-1])
        else:
            value.type, value.content = (BOOL if isinstance(argument, bool) else INT), argument
    result = Value()
    if library().TVMFFIFunctionCall(callee.address, ctypes.addressof(values), len(arguments), ctypes.addressof(result)):
        raise raised()
    return result


def raised() -> NetworkError:
    """The error that TVM has reported last in this thread."""
    found = ctypes.c_void_p()
    library().TVMFFIErrorMoveFromRaised(ctypes.byref(found))
    if not found.value:
        return NetworkError("TVM has failed without a word")
    error = Handle(found.value)
    kind, message = (_Characters * 2).from_address(error.address + OBJECT_BYTES)
    said = _text(message).strip()
    if "bad_alloc" in said:
        return OutOfMemory("there is no memory for an inference")
    return NetworkError(f"{_text(kind)}: {said[:_MESSAGE_MAX]}")


def _text(characters: _Characters) -> str:
    return ctypes.string_at(characters.data, characters.size).decode(errors="replace") if characters.size else ""


def tensor_object(data: int, shape: Sequence[int], kind: int, bits: int) -> tuple[TensorObject, tuple[object, ...]]:
    """A tensor in memory of Python, and what must live as long as it."""
    dimensions = len(shape)
    sizes = (ctypes.c_int64 * max(1, dimensions))(*shape)
    steps = (ctypes.c_int64 * max(1, dimensions))()
    step = 1
    for number in reversed(range(dimensions)):
        steps[number] = step
        step *= shape[number]
    made = TensorObject(references=_OWNED_HERE, type=TENSOR)
    made.tensor = DLTensor(data, CPU, 0, dimensions, kind, bits, 1, ctypes.addressof(sizes), ctypes.addressof(steps), 0)
    return made, (sizes, steps)
