"""Small changes of a sampling decision. Loads without TVM."""

from collections.abc import Sequence
from random import Random
from typing import Any

from autosched_tvm.api import schedule_traces


def beside(
    instruction: Sequence[Any], decision: schedule_traces.Decision, random: Random
) -> schedule_traces.Decision | None:
    """A decision next to one of this instruction; the same if it is the only one.

    None if the instruction's values have no order.
    """
    name, _, attributes, *_ = instruction
    if name == "SamplePerfectTile" and isinstance(decision, tuple):
        return _retiled(decision, int(attributes[1]), random)
    if name == "SampleCategorical" and isinstance(decision, int):
        last = len(attributes[0]) - 1
        others = [other for other in (decision - 1, decision + 1) if 0 <= other <= last]
        return random.choice(others) if others else decision
    return None


def _retiled(factors: tuple[int, ...], innermost_max: int, random: Random) -> tuple[int, ...]:
    """Move one prime from one factor to another; the innermost factor stays within its maximum."""
    last = len(factors) - 1
    moves = [
        (source, goal, prime)
        for source, factor in enumerate(factors)
        for prime in _primes(factor)
        for goal in range(len(factors))
        if goal != source and (goal < last or factors[last] * prime <= innermost_max)
    ]
    if not moves:
        return factors
    source, goal, prime = random.choice(moves)
    moved = list(factors)
    moved[source] //= prime
    moved[goal] *= prime
    return tuple(moved)


def _primes(number: int) -> list[int]:
    """Prime factors of a number, each once."""
    found, divisor = [], 2
    while number > 1:
        if number % divisor:
            divisor = divisor + 1 if divisor * divisor <= number else number
            continue
        found.append(divisor)
        while number % divisor == 0:
            number //= divisor
    return found
