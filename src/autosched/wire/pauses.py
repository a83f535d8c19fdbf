"""Pauses between attempts to reconnect."""

from collections.abc import Iterator
from random import Random

PAUSE_FIRST_S, PAUSE_MAX_S, PAUSE_GROWTH = 0.1, 30.0, 1.5


def pauses(rng: Random | None = None, most_s: float = PAUSE_MAX_S) -> Iterator[float]:
    """Yield the seconds between attempts: growing, at most `most_s`, and random, so that peers of one daemon do not
    reconnect together."""
    rng, pause_s = rng or Random(), PAUSE_FIRST_S
    while True:
        yield pause_s * rng.uniform(0.5, 1.0)
        pause_s = min(pause_s * PAUSE_GROWTH, most_s)
