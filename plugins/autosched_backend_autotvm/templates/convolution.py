"""Convolutions on a CPU in the layouts NCHW[x]c and NHWC: tiles of a few pixels by a few vectors of output channels."""

import math
from collections.abc import Mapping

import numpy as np

from autosched_backend_autotvm.config_space import Knob, Numbers, Rule, Value
from autosched_backend_autotvm.templates import tile_estimate
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis
from autosched_backend_autotvm.templates.register_tiling import Tiling, schedule
from autosched_backend_autotvm.templates.template import (
    Machine,
    Template,
    divisors,
    factor,
    fits,
    lanes,
    number,
    pieces,
    word,
)

TILE_H_MAX = 8
CHANNEL_VECTORS_MAX = 4
CHANNEL_STEP_MAX = 64
CHUNK_BYTES_MIN = 8_192
"""Minimum size in bytes of a chunk's weights for one vector of output channels. Adding up smaller chunks takes too
long."""

OUTER = ("oc h w", "h oc w", "h w oc", "oc w h")
UNROLLS = (1, 2, 4)
SUMS = ("ic kh kw ib", "kh ic kw ib", "kh kw ic ib", "ic kh ib kw")


def template(nest: KernelAnalysis, machine: Machine) -> Template:
    """Returns the template for a convolution, with or without groups."""
    size = nest.extents
    blocked = nest.layout == "nchwc"
    width = lanes(size["ob" if blocked else "oc"], nest.bytes, machine)
    registers = machine.registers
    window = size["kh"] * size["kw"] > 1
    knobs = (
        pieces("tile_oc", size["oc"], CHANNEL_VECTORS_MAX * (1 if blocked else width), "output channels of a tile"
               + (", in blocks" if blocked else ""), 1 if blocked else width),
        pieces("tile_h", size["h"], TILE_H_MAX, "rows of a tile"),
        pieces("tile_w", size["w"], registers, "columns of a tile"),
        Knob("outer", OUTER, (), "order of the loops over tiles, outermost first: what is inside stays in the cache"),
        Knob("sums", SUMS if window else SUMS[:1], (), "order of the summed loops; ib: channels side by side"),
        _step(nest),
        _chunks(nest, width if not blocked else size["ob"]),
        Knob("unroll_kw", (0, 1) if size["kw"] > 1 else (0,), (), "whether the kernel's columns are unrolled"),
        Knob("unroll_ic", UNROLLS[:1] if window else UNROLLS, (*(UNROLLS[1:] if window else ()), 8),
             "input channels that are unrolled"),
        Knob("pad", ("root",), ("oc", "h"), "where the padded copy is made: at once, or for the tiles under a loop"),
        Knob("parallel", (3,), (0, 1, 2, 4), "how many loops over tiles are spread over threads"),
    )  # fmt: skip
    vectors_per_step = size["ob"] // width if blocked else 1

    def tile(config: Mapping[str, Value]) -> tuple[int, int]:
        """Returns vectors of channels, and pixels."""
        steps = number(config, "tile_oc") // (1 if blocked else width)
        return steps * vectors_per_step, number(config, "tile_h") * number(config, "tile_w")

    inner = {"ob": size["ob"]} if blocked else {}

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        sums, unrolled = _sums(nest, config)
        extents = {role: number(config, f"tile_{role}") for role in ("oc", "h", "w")} | inner
        schedule(kernel, Tiling(
            tile=extents, vector="ob" if blocked else "oc", lanes=width, outer=word(config, "outer").split(),
            parallel=number(config, "parallel"), sums=sums, unrolled=unrolled, pad=word(config, "pad"), inner=("oc",),
            chunks=number(config, "chunks"),
        ))  # fmt: skip

    def admit(config: Mapping[str, Value]) -> str | None:
        chunks = number(config, "chunks")
        if chunks > 1 and not (word(config, "outer").startswith("oc") and word(config, "sums").startswith("ic")):
            return "chunks are summed inside the loop over output channels, and outside all other sums"
        if (size["ic"] // _per_loop(nest, config)) % chunks:
            return f"{chunks} chunks do not divide the input channels"
        return None

    legal = Rule(("outer", "sums", "chunks", "tile_ic"), admit)

    def insight(values: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        waste = math.prod(tile_estimate.wasted(size[role], values[f"tile_{role}"]) for role in ("oc", "h", "w"))
        tiles = {role: np.ceil(size[role] / values[f"tile_{role}"]) for role in ("oc", "h", "w")}
        spread = size["n"] * tiles["oc"] * np.where(values["chunks"] > 1, 1, tiles["h"] * tiles["w"])
        waste = waste * tile_estimate.imbalance(spread, machine.threads)
        steps = math.prod(axis.extent for axis in nest.reduced) / values["chunks"]
        across = values["tile_oc"] / (1 if blocked else width) * vectors_per_step
        return tile_estimate.tile(
            across, values["tile_h"] * values["tile_w"], steps=steps, waste=waste, registers=registers
        )

    return Template(
        f"{nest.kind}_{nest.layout}.llvm", nest, knobs, run, legal, fits(knobs[:3], tile, registers), insight
    )


def _step(nest: KernelAnalysis) -> Knob:
    """Returns the knob for the number of input channels summed before the kernel's next tap; fixed where the layout
    determines it."""
    meaning = "input channels that are summed side by side"
    size = nest.extents
    if nest.layout == "nchwc":
        return Knob("tile_ic", (size.get("ib", nest.channel_block),), (), meaning)
    return factor("tile_ic", size["ic"], CHANNEL_STEP_MAX, meaning)


def _chunks(nest: KernelAnalysis, filters: int) -> Knob:
    """Returns the knob for the number of parts of the input channels. Several are worth a try where the weights exceed
    the L1 cache."""
    size = nest.extents
    blocks = size["ic"] // (1 if "ib" in size else nest.channel_block)
    weights = nest.bytes * filters * size["ic"] * size.get("ib", 1) * size["kh"] * size["kw"]
    values = tuple(d for d in divisors(blocks) if d == 1 or CHUNK_BYTES_MIN * d <= weights)
    return Knob("chunks", values, tuple(d for d in divisors(blocks) if d not in values), "parts of the input channels")


def _per_loop(nest: KernelAnalysis, config: Mapping[str, Value]) -> int:
    """Returns the number of input channels of the role "ic" in one step of its outer loop."""
    return 1 if "ib" in nest.extents else number(config, "tile_ic")


def _sums(nest: KernelAnalysis, config: Mapping[str, Value]) -> tuple[list[tuple[str, int]], frozenset[int]]:
    """Returns the reduction loops in order, and the positions of those that are unrolled."""
    size = nest.extents
    step, unroll = number(config, "tile_ic"), number(config, "unroll_ic")
    unroll = max(d for d in divisors(step) if d <= unroll)
    inside = "ib" if "ib" in size else "ic"
    loops: list[tuple[str, int]] = []
    for role in word(config, "sums").split():
        if role == "ib":
            loops.append((inside, step // unroll))
        elif role == "ic":
            loops.append(("ic", size["ic"] // _per_loop(nest, config) // number(config, "chunks")))
        else:
            loops.append((role, size[role]))
    loops.append((inside, unroll))
    unrolled = {len(loops) - 1}
    if number(config, "unroll_kw"):
        unrolled.add(next(place for place, (role, _) in enumerate(loops) if role == "kw"))
    return loops, frozenset(unrolled)
