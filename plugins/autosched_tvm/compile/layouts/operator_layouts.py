"""Ways to compute each Relax operator in layouts, and the code of each way."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tvm
from tvm import relax

from autosched_tvm.compile.frontend.integer_convolutions import joined_groups
from autosched_tvm.compile.integers import convolution, tile_convolution, winograd_convolution
from autosched_tvm.compile.integers.dot_instructions import DotInstruction
from autosched_tvm.compile.layouts import layout_kernels, packing, transposed_convolution
from autosched_tvm.compile.layouts.layout import (
    BLOCK_MIN,
    FEW_CHANNELS,
    NCHW,
    NHWC,
    Layout,
    block_of_group,
    blocked,
    blocks_of,
    busy,
)
from autosched_tvm.compile.layouts.layout_option import LayoutOption
from autosched_tvm.compile.layouts.weight import Weight
from autosched_tvm.compile.relax_operators import BINARY, UNARY, Shape, constant, is_lookup, shape_of
from autosched_tvm.compile.winograd import algebra
from autosched_tvm.tvm_types import BlockBuilder, Expr

FLOPS_PER_BYTE = 16.0
"""Operations in the time in which a core moves a byte; weighs arithmetic against traffic where nothing is measured."""
PLAIN_SHARE = 0.5
"""Speed of a convolution in NCHW and NHWC relative to blocks."""
WINOGRAD_SHARE = 0.4
"""Estimated time of Winograd's algorithm relative to the direct way, where nothing is measured."""
INTEGER_SPEED = 4.0
"""Speed of an 8-bit convolution relative to float32."""
SCALAR_FACTOR = 100.0
"""Estimated time of an 8-bit convolution without blocks relative to one with blocks."""
PRODUCT_VECTORS = 2
"""Vectors in a block of columns: their sums fill 16 registers with six rows, and 32 with twelve."""


@dataclass(frozen=True)
class Way:
    """One way to compute an operator."""

    inputs: tuple[Layout, ...]
    """Layout of each computed input, in order."""
    output: Layout
    wanted: LayoutOption | None = None
    """Layout option of this way; None for operators other than convolutions and products with weights."""
    cost: float = 0.0
    """Estimated cost, in bytes moved."""
    winograd: algebra.Algorithm | None = None
    """Winograd algorithm of a convolution; None for all other ways."""
    columns: int = 0
    """Columns of a block of weights of a product; 0 for all other ways."""


Emit = Callable[[Any, list[Any], Way], Any]
"""Returns the expression of (builder, computed inputs in their layouts, way)."""


@dataclass(frozen=True)
class Operator:
    """One call in the network: its computed inputs, and the ways to compute it. The first way is the original one."""

    inputs: tuple[Any, ...]
    ways: tuple[Way, ...]
    emit: Emit | None
    """Emits a way; None: rebuild the call unchanged."""


@dataclass(frozen=True)
class Around:
    """Surroundings on which an operator's ways depend."""

    lanes: int
    """Number of float32 values in a vector register."""
    outputs: Mapping[Any, Sequence[Layout]]
    """Possible layouts of the values computed before."""
    calls: Mapping[Expr, Expr] = field(default_factory=dict)
    """Calls that compute them."""
    instruction: DotInstruction | None = None
    """The CPU's dot instruction for 8-bit integers."""
    tiles: bool = False
    """Whether the CPU has instructions on whole tiles."""
    weights: dict[Any, Weight] = field(default_factory=dict)
    """Weights by constant."""

    def weight(self, value: Expr) -> Weight | None:
        """Returns a constant, the same for each call that reads it; None for a computed value."""
        if value not in self.weights:
            if (array := constant(value)) is None:
                return None
            self.weights[value] = Weight(array)
        return self.weights[value]

    def blocks(self, channels: int, *values: Any) -> list[int]:
        """Returns the blocks worth trying for a number of channels, and those that these values may have."""
        coming = (layout.block for value in values for layout in self.outputs.get(value, ()) if layout.block)
        return list(dict.fromkeys((*blocks_of(channels, self.lanes), *coming)))


