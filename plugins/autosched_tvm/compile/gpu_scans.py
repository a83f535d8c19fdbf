"""Cumulative sums and products on a GPU, as a reduction of each prefix.

TVM's own kernels for them compute wrong results. In one, threads of a warp pass sums to each other through shared
memory without a barrier, although GPUs since compute capability 7.0 do not run them in step (CUDA C++ Programming Guide
13, independent thread scheduling). In the other, all threads share a buffer that each of them should have. A prefix for
each thread costs n * n operations along an axis of n elements, in parallel.
"""

from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from autosched_tvm.compile import relax_calls
from autosched_tvm.tvm_types import BlockBuilder, Expr, IRModule, Tensor

SUM, PRODUCT = "relax.cumsum", "relax.cumprod"
_product = te.comm_reducer(lambda left, right: left * right, lambda dtype: tirx.const(1, dtype), name="product")


def as_reductions(module: IRModule) -> IRModule:
    """Returns a module for a GPU whose cumulative sums and products are reductions."""

    def kernel(builder: BlockBuilder, call: Expr, arguments: list[Expr]) -> Expr:
        combine, start = (te.sum, 0) if call.op.name == SUM else (_product, 1)
        attributes = call.attrs
        axis = None if attributes.axis is None else int(attributes.axis)
        dtype = None if attributes.dtype is None else str(attributes.dtype)

        def prefixes(data: Tensor) -> Tensor:
            return _reduced(data, axis, dtype, combine, start, exclusive=bool(attributes.exclusive))

        return builder.call_te(prefixes, arguments[0], primfunc_name_hint=call.op.name.removeprefix("relax."))

    return relax_calls.replaced(module, lambda call: getattr(call.op, "name", "") in (SUM, PRODUCT), kernel)


def _reduced(
    data: Tensor, axis: int | None, dtype: str | None, combine: Callable[..., Any], start: int, *, exclusive: bool
) -> Tensor:
    """Returns the prefixes' reductions. `axis`: None: over all elements, in memory order. `dtype`: of the result; None:
    that of the elements."""
    from tvm import topi

    if axis is None:
        data, axis = topi.reshape(data, [topi.utils.prod(data.shape)]), 0
    place, wanted = axis % len(data.shape), dtype or str(data.dtype)
    step = te.reduce_axis((0, data.shape[place]), name="step")

    def prefix(*index: Expr) -> Expr:
        term = data(*index[:place], step, *index[place + 1 :]).astype(wanted)
        inside = step < index[place] if exclusive else step <= index[place]
        return combine(tirx.Select(inside, term, tirx.const(start, wanted)), axis=step)

    return te.compute(data.shape, prefix, name="prefix")
