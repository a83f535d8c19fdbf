"""Schedule of all CPU templates: a tile of results stays in vector registers during the whole reduction.

    parallel over tiles
        tile = 0
        for each reduction loop, in the order asked for
            tile += data * weights        (the tile unrolled, its last dimension a vector)
        results = what is fused(tile)     (unrolled and vectorised too)

With chunks, the reduction is split into parts, so that the weights of one part stay in the L1 cache for all tiles of an
image:

    parallel over the outermost loop over tiles
        sums = 0
        for each chunk of the input channels
            for the other loops over tiles
                tile = 0
                for each reduction loop: tile += data * weights
                sums += tile
        for the other loops over tiles: results = what is fused(sums)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import Axis, NotUnderstood
from autosched_tvm.tvm_types import BlockRV, LoopRV, Schedule


@dataclass(frozen=True)
class Tiling:
    """Tiling of a kernel, by the roles of its axes."""

    tile: Mapping[str, int]
    """Extent of each spatial axis in the tile; 1 for those not named. Each divides its axis."""
    vector: str
    """Spatial axis along which vectors lie."""
    lanes: int
    """Number of lanes; it divides the vector axis's extent in the tile."""
    outer: Sequence[str]
    """Order of the loops over tiles, outermost first; those not named come before."""
    parallel: int
    """Number of these loops, from the outermost, that are parallel (with all before them); 0 for none."""
    sums: Sequence[tuple[str, int]]
    """Order of the reduction loops: (role, extent of this part). A role that occurs twice is split, the outer part
    first."""
    unrolled: frozenset[int] = frozenset()
    """Positions in `sums` that are unrolled."""
    pad: str = "root"
    """Position of padded copies: "root", or the outer loop (a role) under which only the tile's part is copied."""
    pack: str = ""
    """Outer loop (a role) under which the right factor's part is copied in reading order; "" for no copy."""
    inner: Sequence[str] = ()
    """Order of the tile's own loops; those not named come before."""
    band: int = 1
    """Number of rows of tiles in a band. With bands, the loop "h" is over bands, and "hb" in `outer` over a band's
    rows."""
    chunks: int = 1
    """Number of parts of the first reduction axis."""


def schedule(kernel: Kernel, tiling: Tiling) -> None:
    """Applies the tiling. Raises TVM's exceptions."""
    sch, nest = kernel.schedule, kernel.nest
    outer, inner, vector = _cut(kernel, tiling)
    order = [*(role for role in nest.roles if role not in tiling.outer), *tiling.outer]
    sch.reorder(*(outer[role] for role in order), *inner, vector)
    packed = sch.cache_read(kernel.anchor, _right(kernel), "global") if tiling.pack else None
    chunk = None
    if tiling.chunks > 1:
        block, axes, chunk = _chunk(kernel, tiling, outer[tiling.outer[0]])
    else:
        block, axes = kernel.anchor, sorted((*nest.spatial, *nest.reduced), key=lambda axis: axis.place)
        sch.compute_at(block, outer[order[-1]], preserve_unit_loops=True)
    first = _sum(kernel, tiling, block, axes)
    _pads(kernel, tiling, outer)
    if packed is not None:
        _pack(kernel, tiling, packed, outer[tiling.pack])
    if tiling.parallel:
        sch.parallel(sch.fuse(*(outer[role] for role in order[: _shared(tiling, len(order))])))
    _keep(sch, inner, vector)
    if kernel.rest is not None:
        loops = sch.get_loops(kernel.rest)
        sch.parallel(loops[0] if len(loops) < 3 else sch.fuse(*loops[:2]))
    # Last of all: around a sum without its start, TVM makes no loop parallel or a vector when it replays a trace.
    *tile, vector = sch.get_loops(sch.decompose_reduction(block, first))[-len(nest.spatial) - 1 :]
    _keep(sch, tile, vector)
    if chunk is not None:
        sch.vectorize(sch.get_loops(sch.decompose_reduction(kernel.anchor, chunk))[-1])


def _cut(kernel: Kernel, tiling: Tiling) -> tuple[dict[str, LoopRV], list[LoopRV], LoopRV]:
    """Splits the loops of the result: over tiles, inside the tile, and the vector."""
    sch = kernel.schedule
    outer, within = {}, {}
    for role, loop in kernel.loops().items():
        extent = tiling.tile.get(role, 1)
        if role == "h" and "hb" in tiling.outer:
            outer["h"], outer["hb"], within["h"] = sch.split(loop, factors=[None, tiling.band, extent])
        else:
            outer[role], within[role] = sch.split(loop, factors=[None, extent])
    within[tiling.vector], vector = sch.split(within[tiling.vector], factors=[None, tiling.lanes])
    return outer, _ordered(within, tiling.inner), vector


def _ordered(loops: Mapping[str, LoopRV], last: Sequence[str]) -> list[LoopRV]:
    return [*(loop for role, loop in loops.items() if role not in last), *(loops[r] for r in last if r in loops)]


