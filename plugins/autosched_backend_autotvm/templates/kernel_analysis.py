"""Reads a kernel's main computation and finds the role of each loop: row of an image, input channel, and so on.

Names of blocks and variables depend on the importer and are ignored. The position of a variable in the indices of the
two factors and of the result determines its role:

    result[n, oc, h, w] += data[n, ic, h * stride + kh, w * stride + kw] * weights[oc, ic, kh, kw]

A dimension shared by a spatial and a reduction variable is a window, and two windows make a convolution. Without
windows the kernel is a matrix product.
"""

from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from autosched_tvm.tvm_types import Expr, PrimFunc, Stmt

CONV2D, DEPTHWISE, GROUPED = "conv2d", "depthwise_conv2d", "group_conv2d"
MATMUL, BATCH_MATMUL = "matmul", "batch_matmul"
DTYPES = {"float16": 2, "float32": 4, "float64": 8, "int32": 4, "int8": 1, "uint8": 1}
"""Size in bytes of the types that templates support."""


class NotUnderstood(Exception):
    """No template fits the kernel; the message gives the reason."""


@dataclass(frozen=True)
class Axis:
    """A loop of the main computation, with its role.

    Spatial: n, oc, ob (inner block of output channels), h, w; or b0, b1.. (outer), m (rows), n (columns). Reduction:
    ic, ib (inner block of input channels), kh, kw; or k0.., k.
    """

    role: str
    extent: int
    place: int
    """Position among the loops of the main computation."""


@dataclass(frozen=True)
class KernelAnalysis:
    """Analysis of a kernel."""

    kind: str
    layout: str
    """Layout: nchw, nhwc or nchwc for convolutions; nn or nt for products, by the contiguous axis of the right
    factor."""
    block: str
    dtype: str
    spatial: tuple[Axis, ...]
    """Spatial axes in the order of the result's dimensions."""
    reduced: tuple[Axis, ...]
    """Reduction axes in the order of the loops."""
    right: str
    """Name of the second factor: weights, or the matrix with the columns."""
    channel_block: int = 1
    """Number of contiguous input channels in a blocked layout, which are one loop here."""
    column_block: int = 0
    """Number of columns in a block of a packed right factor [n/block, k, block]; 0: it is not packed."""
    stride: tuple[int, int] = (1, 1)
    dilation: tuple[int, int] = (1, 1)

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis, by role."""
        return {axis.role: axis.extent for axis in (*self.spatial, *self.reduced)}

    @property
    def bytes(self) -> int:
        """Size of an element of the result in bytes."""
        return DTYPES[self.dtype]

    @property
    def roles(self) -> tuple[str, ...]:
        """Roles of the result's dimensions, in order."""
        return tuple(axis.role for axis in self.spatial)


@dataclass(frozen=True)
class _Factor:
    """One of the two factors of the product."""

    name: str
    indices: tuple[Expr, Expr]
    names: tuple[frozenset[str], ...]
    """Variables in each dimension."""

    @property
    def used(self) -> frozenset[str]:
        return frozenset().union(*self.names)


@dataclass(frozen=True)
class _Loops:
    """Loops of the main computation."""

    block: str
    dtype: str
    order: tuple[str, ...]
    """Spatial loops in the order of the result's dimensions."""
    reduced: tuple[str, ...]
    extents: dict[str, int]
    """Extents in the order of the loops."""

    def axis(self, role: str, name: str) -> Axis:
        """Returns a loop in its role."""
        return Axis(role, self.extents[name], list(self.extents).index(name))


@dataclass(frozen=True)
class _Window:
    """A dimension of the data shared by a position of the result and a tap of the kernel."""

    place: str
    tap: str
    stride: int
    dilation: int


def read(function: PrimFunc, block: Stmt) -> KernelAnalysis:
    """Returns the analysis of the main computation `block` of `function`. Raises NotUnderstood."""
    spatial, reduced, extents = _variables(block)
    result, left, right = _product(block)
    order = [_only(index, "the result's index") for index in result]
    if sorted(order) != sorted(spatial):
        raise NotUnderstood("the result's dimensions are not the spatial loops one by one")
    dtype = str(block.body.buffer.dtype)
    if dtype not in DTYPES:
        raise NotUnderstood(f"results of type {dtype} have no template")
    loops = _Loops(str(block.name_hint), dtype, tuple(order), tuple(reduced), extents)
    for data, weights in ((left, right), (right, left)):
        if windows := _windows(data, spatial, reduced):
            return _convolution(loops, windows, data, weights)
    return _matrix_product(loops, left, right)


