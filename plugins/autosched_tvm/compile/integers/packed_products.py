"""Puts products with packed weights in place of a network's products of 8-bit numbers."""

import math
from typing import Any

import tvm
from tvm import relax

from autosched_tvm.compile.integers import product
from autosched_tvm.compile.integers.dot_instructions import DotInstruction


def packed(module: Any, instruction: DotInstruction) -> Any:
    """The module with such products, for a dot instruction."""

    @relax.expr_functor.mutator
    class Packed(relax.PyExprMutator):  # type: ignore[misc] # the base class is not typed
        """Replaces each product."""

        def visit_call_(self, call: Any) -> Any:
            """A call, or the product in its place."""
            if not _fits(call):
                return super().visit_call_(call)
            return _product(self.builder_, self.visit_expr(call.args[0]), call.args[1].value.numpy(), instruction)

    mutator = Packed(module)
    mutator.builder_.update_func(module.get_global_var("main"), mutator.visit_expr(module["main"]))
    return relax.transform.CanonicalizeBindings()(mutator.builder_.get())


def _fits(call: Any) -> bool:
    """Whether a call is a product of unsigned numbers and constant weights."""
    if getattr(call.op, "name", "") != "relax.matmul" or str(call.ty.dtype) != "int32":
        return False
    data, weights = call.args
    if not isinstance(weights, tvm.ir.GenericConst) or len(weights.ty.shape) != 2:
        return False
    known = all(isinstance(size, tvm.tirx.IntImm) for size in data.ty.shape)
    dtypes = str(data.ty.dtype), str(weights.ty.dtype)
    return known and dtypes == ("uint8", "int8")


def _product(builder: Any, data: Any, weights: Any, instruction: DotInstruction) -> Any:
    """The product as int32."""
    shape = [int(size) for size in data.ty.shape]
    columns = weights.shape[1]
    several = sum(size > 1 for size in shape[:-1]) > 1
    if several or len(shape) == 1:
        data = builder.emit(relax.op.reshape(data, (math.prod(shape[:-1]), shape[-1])))
    if missing := -shape[-1] % instruction.group:
        data = builder.emit(relax.op.nn.pad(data, [0, 0] * (len(data.ty.shape) - 1) + [0, missing], "constant", 0))
    data = instruction.taken(builder, data)
    constant = relax.const(product.pack(weights, instruction))
    found = builder.emit(
        builder.call_te(
            product.product, data, constant, primfunc_name_hint="int8_product",
            primfunc_attrs={"op_pattern": product.FUSES_ELEMENTWISE},
        )
    )  # fmt: skip
    if columns % instruction.lanes:
        axis = len(found.ty.shape) - 1
        found = builder.emit(relax.op.strided_slice(found, [axis], [0], [columns]))
    if instruction.offset:
        sums = instruction.offset * weights.astype("int32").sum(0, dtype="int32")
        found = builder.emit(relax.op.add(found, relax.const(sums)))
    if several or len(shape) == 1:
        found = builder.emit(relax.op.reshape(found, (*shape[:-1], columns)))
    return found
