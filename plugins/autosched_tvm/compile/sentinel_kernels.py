"""Compiles the sentinel benchmark of boards: fixed work, half of it bound by the processor and half by memory.

It is the sentinel of `autosched.sentinel`, in machine code that a board runs.
"""

from typing import Any

from autosched_tvm.compile import shared_library

CHAIN = 1 << 20
"""Number of dependent steps of the processor's half: some 2 ms."""
COPIED = 1 << 21
"""Number of 4-byte values that are copied: more than the L2 cache of current cores holds."""
MULTIPLIER, INCREMENT = 1_664_525, 1_013_904_223
"""Constants of the linear congruential generator of "Numerical Recipes" (Press et al., 2nd edition, section 7.1)."""
SHIFT = 15
"""Right shift in bits. Each step is mixed with its higher bits, which keeps compilers from simplifying the loop."""


def build(output: str, triple: str) -> None:
    """Writes a library to `output`. Its function `core` changes a buffer of 1 int32; `memory` copies one of `COPIED`
    int32 to another. `triple`: LLVM triple of the machine that runs it; empty: this machine's."""
    import tvm

    kernels = tvm.IRModule({"core": _core(), "memory": _memory()})
    shared_library.write(tvm.tirx.build(kernels, target=shared_library.target_of(triple)), output, triple)


def _core() -> Any:
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("core")
        T.func_attr({"global_symbol": "core"})
        state = T.arg("state", T.buffer((1,), "int32"))
        with T.serial(CHAIN):
            T.buffer_store(state, (state[0] * MULTIPLIER + INCREMENT) ^ (state[0] >> SHIFT), [0])
    return builder.get()


def _memory() -> Any:
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        T.func_name("memory")
        T.func_attr({"global_symbol": "memory"})
        source = T.arg("source", T.buffer((COPIED,), "int32"))
        copy = T.arg("copy", T.buffer((COPIED,), "int32"))
        with T.serial(COPIED) as i:
            T.buffer_store(copy, source[i], [i])
    return builder.get()
