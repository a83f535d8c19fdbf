"""How the values between a network's operators may lie in memory. Pure.

A blocked layout NCHW[x]c keeps x neighbouring channels together, so that one vector register holds them. Where the
channels are no multiple of x, the last block is filled up with zeros.
"""

import math
from dataclasses import dataclass

from autosched_tvm.compile.relax_operators import Shape

FEW_CHANNELS = 4
"""A first convolution reads an image as it is: of so few channels no block can be made."""
BLOCK_MIN = 4


@dataclass(frozen=True, order=True)
class Layout:
    """An order of the dimensions of a value of rank 4; values of other ranks have `NCHW`, which means: as they are."""

    name: str
    block: int = 0
    """Channels in a block; 0: not blocked."""

    def __str__(self) -> str:
        return f"NCHW{self.block}c" if self.block else self.name

    def axis(self, axis: int) -> int:
        """Where a dimension of NCHW lies; of blocked channels, where the number of the block lies."""
        return "NHWC".index("NCHW"[axis]) if self.name == "NHWC" else axis

    def stored(self, shape: Shape) -> Shape:
        """The shape in memory of a value of this NCHW shape."""
        n, c, h, w = shape
        if self.block:
            return (n, -(-c // self.block), h, w, self.block)
        return (n, h, w, c) if self.name == "NHWC" else (n, c, h, w)

    def filled(self, channels: int) -> bool:
        """Whether the last block is filled up."""
        return bool(self.block) and channels % self.block != 0


NCHW = Layout("NCHW")
NHWC = Layout("NHWC")


def blocked(block: int) -> Layout:
    """NCHW[block]c."""
    return Layout("NCHWc", block)


def lanes_of(vector_bits: int) -> int:
    """Single-precision numbers in a vector register; 8 where the width is not known."""
    return max(BLOCK_MIN, vector_bits // 32) if vector_bits else 8


def blocks_of(channels: int, lanes: int) -> tuple[int, ...]:
    """The blocks worth a try: the one that keeps most lanes busy, then the widest that needs no filling."""
    powers = [BLOCK_MIN << i for i in range(lanes.bit_length()) if BLOCK_MIN << i <= lanes]
    best = max(powers, key=lambda block: (busy(channels, block, lanes), -block))
    whole = math.gcd(channels, lanes)
    return (best,) if whole in (best, *range(BLOCK_MIN)) else (best, whole)


def block_of_group(channels: int, groups: int, lanes: int) -> int:
    """The block that no two groups share; 0 when it would leave most lanes idle."""
    block = math.gcd(channels // groups, lanes)
    return block if block >= max(BLOCK_MIN, lanes // 2) else 0


def busy(channels: int, block: int, lanes: int) -> float:
    """The share of a vector register's lanes that hold channels."""
    return channels / (-(-channels // block) * lanes)
