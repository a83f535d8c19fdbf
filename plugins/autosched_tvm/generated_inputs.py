"""Generates inputs with the statistics of real ones: images, sound, token ids, masks, states."""

from collections.abc import Sequence

import numpy as np

from autosched_tvm.tensors import Array, Kind, Tensor

PATCHES = 4
"""Number of light and dark rectangles in an image: edges for detectors."""
LETTERS = (
    "01110 10001 10001 11111 10001 10001 10001",
    "11110 10001 10001 11110 10001 10001 11110",
    "11111 10000 10000 11110 10000 10000 11111",
    "10001 11001 10101 10011 10001 10001 10001",
    "01110 10001 10001 10001 10001 10001 01110",
    "11111 00100 00100 00100 00100 00100 00100",
    "01100 10010 00010 00100 01000 10000 11110",
    "11110 00001 00001 01110 00001 00001 11110",
)
"""Letters of five columns and seven rows, A B E N O T 2 3: strokes for networks that find or read text."""
LINES_MAX = 3
"""Maximum lines of letters in an image; one if it is as low as a line of text."""
GRID = 7
"""Points per side from which the smooth part of an image is interpolated."""
TONES = 4
"""Number of sine waves in a sound."""
POSITIVE_SPREAD = 0.5
"""Standard deviation of the logarithms of positive numbers."""
STATE_SCALE = 0.1
"""Standard deviation of recurrent states."""


def random_inputs(wanted: Sequence[Tensor], seed: int = 0) -> dict[str, Array]:
    """Generate inputs by name."""
    generator = np.random.default_rng(seed)
    return {tensor.name: _made(generator, tensor) for tensor in wanted}


def _made(generator: np.random.Generator, tensor: Tensor) -> Array:
    kind, shape = tensor.kind, tensor.shape
    dtype = np.dtype(tensor.dtype)
    whole = dtype.kind != "f"
    match kind:
        case Kind.IMAGE | Kind.UNIT_IMAGE | Kind.PIXELS if len(shape) >= 3:
            unit = _image(generator, shape)
            scaled = unit * 255 if whole or kind is Kind.PIXELS else unit if kind is Kind.UNIT_IMAGE else 4 * unit - 2
            return scaled.astype(dtype)
        case Kind.SOUND if not whole:
            return _sound(generator, shape).astype(dtype)
        case Kind.STATE if not whole:
            return (STATE_SCALE * generator.standard_normal(shape)).astype(dtype)
        case Kind.POSITIVE if not whole:
            return np.exp(POSITIVE_SPREAD * generator.standard_normal(shape)).astype(dtype)
        case Kind.MASK:
            return np.minimum(_mask(generator, shape), max(0, tensor.high - 1)).astype(dtype)
        case Kind.POSITIONS if shape:
            steps = np.arange(shape[-1]) % max(1, tensor.high - tensor.low)
            return np.broadcast_to(tensor.low + steps, shape).astype(dtype)
        case Kind.COUNT:
            return np.full(shape, tensor.high - 1, dtype)
    if whole:
        low, high = (0, 2) if tensor.dtype == "bool" else (tensor.low, tensor.high)
        return generator.integers(low, high, shape).astype(dtype)
    return generator.standard_normal(shape).astype(dtype)


def _image(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Smooth colours with rectangles and some noise, between 0 and 1; height and width are the two longest axes."""
    longest = sorted(sorted(range(len(shape)), key=lambda axis: (-shape[axis], axis))[:2])
    height, width = (shape[axis] for axis in longest)
    others = [extent for axis, extent in enumerate(shape) if axis not in longest]
    planes = np.stack([_plane(generator, height, width) for _ in range(int(np.prod(others)))])
    for _ in range(PATCHES):
        top, left = generator.integers(0, height), generator.integers(0, width)
        down, right = top + 1 + height // 6, left + 1 + int(generator.integers(1, max(2, width // 3)))
        planes[:, top:down, left:right] = generator.choice((0.02, 0.98))
    for _ in range(1 if height < 64 else LINES_MAX):
        _write(generator, planes)
    planes += 0.02 * generator.standard_normal(planes.shape)
    image = np.clip(planes, 0, 1).reshape(*others, height, width)
    return np.moveaxis(image, [-2, -1], longest)


def _write(generator: np.random.Generator, planes: Array) -> None:
    """Draw a line of dark letters on a light ground at a random position of an image."""
    height, width = planes.shape[1:]
    size = max(1, (height - 4) // 9 if height < 64 else min(height // 90, 4) + 1)
    count = min(8, (width - 2 * size) // (6 * size))
    if count < 1 or height < 9 * size:
        return
    drawn = [np.array([list(row) for row in generator.choice(LETTERS).split()], "int") for _ in range(count)]
    line = np.concatenate([np.pad(letter, ((1, 1), (1, 0))) for letter in drawn], axis=1)
    pixels = 0.95 - 0.9 * np.kron(line, np.ones((size, size)))
    tall, wide = pixels.shape
    top, left = generator.integers(0, height - tall + 1), generator.integers(0, max(1, width - wide + 1))
    planes[:, top : top + tall, left : left + wide] = pixels[:, : width - left]


def _plane(generator: np.random.Generator, height: int, width: int) -> Array:
    coarse = generator.uniform(0.1, 0.9, (GRID, GRID))
    rows, columns = np.linspace(0, GRID - 1, height), np.linspace(0, GRID - 1, width)
    tall = np.stack([np.interp(rows, np.arange(GRID), line) for line in coarse.T], axis=1)
    return np.stack([np.interp(columns, np.arange(GRID), line) for line in tall])


def _sound(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Tones with varying volume, with noise, along the longest axis."""
    axis = max(range(len(shape)), key=lambda axis: shape[axis], default=0)
    length = shape[axis] if shape else 1
    time = np.arange(length)
    tones = sum(
        generator.uniform(0.02, 0.15) * np.sin(2 * np.pi * (generator.uniform(0.002, 0.1) * time + generator.random()))
        for _ in range(TONES)
    )
    swell = 0.5 + 0.5 * np.sin(2 * np.pi * (3 * time / length + generator.random()))
    wave = tones * swell + 0.01 * generator.standard_normal(length)
    return np.moveaxis(np.broadcast_to(wave, (*shape[:axis], *shape[axis + 1 :], length)), -1, axis)


def _mask(generator: np.random.Generator, shape: tuple[int, ...]) -> Array:
    length = shape[-1] if shape else 1
    ones = int(generator.integers((length + 1) // 2, length + 1))
    return np.broadcast_to(np.arange(length) < ones, shape)
