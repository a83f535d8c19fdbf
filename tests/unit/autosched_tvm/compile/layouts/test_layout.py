from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("tvm")

from autosched_tvm.compile.layouts import packing
from autosched_tvm.compile.layouts.layout import NCHW, NHWC, Layout, block_of_group, blocked, blocks_of, lanes_of
from autosched_tvm.compile.layouts.weight import Weight

pytestmark = pytest.mark.tvm

RANDOM = np.random.default_rng(5)


@pytest.mark.parametrize(
    ("channels", "lanes", "blocks"),
    [
        (64, 16, (16,)), (64, 8, (8,)), (1000, 16, (16, 8)), (24, 16, (16, 8)), (8, 16, (8,)), (3, 16, (4,)),
        (11, 16, (16,)), (20, 16, (16, 4)), (36, 16, (16, 4)), (6, 8, (8,)), (12, 8, (8, 4)), (1, 8, (4,)),
    ],
)  # fmt: skip
def test_the_block_keeps_most_lanes_busy_and_one_needs_no_filling(
    channels: int, lanes: int, blocks: tuple[int, ...]
) -> None:
    assert blocks_of(channels, lanes) == blocks


def test_no_block_reaches_over_two_groups() -> None:
    assert block_of_group(240, 3, 16) == 16
    assert block_of_group(48, 6, 16) == 8
    assert block_of_group(112, 4, 16) == 0  # 28 channels: blocks of 4 would leave most lanes idle


@pytest.mark.parametrize("layout", [NCHW, NHWC, blocked(4), blocked(16)])
def test_packing_puts_each_channel_where_the_layout_says(layout: Layout) -> None:
    array = RANDOM.standard_normal((2, 10, 3, 5)).astype("float32")
    packed = packing.pack(array, layout, fill=7.0)
    assert packed.shape == layout.stored(array.shape)
    for n, c, h, w in [(0, 0, 0, 0), (1, 9, 2, 4), (0, 5, 1, 3)]:
        where = {"NCHW": (n, c, h, w), "NHWC": (n, h, w, c)}.get(layout.name)
        if layout.block:
            where = (n, c // layout.block, h, w, c % layout.block)
        assert where is not None and packed[where] == array[n, c, h, w]
    if layout.filled(10):
        assert (packed[:, -1, :, :, 10 % layout.block :] == 7.0).all()


def test_packed_weights_are_blocks_of_outputs_by_blocks_of_inputs() -> None:
    kernel = RANDOM.standard_normal((10, 6, 3, 2)).astype("float32")
    packed = packing.pack_kernel(kernel, 4, 8)
    assert packed.shape == (2, 2, 3, 2, 4, 8)
    assert packed[1, 1, 2, 0, 1, 1] == kernel[9, 5, 2, 0]
    assert not packed[1, :, :, :, :, 2:].any() and not packed[:, 1, :, :, 2:, :].any()


def test_an_operand_is_converted_to_the_layout_or_refused() -> None:
    shape = (1, 8, 5, 5)
    bias = np.arange(8, dtype="float32").reshape(1, 8, 1, 1)
    packed = packing.operand(bias, shape, blocked(4))
    assert packed is not None and packed.shape == (1, 2, 1, 1, 4) and packed[0, 1, 0, 0, 3] == 7
    image = packing.operand(np.ones((5, 5), "float32"), shape, blocked(4))
    assert image is not None and image.shape == (1, 1, 5, 5, 1)
    turned = packing.operand(bias[0], shape, NHWC)
    assert turned is not None and turned.shape == (1, 1, 1, 8)
    scalar = packing.operand(np.float32(3).reshape(1, 1), shape, blocked(4))
    assert scalar is not None and scalar.shape == ()
    assert packing.operand(np.ones((2, 8, 1, 1), "float32"), shape, blocked(4)) is None
    assert packing.operand(np.ones((1, 1, 8, 1, 1), "float32"), shape, blocked(4)) is None


def test_axes_and_names() -> None:
    assert [NHWC.axis(axis) for axis in range(4)] == [0, 3, 1, 2]
    assert [blocked(8).axis(axis) for axis in range(4)] == [0, 1, 2, 3]
    assert (str(NCHW), str(NHWC), str(blocked(8))) == ("NCHW", "NHWC", "NCHW8c")


def test_lanes_follow_the_vector_width() -> None:
    assert [lanes_of(bits) for bits in (512, 256, 128, 0)] == [16, 8, 4, 8]


def test_each_form_of_a_weight_is_made_once() -> None:
    made: list[int] = []

    def columns(block: int) -> Callable[[np.ndarray], np.ndarray]:
        def pack(array: np.ndarray) -> np.ndarray:
            made.append(block)
            return packing.pack_columns(array, block)

        return pack

    weight = Weight(RANDOM.standard_normal((3, 32)).astype("float32"))
    forms = [weight.form(block, columns(block)) for block in (8, 16, 8)]
    assert made == [8, 16]
    assert forms[0] is forms[2] and tuple(forms[1].value.shape) == (2, 3, 16)
