"""Removes the copies of concatenations: kernels write their results directly into the concatenated tensor.

The pass applies to a Relax function whose kernels receive their output tensors, before memory is planned. A
concatenation stays if one of its parts has other readers, or is not written by a kernel of the network.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import relax, s_tir, tirx

from autosched_tvm.compile.relax_operators import Shape, shape_of
from autosched_tvm.tvm_types import Binding, Expr, Function, IRModule, Pass, PrimFunc, Stmt

NAME = "T_concat"
"""TVM's name of the block of a concatenation."""
ALLOC = "relax.builtin.alloc_tensor"


@dataclass(frozen=True)
class Part:
    """Part of a concatenation that one kernel writes."""

    tensor: Expr
    """Variable of the tensor written so far."""
    writer: int
    """Index of the binding that calls the kernel."""
    offset: int


def in_place() -> Pass:
    """Returns the pass, for a pipeline."""
    return tvm.transform.module_pass(lambda module, _context: joined(module), opt_level=0, name="autosched.concats")


def joined(module: IRModule) -> IRModule:
    """Returns the module without the concatenations that can be avoided."""
    main = module["main"]
    blocks: Sequence[Any] = getattr(main.body, "blocks", ())
    if len(blocks) != 1 or any(not isinstance(b, relax.VarBinding) for b in blocks[0].bindings):
        return module
    work = _Work(module, list(blocks[0].bindings), main.body.body)
    for number in range(len(work.bindings)):
        work.try_to_join(number)
    return work.done(main)


class _Work:
    """The bindings of a function while they change."""

    def __init__(self, module: IRModule, bindings: list[Any], result: Expr) -> None:
        self.module = module
        self._builder = relax.BlockBuilder(module.clone())
        self.bindings = list(bindings)
        """Bindings; None for a removed one."""
        self._early: dict[int, list[Any]] = {}
        """Bindings to insert before the binding with an index."""
        self._places = {binding.var: number for number, binding in enumerate(bindings)}
        self._uses: Counter[Any] = Counter()
        for value in (*(binding.value for binding in bindings), result):
            self._uses.update(_found(value, relax.Var))
        self._writers = {
            binding.value.args[-1]: number
            for number, binding in enumerate(bindings)
            if self._kernel(binding) is not None
        }
        self._shifted: dict[Any, Any] = {}

    def done(self, main: Function) -> IRModule:
        """Returns the module with the remaining bindings, and the kernels that they call."""
        left: list[Any] = []
        for number, binding in enumerate(self.bindings):
            left += self._early.get(number, ())
            left += [] if binding is None else [binding]
        body = relax.SeqExpr([relax.BindingBlock(left)], main.body.body)
        module = self._builder.get()
        called = {variable for binding in left for variable in _found(binding.value, relax.GlobalVar)}
        for variable in module.get_global_vars():
            if variable not in called and isinstance(module[variable], tirx.PrimFunc):
                del module[variable]
        function = relax.Function(list(main.params), body, main.ret_ty, main.is_pure, main.attrs)
        module.update_func(module.get_global_var("main"), function)
        return module

    def try_to_join(self, number: int) -> None:
        """Removes the concatenation that a binding calls, if it is one and all its parts allow it."""
        binding = self.bindings[number]
        kernel = self._kernel(binding) if binding is not None else None
        if kernel is None or not _concatenates(kernel):
            return
        *given, result = binding.value.args
        shape, place = shape_of(result), self._places.get(result)
        sizes = [size for part in given if (size := shape_of(part)) is not None]
        if shape is None or place is None or not self._fresh(result) or len(set(given)) < len(given):
            return
        axis = _axis(sizes, shape)
        if axis is None or len(sizes) < len(given):
            return
        parts: list[Part] = []
        offset = 0
        for value, size in zip(given, sizes, strict=True):
            tensor = self._source(value)
            writer = self._writers.get(tensor)
            if writer is None or self._places.get(tensor) is None or not self._alone(value, tensor):
                return
            parts.append(Part(tensor, writer, offset))
            offset += size[axis]
        functions = [self._moved(part, axis, shape) for part in parts]
        if any(function is None for function in functions):
            return
        for part, function, value in zip(parts, functions, given, strict=True):
            call = self.bindings[part.writer].value
            moved = relax.Call(function, [*call.args[:-1], result], call.attrs, call.ty_args, ret_ty=call.ty)
            self.bindings[part.writer] = relax.VarBinding(self.bindings[part.writer].var, moved)
            for variable in {part.tensor, value}:
                self.bindings[self._places[variable]] = None
        first = min(part.writer for part in parts)
        self._early.setdefault(first, []).append(self.bindings[place])
        self.bindings[place] = self.bindings[number] = None
        self._writers.pop(result, None)  # several kernels write the tensor now

    def _kernel(self, binding: Binding) -> PrimFunc | None:
        """Returns the function that a binding calls."""
        value = binding.value
        if not isinstance(value, relax.Call) or not isinstance(value.op, relax.GlobalVar) or not value.args:
            return None
        function = self.module[value.op]
        return function if isinstance(function, tirx.PrimFunc) else None

    def _fresh(self, tensor: Expr) -> bool:
        """Returns whether a variable is memory allocated in this function."""
        binding = self.bindings[self._places[tensor]]
        return binding is not None and getattr(getattr(binding.value, "op", None), "name", "") == ALLOC

    def _source(self, value: Expr) -> Expr:
        """Returns the tensor of which a variable is an alias."""
        while (place := self._places.get(value)) is not None and self.bindings[place] is not None:
            named = self.bindings[place].value
            if not isinstance(named, relax.Var):
                break
            value = named
        return value

    def _alone(self, value: Expr, tensor: Expr) -> bool:
        """Returns whether only its kernel and the concatenation use a part."""
        if not self._fresh(tensor):
            return False
        if value.same_as(tensor):
            return self._uses[tensor] == 2
        direct = self.bindings[self._places[value]].value.same_as(tensor)
        return direct and self._uses[tensor] == 2 and self._uses[value] == 1

    def _moved(self, part: Part, axis: int, shape: Shape) -> Expr | None:
        """Returns the kernel of a part, changed to write into the whole."""
        variable = self.bindings[part.writer].value.op
        key = (variable, axis, part.offset, shape)
        if key not in self._shifted:
            function = shifted(self.module[variable], axis, part.offset, shape)
            self._shifted[key] = function and self._builder.add_func(function, f"{variable.name_hint}_part")
        return self._shifted[key]


