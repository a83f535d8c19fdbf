"""Extends TVM's ONNX importer: recurrent layers, and operators for which TVM emits kernels that its passes cannot
analyse."""

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

from tvm import relax, topi
from tvm.relax.frontend.onnx import onnx_frontend

from autosched_tvm.compile import opset_converters
from autosched_tvm.compile.integers import onnx_convolution, onnx_lookup, onnx_nibbles
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.recurrent import converters as recurrent
from autosched_tvm.tvm_types import BlockBuilder, Expr

KERNELS = ("Clip", "Pad")
"""Names of these operators."""


@contextlib.contextmanager
def recognisable(instruction: DotInstruction | None = None, cores: int = 1) -> Iterator[None]:
    """Context in which the importer has these converters. `instruction`: the CPU's dot instruction for 8-bit
    integers. `cores`: number of cores of the target."""
    original = onnx_frontend._get_convert_map

    def changed() -> dict[str, Any]:
        known = dict(original())
        made = {name: _told(known[name]) for name in KERNELS if known.get(name) is not None}
        known |= made
        integers = onnx_convolution.CONVERTERS | onnx_lookup.CONVERTERS | onnx_nibbles.CONVERTERS
        return known | opset_converters.converters(known) | integers | recurrent.converters(instruction, cores)

    onnx_frontend._get_convert_map = changed
    try:
        yield
    finally:
        onnx_frontend._get_convert_map = original


def _told(converter: Any) -> Any:
    """Returns the converter with a builder that emits operators."""

    class Told(converter):  # type: ignore[misc]
        @classmethod
        def get_converter(cls, opset: int) -> Callable[..., Any]:
            convert = converter.get_converter(opset)
            return lambda builder, *rest: convert(_Builder(builder), *rest)

    return Told


class _Builder:
    """A block builder that emits operators in place of some kernels."""

    def __init__(self, builder: BlockBuilder) -> None:
        self._builder = builder

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)

    def emit_te(self, function: Any, *arguments: Any, **words: Any) -> Expr:
        """Emits an operator where there is one, and a kernel otherwise."""
        made = None if words else _operator(function, arguments)
        return self._builder.emit_te(function, *arguments, **words) if made is None else self._builder.emit(made)


def _operator(function: Any, arguments: tuple[Any, ...]) -> Any:
    value = arguments[0]
    match function:
        case topi.maximum | topi.minimum:
            bound = arguments[1]
            if isinstance(bound, float):
                if math.isinf(bound):
                    return value
                bound = relax.const(bound, str(value.ty.dtype))
            return (relax.op.maximum if function is topi.maximum else relax.op.minimum)(value, bound)
        case topi.nn.pad:
            before, after, fill = arguments[1:]
            widths = [int(width) for pair in zip(before, after, strict=True) for width in pair]
            return relax.op.nn.pad(value, widths, "constant", float(fill))
    return None
