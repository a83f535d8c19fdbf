"""Makes a network with another batch or resolution from its imported module, without importing the file again.

This is the mutation of workloads in Lorien (Yu et al., SoCC 2021, section 3.1), applied to a network: types are
inferred again from the inputs, so that fused kernels, layouts and paddings are those of the resized network. Where an
operator accepts only the old sizes (a product after a flattened image, a table of positions), the network is cut: the
operators after the cut get new inputs of the old sizes.
"""

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import relax

from autosched.errors import RequestError
from autosched.task_bundle import Change
from autosched_tvm.tvm_types import Binding, Expr, IRModule, Type

Shape = tuple[int, ...]

GRANULE_MAX = 32
"""Maximum power of two to whose multiple the size of an image is rounded. Networks halve images several times."""
ROUNDED_MAX = 0.125
"""Maximum change of a size by this rounding, as a share of the requested size."""
CHANNELS_MAX = 4
"""Maximum number of channels of an image. An input whose last axis has no more is channels-last."""
CUT = "cut_"
"""Prefix of the names of inputs at a cut."""
_OPAQUE = frozenset({"relax.call_tir", "relax.call_dps_packed", "relax.call_pure_packed", "relax.call_inplace_packed"})
"""Calls whose result types are fixed."""


@dataclass
class Resized:
    """A network with other sizes."""

    module: IRModule
    kept: list[str] = field(default_factory=list)
    """Operators before which the network was cut, with the sizes that they keep."""


def resized(module: IRModule, change: Change) -> Resized:
    """Resizes a cleaned module. Raises RequestError for a network without an image or without a batch, and for one with
    control flow."""
    found = Resized(module)
    for one in (Change(batch=change.batch), Change(resolution=change.resolution)):  # each changes reshapes differently
        parameters = [parameter for parameter in found.module["main"].params if not parameter.name.startswith(CUT)]
        old = [_shape_of(parameter) for parameter in parameters]
        new = input_shapes(old, one)
        if new != old:
            made = _Rebuilt(found.module, new, one)
            found = Resized(made.module, [*found.kept, *made.kept])
    return found


def input_shapes(shapes: Sequence[Shape], change: Change) -> list[Shape]:
    """Returns the shapes of a network's inputs after a change. Raises RequestError where the change applies to no
    input."""
    found = list(shapes)
    if change.batch:
        batch = next((shape[0] for shape in shapes if shape), 0)
        if not batch:
            raise RequestError("no input has a batch, since all are scalars")
        found = [(change.batch, *shape[1:]) if shape and shape[0] == batch else shape for shape in found]
    if change.resolution != 1.0:
        if not any(image_axes(shape) for shape in shapes):
            told = ", ".join("x".join(map(str, shape)) or "scalar" for shape in shapes)
            raise RequestError(f"no input is an image, which has 4 or 5 axes; inputs: {told}")
        found = [_scaled(shape, change.resolution) for shape in found]
    return found


def image_axes(shape: Shape) -> tuple[int, ...]:
    """Returns the axes of height and width (and depth) of an image input; none for other inputs."""
    if len(shape) not in (4, 5):
        return ()
    last = shape[-1] <= CHANNELS_MAX < shape[1]
    return tuple(range(1, len(shape) - 1)) if last else tuple(range(2, len(shape)))


def _scaled(shape: Shape, factor: float) -> Shape:
    axes = image_axes(shape)
    return tuple(_scaled_size(size, factor) if axis in axes else size for axis, size in enumerate(shape))


def _scaled_size(size: int, factor: float) -> int:
    wanted, granule = size * factor, math.gcd(size, GRANULE_MAX)
    while granule > 1 and abs(round(wanted / granule) * granule - wanted) > ROUNDED_MAX * wanted:
        granule //= 2
    return max(1, round(wanted / granule)) * granule


def reshaped(old: Shape, new: Shape, target: Shape, *, batch: bool) -> Shape | None:
    """Returns the target of a reshape after its operand changed from `old` to `new`; None where there is none.

    Axes of operand and target are paired in the smallest groups of equal products. A change of batch goes to the first
    axis of the target's group, a change of image to its first axis above 1.
    """
    found: list[int] = []
    for sources, targets in _groups(old, target):
        before, after = (math.prod(shape[axis] for axis in sources) for shape in (old, new))
        sizes = [target[axis] for axis in targets]
        if before != after:
            if not sizes:
                return None
            place = 0 if batch else next((i for i, size in enumerate(sizes) if size > 1), 0)
            size, rest = divmod(sizes[place] * after, before)
            if rest:
                return None
            sizes[place] = size
        found += sizes
    return tuple(found)


