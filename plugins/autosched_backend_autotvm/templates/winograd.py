"""Winograd convolutions on a CPU: knobs for the loop nest of `autosched_tvm.compile.winograd.kernel`."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from autosched_backend_autotvm.config_space import PROMISE, Knob, Numbers, Rule, Value
from autosched_backend_autotvm.templates import tile_estimate
from autosched_backend_autotvm.templates.fused_kernel import Kernel
from autosched_backend_autotvm.templates.kernel_analysis import Axis, KernelAnalysis
from autosched_backend_autotvm.templates.template import Machine, Template, fits, number, pieces
from autosched_tvm.api import winograd_algebra, winograd_kernel, winograd_workload
from autosched_tvm.tvm_types import IRModule, Schedule

VECTORS_MAX = 4
BLOCKS_MAX = 64
CHUNK_BYTES_MAX = 1 << 20
"""Maximum size in bytes of the points and products of a chunk: about an L2 cache."""
FLOAT_BYTES = 4
WEIGHTS_TILES = 4.0
"""Number of tiles whose multiplications take as long as loading the weights for a chunk, apart from overlap."""


def template(workload: IRModule, machine: Machine) -> Template:
    """Returns the template for a workload that is marked as a Winograd convolution. Raises NotExpandable."""
    sizes = winograd_kernel.understand(workload).sizes
    registers = machine.registers
    across = -(-sizes.filter_block * FLOAT_BYTES // machine.vector_bytes)
    tiles = _pieces("tiles", sizes.tiles, registers // 2, "tiles in a block: rows of sums in registers")
    vectors = _pieces("vectors", sizes.filter_blocks, VECTORS_MAX, "blocks of filters in a part: columns of sums")
    chunks = _powers(BLOCKS_MAX)
    spread = (winograd_kernel.CHUNKS, winograd_kernel.FILTERS)
    knobs = (
        tiles,
        vectors,
        Knob("blocks", chunks, (), "blocks of tiles in a chunk, whose transformed data stay in the second cache"),
        Knob(
            "parallel", spread if machine.threads > 1 else spread[:1], spread if machine.threads == 1 else (),
            "what is spread over threads: chunks of tiles, or parts of the filters",
        ),
    )  # fmt: skip

    def tile(config: Mapping[str, Value]) -> tuple[int, int]:
        """Returns vectors of filters, and tiles."""
        return number(config, "vectors") * across, number(config, "tiles")

    def admit(config: Mapping[str, Value]) -> str | None:
        return _excess(sizes, {name: number(config, name) for name in ("tiles", "vectors", "blocks")}, chunks)

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        winograd_workload.annotate(
            kernel.schedule, {name: value for name, value in config.items() if isinstance(value, int | str)}
        )

    def insight(values: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        waste = tile_estimate.wasted(sizes.tiles, values["tiles"]) * tile_estimate.wasted(
            sizes.filter_blocks, values["vectors"]
        )
        channels = float(sizes.channel_blocks * sizes.channel_block)
        told = tile_estimate.tile(
            values["vectors"] * across, values["tiles"], steps=channels, waste=waste, registers=registers
        )
        tiles = np.minimum(values["tiles"] * values["blocks"], sizes.tiles)
        return {**told, PROMISE: told[PROMISE] - np.log2(1 + WEIGHTS_TILES / tiles)}

    legal = Rule(("tiles", "vectors", "blocks"), admit)
    name = f"winograd_{sizes.algorithm.words}_nchwc.llvm"
    return Template(
        name, _nest(sizes), knobs, run, legal, fits((tiles, vectors), tile, registers), insight, _plain,
        (winograd_kernel.__name__, winograd_algebra.__name__),
    )  # fmt: skip


def _pieces(name: str, extent: int, most: int, meaning: str) -> Knob:
    """Returns a knob like `pieces`, without values above `most`: the loop nest unrolls all sums of a tile."""
    found = pieces(name, extent, most, meaning)
    return replace(found, spare=tuple(value for value in found.spare if isinstance(value, int) and value <= most))


def _powers(most: int) -> tuple[int, ...]:
    return tuple(1 << power for power in range(most.bit_length()) if 1 << power <= most)


def _excess(sizes: winograd_workload.Sizes, knobs: Mapping[str, int], chunks: tuple[int, ...]) -> str | None:
    """Returns the reason why a chunk is too large; None if it is not, or is the smallest that there is."""
    tiles = knobs["blocks"] * knobs["tiles"]
    if knobs["blocks"] > chunks[0] and tiles >= 2 * (sizes.tiles + knobs["tiles"]):
        return f"{tiles} tiles are more than the image has"
    numbers = sizes.channel_blocks * sizes.channel_block + knobs["vectors"] * sizes.filter_block
    size = FLOAT_BYTES * sizes.algorithm.products * tiles * numbers
    if knobs["blocks"] > chunks[0] and size > CHUNK_BYTES_MAX:
        return f"a chunk of {size} bytes does not fit the second cache"
    return None


def _nest(sizes: winograd_workload.Sizes) -> KernelAnalysis:
    """Returns the analysis of the convolution, which identifies siblings."""
    spatial = {
        "n": sizes.batch, "oc": sizes.filter_blocks, "h": sizes.out_height, "w": sizes.out_width,
        "ob": sizes.filter_block,
    }  # fmt: skip
    reduced = {"ic": sizes.channel_blocks, "ib": sizes.channel_block}
    axes = [Axis(role, extent, place) for place, (role, extent) in enumerate((spatial | reduced).items())]
    return KernelAnalysis(
        f"winograd_{sizes.algorithm.words}", "nchwc", winograd_workload.RESULT, "float32", tuple(axes[: len(spatial)]),
        tuple(axes[len(spatial) :]), "weights",
    )  # fmt: skip


def _plain(schedule: Schedule, nest: KernelAnalysis) -> Kernel:
    """Returns the workload unchanged: the loop nest takes fused operators apart later."""
    anchor = schedule.get_sblock(nest.block)
    return Kernel(schedule, nest, anchor, [], anchor, None)