def describe(call: Expr, around: Around) -> Operator | None:
    """Returns the ways to compute a call; None for an operator without layouts."""
    name = getattr(getattr(call, "op", None), "name", "")
    shape = shape_of(call)
    if name == "relax.nn.conv2d":
        return _conv2d_of_integers(call, around) if str(call.ty.dtype) == "int32" else _conv2d(call, around)
    if name == "relax.nn.conv2d_transpose":
        return _conv2d_transpose(call, around)
    if name == "relax.matmul":
        return _product(call, around)
    if name in _REDUCTIONS:
        return _reduction(call, around)
    if shape is None or len(shape) != 4:
        return None
    if name in UNARY or name in BINARY or is_lookup(call):
        return _elementwise(call, name, shape, around)
    if name in _POOLS or name == "relax.nn.adaptive_avg_pool2d":
        return _pool(call, shape, around)
    if name == "relax.image.resize2d":
        return _resize(call, shape, around)
    if name == "relax.concat":
        return _concat(call, shape, around)
    if name == "relax.nn.pad":
        return _pad(call, shape, around)
    if name == "relax.permute_dims":
        return _permute(call, shape)
    if name == "relax.nn.prelu":
        return _prelu(call, shape, around)
    return None


def fuses(call: Expr) -> bool:
    """Returns whether an operator can be fused into the kernel that computes its input."""
    name = getattr(getattr(call, "op", None), "name", "")
    return name in UNARY or name in BINARY or name == "relax.nn.prelu" or is_lookup(call)


def kernel_of(convolution: Expr) -> Expr:
    """Returns the weights of an emitted convolution, as they are in the module."""
    arguments = convolution.args
    packed = getattr(arguments[1], "fields", None)  # the arguments of a call to a kernel are a tuple
    return packed[1] if packed is not None else arguments[1]


# Convolutions ---------------------------------------------------------------------------------------------------------


def _conv2d(call: Expr, around: Around) -> Operator | None:
    data, attrs = call.args[0], call.attrs
    kernel = around.weight(call.args[1])
    shape, out = shape_of(data), shape_of(call)
    if kernel is None or shape is None or out is None or constant(data) is not None:
        return None
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) != ("NCHW", "OIHW", "NCHW"):
        return None
    if any(dtype != "float32" for dtype in (str(data.ty.dtype), str(kernel.array.dtype), str(call.ty.dtype))):
        return None
    groups = int(attrs.groups)
    work = 2 * math.prod(out) * math.prod(kernel.array.shape[1:]) / FLOPS_PER_BYTE
    ways = [
        Way((NCHW,), NCHW, LayoutOption.NCHW, work / PLAIN_SHARE),
        Way((NHWC,), NHWC, LayoutOption.NHWC, work / PLAIN_SHARE),
        *_blocked_ways(data, (shape[1], out[1], groups), work, around),
    ]
    how = layout_kernels.Convolution.of(attrs)
    if how.plain:
        window = kernel.array.shape[2:]
        image = algebra.Shape(out[0], shape[1], out[1], out[2], out[3], (window[0], window[1]))
        ways += _winograd_ways(ways, algebra.worth(image, around.lanes))

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        if way.output == NCHW:
            return relax.Call(call.op, [inputs[0], call.args[1]], call.attrs, call.ty_args)
        if way.output == NHWC:
            return layout_kernels.conv2d_nhwc(builder, inputs[0], kernel, how)
        if way.winograd:
            blocks = way.inputs[0].block, way.output.block
            return layout_kernels.conv2d_winograd(builder, inputs[0], kernel, way.winograd, how.padding, blocks)
        source, block = inputs[0], way.inputs[0].block
        if not block:  # with few channels, NCHW is blocks of one and NHWC one block of all, equal in memory
            block = 1 if way.inputs[0] == NCHW else shape[1]
            source = builder.emit(relax.op.reshape(source, blocked(block).stored(shape)))
        return layout_kernels.conv2d_blocked(builder, source, kernel, how, (block, way.output.block))

    return Operator((data,), tuple(ways), emit)


