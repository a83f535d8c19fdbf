"""Configurations as rows of digits, and which of them may still be proposed."""

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
"""Maximum size of a space that is enumerated, if its rules name the knobs that they use."""
ASKED_MAX = 1 << 15
"""Maximum size of a space that is enumerated otherwise, configuration by configuration."""
DRAWS_PER_WANTED = 4
"""Number of draws from such a space per wanted configuration, before the space is enumerated."""
DRAWS_MAX = 20_000
"""Maximum number of failed draws from a larger space before it counts as exhausted."""
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
        if space.size > EXACT_MAX:  # the numbers exceed 64 bits, so a row's key is a hash of it
            hashing = Random(len(strides))
            strides = [hashing.getrandbits(64) | 1 for _ in strides]
        self._strides = np.array(strides, np.uint64)

    @property
    def size(self) -> int:
        """Number of configurations, including illegal ones."""
        return max(0, self.end - self.first)

    @cached_property
    def listed(self) -> bool:
        """Whether the space is small enough to be enumerated."""
        return self.size <= (LISTED_MAX if all(isinstance(rule, Rule) for rule in self._rules) else ASKED_MAX)

    @cached_property
    def all_legal(self) -> Digits:
        """Returns all legal configurations of an enumerated space."""
        return self.digits((np.flatnonzero(self._mask) + self.first).tolist())

    @cached_property
    def _mask(self) -> NDArray[np.bool_]:
        """Returns the mask of the legal configurations of an enumerated space."""
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
        """Returns one row for each index."""
        if self.space.size > EXACT_MAX:
            rows = [self.space.digits(index) for index in indices]
            return np.array(rows, np.int64).reshape(len(rows), len(self.radices))
        left = np.fromiter(indices, np.int64, len(indices))
        found = np.empty((len(left), len(self.radices)), np.int64)
        for knob, radix in enumerate(self.radices):
            left, found[:, knob] = np.divmod(left, radix)
        return found

    def indices(self, digits: Digits) -> list[int]:
        """Returns one index for each row."""
        if self.space.size > EXACT_MAX:
            return [self.space.index(row) for row in digits.tolist()]
        return [int(key) for key in self.keys(digits)]

    def keys(self, digits: Digits) -> NDArray[np.uint64]:
        """Returns one number for each row, different for different rows: the index itself where it fits into 64
        bits."""
        return digits.astype(np.uint64) @ self._strides

    def legal(self, index: int) -> bool:
        """Returns whether a configuration is admitted, and in this part of the space."""
        if not self.first <= index < self.end:
            return False
        if self.listed:
            return bool(self._mask[index - self.first])
        if (known := self._legal.get(index)) is None:
            known = self._legal[index] = self.space.admits(self.space.config(index)) is None
        return known

    def draw(self, rng: np.random.Generator, count: int) -> Digits:
        """Returns random rows of the whole space, possibly repeated or illegal."""
        return rng.integers(0, self.radices, size=(count, len(self.radices)))

    def fresh(self, random: Random, count: int, known: Collection[int]) -> list[int]:
        """Returns up to `count` random legal configurations, all different and none in `known`."""
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
