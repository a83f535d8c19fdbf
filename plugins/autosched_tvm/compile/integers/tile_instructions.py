"""Intel AMX: instructions that multiply whole tiles of 8-bit integers, as TVM tensor intrinsics.

A tile register holds 16 rows of 64 bytes. One instruction adds 64 products to each of 16 x 16 sums, eight times as many
as AVX-512 VNNI in the same time. Weights are packed as for VNNI. The operating system must grant a process the use of
these registers; a kernel requests it when it begins. Source: Intel 64 and IA-32 Architectures Software Developer's
Manual, volume 1, chapter 18; Linux, Documentation/arch/x86/xstate.rst.
"""

import re
import threading
from contextlib import nullcontext
from typing import Any, NamedTuple

import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import TensorIntrin
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T
from tvm.target import codegen

from autosched_runtime.cpu_features import TILE_REQUEST
from autosched_tvm.tvm_types import Expr, PrimFunc, Target

FEATURE = "amx-int8"
"""LLVM name of the CPU feature."""
ROWS, LANES, DEPTH = 16, 16, 64
"""Rows of data, columns of sums, and products of a sum, in one instruction."""
DOT = "llvm.x86.tdpbusd"
"""LLVM name of the instruction for unsigned data and signed weights."""
_PALETTE = 1
"""Number of the register layout: eight tiles."""
_TILES = 8

DEPTH_MIN, PRODUCTS_MIN = 256, 2**21
"""Minimum depth and number of products of a matrix product on tiles. Below them, vectors are faster than moving sums
through memory and configuring the registers."""

_PREFIX = "autosched.amx_"
_NAMED = re.compile(re.escape(_PREFIX) + r"(\d+)x(\d+)x(\d+)(?:_(\d+)x(\d+)x(\d+))?")
"""Pattern of the intrinsics' names, which are all that traces keep of their `Tiles`."""
_registering = threading.Lock()


class Tiles(NamedTuple):
    """Sums of one intrinsic. Its data are rows of a matrix, or windows over an image with contiguous bytes."""

    rows: int
    vectors: int
    """Number of tiles of sums in a row: up to four tiles in all, and up to two of rows."""
    depth: int
    """Products of a sum, or of a row of its window: a multiple of `DEPTH`."""
    taps: int = 0
    """Rows of a window; 0: the data are a matrix."""
    below: int = 0
    """Bytes from one row of a window to the next."""
    apart: int = 0
    """Bytes from one window to the next."""

    @property
    def name(self) -> str:
        """Name of the intrinsic."""
        windows = f"_{self.taps}x{self.below}x{self.apart}" if self.taps else ""
        return f"{_PREFIX}{self.rows}x{self.vectors}x{self.depth}{windows}"


def available(target: Target) -> bool:
    """Returns whether a target's CPU has the instructions. The target of this machine has them only if Linux grants
    their registers."""
    return target.kind.name == "llvm" and bool(codegen.llvm_cpu_has_features(FEATURE, target))


def worthwhile(rows: int, depth: int, columns: int) -> bool:
    """Returns whether a matrix product is faster on tiles than on vectors."""
    return rows >= ROWS and depth >= DEPTH_MIN and rows * depth * columns >= PRODUCTS_MIN


def register(tiles: Tiles) -> str:
    """Registers an intrinsic with TVM; returns its name. Repeated calls are cheap."""
    with _registering:  # the steps of a job run in threads
        if TensorIntrin.get(tiles.name, allow_missing=True) is None:
            TensorIntrin.register(tiles.name, _function(tiles, _meaning), _function(tiles, _instructions))
    return tiles.name


def register_named(text: str) -> None:
    """Registers the intrinsics that a schedule's trace names."""
    for sizes in set(_NAMED.findall(text)):
        register(Tiles(*(int(size or 0) for size in sizes)))


def _function(tiles: Tiles, body: Any) -> PrimFunc:
    """Returns a function of rows of data A, packed weights B, and sums C."""
    rows, vectors, groups = tiles.rows * ROWS, tiles.vectors, tiles.depth // 4
    taken = [rows, tiles.depth]
    factors = [vectors, groups, LANES, 4]
    if tiles.taps:
        taken = [(rows - 1) * tiles.apart + (tiles.taps - 1) * tiles.below + tiles.depth]
        factors.insert(1, tiles.taps)

    def buffer(name: str, shape: list[int], dtype: str) -> Expr:
        strides = [*(tirx.Var(f"{name.lower()}{axis}", "int64") for axis in range(len(shape) - 1)), 1]
        return T.arg(name, T.buffer(shape, dtype, offset_factor=1, strides=strides))

    def whole(one: Expr, shape: list[int]) -> Expr:
        return one[*(slice(0, size) for size in shape)]

    with IRBuilder() as builder, T.prim_func(s_tir=True):
        results = [rows, vectors, LANES]
        data, weights, sums = buffer("A", taken, "uint8"), buffer("B", factors, "int8"), buffer("C", results, "int32")
        with T.sblock("root"):
            T.reads([whole(sums, results), whole(data, taken), whole(weights, factors)])
            T.writes([whole(sums, results)])
            body(tiles, data, weights, sums)
    return builder.get()


