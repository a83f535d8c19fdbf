"""A blocked convolution whose speed is a formula: searches can be compared on it in seconds and without a compiler.

What it has of a real one: the tile of results must fill the vector registers and must not spill, the working set must
fit into the cache, vectors want whole lanes, words are better or worse by a factor, some configurations fail, and
every measurement is a little off. It is no model of a real machine: what wins here has still to win on one.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from autosched_backend_autotvm.config_space import Config, ConfigSpace, Knob

SHAPES = (
    (56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3), (56, 64, 64, 1), (112, 32, 64, 1),
)  # fmt: skip
"""Rows and columns of the image, input channels, output channels, taps."""


@dataclass(frozen=True)
class MadeUpKernel:
    """One machine and one convolution. `seed` is the machine: its lanes, registers, cache and tastes."""

    seed: int
    image: int = 56
    inputs: int = 64
    outputs: int = 64
    taps: int = 3
    noise: float = 0.01

    @cached_property
    def space(self) -> ConfigSpace:
        """Some million configurations."""
        inner, outer, across = divisors(self.inputs), divisors(self.outputs), divisors(self.image)
        pairs = tuple((a, b) for a in outer for b in divisors(self.outputs // a))
        knobs = (
            Knob("ic_block", tuple(d for d in inner if d <= 64)),
            Knob("oc_block", tuple(d for d in outer if d <= 64)),
            Knob("tile_ow", across), Knob("tile_oh", across), Knob("unroll_kw", (0, 1)), Knob("order", ("a", "b", "c")),
            Knob("unroll", (0, 16, 64, 512)), Knob("pad", ("root", "tile", "inline")), Knob("tile_oc", pairs),
        )  # fmt: skip
        return ConfigSpace("made_up", knobs)

    @cached_property
    def machine(self) -> dict[str, float]:
        """Drawn once."""
        rng = np.random.default_rng(self.seed)
        found = {"lanes": rng.choice([8, 16]), "registers": rng.choice([16, 32]), "cache": rng.choice([8_192, 12_288])}
        found |= dict(zip("abc", rng.permutation([1.0, 0.8, 0.6]), strict=True))
        found |= dict(zip(("root", "tile", "inline"), rng.permutation([1.0, 0.9, 0.75]), strict=True))
        return {name: float(value) for name, value in found.items()} | {"failing": float(rng.random() * 0.1)}

    def throughput(self, index: int) -> float:
        """Speed as a share of the peak, so at most about 1; 0 for a failure. The same every time."""
        rng = np.random.default_rng([self.seed, index % (1 << 62)])
        if rng.random() < self.machine["failing"]:
            return 0.0
        return self._share(self.space.config(index)) * float(np.exp(rng.normal() * self.noise))

    def _share(self, config: Config) -> float:
        machine = self.machine
        ic, oc, ow, oh, kw, unroll = (
            int(config[name])  # type: ignore[arg-type]
            for name in ("ic_block", "oc_block", "tile_ow", "tile_oh", "unroll_kw", "unroll")
        )
        lanes, registers = machine["lanes"], machine["registers"] * 0.9
        sums = max(1.0, oc / lanes) * ow
        share = min(1.0, oc / lanes) if oc % lanes == 0 or oc < lanes else 0.6
        share *= min(1.0, (sums / registers) ** 0.7) if sums <= registers else max(0.12, (registers / sums) ** 1.2)
        working_set = ic * oc * self.taps**2 + ic * (ow + 2) * oh
        share *= 1.0 if working_set < machine["cache"] else max(0.3, (machine["cache"] / working_set) ** 0.5)
        share *= 1.0 if ic >= 8 else 0.5 + ic / 16
        outer = config["tile_oc"]
        assert isinstance(outer, tuple)
        share /= 1 + 0.08 * abs(np.log2(outer[0] * outer[1] / 8))
        share *= {0: 0.85, 16: 0.95, 64: 1.0}.get(unroll, 0.9 if sums * self.taps < 64 else 0.6)
        share *= 1.0 + (0.06 if sums < 20 else -0.05) * kw
        return float(share * machine[str(config["order"])] * machine[str(config["pad"])])


def divisors(number: int) -> tuple[int, ...]:
    """Divisors of a number, ascending."""
    return tuple(d for d in range(1, number + 1) if number % d == 0)
