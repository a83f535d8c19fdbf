"""A sketch for convolutions in blocked layouts (NCHW16c and others), beside those of MetaSchedule's rules.

MetaSchedule tiles the channel block like any other loop, so that few of its schedules vectorise the whole block, and it
computes the padding within the tiles. Here the block is the vector; a tile of output channels, rows and columns stays
in registers during the reduction; the padding is a separate pass. Tile sizes are sampled, so that each search of
decisions works on it. Source of the shape: the direct convolution of Georganas et al. (SC 2018).
"""

import tvm

from autosched_tvm.compile.integers.schedule_steps import in_registers
from autosched_tvm.tvm_types import BlockRV, IRModule, Schedule

ANCHORS = ("conv2d_NCHWc", "depthwise_conv2d_NCHWc", "DepthwiseConv2d")
VECTOR_MAX = 32
"""Maximum number of lanes. With more, LLVM takes minutes."""
ROWS_MAX, COLUMNS_MAX, CHANNELS_MAX = 2, 32, 4
"""Maximum size of a tile. The largest has a few more vectors than there are registers, and still compiles."""
INNER_MAX = 64
UNROLL = (0, 16, 64, 512)


def blocked_sketch(workload: IRModule, seed: int) -> Schedule | None:
    """Returns a schedule of this shape for a task's workload with drawn decisions; None for other tasks."""
    schedule = tvm.s_tir.Schedule(workload, seed=seed, debug_mask=0, enable_check=False)
    blocks = schedule.get_child_blocks(schedule.get_sblock("root"))
    anchors = [block for block in blocks if str(schedule.get(block).name_hint) in ANCHORS]
    if len(anchors) != 1:
        return None
    anchor = schedule.get_sblock(str(schedule.get(anchors[0]).name_hint))
    loops = [int(schedule.get(loop).extent) for loop in schedule.get_loops(anchor)]
    if len(loops) not in (7, 8) or loops[4] > VECTOR_MAX:
        return None
    try:
        _apply(schedule, anchor)
    # TVM raises various exceptions, for example for an epilogue that does not follow the convolution's loops
    except Exception:
        return None
    return schedule


def _apply(schedule: Schedule, anchor: BlockRV) -> None:
    pads = schedule.get_producers(anchor)
    chain = [anchor]
    while after := schedule.get_consumers(chain[-1]):
        chain.append(after[0])
    for block in chain[1:-1]:
        schedule.compute_inline(block)
    last = chain[-1] if len(chain) > 1 else schedule.cache_write(anchor, 0, "global")
    batch, channels, rows, columns, block = schedule.get_loops(last)
    tiles = [
        schedule.split(loop, schedule.sample_perfect_tile(loop, n=2, max_innermost_factor=most))
        for loop, most in ((channels, CHANNELS_MAX), (rows, ROWS_MAX), (columns, COLUMNS_MAX))
    ]
    (channels, rows, columns), tile = zip(*tiles, strict=True)
    schedule.reorder(batch, channels, rows, columns, *tile, block)
    schedule.parallel(schedule.fuse(batch, channels, rows))
    schedule.compute_at(anchor, columns, preserve_unit_loops=True)
    in_registers(schedule, *schedule.get_loops(last)[-4:])
    _reduce(schedule, anchor)
    for pad in pads:
        *outer, lanes = schedule.get_loops(pad)
        schedule.parallel(schedule.fuse(*outer[:3]))
        schedule.vectorize(lanes)
    step = schedule.sample_categorical(UNROLL, [1 / len(UNROLL)] * len(UNROLL))
    schedule.annotate(schedule.get_sblock("root"), "meta_schedule.unroll_explicit", step)


def _reduce(schedule: Schedule, anchor: BlockRV) -> None:
    """Orders the loops: input channels outside, the kernel's window, input channels inside, then the tile."""
    # After the parallel loop, the columns of tiles and the batch. Channels inside: a pixel is loaded once for them all.
    _, _, _, channels, rows, columns, block, *order = schedule.get_loops(anchor)
    tile = [rows, columns, channels, block]
    if len(order) == 3:
        inputs, *window = order
        factors = schedule.sample_perfect_tile(inputs, n=2, max_innermost_factor=INNER_MAX)
        outside, inside = schedule.split(inputs, factors)
        order = [outside, *window, inside]
    schedule.reorder(*order, *tile)
    in_registers(schedule, *tile)
    schedule.decompose_reduction(anchor, order[0])
