"""Takes the weights of a network out of its code, and writes them behind its library.

TVM puts weights into the library, and copies them twice when it loads it. As further parameters of `main` they are read
once, and one copy may serve several libraries.
"""

import hashlib
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from autosched_runtime.side_file import ALIGNMENT, PAGE_BYTES
from autosched_tvm.compile.side_file import FilePart, OutsideWeight, OutsideWeights
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import IRModule, Pass

MAIN = "main"
SMALLEST_BYTES = 64
"""Size from which a constant is a weight. Smaller ones cost less in the library than as a parameter."""


def taken_into(weights: list[Array]) -> Pass:
    """Returns the pass that makes weights into parameters, and appends them to a list; the last pass of a pipeline."""

    @tvm.transform.module_pass(opt_level=0)  # type: ignore[untyped-decorator]
    def take(module: IRModule, _context: object) -> IRModule:
        taker = _Taker(module)
        main = module[MAIN]
        body = taker.visit_expr(main.body)
        if not taker.found:
            return module
        parameters = [*main.params, *(parameter for parameter, _ in taker.found)]
        taken = relax.Function(parameters, body, main.ret_ty, is_pure=main.is_pure, attrs=main.attrs)
        weights.extend(array for _, array in taker.found)
        changed = module.clone()
        changed.update_func(module.get_global_var(MAIN), taken)
        return changed

    return take


@mutator
class _Taker(PyExprMutator):  # type: ignore[misc]
    """Replaces weights by parameters; equal weights by one."""

    def __init__(self, module: IRModule) -> None:
        super().__init__(module)
        self.found: list[tuple[Any, Array]] = []
        """Each parameter with its weight."""
        self._known: dict[tuple[Any, ...], Any] = {}
        """Parameters by shape, type and content of their weights."""

    def visit_generic_const_(self, constant: Any) -> Any:
        """Returns what takes the place of a constant."""
        if not hasattr(constant.value, "numpy") or (array := constant.value.numpy()).nbytes < SMALLEST_BYTES:
            return constant
        if str(array.dtype) != str(constant.value.dtype):  # a type that NumPy lacks
            return constant
        key = array.shape, str(array.dtype), hashlib.sha256(array.reshape(-1).view(np.uint8)).digest()
        if key not in self._known:
            self._known[key] = relax.Var(f"weight{len(self.found)}", constant.ty)
            self.found.append((self._known[key], array))
        return self._known[key]


def part_of(library: Path) -> FilePart:
    """Returns the file of a library as a part."""
    return FilePart(0, library.stat().st_size, zlib.crc32(library.read_bytes()))


def append_to(library: Path, weights: Sequence[Array]) -> OutsideWeights | None:
    """Writes weights behind a library, and returns where they lie; None without any."""
    if not weights:
        return None
    at = -(-library.stat().st_size // PAGE_BYTES) * PAGE_BYTES
    tensors, crc32 = [], 0
    with library.open("r+b") as file:
        file.seek(at)
        for array in weights:
            padding = bytes(-(file.tell() - at) % ALIGNMENT)
            tensors.append(OutsideWeight(0, file.tell() + len(padding) - at, array.shape, str(array.dtype)))
            for content in (padding, array.tobytes()):
                file.write(content)
                crc32 = zlib.crc32(content, crc32)
        return OutsideWeights((FilePart(at, file.tell() - at, crc32),), tuple(tensors))
