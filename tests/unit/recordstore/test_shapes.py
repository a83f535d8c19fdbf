"""Similarity of workloads."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autosched.recordstore.shapes import Shape, ShapeIndex, parse


@pytest.mark.parametrize(
    ("text", "operator", "sizes"),
    [
        ("conv2d 64x56x56 -> 64, 3x3", "conv2d #x#x# -> #, #x#", (64, 56, 56, 64, 3, 3)),
        ("conv2d NCHW8c+add 16x55x55 -> 64x55x55, 3x3", "conv2d NCHW8c+add #x#x# -> #x#x#, #x#",
         (16, 55, 55, 64, 55, 55, 3, 3)),
        ("packed matmul+add+8 more 2048x257 by 257x64", "packed matmul+add+8 more #x# by #x#", (2048, 257, 257, 64)),
        ("winograd conv2d 4x4 -> 4x4, 3x3 in tiles of 4x1", "winograd conv2d #x# -> #x#, #x# in tiles of #x#",
         (4, 4, 4, 4, 3, 3, 4, 1)),
        ("sum 512x256 -> 1x256", "sum #x# -> #x#", (512, 256, 1, 256)),
        ("scalar", "scalar", ()),
        ("", "", ()),
    ],
)  # fmt: skip
def test_descriptions_are_split_into_operator_and_sizes(text: str, operator: str, sizes: tuple[int, ...]) -> None:
    assert parse(text) == Shape(operator, sizes)


def distance(one: Shape, other: Shape) -> float:
    return math.dist(one.place, other.place)


def test_distance_is_of_ratios() -> None:
    one = parse("dense 10x10")
    index = ShapeIndex([(parse("dense 20x10"), "twice"), (one, "same")])
    assert index.nearest(one, 5) == [(0, "same"), (pytest.approx(math.log(2)), "twice")]
    assert distance(parse("pad 0x4"), parse("pad 1x4")) == 0  # a size of 0 counts as 1


SIZES = st.lists(st.tuples(st.integers(1, 1_000), st.integers(1, 1_000), st.integers(1, 9)), max_size=60)


@given(SIZES, st.tuples(st.integers(1, 1_000), st.integers(1, 1_000), st.integers(1, 9)), st.integers(1, 8))
def test_nearest_are_those_that_a_look_at_all_finds(
    known: list[tuple[int, int, int]], wanted: tuple[int, int, int], k: int
) -> None:
    shape = Shape("conv", wanted)
    shapes = [Shape("conv", sizes) for sizes in known]
    found = ShapeIndex((one, one) for one in shapes).nearest(shape, k, lambda one: one.sizes[2] != 5)
    expected = sorted(distance(shape, one) for one in shapes if one.sizes[2] != 5)[:k]
    assert [away for away, _ in found] == pytest.approx(expected)
    assert [distance(shape, one) for _, one in found] == pytest.approx(expected)


def test_nearest_looks_at_few() -> None:
    shapes = [Shape("dense", (size, size)) for size in range(1, 10_000)]
    asked: list[Shape] = []
    ShapeIndex((one, one) for one in shapes).nearest(Shape("dense", (500, 500)), 3, lambda one: not asked.append(one))
    assert len(asked) < 10
