"""Kernels for CUDA: each block of threads loads its inputs into shared memory, each thread sums a small tile.

blocks of threads
    virtual threads, threads
        tile = 0
        for each step along the input channels, and along the rows and columns of the window
            load the step's data and weights together into shared memory
            for each of its terms
                load the data and weights that the thread needs into registers, if it does
                tile += data * weights
        results = what is fused(tile)
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autosched_backend_autotvm.config_space import Knob, Value
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import DEPTHWISE, KernelAnalysis
from autosched_backend_autotvm.templates.template import Template, divisors, number
from autosched_tvm.tvm_types import BlockRV, LoopRV, Schedule, Target

WARP = 32
THREADS_MAX, SHARED_BYTES_MAX = 1024, 49_152
"""Limits of a block where the target names none: number of threads, and shared memory in bytes."""
VIRTUAL_MAX, INNER_MAX, ACCUMULATORS_MAX = 4, 8, 96
"""Maximum numbers: virtual threads along an axis; results of one thread along an axis; results of one thread in all."""
STEP_MAX = 32
UNROLLS = (0, 64, 512, 1500)
VECTORS, VECTOR_BYTES_MAX = (1, 2, 4, 8), 16
"""Elements that a thread fetches at once, and their bytes: a GPU loads no more, and TVM writes no code for more."""
PADDED, BANKS = 8, 32
"""Elements by which the rows of a block in shared memory begin behind a multiple of BANKS: then threads that read the
same column of successive rows use several of its 32 banks."""
EVERY_UNROLL = range(4097)
WINDOW = {"kh": "rows", "kw": "columns"}
"""Knobs of the axes of a convolution's window."""
TILED = {"nchw": ("oc", "h", "w"), "nhwc": ("h", "w", "oc"), "nchwc": ("oc", "h", "w", "ob")}
"""Axes that are tiled. Neighbouring threads lie along the last one."""


@dataclass(frozen=True)
class Limits:
    """Limits of one block of threads."""

    threads: int
    shared_bytes: int


def limits(target: Target) -> Limits:
    """Returns the limits of the target, or those that all devices meet."""
    return Limits(
        int(target.attrs.get("max_num_threads", THREADS_MAX)),
        int(target.attrs.get("max_shared_memory_per_block", SHARED_BYTES_MAX)),
    )


def template(nest: KernelAnalysis, target: Target) -> Template:
    """Returns the template for a convolution or product."""
    size = nest.extents
    roles = TILED.get(nest.layout, ("m", "n"))
    if nest.layout in TILED and size.get("n", 1) > 1:
        roles = ("n", *roles)
    channel = next(role for role in ("ic", "k", "kh") if role in size)
    steps = divisors(size[channel])
    window = [role for role in WINDOW if role in size and role != channel and size[role] > 1]
    in_rows = nest.kind != DEPTHWISE and nest.layout not in ("nchw", "nchwc")
    knobs = (
        *(_tile(role, size[role]) for role in roles),
        Knob("step", tuple(d for d in steps if d <= STEP_MAX), tuple(d for d in steps if d > STEP_MAX),
             f"how much of {channel} is fetched at once"),
        *(Knob(WINDOW[role], divisors(size[role]), (), f"how much of {role} is fetched at once") for role in window),
        Knob("vector", (1,), tuple(v for v in VECTORS[1:] if v * nest.bytes <= VECTOR_BYTES_MAX),
             "elements that a thread fetches at once"),
        *((Knob("padding", (0, PADDED), (), "unused elements between rows of shared memory"),
           Knob("registers", (0, 1), (), "whether a thread loads what it needs into registers first"))
          if in_rows else ()),
        Knob("shared", (0, 1) if nest.kind == DEPTHWISE else (1,), () if nest.kind == DEPTHWISE else (0,),
             "whether inputs are fetched into shared memory"),
        Knob("unroll", UNROLLS, EVERY_UNROLL, "maximum number of steps of a loop that is unrolled"),
        Knob("unroll_explicit", (0, 1), (), "whether by TVM instead of by the CUDA compiler"),
    )  # fmt: skip
    bounds = limits(target)

    def admit(config: Mapping[str, Value]) -> str | None:
        return _too_much(nest, roles, channel, bounds, config)

    def doubt(config: Mapping[str, Value]) -> str | None:
        return _slow(nest, roles, config)

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        _schedule(kernel, roles, channel, window, config)

    return Template(f"{nest.kind}_{nest.layout}.cuda", nest, knobs, run, admit, doubt)


