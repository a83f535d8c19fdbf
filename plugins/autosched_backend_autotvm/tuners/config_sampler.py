"""Configurations as a tuner handles them: rows of digits, and which of them may still be proposed."""

import itertools
import math
from collections.abc import Collection
from functools import cached_property
from random import Random
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from autosched_backend_autotvm.config_space import ConfigSpace, Rule

Digits: TypeAlias = NDArray[np.int64]
"""One row per configuration, one column per knob."""

LISTED_MAX = 1 << 19
"""Spaces up to this size can be gone through from end to end, if their rules say which knobs they look at."""
ASKED_MAX = 1 << 15
"""If not, up to this size: each configuration is asked for."""
DRAWS_PER_WANTED = 4
"""Draws from such a space for each wanted configuration, before the space is listed."""
DRAWS_MAX = 20_000
"""Maximum number of draws from a larger space that may fail, before it counts as exhausted."""
EXACT_MAX = 1 << 63


class ConfigSampler:
    """A space, or the part of it from index `first` to before `end` (0: to its end)."""

    def __init__(self, space: ConfigSpace, first: int = 0, end: int = 0) -> None:
        self.space = space
        self.radices = np.array(space.radices, np.int64)
        self.first = min(first, space.size)
        self.end = min(end, space.size) if end else space.size
        self._legal: dict[int, bool] = {}
        self._rules = [rule for rule in (space.admit, space.doubt) if rule is not None]
        strides = [math.prod(space.radices[:knob]) for knob in range(len(space.radices))]
        if space.size > EXACT_MAX:  # numbers do not fit, so a row's key is a hash of it
            hashing = Random(len(strides))
            strides = [hashing.getrandbits(64) | 1 for _ in strides]
        self._strides = np.array(strides, np.uint64)

    @property
    def size(self) -> int:
        """How many configurations, illegal ones included."""
        return max(0, self.end - self.first)

    @cached_property
    def listed(self) -> bool:
        """Whether the space is so small that all of it can be looked at."""
        return self.size <= (LISTED_MAX if all(isinstance(rule, Rule) for rule in self._rules) else ASKED_MAX)

    @cached_property
    def all_legal(self) -> Digits:
        """All that are legal, of a space that is listed."""
        return self.digits((np.flatnonzero(self._mask) + self.first).tolist())

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        """Mask of the legal configurations of a space that is listed."""
        every = np.arange(self.first, self.end)
        found = np.ones(len(every), bool)
        knobs = {knob.name: (at, knob) for at, knob in enumerate(self.space.knobs)}
        for rule in self._rules:
            if not isinstance(rule, Rule):
                configs = map(self.space.config, every.tolist())
                found &= np.array([rule(config) is None for config in configs], bool)
                continue
            own = [knobs[name] for name in rule.names]
            choices = itertools.product(*(knob.values for _, knob in own))
            verdicts = [rule(dict(zip(rule.names, values, strict=True))) is None for values in choices]
            place = np.zeros(len(every), np.int64)
            for at, knob in own:
                digit = every // math.prod(self.space.radices[:at]) % len(knob.values)
                place = place * len(knob.values) + digit
            found &= np.array(verdicts, bool)[place]
        return found

    def digits(self, indices: Collection[int]) -> Digits:
        """One row for each."""
        if self.space.size > EXACT_MAX:
            rows = [self.space.digits(index) for index in indices]
            return np.array(rows, np.int64).reshape(len(rows), len(self.radices))
        left = np.fromiter(indices, np.int64, len(indices))
        found = np.empty((len(left), len(self.radices)), np.int64)
        for knob, radix in enumerate(self.radices):
            left, found[:, knob] = np.divmod(left, radix)
        return found

    def indices(self, digits: Digits) -> list[int]:
        """One number for each row."""
        if self.space.size > EXACT_MAX:
            return [self.space.index(row) for row in digits.tolist()]
        return [int(key) for key in self.keys(digits)]

    def keys(self, digits: Digits) -> NDArray[np.uint64]:
        """One number for each row, unequal for unequal rows; the index itself where that fits."""
        return digits.astype(np.uint64) @ self._strides

    def legal(self, index: int) -> bool:
        """Whether nothing is known against a configuration, and it is in this part of the space."""
        if not self.first <= index < self.end:
            return False
        if self.listed:
            return bool(self._mask[index - self.first])
        if (known := self._legal.get(index)) is None:
            known = self._legal[index] = self.space.admits(self.space.config(index)) is None
        return known

    def draw(self, rng: np.random.Generator, count: int) -> Digits:
        """Rows at random from the whole space, equal ones and illegal ones among them."""
        return rng.integers(0, self.radices, size=(count, len(self.radices)))

    def fresh(self, random: Random, count: int, known: Collection[int]) -> list[int]:
        """Up to `count` legal configurations at random, all different and none of them known."""
        found: dict[int, None] = {}
        for _ in range(DRAWS_PER_WANTED * count if self.listed else DRAWS_MAX):
            if len(found) == count or not self.size:
                break
            index = random.randrange(self.first, self.end)
            if index not in known and self.legal(index):
                found[index] = None
        if self.listed and len(found) < count:
            left = [index for index in range(self.first, self.end) if index not in known and index not in found]
            random.shuffle(left)
            found |= dict.fromkeys(itertools.islice(filter(self.legal, left), count - len(found)))
        return list(found)
