"""Replaces a network's products of 8-bit integers by products with packed weights."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import tvm
from tvm import relax

from autosched_tvm.compile import relax_calls
from autosched_tvm.compile.integers import product, tile_instructions
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import BlockBuilder, Expr, IRModule


def packed(module: IRModule, instruction: DotInstruction, *, tiles: bool = False) -> IRModule:
    """Returns the module with such products for a dot instruction. `tiles`: use instructions on whole tiles where there
    are enough rows."""

    def packed_product(builder: BlockBuilder, call: Expr, arguments: list[Expr]) -> Expr:
        return _product(builder, arguments[0], call.args[1].value.numpy(), instruction, tiles)

    return relax.transform.CanonicalizeBindings()(relax_calls.replaced(module, _fits, packed_product))


def _fits(call: Expr) -> bool:
    """Returns whether a call is a product of unsigned integers and constant weights."""
    if getattr(call.op, "name", "") != "relax.matmul" or str(call.ty.dtype) != "int32":
        return False
    data, weights = call.args
    if not isinstance(weights, tvm.ir.GenericConst) or len(weights.ty.shape) != 2:
        return False
    known = all(isinstance(size, tvm.tirx.IntImm) for size in data.ty.shape)
    dtypes = str(data.ty.dtype), str(weights.ty.dtype)
    return known and dtypes == ("uint8", "int8")


def _product(builder: BlockBuilder, data: Expr, weights: Array, instruction: DotInstruction, tiles: bool) -> Expr:
    """Returns the product as int32."""
    depth, columns = weights.shape
    count = math.prod(map(int, data.ty.shape)) // depth
    instruction = instruction.suited(count, weights)
    tiled = tiles and tile_instructions.worthwhile(count, depth, columns)
    multiple = tile_instructions.DEPTH if tiled else instruction.group
    made = product.tiled_product if tiled else product.product

    def packed(rows: Expr) -> Expr:
        if missing := -depth % multiple:
            rows = builder.emit(relax.op.nn.pad(rows, [0, 0] * (len(rows.ty.shape) - 1) + [0, missing], "constant", 0))
        found = builder.emit(
            builder.call_te(
                made, instruction.taken(builder, rows),
                relax.const(product.pack(np.pad(weights, ((0, -depth % multiple), (0, 0))), instruction)),
                primfunc_name_hint="int8_product", primfunc_attrs={"op_pattern": product.FUSES_ELEMENTWISE},
            )
        )  # fmt: skip
        if not instruction.offset:
            return found
        sums = instruction.offset * weights.astype("int32").sum(0, dtype="int32")
        return builder.emit(relax.op.add(found, relax.const(np.pad(sums, (0, -columns % instruction.lanes)))))

    return over_rows(builder, data, columns, packed)


def over_rows(builder: BlockBuilder, data: Expr, columns: int, multiplied: Callable[[Any], Any]) -> Expr:
    """Returns a product of data [..., depth], made by a kernel that takes one axis of rows. `multiplied`: emits the
    kernel, whose last columns may be padding."""
    shape = [int(size) for size in data.ty.shape]
    several = sum(size > 1 for size in shape[:-1]) > 1 or len(shape) == 1
    if several:
        data = builder.emit(relax.op.reshape(data, (math.prod(shape[:-1]), shape[-1])))
    found = multiplied(data)
    if int(found.ty.shape[-1]) != columns:
        found = builder.emit(relax.op.strided_slice(found, [len(found.ty.shape) - 1], [0], [columns]))
    return builder.emit(relax.op.reshape(found, (*shape[:-1], columns))) if several else found
