"""Converts products with 4-bit weights into Relax operators."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm
from tvm import relax

from autosched.errors import ModelRejected
from autosched_tvm.compile.frontend.few_bits import unpacked_numbers
from autosched_tvm.compile.integers import nibbles
from autosched_tvm.compile.integers.packed_products import over_rows
from autosched_tvm.compile.integers.product import FUSES_ELEMENTWISE
from autosched_tvm.compile.opset_converters import AnyVersion
from autosched_tvm.tvm_types import BlockBuilder, Expr


class MatMulNBits(AnyVersion):
    """Converter for products with constant 4-bit weights."""

    @classmethod
    def _convert(
        cls, builder: BlockBuilder, inputs: Sequence[Any], attributes: dict[str, Any], _params: object
    ) -> Expr:
        data, *constants = inputs[:4]
        if len(inputs) > 4 or not all(isinstance(one, tvm.ir.GenericConst) for one in constants):
            raise ModelRejected("MatMulNBits takes weights that the network computes")
        columns, block = int(attributes["N"]), int(attributes["block_size"])
        packed, scales, zeros = (one.value.numpy().reshape(columns, -1) for one in constants)
        factors = [nibbles.pack_factors(np.asarray(one.T, "float32")) for one in (scales, -zeros * scales)]
        weights = nibbles.pack(unpacked_numbers(packed, 4).T)

        def multiplied(rows: Expr) -> Expr:
            return builder.emit(
                builder.call_te(
                    nibbles.product, rows, *map(relax.const, (weights, *factors)), block=block,
                    primfunc_name_hint="nibble_product", primfunc_attrs={"op_pattern": FUSES_ELEMENTWISE},
                )
            )  # fmt: skip

        return over_rows(builder, data, columns, multiplied)


CONVERTERS = {"MatMulNBits": MatMulNBits}
"""Converter by ONNX operator."""
