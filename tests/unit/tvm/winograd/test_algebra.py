"""The transforms of Winograd's algorithm, against convolutions computed in double precision."""

from typing import Any

import numpy as np
import pytest

from autosched.tvm.winograd import algebra
from autosched.tvm.winograd.algebra import ALGORITHMS, TAPS, Algorithm, Shape

Matrix = np.ndarray[Any, Any]


def direct(data: Matrix, weights: Matrix) -> Matrix:
    """The convolution of one tile [c, h, w] with OIHW weights, without padding."""
    rows, columns = data.shape[1] - TAPS + 1, data.shape[2] - TAPS + 1
    found = np.zeros((weights.shape[0], rows, columns), data.dtype)
    for i in range(TAPS):
        for j in range(TAPS):
            found += np.einsum("oc,chw->ohw", weights[:, :, i, j], data[:, i : i + rows, j : j + columns])
    return found


def filtered(one: Algorithm, data: Matrix, weights: Matrix) -> Matrix:
    """The same by the algorithm, in the precision of the data."""
    into, back = one.data.astype(data.dtype), one.results.astype(data.dtype)
    filters = weights.shape[0]
    packed = one.pack(weights, 1, filters)[0] if data.dtype == np.float32 else one.weights @ weights @ one.weights.T
    points = into @ data @ into.T
    if data.dtype == np.float32:
        turned = packed.reshape(one.inputs, one.inputs, -1, filters)
        products = np.einsum("cab,abco->oab", points, turned, dtype=np.float32)
    else:
        products = np.einsum("cab,ocab->oab", points, packed)
    return back @ products @ back.T


@pytest.mark.parametrize("size", ALGORITHMS)
def test_a_tile_is_exact_in_double_precision(size: int) -> None:
    random = np.random.default_rng(size)
    one = ALGORITHMS[size]
    data = random.standard_normal((5, one.inputs, one.inputs))
    weights = random.standard_normal((3, 5, TAPS, TAPS))
    assert one.outputs == size
    np.testing.assert_allclose(filtered(one, data, weights), direct(data, weights), rtol=0, atol=1e-9)


@pytest.mark.parametrize(("size", "bound"), [(2, 1e-6), (4, 3e-6)])
def test_single_precision_loses_little(size: int, bound: float) -> None:
    """The largest error of many tiles of 256 channels, by the largest result."""
    random = np.random.default_rng(7)
    one = ALGORITHMS[size]
    worst = scale = 0.0
    for _ in range(20):
        data = random.standard_normal((256, one.inputs, one.inputs))
        weights = random.standard_normal((8, 256, TAPS, TAPS)) / 48
        expected = direct(data, weights)
        got = filtered(one, data.astype("float32"), weights.astype("float32"))
        worst = max(worst, float(np.abs(got - expected).max()))
        scale = max(scale, float(np.abs(expected).max()))
    assert worst < bound * scale


@pytest.mark.parametrize("size", ALGORITHMS)
def test_shared_sums_are_the_matrices(size: int) -> None:
    one = ALGORITHMS[size]
    column = list(np.random.default_rng(1).standard_normal(one.inputs))
    np.testing.assert_allclose(one.transform_data(column), one.data @ column, atol=1e-9)
    np.testing.assert_allclose(one.transform_results(column), one.results @ column, atol=1e-9)


def test_weights_are_packed_with_channels_filled_up() -> None:
    one = ALGORITHMS[4]
    kernel = np.random.default_rng(2).standard_normal((20, 10, TAPS, TAPS)).astype("float32")
    packed = one.pack(kernel, 8, 16)
    assert packed.shape == (2, one.products, 16, 16)
    assert not packed[1, :, :, 4:].any() and not packed[:, :, 10:].any()
    expected = (one.weights @ kernel[17, 3] @ one.weights.T).ravel()
    np.testing.assert_allclose(packed[1, :, 3, 1], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "sizes"),
    [
        (Shape(1, 64, 64, 56, 56), (4,)),
        (Shape(1, 256, 256, 14, 14), (2, 4)),
        (Shape(1, 4, 64, 56, 56), ()),
        (Shape(1, 64, 64, 3, 3), ()),
    ],
)
def test_few_channels_and_small_images_are_computed_directly(shape: Shape, sizes: tuple[int, ...]) -> None:
    assert set(algebra.worth(shape, 8)) == set(sizes)