def _tile(role: str, extent: int) -> Knob:
    """Returns the knob for (virtual threads, threads, results of a thread) along an axis; their product divides it."""
    usual: list[Value] = []
    spare: list[Value] = []
    for virtual in divisors(extent):
        for threads in divisors(extent // virtual):
            for inner in divisors(extent // virtual // threads):
                likely = virtual <= VIRTUAL_MAX and inner <= INNER_MAX and threads <= THREADS_MAX
                (usual if likely else spare).append((virtual, threads, inner))
    return Knob(f"tile_{role}", tuple(usual), tuple(spare), "virtual threads x threads x results of a thread")


def _triple(config: Mapping[str, Value], role: str) -> tuple[int, int, int]:
    value = config[f"tile_{role}"]
    assert isinstance(value, tuple)
    virtual, threads, inner = value
    return virtual, threads, inner


def _chosen(config: Mapping[str, Value], knob: str, otherwise: int) -> int:
    """Returns the value of a knob that not every kernel has."""
    return number(config, knob) if knob in config else otherwise


def _too_much(
    nest: KernelAnalysis, roles: Sequence[str], channel: str, bounds: Limits, config: Mapping[str, Value]
) -> str | None:
    tiles = {role: _triple(config, role) for role in roles}
    threads = math.prod(tile[1] for tile in tiles.values())
    if threads > bounds.threads:
        return f"{threads} threads in a block, the device has {bounds.threads}"
    if number(config, "shared") and (need := _shared_bytes(nest, tiles, channel, config)) > bounds.shared_bytes:
        return f"{need} bytes of shared memory in a block, the device has {bounds.shared_bytes}"
    return None


def _slow(nest: KernelAnalysis, roles: Sequence[str], config: Mapping[str, Value]) -> str | None:
    tiles = [_triple(config, role) for role in roles]
    threads = math.prod(tile[1] for tile in tiles)
    if threads < min(WARP, math.prod(nest.extents[role] for role in roles)):
        return f"{threads} threads in a block leave most of a warp idle"
    results = math.prod(tile[0] * tile[2] for tile in tiles)
    return f"{results} results in each thread do not fit its registers" if results > ACCUMULATORS_MAX else None


def _shared_bytes(
    nest: KernelAnalysis, tiles: Mapping[str, tuple[int, int, int]], channel: str, config: Mapping[str, Value]
) -> int:
    size = nest.extents
    extent = {role: math.prod(tile) for role, tile in tiles.items()}
    step = number(config, "step")

    def row(length: int) -> int:
        """Elements from one row to the next."""
        padding = _chosen(config, "padding", 0)
        return length + (padding - length) % BANKS if padding else length

    if "kh" not in size:
        return nest.bytes * (extent["m"] * row(step) + step * row(extent["n"]))
    rows, columns = (_chosen(config, knob, size[role]) for role, knob in WINDOW.items())
    rows = step if channel == "kh" else rows
    high, wide = (
        (extent[role] - 1) * stride + (taps - 1) * dilation + 1
        for role, taps, stride, dilation in zip("hw", (rows, columns), nest.stride, nest.dilation, strict=True)
    )
    images, channels = extent.get("n", 1), extent["oc"] * extent.get("ob", 1)
    if nest.kind == DEPTHWISE:
        return nest.bytes * channels * (images * high * wide + rows * columns)
    depth = (1 if channel == "kh" else step) * size.get("ib", 1)
    return nest.bytes * (images * high * wide * row(depth) + rows * columns * depth * row(channels))


def _schedule(
    kernel: Kernel, roles: Sequence[str], channel: str, window: Sequence[str], config: Mapping[str, Value]
) -> None:
    sch, nest = kernel.schedule, kernel.nest
    fetched = []
    if number(config, "shared"):
        count = len(sch.get(kernel.anchor).reads)
        fetched = [sch.cache_read(kernel.anchor, place, "shared") for place in range(count)]
    for block in kernel.pads:
        sch.compute_inline(block)
    sch.set_scope(kernel.anchor, 0, "local")
    thread, threads = _bind(kernel, roles, config)
    sch.compute_at(kernel.anchor, thread, preserve_unit_loops=True)
    axes = sorted((*nest.spatial, *nest.reduced), key=lambda axis: axis.place)
    loops = dict(zip((axis.role for axis in axes), sch.get_loops(kernel.anchor)[-len(axes) :], strict=True))
    outer, inner = sch.split(loops[channel], factors=[None, number(config, "step")])
    split = {role: sch.split(loops[role], factors=[None, number(config, WINDOW[role])]) for role in window}
    steps = [outer, *(split[role][0] for role in window)]
    sums = [
        split[axis.role][1] if axis.role in split else loops[axis.role] for axis in nest.reduced if axis.role != channel
    ]
    sch.reorder(*steps, *sums, inner, *(loops[axis.role] for axis in nest.spatial))
    if _chosen(config, "registers", 0):
        for place in range(len(sch.get(kernel.anchor).reads)):
            sch.compute_at(sch.cache_read(kernel.anchor, place, "local"), inner, preserve_unit_loops=True)
    for block in fetched:
        sch.compute_at(block, steps[-1], preserve_unit_loops=True)
        if _chosen(config, "padding", 0):
            sch.storage_align(block, 0, axis=-2, factor=BANKS, offset=PADDED)
        _fetch(sch, block, len(sch.get(block).iter_vars), threads, number(config, "vector"))
    sch.annotate(outer, "pragma_auto_unroll_max_step", number(config, "unroll"))
    sch.annotate(outer, "pragma_unroll_explicit", number(config, "unroll_explicit"))
    sch.decompose_reduction(kernel.anchor, outer)
    if kernel.rest is not None:
        _spread(sch, kernel.rest)


def _bind(kernel: Kernel, roles: Sequence[str], config: Mapping[str, Value]) -> tuple[LoopRV, int]:
    """Binds the result's loops to blocks and threads; returns the loop over threads and their number."""
    sch = kernel.schedule
    blocks: list[Any] = []
    virtual: list[Any] = []
    threads: list[Any] = []
    inner: list[Any] = []
    for role, loop in kernel.loops().items():
        if role not in roles:
            blocks.append(loop)
            continue
        parts = sch.split(loop, factors=[None, *_triple(config, role)])
        for kind, part in zip((blocks, virtual, threads, inner), parts, strict=True):
            kind.append(part)
    sch.reorder(*blocks, *virtual, *threads, *inner)
    sch.bind(sch.fuse(*blocks), "blockIdx.x")
    sch.bind(sch.fuse(*virtual), "vthread.x")
    thread = sch.fuse(*threads)
    sch.bind(thread, "threadIdx.x")
    return thread, math.prod(_triple(config, role)[1] for role in roles)


def _fetch(sch: Schedule, block: BlockRV, own: int, threads: int, vector: int) -> None:
    """Lets all threads of a block copy their share."""
    fused = sch.fuse(*sch.get_loops(block)[-own:])
    if vector > 1 and int(sch.get(fused).extent) % vector == 0:
        _, thread, lanes = sch.split(fused, factors=[None, threads, vector])
        sch.vectorize(lanes)
    else:
        _, thread = sch.split(fused, factors=[None, threads])
    sch.bind(thread, "threadIdx.x")


def _spread(sch: Schedule, block: BlockRV) -> None:
    """Assigns one element to each thread."""
    blocks, thread = sch.split(sch.fuse(*sch.get_loops(block)), factors=[None, 8 * WARP])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
