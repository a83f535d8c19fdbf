"""Compiles the sentinel of boards: fixed work of which half needs the processor alone, and half the memory too.

It is what `autosched.sentinel` does on this machine, in machine code that a board runs.
"""

from typing import Any

from autosched_tvm.compile import shared_library

CHAIN = 1 << 20
"""Number of steps of which each needs the result of the one before: some 2 ms."""
COPIED = 1 << 21
"""Number of values of 4 bytes that are copied: more than the L2 cache of today's cores holds."""
MULTIPLIER, INCREMENT = 1_664_525, 1_013_904_223
"""Constants of the linear congruential generator of "Numerical Recipes" (Press et al., 2nd edition, section 7.1)."""
SHIFT = 15
"""Each step is mixed with its higher bits, so that no compiler can take a short cut."""


def build(output: str, triple: str) -> None:
    """Leave a library at `output`. Its function `core` changes a buffer of 1 int32; `memory` copies one of `COPIED`
    int32 to another. `triple`: LLVM's name of the machine that runs it; empty: this one."""
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
