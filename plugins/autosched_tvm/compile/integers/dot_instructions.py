"""Instructions that multiply groups of four 8-bit numbers and add them to 32-bit sums, as tensor intrinsics of TVM.

TVM's own (``tvm.s_tir.tensor_intrin``) cannot be compiled: LLVM 22 takes the operands as bytes, they are passed as
words. Sources: Intel's Intrinsics Guide (VPDPBUSD), Arm's Architecture Reference Manual (SDOT).
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

GROUP = 4
"""Number of products that one instruction adds to each sum."""

SIGN = 128
"""An unsigned 8-bit number minus this is a signed one."""

_registering = threading.Lock()


@dataclass(frozen=True)
class DotInstruction:
    """One that this project knows."""

    name: str
    lanes: int
    """Number of 32-bit sums in a vector."""
    features: Sequence[str]
    """LLVM's names of what a CPU has that has it; each alone is enough."""
    data: str
    """Type of the numbers that all lanes share: "uint8" or "int8". Those of each lane, the weights, are int8."""
    llvm: str
    """LLVM's name of it."""

    @property
    def intrinsic(self) -> str:
        """Name under which TVM knows it, once it is registered."""
        return f"autosched.{self.name}"

    def added(self, sums: Any, data: Any, weights: Any) -> Any:
        """The vector of sums after the instruction. `data`: four numbers; `weights`: four of each lane."""
        from tvm import tirx

        group = tirx.reinterpret("int32", data)
        shared = tirx.reinterpret(f"int8x{self.lanes * GROUP}", tirx.Broadcast(group, self.lanes))
        return tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.llvm, sums, shared, weights)


VNNI_512 = DotInstruction("vnni_512", 16, ("avx512vnni",), "uint8", "llvm.x86.avx512.vpdpbusd.512")
VNNI_256 = DotInstruction("vnni_256", 8, ("avxvnni",), "uint8", "llvm.x86.avx512.vpdpbusd.256")
SDOT = DotInstruction("sdot", 4, ("dotprod",), "int8", "llvm.aarch64.neon.sdot")
ALL = (VNNI_512, VNNI_256, SDOT)
"""The best first."""


def of_target(target: Any) -> DotInstruction | None:
    """The best one of a target's CPU; None where it has none."""
    from tvm.target import codegen

    if target.kind.name != "llvm":
        return None
    has = codegen.llvm_cpu_has_features
    return next((one for one in ALL if any(has(feature, target) for feature in one.features)), None)


def of_block(block: Any) -> DotInstruction | None:
    """The one for which the weights of a block of sums are packed: by the types and lanes of what the block reads."""
    data, weights = (region.source for region in block.reads[-2:])
    packed_for = str(data.dtype), int(weights.shape[-2])
    return next((one for one in ALL if (one.data, one.lanes) == packed_for), None)


def register(one: DotInstruction) -> str:
    """Make the intrinsic known to TVM; cheap when it was done before. Returns its name."""
    from tvm.s_tir import TensorIntrin

    with _registering:  # steps of a job run in threads
        if TensorIntrin.get(one.intrinsic, allow_missing=True) is None:
            TensorIntrin.register(one.intrinsic, _function(one, _meaning), _function(one, _instruction))
    return one.intrinsic


def _function(one: DotInstruction, body: Callable[[DotInstruction, Any, Any, Any], None]) -> Any:
    """A function of four numbers A, of four weights B for each lane, and of the sums C."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        data = T.arg("A", T.buffer((GROUP,), one.data, offset_factor=1))
        weights = T.arg("B", T.buffer((one.lanes, GROUP), "int8", offset_factor=1))
        sums = T.arg("C", T.buffer((one.lanes,), "int32", offset_factor=1))
        with T.sblock("root"):
            T.reads([sums[0 : one.lanes], data[0:GROUP], weights[0 : one.lanes, 0:GROUP]])
            T.writes([sums[0 : one.lanes]])
            body(one, data, weights, sums)
    return builder.get()


def _meaning(one: DotInstruction, data: Any, weights: Any, sums: Any) -> None:
    """Emit the sums of products, lane by lane, that the instruction stands for."""
    from tvm.script.ir_builder import tirx as T

    with T.serial(0, one.lanes) as i, T.serial(0, GROUP) as k, T.sblock("update"):
        lane, step = T.axis.spatial(one.lanes, i), T.axis.reduce(GROUP, k)
        product = T.cast(data[step], "int32") * T.cast(weights[lane, step], "int32")
        T.buffer_store(sums, sums[lane] + product, [lane])


def _instruction(one: DotInstruction, data: Any, weights: Any, sums: Any) -> None:
    """Emit the instruction. The sums and the weights are vectors, the data four bytes that all lanes share."""
    from tvm import tirx
    from tvm.script.ir_builder import tirx as T

    group = tirx.BufferLoad(data, [tirx.Ramp(0, 1, GROUP)])
    own = tirx.BufferLoad(weights, [0, tirx.Ramp(0, 1, one.lanes * GROUP)])
    here = [tirx.Ramp(0, 1, one.lanes)]
    T.buffer_store(sums, one.added(tirx.BufferLoad(sums, here), group, own), here)
