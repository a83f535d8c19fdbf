"""Matrix products on a CPU, batched or not: tiles of a few rows by a few vectors of columns."""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from autosched_backend_autotvm.config_space import Knob, Numbers, Value
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

COLUMN_VECTORS_MAX = 16
STEP_MAX = 64
ORDERS = ("n m", "m n", "n m packed")
"""Orders of the loops over tiles, outermost first. packed: the columns of a tile are copied to be contiguous."""


def template(nest: KernelAnalysis, machine: Machine) -> Template:
    """Returns the template for dense layers and batched products. The right factor may be transposed."""
    size = nest.extents
    width = lanes(size["n"], nest.bytes, machine)
    orders: tuple[str, ...] = ORDERS if nest.layout == "nn" else ORDERS[2:]
    columns = pieces("tile_n", size["n"], COLUMN_VECTORS_MAX * width, "columns of a tile", width)
    if nest.column_block:  # packed at compile time
        orders, columns = ORDERS[:2], _of_blocks(columns, nest.column_block)
    knobs = (
        pieces("tile_m", size["m"], machine.registers, "rows of a tile"),
        columns,
        factor("tile_k", size["k"], STEP_MAX, "how much is summed in the inner loop"),
        Knob("outer", orders, (), "order of the loops over tiles; packed: columns are copied first"),
        Knob("unroll_k", (1, 2, 4), (8, 16), "steps of the sum that are unrolled"),
        Knob("parallel", (2,), (0, 1), "how many loops over tiles are spread over threads"),
    )

    def tile(config: Mapping[str, Value]) -> tuple[int, int]:
        return number(config, "tile_n") // width, number(config, "tile_m")

    def run(kernel: Kernel, config: Mapping[str, Value]) -> None:
        first, second, *packed = word(config, "outer").split()
        step = number(config, "tile_k")
        unroll = max(d for d in divisors(step) if d <= number(config, "unroll_k"))
        before = [(axis.role, axis.extent) for axis in nest.reduced if axis.role != "k"]
        sums = [*before, ("k", size["k"] // step), ("k", step // unroll), ("k", unroll)]
        schedule(kernel, Tiling(
            tile={"m": number(config, "tile_m"), "n": number(config, "tile_n")}, vector="n", lanes=width,
            outer=(first, second), parallel=number(config, "parallel"), sums=sums,
            unrolled=frozenset({len(sums) - 1}), pack="n" if packed else "", inner=("n",),
        ))  # fmt: skip

    def insight(values: Mapping[str, Numbers]) -> Mapping[str, Numbers]:
        waste = tile_estimate.wasted(size["m"], values["tile_m"]) * tile_estimate.wasted(size["n"], values["tile_n"])
        steps = float(math.prod(axis.extent for axis in nest.reduced))
        batch = math.prod(axis.extent for axis in nest.spatial if axis.role not in ("m", "n"))
        spread = batch * np.ceil(size["n"] / values["tile_n"])
        if nest.layout == "nn":  # otherwise columns are always copied, and only the loop around the copy is parallel
            spread = spread * np.ceil(size["m"] / values["tile_m"])
        waste = waste * tile_estimate.imbalance(spread, machine.threads)
        across = values["tile_n"] / width
        return tile_estimate.tile(across, values["tile_m"], steps=steps, waste=waste, registers=machine.registers)

    layout = "packed" if nest.column_block else nest.layout
    return Template(
        f"{nest.kind}_{layout}.llvm", nest, knobs, run, None, fits(knobs[:2], tile, machine.registers), insight
    )


def _of_blocks(columns: Knob, block: int) -> Knob:
    """Returns the tiles that lie in one block of columns, or are whole blocks: their columns are contiguous."""

    def whole(values: Sequence[Value]) -> tuple[Value, ...]:
        return tuple(v for v in values if isinstance(v, int) and (block % v == 0 or v % block == 0))

    within, beyond = whole(columns.values), whole(tuple(columns.spare))
    return Knob(columns.name, within or beyond, beyond if within else (), columns.meaning)
