"""Measures the cost of layout transforms on the machine that compiles."""

import math
from functools import lru_cache

import numpy as np
import tvm
from tvm import te

from autosched_tvm.compile.layouts import layout_kernels
from autosched_tvm.compile.layouts.layout import NCHW, NHWC, Layout, blocked
from autosched_tvm.tvm_types import Target

SAMPLE = (1, 64, 56, 56)
PAIRS: tuple[tuple[Layout, Layout], ...] = ((NCHW, blocked(16)), (blocked(16), NCHW), (NCHW, NHWC), (NHWC, NCHW))
GUESS_S = 2e-10
"""Assumed seconds per byte where nothing can be run: five gigabytes per second."""


def seconds_per_byte(target: Target) -> float:
    """Returns the mean cost of a layout transform, in seconds per byte read or written."""
    return _measured(target.export_json() if hasattr(target, "export_json") else str(target), target)


@lru_cache(maxsize=4)
def _measured(_key: str, target: Target) -> float:
    try:
        times = [_move_s(source, sink, target) for source, sink in PAIRS]
    except Exception:  # compiled for another machine than this one
        return GUESS_S
    return float(np.mean(times)) / (2 * 4 * math.prod(SAMPLE))


def _move_s(source: Layout, sink: Layout, target: Target) -> float:
    given = te.placeholder(source.stored(SAMPLE), name="value")
    function = te.create_prim_func([given, layout_kernels.moved(given, SAMPLE, source, sink)])
    library = tvm.tirx.build(tvm.IRModule({"main": function}), target=target)
    device = tvm.cpu()
    buffers = [tvm.runtime.tensor(np.zeros(layout.stored(SAMPLE), "float32"), device) for layout in (source, sink)]
    timer = library.time_evaluator("main", device, number=5, repeat=5)
    return float(min(timer(*buffers).results))
