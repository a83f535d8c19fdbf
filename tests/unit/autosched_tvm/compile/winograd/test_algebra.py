"""The transforms of Winograd's algorithm, against convolutions computed in double precision."""

from typing import Any

import numpy as np
import pytest

from autosched_tvm.compile.winograd import algebra
from autosched_tvm.compile.winograd.algebra import BOTH_AXES, FILTERINGS, Algorithm, Filtering, Shape

Matrix = np.ndarray[Any, Any]
ALGORITHMS = [
    *BOTH_AXES,
    *(one for taps in ((1, 3), (3, 1), (1, 5), (1, 7)) for one in algebra.algorithms(taps)),
]


def words(one: Algorithm) -> str:
    return one.words


def direct(data: Matrix, weights: Matrix) -> Matrix:
    """Returns the convolution of one tile [c, h, w] with OIHW weights, without padding."""
    rows, columns = data.shape[1] - weights.shape[2] + 1, data.shape[2] - weights.shape[3] + 1
    found = np.zeros((weights.shape[0], rows, columns), data.dtype)
    for i in range(weights.shape[2]):
        for j in range(weights.shape[3]):
            found += np.einsum("oc,chw->ohw", weights[:, :, i, j], data[:, i : i + rows, j : j + columns])
    return found


def filtered(one: Algorithm, data: Matrix, weights: Matrix) -> Matrix:
    """Returns the same by the algorithm, in the precision of the data."""
    rows, columns = one.down.data.astype(data.dtype), one.across.data.astype(data.dtype)
    filters = weights.shape[0]
    points = rows @ data @ columns.T
    if data.dtype == np.float32:
        turned = one.pack(weights, 1, filters)[0].reshape(*one.inputs, -1, filters)
        products = np.einsum("cab,abco->oab", points, turned, dtype=np.float32)
    else:
        products = np.einsum("cab,ocab->oab", points, one.down.weights @ weights @ one.across.weights.T)
    return one.down.results.astype(data.dtype) @ products @ one.across.results.astype(data.dtype).T


@pytest.mark.parametrize("one", ALGORITHMS, ids=words)
def test_a_tile_is_exact_in_double_precision(one: Algorithm) -> None:
    random = np.random.default_rng(4)
    data = random.standard_normal((5, *one.inputs))
    weights = random.standard_normal((3, 5, *one.taps))
    np.testing.assert_allclose(filtered(one, data, weights), direct(data, weights), rtol=0, atol=1e-9)


@pytest.mark.parametrize("one", ALGORITHMS, ids=words)
def test_single_precision_loses_little(one: Algorithm) -> None:
    """Checks the largest error of many tiles of 256 channels, relative to the largest result."""
    random = np.random.default_rng(7)
    bound = 1e-6 if one.products in (4, 16) else 3e-6
    worst = scale = 0.0
    for _ in range(20):
        data = random.standard_normal((256, *one.inputs))
        weights = random.standard_normal((8, 256, *one.taps)) / 48
        expected = direct(data, weights)
        got = filtered(one, data.astype("float32"), weights.astype("float32"))
        worst = max(worst, float(np.abs(got - expected).max()))
        scale = max(scale, float(np.abs(expected).max()))
    assert worst < bound * scale


@pytest.mark.parametrize("one", FILTERINGS.values(), ids=lambda one: f"{one.outputs}of{one.taps}")
def test_shared_sums_are_the_matrices(one: Filtering) -> None:
    column = list(np.random.default_rng(1).standard_normal(one.inputs))
    np.testing.assert_allclose(one.transform_data(column), one.data @ column, atol=1e-9)
    np.testing.assert_allclose(one.transform_results(column), one.results @ column, atol=1e-9)


def test_weights_are_packed_with_channels_filled_up() -> None:
    one = BOTH_AXES[1]
    kernel = np.random.default_rng(2).standard_normal((20, 10, 3, 3)).astype("float32")
    packed = one.pack(kernel, 8, 16)
    assert packed.shape == (2, one.products, 16, 16)
    assert not packed[1, :, :, 4:].any() and not packed[:, :, 10:].any()
    expected = (one.down.weights @ kernel[17, 3] @ one.across.weights.T).ravel()
    np.testing.assert_allclose(packed[1, :, 3, 1], expected, rtol=1e-6)


@pytest.mark.parametrize(
    ("shape", "offered"),
    [
        (Shape(1, 64, 64, 56, 56), {"4x4of3x3"}),
        (Shape(1, 256, 256, 14, 14), {"2x2of3x3", "4x4of3x3"}),
        (Shape(1, 4, 64, 56, 56), set()),
        (Shape(1, 64, 64, 3, 3), set()),
        (Shape(1, 256, 256, 1, 500, (1, 3)), {"1x4of1x3", "1x6of1x3"}),
        (Shape(1, 64, 64, 76, 32, (3, 1)), {"4x1of3x1", "6x1of3x1"}),
        (Shape(1, 128, 128, 1, 500, (1, 5)), {"1x4of1x5"}),
        (Shape(1, 8, 8, 1, 500, (1, 3)), set()),
        (Shape(1, 256, 256, 1, 500, (1, 9)), set()),
        (Shape(1, 256, 256, 1, 500, (1, 1)), set()),
    ],
)
def test_few_channels_and_small_images_are_computed_directly(shape: Shape, offered: set[str]) -> None:
    assert {one.words for one in algebra.worth(shape, 8)} == offered
