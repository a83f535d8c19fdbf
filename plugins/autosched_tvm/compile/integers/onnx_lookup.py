"""Converts lookups in tables of 256 entries into Relax, with a kernel that can be fused."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te

from autosched_tvm.compile import relax_calls
from autosched_tvm.compile.frontend.lookup_tables import LOOKUP
from autosched_tvm.compile.integers import table_registers
from autosched_tvm.compile.opset_converters import AnyVersion
from autosched_tvm.compile.relax_operators import is_lookup
from autosched_tvm.tvm_types import BlockBuilder, Expr, Pass, Target

MARK = "autosched.lookup"
"""Attribute of a lookup's kernel until its pattern is set."""
ELEMENTWISE = 0
"""TVM's OpPatternKind of an elementwise operator."""


class Lookup(AnyVersion):
    """Converter for lookups of 8-bit integers."""

    @classmethod
    def _convert(
        cls, builder: BlockBuilder, inputs: Sequence[Any], _attributes: dict[str, Any], _params: object
    ) -> Expr:
        levels, table = inputs[:2]
        if str(levels.ty.dtype) == "int8":  # the table starts with the entry of 0; that of -128 is in the middle
            table = relax.const(np.roll(table.value.numpy(), 128))
            moved = builder.emit(relax.op.add(relax.op.astype(levels, "int32"), relax.const(np.int32(128))))
            levels = builder.emit(relax.op.astype(moved, "uint8"))
        return relax.op.take(table, levels, axis=0, mode="clip")


def legalised(builder: BlockBuilder, call: Expr) -> Expr:
    """Returns the kernel of a lookup; TVM's own for other uses of the operator."""
    if not is_lookup(call):
        return call.op.get_attr("FLegalize")(builder, call)
    return builder.call_te(
        lambda table, levels: te.compute(levels.shape, lambda *at: table[levels[at].astype("int32")], name="lookup"),
        *call.args, primfunc_name_hint="lookup", primfunc_attrs={MARK: 1},
    )  # fmt: skip


def fusable(target: Target) -> Pass:
    """Returns the pass that fuses lookups into the kernels before them, where the CPU keeps a table in registers.

    Elsewhere each entry is loaded separately, and a loop over bytes in memory is faster. TVM's analysis treats a
    computed index as opaque, and ignores a pattern of 0 that was set earlier.
    """
    pattern = {"op_pattern": ELEMENTWISE} if table_registers.available(target) else {}

    return relax_calls.kernel_pass(
        "autosched.fusable_lookups", lambda function: MARK in (function.attrs or {}),
        lambda function: function.without_attr(MARK).with_attrs(pattern),
    )  # fmt: skip


CONVERTERS = {LOOKUP: Lookup}
"""Converter by ONNX operator."""