def _conv2d_of_integers(call: Expr, around: Around) -> Operator | None:
    """An 8-bit convolution, including the operator that pads its image."""
    data, kernel, attrs = call.args[0], constant(call.args[1]), call.attrs
    how = layout_kernels.Convolution.of(attrs)
    if around.instruction is None or kernel is None or any(how.padding):
        return None
    if (str(data.ty.dtype), str(kernel.dtype)) != ("uint8", "int8"):
        return None
    depthwise = how.groups > 1 and kernel.shape[:2] == (how.groups, 1)
    dense = kernel if depthwise else joined_groups(kernel, how.groups, around.instruction.lanes)
    if dense is None:
        return None
    instruction, border, value = around.instruction, (0, 0, 0, 0), 0
    if (found := _border(around.calls.get(data))) is not None:
        data, border, value = found
    shape, out = shape_of(data), shape_of(call)
    if shape is None or out is None or constant(data) is not None:
        return None
    window = convolution.Window(how.strides, how.dilation, border, value)
    work = 2 * math.prod(out) * math.prod(kernel.shape[1:]) / FLOPS_PER_BYTE / INTEGER_SPEED
    coming = [block for block in around.blocks(shape[1], data) if block % instruction.group == 0]
    if dense.shape[1] != shape[1]:
        coming = [block for block in (*coming, BLOCK_MIN) if dense.shape[1] % block == 0]
    pairs = [(block, instruction.lanes) for block in ([BLOCK_MIN] if shape[1] <= BLOCK_MIN else coming)]
    if depthwise:
        pairs = [(block, block) for block in around.blocks(shape[1], data)]
    ways = [Way((NCHW,), NCHW, LayoutOption.NCHW, work * SCALAR_FACTOR)]
    if unfolds := shape[1] == 1 and kernel.shape[3] > 1:
        ways.append(Way((NCHW,), blocked(instruction.lanes), LayoutOption.NCHWC, work))
    else:
        ways += (
            Way((blocked(one),), blocked(other), LayoutOption.NCHWC, work / busy(shape[1], one, one))
            for one, other in pairs
        )

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        if way.output == NCHW:
            image = inputs[0]
            if any(border):
                top, left, bottom, right = border
                widths = [0, 0, 0, 0, top, bottom, left, right]
                image = builder.emit(relax.op.nn.pad(image, widths, "constant", float(value)))
            return relax.Call(call.op, [image, call.args[1]], call.attrs, call.ty_args)
        if depthwise:
            return convolution.depthwise(builder, inputs[0], kernel, window)
        tiles = around.tiles and not unfolds and how.groups == 1
        if tiles and tile_convolution.worthwhile(inputs[0].ty.shape, kernel.shape, window):
            return tile_convolution.packed(builder, inputs[0], kernel, window)
        if not unfolds and winograd_convolution.worthwhile(inputs[0].ty.shape, dense.shape, window, instruction):
            found = winograd_convolution.packed(builder, inputs[0], dense, window, instruction)
            if found is not None:
                return found
        return convolution.packed(builder, inputs[0], dense, window, instruction)

    return Operator((data,), tuple(ways), emit)


def _border(call: Any) -> tuple[Any, tuple[int, int, int, int], int] | None:
    """Returns the parts of a constant padding: the image, rows and columns of padding, and their value."""
    if getattr(getattr(call, "op", None), "name", "") != "relax.nn.pad" or call.attrs.pad_mode != "constant":
        return None
    widths = [int(width) for width in call.attrs.pad_width]
    if any(widths[:4]) or len(widths) != 8:
        return None
    top, bottom, left, right = widths[4:]
    return call.args[0], (top, left, bottom, right), int(call.attrs.pad_value)


