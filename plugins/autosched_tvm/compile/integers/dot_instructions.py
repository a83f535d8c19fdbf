"""Instructions that multiply groups of small integers and add the products to 32-bit sums, as TVM tensor intrinsics.

A dot instruction takes groups of four 8-bit integers. CPUs without one multiply pairs of 16-bit integers. Where few
rows of data share the weights, reading the weights takes most of the time, and products of bytes in pairs (VPMADDUBSW)
are faster, because bytes take half the memory. That instruction takes unsigned data and saturates, so it multiplies the
magnitudes of the data by weights that have the data's sign.

TVM's own intrinsics (``tvm.s_tir.tensor_intrin``) do not compile: LLVM 22 expects byte operands, and TVM passes 32-bit
words. Sources: Intel's Intrinsics Guide (VPDPBUSD, VPMADDWD, VPMADDUBSW, VPSIGNB), Arm's Architecture Reference Manual
(SDOT).
"""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from autosched_tvm.tvm_types import BlockBuilder, Expr, PrimFunc, Stmt, Target

Array = np.ndarray[Any, Any]

SIGN = 128
"""Difference between an unsigned 8-bit integer and the signed one that represents it."""

FEW_ROWS = 16
"""Maximum number of rows for which products of bytes in pairs are faster than those of 16-bit integers."""

_registering = threading.Lock()


@dataclass(frozen=True)
class DotInstruction:
    """A dot instruction."""

    name: str
    lanes: int
    """Number of 32-bit sums in a vector."""
    group: int
    """Number of products added to each sum."""
    features: Sequence[str]
    """LLVM names of the CPU features that provide the instruction; one of them is enough."""
    data: str
    """Type of the integers that all lanes share: "uint8", "int8" or "int16"."""
    weights: str
    """Type of the integers of each lane: "int8" or "int16"."""
    llvm: str
    """LLVM name of the instruction."""
    takes_sums: bool = True
    """Whether the instruction adds to sums. If not, it only adds its products to each other."""
    temporaries: int = 1
    """Number of vector registers that it needs besides those of sums and weights."""
    weights_min: int = -SIGN
    """Least weight that it takes, of 8 bits."""
    few_rows: "DotInstruction | None" = None
    """Instruction that is faster for few rows of data, where it takes the weights."""

    @property
    def intrinsic(self) -> str:
        """TVM name of the intrinsic, once it is registered."""
        return f"autosched.{self.name}"

    @property
    def offset(self) -> int:
        """Offset subtracted from unsigned 8-bit integers before the instruction."""
        return SIGN if self.data == "int8" else 0

    def suited(self, rows: int, weights: Array) -> "DotInstruction":
        """Returns the instruction for a product of this number of rows and these weights, which are 8-bit integers."""
        other = self.few_rows
        return other if other and rows <= FEW_ROWS and weights.min(initial=0) >= other.weights_min else self

    def taken(self, builder: BlockBuilder, data: Expr) -> Expr:
        """Returns a Relax tensor of unsigned 8-bit integers in the instruction's data type."""
        from tvm import relax

        if self.data == "uint8":
            return data
        wide = relax.op.astype(data, "int16")
        if not self.offset:
            return builder.emit(wide)
        moved = relax.op.subtract(wide, relax.const(np.int16(self.offset)))
        return builder.emit(relax.op.astype(moved, self.data))

    def added(self, sums: Expr, data: Expr, weights: Expr) -> Expr:
        """Returns the vector of sums after the instruction. `data`: a group of integers; `weights`: a group for each
        lane."""
        from tvm import tirx

        group = tirx.reinterpret("int32", data)
        shared = tirx.reinterpret(f"{self.weights}x{self.lanes * self.group}", tirx.Broadcast(group, self.lanes))
        given = (sums, shared, weights) if self.takes_sums else (shared, weights)
        found = tirx.call_llvm_pure_intrin(f"int32x{self.lanes}", self.llvm, *given)
        return found if self.takes_sums else sums + found


class SignedPairs(DotInstruction):
    """Products of signed bytes in pairs (AVX2). They do not saturate: a pair is at most 2 * 128 * 127."""

    def added(self, sums: Expr, data: Expr, weights: Expr) -> Expr:
        """Returns the vector of sums after the instructions. The weights are above -128, which has no opposite."""
        from tvm import tirx

        call = tirx.call_llvm_pure_intrin
        shared = tirx.reinterpret("int8x32", tirx.Broadcast(tirx.reinterpret("int32", data), 8))
        magnitudes = call("int8x32", "llvm.abs.v32i8", shared, tirx.const(False, "bool"))
        signed = call("int8x32", "llvm.x86.avx2.psign.b", weights, shared)
        pairs = call("int16x16", self.llvm, magnitudes, signed)
        return sums + call("int32x8", PAIRS_256.llvm, pairs, tirx.Broadcast(tirx.const(1, "int16"), 16))