def _groups(old: Shape, target: Shape) -> Iterator[tuple[range, range]]:
    """Yields groups of axes with equal products, in order; together they cover all axes."""
    i = j = 0
    while i < len(old) or j < len(target):
        begin = i, j
        left = right = 1
        if i < len(old):
            left, i = old[i], i + 1
        if j < len(target):
            right, j = target[j], j + 1
        while left != right and (i < len(old) or j < len(target)):
            if (left < right or j == len(target)) and i < len(old):
                left, i = left * old[i], i + 1
            else:
                right, j = right * target[j], j + 1
        yield range(begin[0], i), range(begin[1], j)


class _Rebuilt:
    """Builds the resized function, operator by operator."""

    def __init__(self, module: IRModule, shapes: Sequence[Shape], change: Change) -> None:
        self._main, self._change = module["main"], change
        self._builder = relax.BlockBuilder()
        self._functions = {
            variable: self._builder.add_func(function, variable.name_hint)
            for variable, function in module.functions_items()
            if variable.name_hint != "main"
        }
        self._parameters = [
            relax.Var(one.name, relax.TensorType(shape, str(one.ty.dtype)))
            for one, shape in zip(self._main.params, shapes, strict=False)
        ]
        self._parameters += self._main.params[len(shapes) :]  # inputs of an earlier cut
        self._values: dict[Any, Any] = dict(zip(self._main.params, self._parameters, strict=True))
        self._ends: list[Any] = []
        """Values before a cut, which become outputs so that their operators stay."""
        self.kept: list[str] = []
        with self._builder.function("main"):
            for block in self._main.body.blocks:
                flow = isinstance(block, relax.DataflowBlock)
                with self._builder.dataflow() if flow else contextlib.nullcontext():
                    for binding in block.bindings:
                        self._bind(binding, flow)
            result = self._replaced(self._main.body.body)
            if self._ends:
                first = result.fields if isinstance(result, relax.Tuple) else [result]
                result = relax.Tuple([*first, *self._ends])
            self._builder.emit_func_output(result, self._parameters)
        made = self._builder.get()
        made["main"] = made["main"].with_attrs(dict(self._main.attrs or {}))
        self.module = relax.transform.DeadCodeElimination()(made)

    def _bind(self, binding: Binding, flow: bool) -> None:
        """Repeats a binding with the present values of its operands. Raises RequestError for control flow."""
        value = binding.value
        if isinstance(binding, relax.MatchCast) or isinstance(value, relax.If | relax.Function):
            raise RequestError("a network with branches, loops or sizes that its values decide has its own size only")
        new = self._resized(value, flow) if isinstance(value, relax.Call) else self._replaced(value)
        inside = flow and isinstance(binding.var, relax.DataflowVar)
        emit = self._builder.emit if inside or not flow else self._builder.emit_output
        self._values[binding.var] = emit(new)

    def _replaced(self, expression: Expr) -> Expr:
        """Returns an expression with the present values of its variables."""
        if isinstance(expression, relax.Var):
            return self._values.get(expression, expression)
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._replaced(one) for one in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self._replaced(expression.tuple_value), expression.index)
        if isinstance(expression, tvm.ir.GlobalVar):
            return self._functions.get(expression, expression)
        return expression

    def _resized(self, call: Expr, flow: bool) -> Expr:
        """Returns a call with resized operands, or with operands of the old sizes where it accepts no others."""
        arguments = [self._replaced(one) for one in call.args]
        if not any(self._differs(*pair) for pair in zip(call.args, arguments, strict=True)):
            return self._call(call, arguments)
        name = getattr(call.op, "name", "")
        if name and name not in _OPAQUE:
            with contextlib.suppress(Exception):  # if inference rejects these sizes, the old ones are used
                wanted = self._fitting(name, call, arguments)
                made = self._builder.normalize(self._call(call, wanted))
                if _is_possible(made.ty):
                    return made
        return self._call(call, self._cut(call, arguments, flow))

    def _cut(self, call: Expr, arguments: Sequence[Expr], flow: bool) -> list[Expr]:
        """Returns operands of the old sizes: new inputs replace those that are resized."""
        operator = getattr(call.op, "name", "") or getattr(call.op, "name_hint", "a function")
        operands = [part for one in call.args for part in (one.fields if isinstance(one, relax.Tuple) else [one])]
        sizes = " and ".join("x".join(map(str, _shape_of(one))) for one in operands if _is_tensor(one))
        self.kept.append(f"{operator.rpartition('.')[2]} of {sizes}")
        return [self._as_before(*pair, flow) for pair in zip(call.args, arguments, strict=True)]

    def _as_before(self, old: Expr, new: Expr, flow: bool) -> Expr:
        if isinstance(old, relax.Tuple):
            return relax.Tuple([self._as_before(*pair, flow) for pair in zip(old.fields, new.fields, strict=True)])
        if not self._differs(old, new):
            return new
        self._ends.append(self._builder.emit_output(new) if flow else new)
        self._parameters.append(relax.Var(f"{CUT}{len(self._parameters)}", old.ty))
        return self._parameters[-1]

    @staticmethod
    def _differs(old: Expr, new: Expr) -> bool:
        return hasattr(old, "ty") and not tvm_ffi.structural_equal(old.ty, new.ty)

    @staticmethod
    def _call(call: Expr, arguments: Sequence[Expr]) -> Expr:
        return relax.Call(call.op, list(arguments), call.attrs, call.ty_args)

    def _fitting(self, name: str, call: Expr, arguments: list[Expr]) -> list[Expr]:
        """Returns the operands, with the sizes that are written into the network adapted."""
        old, new = _shape_of(call.args[0]), _shape_of(arguments[0])
        match name.rpartition(".")[2]:
            case "reshape":
                target = reshaped(old, new, _numbers(call.args[1]), batch=bool(self._change.batch))
                if target is None:
                    raise RequestError("the sizes do not divide")
                return [arguments[0], relax.ShapeExpr(target)]
            case "broadcast_to":
                wanted = _numbers(call.args[1])
                first = len(wanted) - len(old)  # the operand's axes are the last ones
                changed = zip(wanted[first:], old, new, strict=True)
                sizes = [*wanted[:first], *(after if size == before else size for size, before, after in changed)]
                return [arguments[0], relax.ShapeExpr(sizes)]
            case "resize2d" | "resize3d":
                axes = [axis for axis, letter in enumerate(str(call.attrs.layout)) if letter in "DHW"]
                sizes = [
                    max(1, round(size * new[axis] / old[axis]))
                    for size, axis in zip(_numbers(call.args[1]), axes, strict=True)
                ]
                return [arguments[0], relax.ShapeExpr(sizes)]
            case "strided_slice":
                sliced, ends = (_numbers(call.args[place]) for place in (1, 3))
                sizes = [new[axis] if end == old[axis] else end for axis, end in zip(sliced, ends, strict=True)]
                return [*arguments[:3], relax.Tuple([tvm.tirx.IntImm("int64", size) for size in sizes]), *arguments[4:]]
            case "stack" | "concat":
                return [relax.Tuple([_as_long(one, call.args[0], arguments[0]) for one in arguments[0].fields])]
        return arguments