def _blocked_ways(data: Expr, sizes: tuple[int, int, int], work: float, around: Around) -> list[Way]:
    channels, filters, groups = sizes
    lanes = around.lanes
    ways = []
    if groups == 1:
        coming = [blocked(block) for block in around.blocks(channels, data)]
        sources = [NCHW, NHWC] if channels <= FEW_CHANNELS else coming
        pairs = [(source, blocked(block)) for source in sources for block in blocks_of(filters, lanes)]
    elif groups == channels == filters:
        pairs = [(blocked(block), blocked(block)) for block in around.blocks(channels, data)]
    else:
        inside, outside = (block_of_group(count, groups, lanes) for count in (channels, filters))
        pairs = [(blocked(inside), blocked(outside))] if inside and outside else []
    for source, sink in pairs:
        lost = busy(filters, sink.block, lanes)
        if source.block and groups == 1:
            lost *= busy(channels, source.block, source.block)
        ways.append(Way((source,), sink, LayoutOption.NCHWC, work / lost))
    return ways


def _winograd_ways(ways: Sequence[Way], algorithms: Sequence[algebra.Algorithm]) -> list[Way]:
    """Returns a way for each algorithm and each pair of blocked layouts. The first algorithm is the most promising."""
    blocked_ways = [way for way in ways if way.inputs[0].block and way.output.block]
    return [
        replace(way, winograd=one, cost=way.cost * WINOGRAD_SHARE * (1 + rank))
        for rank, one in enumerate(algorithms)
        for way in blocked_ways
    ]


def _conv2d_transpose(call: Expr, around: Around) -> Operator | None:
    """A dense convolution with one output channel for each result of an input position, then a kernel that interleaves
    these channels. TVM's own computation multiplies by the zeros between the data."""
    data, attrs = call.args[0], call.attrs
    kernel = constant(call.args[1])
    shape, out = shape_of(data), shape_of(call)
    if kernel is None or shape is None or out is None or constant(data) is not None:
        return None
    if (attrs.data_layout, attrs.kernel_layout, attrs.out_layout) != ("NCHW", "IOHW", "NCHW"):
        return None
    if any(dtype != "float32" for dtype in (str(data.ty.dtype), str(kernel.dtype), str(call.ty.dtype))):
        return None
    if int(attrs.groups) != 1 or any(int(step) != 1 for step in attrs.dilation):
        return None
    how = transposed_convolution.Upsampling.of(attrs, kernel.shape[2:], shape[2:], out[2:])
    work = 2 * math.prod(how.image) * how.phases * math.prod(kernel.shape[:2]) * math.prod(how.taps) / FLOPS_PER_BYTE
    ways = []
    for block in around.blocks(shape[1], data):
        lost = busy(shape[1], block, block)
        sinks = blocks_of(out[1], around.lanes) if out[1] >= BLOCK_MIN else ()
        ways += [Way((blocked(block),), blocked(o), None, work / lost / busy(out[1], o, around.lanes)) for o in sinks]
        few = blocks_of(how.phases * out[1], around.lanes)[0]
        ways.append(Way((blocked(block),), NCHW, None, work / lost / busy(how.phases * out[1], few, around.lanes)))

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        together = 1 if way.output == NCHW else way.output.block
        filters = how.kernel(kernel, together)
        sink = way.output.block or blocks_of(filters.shape[0], around.lanes)[0]
        convolution = layout_kernels.Convolution((1, 1), how.padding, (1, 1), 1)
        blocks = (way.inputs[0].block, sink)
        computed = builder.emit(layout_kernels.conv2d_blocked(builder, inputs[0], Weight(filters), convolution, blocks))
        return transposed_convolution.spread(builder, computed, how, out, way.output)

    return Operator((data,), tuple(ways), emit)