def _variables(block: Stmt) -> tuple[list[str], list[str], dict[str, int]]:
    spatial: list[str] = []
    reduced: list[str] = []
    extents: dict[str, int] = {}
    for variable in block.iter_vars:
        name = key(variable.var)
        if not isinstance(variable.dom.extent, tirx.IntImm):
            raise NotUnderstood("a loop's length is known only when the kernel runs: fix all shapes")
        extents[name] = int(variable.dom.extent)
        (reduced if int(variable.iter_type) == tirx.IterVar.CommReduce else spatial).append(name)
    if not reduced:
        raise NotUnderstood("nothing is summed up")
    return spatial, reduced, extents


def _product(block: Stmt) -> tuple[Any, _Factor, _Factor]:
    """Returns the indices of the result, and the factors."""
    store = block.body
    if not isinstance(store, tirx.BufferStore) or not isinstance(store.value, tirx.Add):
        raise NotUnderstood("the main computation is not a sum")
    terms = [store.value.a, store.value.b]
    rest = [term for term in terms if not (isinstance(term, tvm.ir.TensorLoad) and term.source.same_as(store.buffer))]
    if len(rest) != 1 or not isinstance(product := _bare(rest[0]), tirx.Mul):
        raise NotUnderstood("the main computation is not a sum of products")
    factors = [_bare(product.a), _bare(product.b)]
    if not all(isinstance(factor, tvm.ir.TensorLoad) for factor in factors):
        raise NotUnderstood("a factor of the product is more than an element of a tensor")
    left, right = (
        _Factor(
            str(factor.source.name),
            tuple(factor.indices),
            tuple(frozenset(map(key, nodes(index, tirx.Var))) for index in factor.indices),
        )
        for factor in factors
    )
    return store.indices, left, right


def _bare(expression: Expr) -> Expr:
    while isinstance(expression, tirx.Cast):
        expression = expression.value
    return expression


def key(variable: Expr) -> str:
    """Returns a key that distinguishes variables, including those of the same name."""
    return f"{variable.name}@{variable.id_}"


def nodes(expression: Expr, kind: Any) -> list[Expr]:
    """Returns all parts of an expression that are of this class."""
    found: list[Any] = []
    tvm_ffi.structural_walk(expression, (kind, found.append))
    return found


def _only(index: Expr, what: str) -> str:
    if not isinstance(index, tirx.Var):
        raise NotUnderstood(f"{what} {index} is not a plain loop variable")
    return key(index)


def _steps(index: Expr) -> dict[str, int] | None:
    """Returns the coefficient of each variable in a linear index; None if it is not linear."""
    if isinstance(index, tirx.Var):
        return {key(index): 1}
    if isinstance(index, tirx.IntImm):
        return {}
    if isinstance(index, tirx.Add | tirx.Sub):
        left, right = _steps(index.a), _steps(index.b)
        if left is None or right is None:
            return None
        sign = -1 if isinstance(index, tirx.Sub) else 1
        return {name: left.get(name, 0) + sign * right.get(name, 0) for name in left | right}
    if isinstance(index, tirx.Mul) and isinstance(index.b, tirx.IntImm):
        inner = _steps(index.a)
        return None if inner is None else {name: step * int(index.b) for name, step in inner.items()}
    return None


def _windows(data: _Factor, spatial: list[str], reduced: list[str]) -> list[_Window]:
    found = []
    for index in data.indices:
        steps = _steps(index)
        if steps is None or len(steps) != 2:
            continue
        places = [name for name in steps if name in spatial]
        taps = [name for name in steps if name in reduced]
        if len(places) == 1 and len(taps) == 1:
            found.append(_Window(places[0], taps[0], steps[places[0]], steps[taps[0]]))
    return found