def _meaning(tiles: Tiles, data: Expr, weights: Expr, sums: Expr) -> None:
    """Emits the computation of the instructions."""
    rows, vectors, groups = tiles.rows * ROWS, tiles.vectors, tiles.depth // 4
    with (
        T.serial(0, rows) as i, T.serial(0, vectors) as j, T.serial(0, LANES) as lane,
        T.serial(0, tiles.taps) if tiles.taps else nullcontext() as tap, T.serial(0, groups) as step,
        T.serial(0, 4) as part, T.sblock("update"),
    ):  # fmt: skip
        row = T.axis.spatial(rows, i)
        vector = T.axis.spatial(vectors, j) if vectors > 1 else 0  # TVM removes axes with one element
        own = T.axis.spatial(LANES, lane)
        line = T.axis.reduce(tiles.taps, tap) if tiles.taps > 1 else 0
        group, k = T.axis.reduce(groups, step), T.axis.reduce(4, part)
        if tiles.taps:
            number = data[line * tiles.below + row * tiles.apart + group * 4 + k]
            factor = weights[vector, line, group, own, k]
        else:
            number, factor = data[row, group * 4 + k], weights[vector, group, own, k]
        product = T.cast(number, "int32") * T.cast(factor, "int32")
        T.buffer_store(sums, sums[row, vector, own] + product, [row, vector, own])


def _instructions(tiles: Tiles, data: Expr, weights: Expr, sums: Expr) -> None:
    """Emits the instructions. Sums are in the first registers, then one tile of data for each row, then weights."""
    rows, vectors, depth = tiles.rows, tiles.vectors, tiles.depth

    def emit(name: str, *arguments: Any) -> None:
        T.evaluate(tirx.call_llvm_intrin("int32", f"llvm.x86.{name}", *arguments))

    def register(number: int) -> Expr:
        return tirx.const(number, "int8")

    def place(buffer: Expr, *index: Expr | int) -> Expr:
        return tirx.address_of(tirx.BufferLoad(buffer, list(index)))

    def apart(buffer: Expr, size: int) -> Expr:
        """Returns the bytes from one row of a buffer to the next."""
        return tirx.Cast("int64", buffer.strides[0]) * tirx.const(size, "int64")

    def each() -> Any:
        return ((r, v, r * vectors + v) for r in range(rows) for v in range(vectors))

    first_data, first_weights = rows * vectors, rows * vectors + rows
    spare = _TILES - first_weights
    settings = T.alloc_buffer((8,), "int64", scope="local")
    for number, word in enumerate(_settings()):
        T.buffer_store(settings, tirx.const(word, "int64"), [number])
    emit("ldtilecfg", place(settings, 0))
    for r, v, number in each():
        emit("tileloadd64", register(number), place(sums, r * ROWS, v, 0), apart(sums, 4))
    with T.serial(0, max(1, tiles.taps)) as tap, T.serial(0, depth // DEPTH) as step:
        for r in range(rows):
            if tiles.taps:
                at = place(data, tap * tiles.below + r * ROWS * tiles.apart + step * DEPTH)
                stride = tirx.const(tiles.apart, "int64")
            else:
                at, stride = place(data, r * ROWS, step * DEPTH), apart(data, 1)
            emit("tileloadd64", register(first_data + r), at, stride)
        for v in range(vectors):
            own = register(first_weights + v % spare)
            at = place(weights, *((v, tap) if tiles.taps else (v,)), step * (DEPTH // 4), 0, 0)
            emit("tileloadd64", own, at, tirx.const(LANES * 4, "int64"))
            for r in range(rows):
                emit("tdpbusd", register(r * vectors + v), register(first_data + r), own)
    for r, v, number in each():
        emit("tilestored64", register(number), place(sums, r * ROWS, v, 0), apart(sums, 4))
    emit("tilerelease")


def _settings() -> list[int]:
    """Returns the 64 bytes of the register configuration as eight integers. All tiles have the maximum size."""
    contents = bytearray(64)
    contents[0] = _PALETTE
    for tile in range(_TILES):
        contents[16 + 2 * tile], contents[48 + tile] = DEPTH, ROWS
    return [int.from_bytes(contents[at : at + 8], "little", signed=True) for at in range(0, 64, 8)]


def are_used(function: PrimFunc) -> bool:
    """Returns whether a function uses the registers of tiles."""
    calls: list[Any] = []
    tvm_ffi.structural_walk(function.body, (tvm.ir.Call, calls.append))
    return any(map(_uses_tiles, calls))


def requested(function: PrimFunc) -> PrimFunc:
    """Returns a lowered function that requests the registers from the operating system first."""
    numbers = (tirx.const(number, "int64") for number in TILE_REQUEST)
    request = tirx.Evaluate(tirx.call_extern("int64", "syscall", *numbers))
    return function.with_body(tirx.SeqStmt([request, function.body]))


def _uses_tiles(call: Expr) -> bool:
    if str(getattr(call.op, "name", "")) not in ("tirx.call_llvm_intrin", "tirx.call_llvm_pure_intrin"):
        return False
    return bool(int(call.args[0]) == codegen.llvm_lookup_intrinsic_id(DOT))
