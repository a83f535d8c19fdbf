"""Similarity of workloads: the same operator with other sizes, by the distance of their sizes. Pure."""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from heapq import heappush, heapreplace
from typing import Generic, TypeVar

from msgspec import Struct

T = TypeVar("T")

_SIZES = re.compile(r"\b\d+(?:x\d+)*\b(?! more\b)")
"""Sizes in the description of a task: "64x56x56". Digits of a name ("conv2d", "NCHW8c") do not count."""


class Shape(Struct, frozen=True):
    """An operator and its sizes."""

    operator: str
    """The description with each size replaced by "#": equal for workloads that differ only in sizes."""
    sizes: tuple[int, ...]

    @property
    def place(self) -> tuple[float, ...]:
        """Logarithms of the sizes."""
        return tuple(math.log(max(1, size)) for size in self.sizes)


def parse(text: str) -> Shape:
    """The operator and sizes in a task's description: "conv2d 64x56x56 -> 64, 3x3"."""
    sizes: list[int] = []

    def replace(found: re.Match[str]) -> str:
        parts = found[0].split("x")
        sizes.extend(map(int, parts))
        return "x".join("#" * len(parts))

    return Shape(_SIZES.sub(replace, text), tuple(sizes))


class ShapeIndex(Generic[T]):
    """Finds the nearest of many workloads of one operator, by the Euclidean distance of the logarithms of their sizes:
    0.69 for one size twice as large."""

    def __init__(self, known: Iterable[tuple[Shape, T]]) -> None:
        entries = [(shape.place, what) for shape, what in known]
        entries.sort(key=lambda entry: math.fsum(entry[0]))
        self._entries = entries
        self._magnitudes = [math.fsum(place) for place, _ in entries]
        """Sum of the logarithms of each workload's sizes."""

    def __len__(self) -> int:
        return len(self._entries)

    def nearest(self, wanted: Shape, k: int, use: Callable[[T], bool] = lambda _: True) -> list[tuple[float, T]]:
        """The k nearest workloads with their distances, the nearest first. `use`: whether a workload counts, asked
        last.

        Few are examined: by the Cauchy-Schwarz inequality, two workloads of n sizes whose magnitudes differ by m have
        at least the distance m / sqrt(n).
        """
        place, root = wanted.place, math.sqrt(max(1, len(wanted.sizes)))
        found: list[tuple[float, int, T]] = []  # a heap, the farthest first
        for number, (apart, entry) in enumerate(self._outwards(math.fsum(place))):
            if len(found) == k and apart / root > -found[0][0]:
                break
            away = math.dist(place, self._entries[entry][0])
            if len(found) == k and away >= -found[0][0]:
                continue
            what = self._entries[entry][1]
            if use(what):
                (heappush if len(found) < k else heapreplace)(found, (-away, -number, what))
        return [(-away, what) for away, _, what in sorted(found, key=lambda one: (-one[0], -one[1]))]

    def _outwards(self, magnitude: float) -> Iterator[tuple[float, int]]:
        """Yield the difference of magnitude and the index of each workload, by ascending difference."""
        above, magnitudes = bisect_left(self._magnitudes, magnitude), self._magnitudes
        below, count = above - 1, len(magnitudes)
        while below >= 0 or above < count:
            down = magnitude - magnitudes[below] if below >= 0 else math.inf
            up = magnitudes[above] - magnitude if above < count else math.inf
            if down < up:
                yield down, below
                below -= 1
            else:
                yield up, above
                above += 1