VNNI_512 = DotInstruction("vnni_512", 16, 4, ("avx512vnni",), "uint8", "int8", "llvm.x86.avx512.vpdpbusd.512")
VNNI_256 = DotInstruction("vnni_256", 8, 4, ("avxvnni",), "uint8", "int8", "llvm.x86.avx512.vpdpbusd.256")
SDOT = DotInstruction("sdot", 4, 4, ("dotprod",), "int8", "int8", "llvm.aarch64.neon.sdot")
SIGNED_PAIRS = SignedPairs(
    "signed_pairs", 8, 4, ("avx2",), "int8", "int8", "llvm.x86.avx2.pmadd.ub.sw", takes_sums=False,
    temporaries=4, weights_min=1 - SIGN,
)  # fmt: skip
PAIRS_512 = DotInstruction(
    "pairs_512", 16, 2, ("avx512bw",), "int16", "int16", "llvm.x86.avx512.pmaddw.d.512", takes_sums=False,
    temporaries=2, few_rows=SIGNED_PAIRS,
)  # fmt: skip
PAIRS_256 = DotInstruction(
    "pairs_256", 8, 2, ("avx2",), "int16", "int16", "llvm.x86.avx2.pmadd.wd", takes_sums=False,
    temporaries=2, few_rows=SIGNED_PAIRS,
)  # fmt: skip
ALL = (VNNI_512, VNNI_256, SDOT, PAIRS_512, PAIRS_256, SIGNED_PAIRS)
"""All dot instructions, best first."""


def available(target: Target) -> list[DotInstruction]:
    """Returns the dot instructions of a target's CPU, best first."""
    from tvm.target import codegen

    if target.kind.name != "llvm":
        return []
    has = codegen.llvm_cpu_has_features
    return [one for one in ALL if any(has(feature, target) for feature in one.features)]


def of_target(target: Target) -> DotInstruction | None:
    """Returns the best dot instruction of a target's CPU; None where it has none."""
    return next(iter(available(target)), None)


def of_block(block: Stmt) -> DotInstruction:
    """Returns the dot instruction for which the weights of a block of sums are packed, by the types and lanes that the
    block reads. Raises LookupError for weights that are packed for none."""
    data, weights = (region.source for region in block.reads[-2:])
    packed_for = str(data.dtype), int(weights.shape[-2])
    found = next((one for one in ALL if (one.data, one.lanes) == packed_for), None)
    if found is None:
        raise LookupError("weights for an unknown instruction")
    return found


def register(one: DotInstruction) -> str:
    """Registers the intrinsic with TVM; returns its name. Repeated calls are cheap."""
    from tvm.s_tir import TensorIntrin

    with _registering:  # the steps of a job run in threads
        if TensorIntrin.get(one.intrinsic, allow_missing=True) is None:
            TensorIntrin.register(one.intrinsic, _function(one, _meaning), _function(one, _instruction))
    return one.intrinsic


def _function(one: DotInstruction, body: Callable[[DotInstruction, Any, Any, Any], None]) -> PrimFunc:
    """Returns a function of a group of integers A, weights B for each lane, and sums C."""
    from tvm.script.ir_builder import IRBuilder
    from tvm.script.ir_builder import tirx as T

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        data = T.arg("A", T.buffer((one.group,), one.data, offset_factor=1))
        weights = T.arg("B", T.buffer((one.lanes, one.group), one.weights, offset_factor=1))
        sums = T.arg("C", T.buffer((one.lanes,), "int32", offset_factor=1))
        with T.sblock("root"):
            T.reads([sums[0 : one.lanes], data[0 : one.group], weights[0 : one.lanes, 0 : one.group]])
            T.writes([sums[0 : one.lanes]])
            body(one, data, weights, sums)
    return builder.get()


def _meaning(one: DotInstruction, data: Expr, weights: Expr, sums: Expr) -> None:
    """Emits the computation of the instruction, lane by lane."""
    from tvm.script.ir_builder import tirx as T

    with T.serial(0, one.lanes) as i, T.serial(0, one.group) as k, T.sblock("update"):
        lane, step = T.axis.spatial(one.lanes, i), T.axis.reduce(one.group, k)
        product = T.cast(data[step], "int32") * T.cast(weights[lane, step], "int32")
        T.buffer_store(sums, sums[lane] + product, [lane])


def _instruction(one: DotInstruction, data: Expr, weights: Expr, sums: Expr) -> None:
    """Emits the instruction. The sums and the weights are vectors, the data is a group that all lanes share."""
    from tvm import tirx
    from tvm.script.ir_builder import tirx as T

    group = tirx.BufferLoad(data, [tirx.Ramp(0, 1, one.group)])
    own = tirx.BufferLoad(weights, [0, tirx.Ramp(0, 1, one.lanes * one.group)])
    here = [tirx.Ramp(0, 1, one.lanes)]
    T.buffer_store(sums, one.added(tirx.BufferLoad(sums, here), group, own), here)
