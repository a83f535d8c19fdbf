"""Convolutions on a CPU in the layout NCHW: vectors lie along a row of the image, weights are scalars."""

import math
from collections.abc import Mapping

import numpy as np

from autosched_backend_autotvm.config_space import Knob, Numbers, Rule, Value
from autosched_backend_autotvm.templates import tile_estimate
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import DEPTHWISE, KernelAnalysis
from autosched_backend_autotvm.templates.register_tiling import Tiling, schedule
from autosched_backend_autotvm.templates.template import Machine, Template, divisors, factor, fits, number, pieces, word

LANES_MAX = 32
"""Maximum number of lanes. Longer vectors compile too slowly."""
VECTORS_MAX = 4
CHANNELS_MAX = 16
TILE_H_MAX = 8
STEP_MAX = 64
OUTER = ("oc h w", "h oc w", "h w oc")
SUMS = ("ic kh kw", "kh ic kw", "kh kw ic")


def template(nest: KernelAnalysis, machine: Machine) -> Template:
    """Returns the template for any convolution."""
    size = nest.extents
    window = size["kh"] * size["kw"] > 1
    register = max(1, machine.vector_bytes // nest.bytes)
    widths = [d for d in divisors(size["w"]) if d <= LANES_MAX]
    likely = [d for d in widths if d >= min(4, widths[-1])]
    pads = ("root", "oc", "h") if nest.kind == DEPTHWISE else ("root",)
    knobs = (
        factor("tile_oc", size["oc"], CHANNELS_MAX, "output channels of a tile"),
        pieces("tile_h", size["h"], TILE_H_MAX, "rows of a tile"),
        factor("vectors", size["w"], VECTORS_MAX, "vectors side by side in a tile"),
        Knob("lanes", tuple(likely), tuple(d for d in widths if d not in likely), "columns in a vector"),
        Knob("outer", OUTER, (), "order of the loops over tiles, outermost first"),
        Knob("sums", SUMS if window else SUMS[:1], (), "order of the summed loops"),
        factor("tile_ic", size["ic"], STEP_MAX, "input channels that are summed in the inner loop")
        if "ic" in size else Knob("tile_ic", (1,)),
        Knob("unroll_kw", (0, 1) if size["kw"] > 1 else (0,), (), "whether the kernel's columns are unrolled"),
        Knob("pad", pads, tuple(p for p in ("oc", "h") if p not in pads), "where the padded copy is made"),
        Knob("parallel", (2,), (0, 1, 3), "how many loops over tiles are spread over threads"),
    )  # fmt: skip

    def tile(config: Mapping[str, Value]) -> tuple[int, int]:
        """Returns registers of pixels, and channels."""
        along = number(config, "vectors") * -(-number(config, "lanes") // register)
        return number(config, "tile_h") * along, number(config, "tile_oc")

    def admit(config: Mapping[str, Value]) -> str | None:
        columns = number(config, "vectors") * number(config, "lanes")
        if size["w"] % columns:
            return f"{columns} columns do not divide a row of {size['w']}"
        return None

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        step = number(config, "tile_ic")
        sums = [
            (role, size["ic"] // step if role == "ic" else size[role])
            for role in word(config, "sums").split()
            if role in size
        ]
        sums += [("ic", step)] if "ic" in size else []
        columns = number(config, "vectors") * number(config, "lanes")
        schedule(kernel, Tiling(
            tile={"oc": number(config, "tile_oc"), "h": number(config, "tile_h"), "w": columns},
            vector="w", lanes=number(config, "lanes"), outer=word(config, "outer").split(),
            parallel=number(config, "parallel"), sums=sums, pad=word(config, "pad"), inner=("oc", "h", "w"),
            unrolled=frozenset(p for p, (r, _) in enumerate(sums) if r == "kw" and number(config, "unroll_kw")),
        ))  # fmt: skip

    legal = Rule(("vectors", "lanes"), admit)

    def insight(values: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        waste = tile_estimate.wasted(size["oc"], values["tile_oc"]) * tile_estimate.wasted(size["h"], values["tile_h"])
        tiles = np.ceil(size["oc"] / values["tile_oc"]) * np.ceil(size["h"] / values["tile_h"])
        waste = waste * tile_estimate.imbalance(size["n"] * tiles, machine.threads)
        vectors = np.ceil(values["lanes"] / register)
        return tile_estimate.tile(
            values["tile_h"] * values["vectors"] * vectors, values["tile_oc"], waste=waste,
            steps=float(math.prod(axis.extent for axis in nest.reduced)), registers=machine.registers,
            filled=values["lanes"] / (vectors * register),
        )  # fmt: skip

    # The estimate counts reuse in registers. A depthwise convolution has none, so it has no estimate.
    told = insight if nest.kind != DEPTHWISE else None
    return Template(f"{nest.kind}_nchw.llvm", nest, knobs, run, legal, fits(knobs[:4], tile, machine.registers), told)