def _as_long(value: Expr, old: Expr, new: Expr) -> Expr:
    """Returns a constant for a batch of one, repeated to the batch of the other operand."""
    batches = {(_shape_of(before)[:1], _shape_of(after)[:1]) for before, after in zip(old, new, strict=True)}
    after = next((after for before, after in batches if before == (1,) != after), None)
    if not isinstance(value, tvm.ir.GenericConst) or after is None or _shape_of(value)[:1] != (1,):
        return value
    return relax.const(np.repeat(value.value.numpy(), after[0], axis=0))


def _numbers(expression: Expr) -> Shape:
    """Returns the integers of a shape, or of a tuple of them."""
    if isinstance(expression, relax.ShapeExpr):
        return tuple(int(one) for one in expression.values)
    return tuple(int(one.value) for one in expression.fields)


def _is_tensor(expression: Expr) -> bool:
    return isinstance(getattr(expression, "ty", None), relax.TensorType)


def _shape_of(expression: Expr) -> Shape:
    """Returns the shape of a value; empty for other values than tensors."""
    return tuple(int(size) for size in expression.ty.shape) if _is_tensor(expression) else ()


def _is_possible(kind: Type) -> bool:
    """Returns whether all sizes of a type are known and above 0. A pool larger than its image has negative ones."""
    if isinstance(kind, relax.TupleType):
        return all(_is_possible(one) for one in kind.fields)
    sizes = kind.shape
    return sizes is not None and all(isinstance(size, int | tvm.tirx.IntImm) and int(size) > 0 for size in sizes)
