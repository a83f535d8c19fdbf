"""Memory layouts of values between a network's operators. Pure.

A blocked layout NCHW[x]c keeps x neighbouring channels together, so that one vector register holds them. Where the
number of channels is no multiple of x, the last block is padded with zeros.
"""

import math
from dataclasses import dataclass

from autosched_tvm.compile.relax_operators import Shape

FEW_CHANNELS = 4
"""Maximum number of channels of an image that is not blocked: a first convolution reads it as it is."""
BLOCK_MIN = 4


@dataclass(frozen=True, order=True)
class Layout:
    """Order of the dimensions of a value of rank 4. Values of other ranks have `NCHW`, which means unchanged."""

    name: str
    block: int = 0
    """Number of channels in a block; 0: not blocked."""

    def __str__(self) -> str:
        return f"NCHW{self.block}c" if self.block else self.name

    def axis(self, axis: int) -> int:
        """Returns the position of a dimension of NCHW; for blocked channels, the position of the block number."""
        return "NHWC".index("NCHW"[axis]) if self.name == "NHWC" else axis

    def stored(self, shape: Shape) -> Shape:
        """Returns the shape in memory of a value of this NCHW shape."""
        n, c, h, w = shape
        if self.block:
            return (n, -(-c // self.block), h, w, self.block)
        return (n, h, w, c) if self.name == "NHWC" else (n, c, h, w)

    def filled(self, channels: int) -> bool:
        """Returns whether the last block is padded."""
        return bool(self.block) and channels % self.block != 0


NCHW = Layout("NCHW")
NHWC = Layout("NHWC")


def blocked(block: int) -> Layout:
    """Returns NCHW[block]c."""
    return Layout("NCHWc", block)


def lanes_of(vector_bits: int) -> int:
    """Returns the number of float32 values in a vector register; 8 where the width is unknown."""
    return max(BLOCK_MIN, vector_bits // 32) if vector_bits else 8


def blocks_of(channels: int, lanes: int) -> tuple[int, ...]:
    """Returns the blocks worth trying: the one that keeps most lanes busy, then the widest without padding."""
    powers = [BLOCK_MIN << i for i in range(lanes.bit_length()) if BLOCK_MIN << i <= lanes]
    best = max(powers, key=lambda block: (busy(channels, block, lanes), -block))
    whole = math.gcd(channels, lanes)
    return (best,) if whole in (best, *range(BLOCK_MIN)) else (best, whole)


def block_of_group(channels: int, groups: int, lanes: int) -> int:
    """Returns the largest block that lies within one group; 0 where it would leave most lanes idle."""
    block = math.gcd(channels // groups, lanes)
    return block if block >= max(BLOCK_MIN, lanes // 2) else 0


def busy(channels: int, block: int, lanes: int) -> float:
    """Returns the share of a vector register's lanes that hold channels."""
    return channels / (-(-channels // block) * lanes)