# Products with weights ------------------------------------------------------------------------------------------------


def _product(call: Expr, around: Around) -> Operator | None:
    """A product with a constant matrix, unchanged or in blocks of columns."""
    data, weights = call.args[0], around.weight(call.args[1])
    shape = shape_of(data)
    if weights is None or weights.array.ndim != 2 or shape is None or len(shape) < 2 or constant(data) is not None:
        return None
    if any(dtype != "float32" for dtype in (str(data.ty.dtype), str(weights.array.dtype), str(call.ty.dtype))):
        return None
    columns = weights.array.shape[1]
    if columns < around.lanes:
        return None
    work = 2 * math.prod(shape) * columns / FLOPS_PER_BYTE
    block = PRODUCT_VECTORS * around.lanes if columns > around.lanes else around.lanes
    ways = (
        Way((NCHW,), NCHW, LayoutOption.NCHW, work / PLAIN_SHARE),
        Way((NCHW,), NCHW, LayoutOption.NCHWC, work, columns=block),
    )

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        if not way.columns:
            return relax.Call(call.op, [inputs[0], call.args[1]], call.attrs, call.ty_args)
        return layout_kernels.packed_matmul(builder, inputs[0], weights, way.columns)

    return Operator((data,), ways, emit)


# Operators that follow their inputs -----------------------------------------------------------------------------------

_UNSAFE = frozenset(f"relax.{name}" for name in ("log", "rsqrt", "power"))
"""Operators with non-finite results for 0, which padded blocks contain."""
_POOLS = frozenset({"relax.nn.max_pool2d", "relax.nn.avg_pool2d"})
_REDUCTIONS = {
    "relax.mean": relax.op.mean,
    "relax.max": relax.op.max,
    "relax.min": relax.op.min,
    "relax.sum": relax.op.sum,
}
"""Function that emits a reduction, by name of the operator."""


def _follow(channels: int, inputs: Sequence[Expr], around: Around, *, fill: bool = True) -> list[Layout]:
    """Returns the layouts of an operator that accepts any, the original one first."""
    candidates = [blocked(block) for block in around.blocks(channels, *inputs)]
    return [NCHW, NHWC, *(layout for layout in candidates if fill or not layout.filled(channels))]


def _elementwise(call: Expr, name: str, shape: Shape, around: Around) -> Operator | None:
    table = [call.args[0]] if is_lookup(call) else []
    arguments = list(call.args) if name in BINARY else [call.args[len(table)]]
    rest = list(call.args[len(table) + len(arguments) :])
    computed = [value for value in arguments if constant(value) is None]
    if not any(shape_of(value) == shape for value in arguments) or any(_stubborn(v, shape) for v in computed):
        return None
    divides = name == "relax.divide"
    fill = name not in _UNSAFE and not (divides and constant(arguments[1]) is None)
    constants = [value for value in arguments if constant(value) is not None]
    ways = [
        Way(tuple(_input(value, shape, layout) for value in computed), layout)
        for layout in _follow(shape[1], computed, around, fill=fill)
        if all(_operand(value, shape, layout, divides) is not None for value in constants)
    ]

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        queue = iter(inputs)
        operands = [
            _shaped(builder, next(queue), value, shape, way.output)
            if constant(value) is None
            else _operand(value, shape, way.output, divides)
            for value in arguments
        ]
        return relax.Call(call.op, [*table, *operands, *rest], call.attrs, call.ty_args)

    return Operator(tuple(computed), tuple(ways), emit)


def _stubborn(value: Expr, shape: Shape) -> bool:
    """Returns whether an operand cannot have the layout: it has another rank, and more than one number."""
    own = shape_of(value)
    return own is None or (len(own) != 4 and math.prod(own) != 1) or (len(own) == 4 and own[1] not in (1, shape[1]))


def _single(value: Expr, shape: Shape) -> bool:
    """Returns whether an operand has one channel where the result has several."""
    own = shape_of(value) or ()
    return len(own) != 4 or own[1] != shape[1]


