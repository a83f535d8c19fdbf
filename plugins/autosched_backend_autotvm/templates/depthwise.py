"""Depthwise convolutions on a CPU in the layouts NCHW[x]c and NHWC: vectors of channels, a few pixels at a time."""

from collections.abc import Mapping

from autosched_backend_autotvm.config_space import Knob, Rule, Value
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import KernelAnalysis
from autosched_backend_autotvm.templates.register_tiling import Tiling, schedule
from autosched_backend_autotvm.templates.template import Machine, Template, factor, fits, lanes, number, pieces, word

TILE_H_MAX = 7
CHANNEL_VECTORS_MAX = 4
BAND_MAX = 16
OUTER = ("oc h hb w", "h oc hb w", "h hb w oc")
"""Orders of the outer loops. h: over bands of rows; hb: over a band's rows of tiles."""
UNROLLS = ("all", "kw", "none")


def template(nest: KernelAnalysis, machine: Machine) -> Template:
    """Returns the template for a depthwise convolution."""
    size = nest.extents
    blocked = nest.layout == "nchwc"
    width = lanes(size["ob" if blocked else "oc"], nest.bytes, machine)
    most = 1 if blocked else CHANNEL_VECTORS_MAX * width
    knobs = (
        factor("tile_oc", size["oc"], most, "output channels of a tile", 1 if blocked else width),
        factor("tile_h", size["h"], TILE_H_MAX, "rows of a tile"),
        pieces("tile_w", size["w"], machine.registers, "columns of a tile"),
        Knob("outer", OUTER, (), "order of the loops over tiles, outermost first"),
        Knob("unroll", UNROLLS, (), "which of the kernel's loops are unrolled"),
        Knob("pad", ("root", "oc", "h"), (), "where the padded copy is made: at once, or for the tiles under a loop"),
        factor("band", size["h"], BAND_MAX, "rows of tiles that share one part of the padded copy"),
        Knob("parallel", (2,), (0, 1, 3), "how many loops over tiles are spread over threads"),
    )
    vectors_per_step = size["ob"] // width if blocked else 1

    def tile(config: Mapping[str, Value]) -> tuple[int, int]:
        across = number(config, "tile_oc") * vectors_per_step // (1 if blocked else width)
        return across * number(config, "tile_h") * number(config, "tile_w"), 1

    inner = {"ob": size["ob"]} if blocked else {}

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        sums = [(axis.role, axis.extent) for axis in nest.reduced]
        unrolled = {"all": {"ic", "ib", "kh", "kw"}, "kw": {"ic", "ib", "kw"}, "none": {"ic", "ib"}}[
            word(config, "unroll")
        ]
        extents = {role: number(config, f"tile_{role}") for role in ("oc", "h", "w")} | inner
        schedule(kernel, Tiling(
            tile=extents, vector="ob" if blocked else "oc", lanes=width, outer=word(config, "outer").split(),
            parallel=number(config, "parallel"), sums=sums, pad=word(config, "pad"),
            band=number(config, "band"),
            unrolled=frozenset(place for place, (role, _) in enumerate(sums) if role in unrolled),
        ))  # fmt: skip

    def admit(config: Mapping[str, Value]) -> str | None:
        band, rows = number(config, "band"), number(config, "tile_h")
        if band > 1 and word(config, "pad") != "h":
            return "bands of rows are for a padded copy under h"
        if size["h"] % (band * rows):
            return f"bands of {band} times {rows} rows do not divide {size['h']} rows"
        return None

    legal = Rule(("band", "pad", "tile_h"), admit)

    return Template(
        f"{nest.kind}_{nest.layout}.llvm", nest, knobs, run, legal, fits(knobs[:3], tile, machine.registers)
    )
