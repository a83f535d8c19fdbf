"""Converts lookups in tables of 256 entries into Relax, and gives them a kernel that others take in."""

from typing import Any

import numpy as np
from tvm import relax, te

from autosched_tvm.compile import relax_calls
from autosched_tvm.compile.frontend.lookup_tables import LOOKUP
from autosched_tvm.compile.integers import table_registers
from autosched_tvm.compile.opset_converters import AnyVersion
from autosched_tvm.compile.relax_operators import is_lookup

MARK = "autosched.lookup"
"""Attribute of a lookup's kernel until its pattern is set."""
ELEMENTWISE = 0
"""TVM's OpPatternKind of an elementwise operator."""


class Lookup(AnyVersion):
    """The entries of a table for 8-bit numbers."""

    @classmethod
    def _convert(cls, builder: Any, inputs: Any, _attributes: dict[str, Any], _params: Any) -> Any:
        levels, table = inputs[:2]
        if str(levels.ty.dtype) == "int8":  # the table has the entry of 0 first, and then that of -128 in the middle
            table = relax.const(np.roll(table.value.numpy(), 128))
            moved = builder.emit(relax.op.add(relax.op.astype(levels, "int32"), relax.const(np.int32(128))))
            levels = builder.emit(relax.op.astype(moved, "uint8"))
        return relax.op.take(table, levels, axis=0, mode="clip")


def legalised(builder: Any, call: Any) -> Any:
    """The kernel of a lookup; other uses of the operator get TVM's."""
    if not is_lookup(call):
        return call.op.get_attr("FLegalize")(builder, call)
    return builder.call_te(
        lambda table, levels: te.compute(levels.shape, lambda *at: table[levels[at].astype("int32")], name="lookup"),
        *call.args, primfunc_name_hint="lookup", primfunc_attrs={MARK: 1},
    )  # fmt: skip


def fusable(target: Any) -> Any:
    """The pass that makes lookups a part of the kernels before them, where the CPU keeps a table in registers.

    Elsewhere each entry is loaded by itself, which a loop over bytes in memory does best. TVM's analysis takes a place
    that is computed for opaque, and a pattern of 0 that is set before it for none.
    """
    pattern = {"op_pattern": ELEMENTWISE} if table_registers.available(target) else {}

    return relax_calls.kernel_pass(
        "autosched.fusable_lookups", lambda function: MARK in (function.attrs or {}),
        lambda function: function.without_attr(MARK).with_attrs(pattern),
    )  # fmt: skip


CONVERTERS = {LOOKUP: Lookup}
"""By ONNX operator."""