def shifted(function: PrimFunc, axis: int, offset: int, shape: Shape) -> PrimFunc | None:
    """Returns a kernel that writes its result into a tensor of this shape, at `offset` of an axis; None if it
    cannot."""
    old = function.params[-1]
    own = tuple(old.ty.shape)
    if len(own) != len(shape):
        return None
    new = tirx.decl_buffer([tirx.IntImm("int64", size) for size in shape], old.ty.dtype, old.name)

    def place(indices: Sequence[Any]) -> list[Expr]:
        return [index + offset if number == axis else index for number, index in enumerate(indices)]

    def store(node: Stmt) -> Stmt:
        return tirx.BufferStore(new, node.value, place(node.indices)) if node.buffer.same_as(old) else node

    def load(node: Expr) -> Expr:
        return tirx.BufferLoad(new, place(node.indices)) if node.source.same_as(old) else node

    def region(node: Expr) -> Expr:
        if not node.source.same_as(old):
            return node
        starts = place([span.min for span in node.region])
        spans = [tvm.ir.Range.from_min_extent(s, r.extent) for s, r in zip(starts, node.region, strict=True)]
        return tirx.BufferRegion(new, spans)

    body = tvm_ffi.structural.structural_map(
        function.body, ((tirx.BufferStore, store), (tvm.ir.TensorLoad, load), (tvm.ir.TensorRegion, region))
    )
    if any(variable.same_as(old) for variable in _inside(body, tvm.ir.Var)):  # for example by its address
        return None
    return tirx.PrimFunc([*function.params[:-1], new], body, function.ret_type, function.attrs)


def _concatenates(function: PrimFunc) -> bool:
    """Returns whether a kernel is a concatenation and nothing else."""
    return [b.name_hint for b in _inside(function.body, s_tir.SBlock) if b.name_hint != "root"] == [NAME]


def _inside(body: Stmt, kind: Any) -> list[Stmt]:
    """Returns the nodes of a kind in a kernel."""
    found: list[Any] = []

    def note(node: Stmt) -> Stmt:
        found.append(node)
        return node

    tvm_ffi.structural.structural_map(body, (kind, note))
    return found


def _axis(parts: Sequence[Shape], whole: Shape) -> int | None:
    """Returns the axis along which the parts make up a whole; None if there is none."""
    if len(parts) < 2 or any(len(part) != len(whole) for part in parts):
        return None
    axes = [n for n, size in enumerate(whole) if size == sum(part[n] for part in parts)]
    fits = len(axes) == 1 and all(part[n] == size for part in parts for n, size in enumerate(whole) if n != axes[0])
    return axes[0] if fits else None


def _found(value: Expr, kind: Any) -> list[Expr]:
    """Returns the nodes of a kind in an expression."""
    found: list[Any] = []
    relax.analysis.post_order_visit(value, lambda node: found.append(node) if isinstance(node, kind) else None)
    return found