def _input(value: Expr, shape: Shape, layout: Layout) -> Layout:
    return NCHW if _single(value, shape) else layout


def _shaped(builder: BlockBuilder, given: Expr, value: Expr, shape: Shape, layout: Layout) -> Expr:
    """Returns an operand with one channel in the shape of the layout, which is the same in memory."""
    own = shape_of(value) or ()
    if layout == NCHW or len(own) != 4 or not _single(value, shape):
        return given
    n, _, h, w = own
    return builder.emit(relax.op.reshape(given, (n, 1, h, w, 1) if layout.block else (n, h, w, 1)))


def _operand(value: Any, shape: Shape, layout: Layout, divisor: bool) -> Any:
    array = constant(value)
    if layout == NCHW:
        return value
    packed = packing.operand(array, shape, layout, fill=1.0 if divisor else 0.0)
    return None if packed is None else relax.const(packed, str(array.dtype))


def _pool(call: Expr, shape: Shape, around: Around) -> Operator | None:
    data, attrs = call.args[0], call.attrs
    if attrs.layout != "NCHW" or attrs.out_layout != "NCHW" or constant(data) is not None:
        return None

    def emit(_builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        changes = {"layout": str(way.output), "out_layout": str(way.output)}
        return relax.Call(call.op, [inputs[0]], _with(attrs, changes), call.ty_args)

    return Operator((data,), tuple(Way((layout,), layout) for layout in _follow(shape[1], [data], around)), emit)


def _resize(call: Expr, shape: Shape, around: Around) -> Operator | None:
    """A resize acts on each channel separately, so each layout works."""
    data, size, attrs = call.args[0], call.args[1], call.attrs
    if attrs.layout != "NCHW" or constant(data) is not None:
        return None
    names = (
        "method", "coordinate_transformation_mode", "rounding_method", "cubic_alpha", "cubic_exclude",
        "extrapolation_value", "out_dtype",
    )  # fmt: skip
    kept = {name: getattr(attrs, name) for name in names}
    roi = tuple(float(edge) for edge in attrs.roi)

    def emit(_builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        return relax.op.image.resize2d(inputs[0], size, roi=roi, layout=str(way.output), **kept)

    return Operator((data,), tuple(Way((layout,), layout) for layout in _follow(shape[1], [data], around)), emit)


def _prelu(call: Expr, shape: Shape, around: Around) -> Operator | None:
    """A PReLU with a slope for each channel, for which blocks have no axis."""
    data, slopes = call.args[0], constant(call.args[1])
    if int(call.attrs.axis) != 1 or slopes is None or slopes.shape != (shape[1],) or constant(data) is not None:
        return None

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        if way.output == NCHW:
            return relax.Call(call.op, [inputs[0], call.args[1]], call.attrs, call.ty_args)
        return layout_kernels.prelu(builder, inputs[0], packing.pack(slopes.reshape(1, -1, 1, 1), way.output))

    return Operator((data,), tuple(Way((layout,), layout) for layout in _follow(shape[1], [data], around)), emit)


def _with(attrs: Any, changes: dict[str, str]) -> Any:
    """Returns attributes with some of them changed."""
    names = ("pool_size", "output_size", "strides", "padding", "dilation", "ceil_mode", "count_include_pad")
    kept = {name: getattr(attrs, name) for name in names if hasattr(attrs, name)}
    return tvm.ir.make_node(type(attrs).__tvm_ffi_type_info__.type_key, **kept, **changes)


def _reduction(call: Expr, around: Around) -> Operator | None:
    """A reduction over each plane of an image, whose result has one row and one column or is no image; or over a whole
    image."""
    data, attrs = call.args[0], call.attrs
    shape, out = shape_of(data), shape_of(call)
    if shape is None or out is None or len(shape) != 4 or constant(data) is not None:
        return None
    axes = list(range(4)) if attrs.axis is None else sorted(int(axis) % 4 for axis in attrs.axis)
    keeps, function = len(out) == 4, _REDUCTIONS[call.op.name]
    if axes == list(range(4)):
        return _total(data, out, function, _follow(shape[1], [data], around, fill=False))
    if axes != [2, 3]:
        return None

    def emit(builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        layout = way.inputs[0]
        reduced = function(inputs[0], [layout.axis(2), layout.axis(3)], keepdims=layout != NCHW or keeps)
        return reduced if keeps or layout == NCHW else relax.op.reshape(builder.emit(reduced), out)

    candidates = _follow(shape[1], [data], around, fill=keeps)
    return Operator((data,), tuple(Way((layout,), layout if keeps else NCHW) for layout in candidates), emit)


def _total(data: Expr, out: Shape, function: Callable[..., Any], layouts: Sequence[Layout]) -> Operator:
    """A reduction of all values to one, which may be taken in any order."""

    def emit(builder: BlockBuilder, inputs: list[Expr], _way: Way) -> Expr:
        reduced = function(inputs[0], None)
        return relax.op.reshape(builder.emit(reduced), out) if out else reduced

    return Operator((data,), tuple(Way((layout,), NCHW) for layout in layouts), emit)


def _concat(call: Expr, shape: Shape, around: Around) -> Operator | None:
    fields = list(getattr(call.args[0], "fields", ()))
    axis = int(call.attrs.axis) % 4 if call.attrs.axis is not None else 0
    shapes = [shape_of(value) for value in fields]
    if not fields or any(own is None for own in shapes) or any(constant(value) is not None for value in fields):
        return None
    channels = [own[1] for own in shapes if own is not None]
    common = math.gcd(*channels)
    candidates = [NCHW, NHWC]
    blocks = dict.fromkeys(
        block for value, count in zip(fields, channels, strict=True) for block in around.blocks(count, value)
    )
    candidates += [blocked(block) for block in blocks if axis != 1 or common % block == 0]

    def emit(_builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        return relax.op.concat(inputs, way.output.axis(axis))

    return Operator(tuple(fields), tuple(Way((layout,) * len(fields), layout) for layout in candidates), emit)


def _permute(call: Expr, shape: Shape) -> Operator | None:
    """A permutation between NHWC and NCHW is free if the NCHW value is stored as NHWC."""
    data, axes = call.args[0], [int(axis) for axis in call.attrs.axes or ()]
    if axes not in ([0, 3, 1, 2], [0, 2, 3, 1]) or constant(data) is not None:
        return None
    free = Way((NCHW,), NHWC) if axes == [0, 3, 1, 2] else Way((NHWC,), NCHW)
    turn = Way((NCHW,), NCHW, cost=2 * 4.0 * math.prod(shape))

    def emit(_builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        return inputs[0] if way == free else relax.Call(call.op, inputs, call.attrs, call.ty_args)

    return Operator((data,), (turn, free), emit)


def _pad(call: Expr, shape: Shape, around: Around) -> Operator | None:
    data, attrs = call.args[0], call.attrs
    widths = np.asarray([int(width) for width in attrs.pad_width]).reshape(-1, 2)
    if attrs.pad_mode != "constant" or len(widths) != 4 or widths[1].any() or constant(data) is not None:
        return None

    def emit(_builder: BlockBuilder, inputs: list[Expr], way: Way) -> Expr:
        ordered = [(0, 0)] * (5 if way.output.block else 4)
        for axis, pair in enumerate(widths):
            ordered[way.output.axis(axis)] = (int(pair[0]), int(pair[1]))
        return relax.op.nn.pad(inputs[0], [w for pair in ordered for w in pair], attrs.pad_mode, attrs.pad_value)

    return Operator((data,), tuple(Way((layout,), layout) for layout in _follow(shape[1], [data], around)), emit)
