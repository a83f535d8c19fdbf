"""The search of a simple backend: pure functions of a space, a seed and earlier measurements."""

import json
import math
import random
from collections.abc import Iterator, Sequence
from itertools import islice, product
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from autosched.simple import Choice, Space, Tried

LISTED_MAX = 20_000
"""Maximum size of a space that is enumerated when random choices find nothing new."""
GUESSES = 50
PARENTS = 3


def encode(choice: "Choice") -> bytes:
    """Encode a choice as a candidate: equal choices give equal bytes."""
    return json.dumps(dict(choice), sort_keys=True, separators=(",", ":")).encode()


def decode(space: "Space", candidate: bytes) -> "Choice | None":
    """Decode a candidate; None if it is none of this space."""
    try:
        choice = json.loads(candidate)
    except (ValueError, RecursionError):
        return None
    if not isinstance(choice, dict) or choice.keys() != space.knobs.keys():
        return None
    known = choice == space.default or all(choice[knob] in values for knob, values in space.knobs.items())
    return choice if known else None


def size(space: "Space") -> int:
    """Number of choices of a space."""
    return math.prod(map(len, space.knobs.values()))


def suggest(space: "Space", seed: int, tried: "Sequence[Tried]", count: int) -> "list[Choice]":
    """New choices: in turns random, and one knob away from one of the best three."""
    rng = random.Random(f"{seed}/{space.name}/{len(tried)}")
    valid = sorted((latency_s, encode(choice), choice) for choice, latency_s in tried if latency_s is not None)
    parents = [choice for _, _, choice in valid[:PARENTS]]
    seen = {encode(choice) for choice, _ in tried}
    return list(islice(_fresh(space, rng, parents, seen, count), count))


def _fresh(
    space: "Space", rng: random.Random, parents: "list[Choice]", seen: set[bytes], count: int
) -> "Iterator[Choice]":
    for guess in range(GUESSES * count):
        choice = {knob: rng.choice(values) for knob, values in space.knobs.items()}
        if parents and guess % 2:
            kept = rng.choice(parents)
            moved = rng.choice(list(space.knobs))
            choice = {knob: value if knob == moved else kept[knob] for knob, value in choice.items()}
        if (key := encode(choice)) not in seen:
            seen.add(key)
            yield choice
    if size(space) <= LISTED_MAX:
        rest = (dict(zip(space.knobs, values, strict=True)) for values in product(*space.knobs.values()))
        left = [choice for choice in rest if encode(choice) not in seen]
        rng.shuffle(left)
        yield from left