def _convolution(loops: _Loops, windows: list[_Window], data: _Factor, weights: _Factor) -> KernelAnalysis:
    # In a depthwise layout a channel and its only tap along the channels look like one more window.
    windows = [window for window in windows if window.place not in weights.used]
    if len(windows) != 2:
        raise NotUnderstood(f"a convolution over {len(windows)} dimensions; there are templates for two")
    high, wide = windows
    channels = [name for name in loops.order if name in weights.used]
    batch = [name for name in loops.order if name not in weights.used and name not in (high.place, wide.place)]
    if len(batch) != 1 or not 1 <= len(channels) <= 2:
        raise NotUnderstood(f"a result of {len(batch)} batch and {len(channels)} channel dimensions")
    role = {batch[0]: "n", high.place: "h", wide.place: "w", channels[0]: "oc"} | dict.fromkeys(channels[1:], "ob")
    roles = [role[name] for name in loops.order]
    layout = {"n oc h w": "nchw", "n h w oc": "nhwc", "n oc h w ob": "nchwc"}.get(" ".join(roles))
    if layout is None:
        raise NotUnderstood(f"a layout with the dimensions {', '.join(roles)}; there are nchw, nhwc and nchwc")
    inner = [name for name in loops.reduced if name not in (high.tap, wide.tap)]
    if len(inner) > 2:
        raise NotUnderstood(f"{len(inner)} loops over input channels")
    role |= {high.tap: "kh", wide.tap: "kw"} | dict(zip(inner, ("ic", "ib"), strict=False))
    spatial = tuple(loops.axis(role[name], name) for name in loops.order)
    sums = tuple(loops.axis(role[name], name) for name in loops.reduced)
    kind = _convolution_kind(data, channels, [loops.axis(role[name], name) for name in inner])
    if any(window.stride < 1 for window in windows):
        raise NotUnderstood("a convolution that walks backwards")
    return KernelAnalysis(
        kind, layout, loops.block, loops.dtype, spatial, sums, weights.name,
        channel_block=_channel_block(data, inner[0]) if len(inner) == 1 else 1,
        stride=(high.stride, wide.stride), dilation=(high.dilation, wide.dilation),
    )  # fmt: skip


def _convolution_kind(data: _Factor, channels: list[str], inner: list[Axis]) -> str:
    if not any(name in data.used for name in channels):
        return CONV2D
    single = all(axis.extent == 1 for axis in inner)
    plain = all(any(isinstance(i, tirx.Var) and key(i) == c for i in data.indices) or single for c in channels)
    return DEPTHWISE if single and plain and all(c in data.used for c in channels) else GROUPED


def _channel_block(data: _Factor, name: str) -> int:
    """Returns the divisor of a loop over all input channels in blocked data; 1 if the data is not blocked."""
    found = [
        int(part.b)
        for index in data.indices
        for part in nodes(index, tirx.FloorMod)
        if isinstance(part.a, tirx.Var) and key(part.a) == name
    ]
    return min(found, default=1)


def _matrix_product(loops: _Loops, left: _Factor, right: _Factor) -> KernelAnalysis:
    order, reduced = loops.order, loops.reduced
    last = order[-1]
    if (last in left.used) == (last in right.used):
        raise NotUnderstood("both factors, or none, depend on the result's last dimension")
    rows, columns = (left, right) if last in right.used else (right, left)
    block = _column_block(columns, last)
    linear = columns.indices[1:-1] if block else columns.indices
    if any(_steps(index) is None for index in (*rows.indices, *linear)):
        raise NotUnderstood("a factor's index is not linear in the loops")
    if any(name not in left.used or name not in right.used for name in reduced):
        raise NotUnderstood("a summed loop is in one factor only")
    outer = [name for name in order[:-1] if name in columns.used]
    alone = [name for name in order[:-1] if name not in columns.used]
    if not alone:
        raise NotUnderstood("a product without rows")
    role = {last: "n", alone[-1]: "m"}
    role |= {name: f"b{number}" for number, name in enumerate(n for n in order if n not in role)}
    role |= {name: f"k{number}" for number, name in enumerate(reduced[:-1])} | {reduced[-1]: "k"}
    closest = columns.indices[-1]
    contiguous = last if block else key(closest) if isinstance(closest, tirx.Var) else ""
    if contiguous not in (last, reduced[-1]):
        raise NotUnderstood("neither columns nor the summed loop are contiguous in the right factor")
    return KernelAnalysis(
        BATCH_MATMUL if any(name in rows.used for name in outer) else MATMUL,
        "nn" if contiguous == last else "nt",
        loops.block, loops.dtype,
        tuple(loops.axis(role[name], name) for name in order),
        tuple(loops.axis(role[name], name) for name in reduced),
        columns.name, column_block=block,
    )  # fmt: skip


def _column_block(columns: _Factor, last: str) -> int:
    """Returns the number of columns of a block for a factor [column // block, .., column % block]; 0 for any other."""
    if len(columns.indices) < 3:
        return 0
    outer, inner = columns.indices[0], columns.indices[-1]
    if not (isinstance(outer, tirx.FloorDiv) and isinstance(inner, tirx.FloorMod)):
        return 0
    if not all(isinstance(part, tirx.Var) and key(part) == last for part in (outer.a, inner.a)):
        return 0
    if not (isinstance(outer.b, tirx.IntImm) and isinstance(inner.b, tirx.IntImm)) or int(outer.b) != int(inner.b):
        return 0
    return int(inner.b)
