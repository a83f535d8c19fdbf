"""Generated inputs have the statistics of real ones."""

import numpy as np
import pytest

from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Kind, Tensor


def made(kind: Kind | None, shape: tuple[int, ...], dtype: str = "float32", high: int = 2) -> np.ndarray:  # type: ignore[type-arg]  # of any type
    array = random_inputs([Tensor("x", shape, dtype, high, kind)], 1)["x"]
    assert (array.shape, str(array.dtype)) == (shape, dtype)
    return array


@pytest.mark.parametrize("shape", [(1, 3, 32, 48), (1, 32, 48, 3), (32, 48, 1)])
@pytest.mark.parametrize(("kind", "low", "high"), [(Kind.UNIT_IMAGE, 0, 1), (Kind.PIXELS, 0, 255), (Kind.IMAGE, -2, 2)])
def test_images_are_smooth_and_use_their_range(kind: Kind, low: float, high: float, shape: tuple[int, ...]) -> None:
    image = made(kind, shape)
    assert low <= image.min() < low + 0.2 * (high - low)
    assert high - 0.2 * (high - low) < image.max() <= high
    rows = np.moveaxis(image, shape.index(32), 0)
    assert np.median(np.abs(np.diff(rows, axis=0))) < 0.1 * (high - low)


def test_bytes_are_pixels() -> None:
    assert made(Kind.UNIT_IMAGE, (8, 9, 3), "uint8").max() > 100


def test_sound_stays_within_its_range_and_is_no_noise() -> None:
    sound = made(Kind.SOUND, (1, 4000, 1))
    assert 0.02 < np.abs(sound).max() <= 1
    assert np.abs(np.diff(sound, axis=1)).mean() < np.abs(sound).mean()


def test_a_mask_is_ones_and_then_zeros() -> None:
    mask = made(Kind.MASK, (2, 9), "int64")
    assert set(np.unique(mask)) <= {0, 1}
    assert (np.diff(mask, axis=1) <= 0).all()
    assert mask[0].sum() >= 5


def test_whole_numbers_stay_below_their_bound() -> None:
    assert made(Kind.TOKENS, (1, 500), "int64", 7).max() == 6
    assert made(Kind.COUNT, (), "int64", 16_001) == 16_000
    assert made(Kind.POSITIONS, (1, 4), "int64", 99).tolist() == [[0, 1, 2, 3]]
    assert made(None, (100,), "bool", 9).any()


def test_another_seed_makes_other_inputs() -> None:
    wanted = [Tensor("x", (1, 3, 32, 32), "float32", kind=Kind.IMAGE)]
    first, again, other = (random_inputs(wanted, seed)["x"] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