def _keep(sch: Schedule, tile: Sequence[LoopRV], vector: LoopRV) -> None:
    """Turns a tile's loops into registers."""
    for loop in tile:
        sch.unroll(loop)
    sch.vectorize(vector)


def _chunk(kernel: Kernel, tiling: Tiling, under: LoopRV) -> tuple[BlockRV, list[Axis], LoopRV]:
    """Adds up chunks under a loop; returns the block that sums one chunk, its axes in the order of its loops, and the
    loop over chunks."""
    sch, nest = kernel.schedule, kernel.nest
    axes = sorted((*nest.spatial, *nest.reduced), key=lambda axis: axis.place)
    first = next(axis for axis in axes if axis.role == tiling.sums[0][0])
    chunk, _ = sch.split(sch.get_loops(kernel.anchor)[first.place], factors=[tiling.chunks, None])
    part = sch.rfactor(chunk, 0)
    sch.compute_at(kernel.anchor, under, preserve_unit_loops=True)
    spatial = [axis.role for axis in axes if axis in nest.spatial]
    chunk, *loops = sch.get_loops(kernel.anchor)[-len(spatial) - 1 :]
    over, within = {}, {}
    for role, loop in zip(spatial, loops, strict=True):
        over[role], within[role] = sch.split(loop, factors=[None, tiling.tile.get(role, 1)])
    within[tiling.vector], vector = sch.split(within[tiling.vector], factors=[None, tiling.lanes])
    tile = _ordered(within, tiling.inner)
    between = _ordered(over, tiling.outer)
    sch.reorder(chunk, *between, *tile, vector)
    sch.compute_at(part, between[-1], preserve_unit_loops=True)
    _keep(sch, tile, vector)
    return part, axes, chunk


def _sum(kernel: Kernel, tiling: Tiling, block: BlockRV, axes: Sequence[Axis]) -> LoopRV:
    """Sums a tile in registers, where `block` is inside the loops over tiles already. Returns the outermost reduction
    loop."""
    sch, nest = kernel.schedule, kernel.nest
    loops = dict(zip((axis.role for axis in axes), sch.get_loops(block)[-len(axes) :], strict=True))
    within = {axis.role: loops[axis.role] for axis in nest.spatial}
    within[tiling.vector], vector = sch.split(within[tiling.vector], factors=[None, tiling.lanes])
    parts: dict[str, list[Any]] = {}
    for axis in nest.reduced:
        factors = [extent for role, extent in tiling.sums if role == axis.role]
        parts[axis.role] = list(sch.split(loops[axis.role], factors=factors)) if factors[1:] else [loops[axis.role]]
    sums = [parts[role].pop(0) for role, _ in tiling.sums]
    tile = _ordered(within, tiling.inner)
    sch.reorder(*sums, *tile, vector)
    for number in sorted(tiling.unrolled):
        sch.unroll(sums[number])
    _keep(sch, tile, vector)
    return sums[0]


def _pads(kernel: Kernel, tiling: Tiling, outer: Mapping[str, LoopRV]) -> None:
    sch = kernel.schedule
    for block in kernel.pads:
        if tiling.pad == "root":
            loops = sch.get_loops(block)
            if tiling.parallel:
                sch.parallel(sch.fuse(*loops[: len(loops) // 2 + 1]))
        else:
            sch.compute_at(block, outer[tiling.pad], preserve_unit_loops=True)
        last = sch.get_loops(block)[-1]
        if int(sch.get(last).extent) == tiling.lanes:
            sch.vectorize(last)


def _right(kernel: Kernel) -> int:
    """Returns the index of the right factor among the main computation's inputs. Raises NotUnderstood."""
    names = [str(region.source.name) for region in kernel.schedule.get(kernel.anchor).reads]
    if kernel.nest.right not in names:
        raise NotUnderstood(
            f"the right factor {kernel.nest.right} is computed in the same kernel, so it cannot be copied"
        )
    return names.index(kernel.nest.right)


def _pack(kernel: Kernel, tiling: Tiling, block: BlockRV, loop: LoopRV) -> None:
    sch = kernel.schedule
    if kernel.nest.layout == "nt":
        sch.transform_layout(block, ("write", 0), lambda *index: (*index[:-2], index[-1], index[-2]))
    sch.compute_at(block, loop, preserve_unit_loops=True)
    if kernel.nest.layout == "nn":
        sch.vectorize(sch.split(sch.get_loops(block)[-1], factors=[None, tiling.lanes])[1])


def _shared(tiling: Tiling, loops: int) -> int:
    """Returns the number of loops over tiles that become one, down to the first with another computation inside."""
    before = loops - len(tiling.outer)
    places = [tiling.outer.index(role) + 1 for role in (tiling.pad, tiling.pack) if role in tiling.outer]
    return before + min([tiling.parallel, *places, *([1] if tiling.chunks > 1 else [])])
