"""Assigns layouts to a network's convolutions as requested, and to the values between them at the least cost."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax

from autosched_tvm.compile import targets
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.layouts import layout_kernels, operator_layouts, pbqp
from autosched_tvm.compile.layouts.layout import NCHW, Layout, lanes_of
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.operator_layouts import Operator, Way
from autosched_tvm.compile.relax_operators import Shape, shape_of
from autosched_tvm.tvm_types import Expr, Function, IRModule, Target

SPLITS = 1.25
"""Cost factor of a layout transform before an operator that would otherwise be fused."""


@dataclass(frozen=True)
class Node:
    """A value of the network: an input, or the result of an operator."""

    value: Expr
    shape: Shape | None
    sources: tuple[int, ...]
    """Nodes that the operator reads."""
    operator: Operator
    fuses: bool
    """Whether the operator can be fused into the kernel before it."""

    @property
    def convolution(self) -> bool:
        """Whether its layout is one that a user can request. Products with weights count as 1x1 convolutions."""
        return self.operator.ways[0].wanted is not None

    @property
    def product(self) -> bool:
        """Whether it is a product with weights."""
        return any(way.columns for way in self.operator.ways)


@dataclass(frozen=True)
class Survey:
    """A network before its layouts are chosen."""

    function: Function
    others: Mapping[Any, Any]
    """Kernels that it calls, by global variable."""
    nodes: tuple[Node, ...]
    outputs: tuple[int, ...]

    @property
    def convolutions(self) -> tuple[int, ...]:
        """Nodes that are convolutions, in order."""
        return tuple(index for index, node in enumerate(self.nodes) if node.convolution)


@dataclass(frozen=True)
class Converted:
    """A network in its layouts."""

    module: IRModule
    wanted: tuple[LayoutOption, ...]
    """Requested layout of each convolution, in order."""
    kernels: tuple[Expr]
    """Weights of each convolution in the module."""
    moves: tuple[tuple[Shape, Layout, Layout], ...]
    """Remaining layout transforms, without those that are free."""


Price = Callable[[int, Way], float]
"""Cost of computing a node in one way; `math.inf`: impossible."""


def lanes(target: Target) -> int:
    """Returns the number of float32 values in a vector register of the target."""
    if target.kind.name != "llvm":
        return lanes_of(0)
    return lanes_of(targets.vector_bits(target))


def survey(
    module: IRModule, width: int, instruction: DotInstruction | None = None, *, tiles: bool = False
) -> Survey | None:
    """Returns the operators of a cleaned Relax module; None unless they are one dataflow block. `width`: lanes;
    `instruction`: the CPU's dot instruction for 8-bit integers; `tiles`: whether the CPU has instructions on whole
    tiles."""
    function = module["main"]
    blocks: Sequence[Any] = getattr(function.body, "blocks", ())
    if len(blocks) != 1 or not isinstance(blocks[0], relax.DataflowBlock):
        return None
    nodes = [Node(value, shape_of(value), (), _plain(()), False) for value in function.params]
    numbers = {value: index for index, value in enumerate(function.params)}
    coming: dict[Any, list[Layout]] = {}
    calls: dict[Any, Any] = {}
    around = operator_layouts.Around(width, coming, calls, instruction, tiles)
    for binding in blocks[0].bindings:
        if not isinstance(binding, relax.VarBinding) or not _simple(binding.value):
            return None
        operator = operator_layouts.describe(binding.value, around) or _plain(_variables(binding.value))
        if any(value not in numbers for value in operator.inputs):
            return None
        sources = tuple(numbers[value] for value in operator.inputs)
        fuses = operator_layouts.fuses(binding.value)
        numbers[binding.var] = len(nodes)
        calls[binding.var] = binding.value
        coming[binding.var] = [way.output for way in operator.ways]
        nodes.append(Node(binding, shape_of(binding.var), sources, operator, fuses))
    outputs = tuple(numbers[value] for value in _variables(function.body.body))
    others = {gv: other for gv, other in module.functions_items() if gv.name_hint != "main"}
    return Survey(function, others, tuple(nodes), outputs)


def uniform(wanted: LayoutOption) -> Price:
    """Returns a cost that puts all convolutions in one layout without Winograd, where they allow it."""

    def price(_node: int, way: Way) -> float:
        if way.winograd:
            return math.inf
        if way.wanted in (None, wanted):
            return way.cost
        return way.cost * OTHERWISE if way.wanted is LayoutOption.NCHW else math.inf

    return price


OTHERWISE = 1e9
"""Cost factor that makes a layout other than the requested one the last resort."""


def plan(found: Survey, price: Price, move_cost: float = 1.0) -> tuple[Way, ...]:
    """Returns the way to compute each node. `price` is in the unit of `move_cost`, which is per byte read or
    written."""
    graph = pbqp.Graph()
    for index, node in enumerate(found.nodes):
        graph.node([price(index, way) for way in node.operator.ways])
    for index, node in enumerate(found.nodes):
        for position, source in enumerate(node.sources):
            before = found.nodes[source]
            factor = move_cost * (SPLITS if node.fuses else 1.0)
            graph.edge(source, index, [
                [factor * _bytes(before.shape, a.output, b.inputs[position]) for b in node.operator.ways]
                for a in before.operator.ways
            ])  # fmt: skip
    for source in found.outputs:
        before = found.nodes[source]
        end = graph.node([0.0])
        graph.edge(source, end, [[move_cost * _bytes(before.shape, a.output, NCHW)] for a in before.operator.ways])
    options = pbqp.solve(graph).options
    return tuple(node.operator.ways[option] for node, option in zip(found.nodes, options, strict=False))


def convert(found: Survey, ways: Sequence[Way], target: Target) -> Converted:
    """Returns the network with each node computed in the given way."""
    return _Conversion(found, ways).run(target)


class _Conversion:
    def __init__(self, found: Survey, ways: Sequence[Way]) -> None:
        self.found, self.ways = found, ways
        self.builder = relax.BlockBuilder()
        self.values: dict[tuple[int, Layout], Any] = {}
        self.moves: list[tuple[Shape, Layout, Layout]] = []
        self.kernels: dict[int, Any] = {}
        self.functions: dict[Any, Any] = {}
        count = len(found.function.params)
        self.numbers = {
            node.value if index < count else node.value.var: index for index, node in enumerate(found.nodes)
        }

    def run(self, target: Any) -> Converted:
        old = self.found.function
        with target, self.builder.function("main", list(old.params), dict(old.attrs or {})):
            with self.builder.dataflow():
                for index, node in enumerate(self.found.nodes):
                    self._add(index, node)
                result = self.builder.emit_output(self._plain(old.body.body))
            self.builder.emit_func_output(result)
        module = relax.transform.CanonicalizeBindings()(self.builder.get())
        ways = [self.ways[index] for index in self.found.convolutions]
        return Converted(
            module, tuple(way.wanted or LayoutOption.NCHW for way in ways),
            tuple(self.kernels[index] for index in self.found.convolutions), tuple(self.moves),
        )  # fmt: skip

    def _add(self, index: int, node: Node) -> None:
        way = self.ways[index]
        if index < len(self.found.function.params):
            self.values[index, NCHW] = node.value
            return
        if node.operator.emit is None:
            made = self._plain(node.value.value)
        else:
            inputs = [self._value(source, layout) for source, layout in zip(node.sources, way.inputs, strict=True)]
            made = node.operator.emit(self.builder, inputs, way)
            if node.convolution:
                self.kernels[index] = operator_layouts.kernel_of(made)
        self.values[index, way.output] = self.builder.emit(made)

    def _value(self, index: int, layout: Layout) -> Expr:
        """Returns a node's value in a layout. Each transform is emitted once."""
        if (index, layout) not in self.values:
            own, shape = self.ways[index].output, self.found.nodes[index].shape
            assert shape is not None
            if not layout_kernels.free(shape, own, layout):
                self.moves.append((shape, own, layout))
            made = layout_kernels.transform(self.builder, self.values[index, own], shape, own, layout)
            self.values[index, layout] = self.builder.emit(made)
        return self.values[index, layout]

    def _plain(self, expression: Expr) -> Expr:
        """Returns an expression over the new values; outside of convolutions none has a layout."""
        if isinstance(expression, relax.Var):
            return self._value(self.numbers[expression], NCHW)
        if isinstance(expression, relax.GlobalVar):
            return self._function(expression)
        if isinstance(expression, relax.Tuple):
            return relax.Tuple([self._plain(field) for field in expression.fields])
        if isinstance(expression, relax.TupleGetItem):
            return relax.TupleGetItem(self._plain(expression.tuple_value), expression.index)
        if isinstance(expression, relax.Call):
            arguments = [self._plain(argument) for argument in expression.args]
            return relax.Call(expression.op, arguments, expression.attrs, expression.ty_args)
        return expression

    def _function(self, variable: Any) -> Any:
        """Returns the new module's variable of one of the old module's kernels."""
        if variable not in self.functions:
            self.functions[variable] = self.builder.add_func(self.found.others[variable], variable.name_hint)
        return self.functions[variable]


def _plain(inputs: Sequence[Expr]) -> Operator:
    """Returns an operator without layouts."""
    return Operator(tuple(inputs), (Way((NCHW,) * len(inputs), NCHW),), None)


def _variables(expression: Expr) -> tuple[Expr, ...]:
    """Returns the distinct variables in an expression."""
    if isinstance(expression, relax.Var):
        return (expression,)
    parts: Sequence[Any] = ()
    if isinstance(expression, relax.Tuple):
        parts = expression.fields
    elif isinstance(expression, relax.TupleGetItem):
        parts = (expression.tuple_value,)
    elif isinstance(expression, relax.Call):
        parts = expression.args
    return tuple(dict.fromkeys(value for part in parts for value in _variables(part)))


def _simple(expression: Expr) -> bool:
    """Returns whether the conversion can rebuild an expression."""
    return not isinstance(expression, relax.If | relax.Function | relax.SeqExpr)


def _bytes(shape: Shape | None, source: Layout, sink: Layout) -> float:
    """Returns the bytes that a layout transform reads and writes."""
    if shape is None or len(shape) != 4 or layout_kernels.free(shape, source, sink):
        return 0.0
    return 4.0 * float(np.prod(source.stored(shape)) + np.prod(sink.stored(shape)))
