"""Two compiled networks of the same interface, in turns on the same cores."""

import random
import time
from pathlib import Path

from autosched.errors import RequestError
from autosched.runtime_errors import in_words
from autosched_runtime.network import Network
from autosched_runtime.network_of_shapes import networks_of
from autosched_tvm.generated_inputs import random_inputs
from autosched_tvm.tensors import Tensor

TURN_S = 0.02
"""Duration of one turn: several inferences of a fast network."""
ROUNDS_MIN = 7


def ratios(new: Path, old: Path, budget_s: float) -> dict[str, list[float]]:
    """Returns the time of the new network over that of the old one, in each round, by the inputs in words.

    Networks for several shapes are compared shape by shape, in equal shares of the budget. Raises RequestError for
    networks that take different inputs.
    """
    with in_words():
        ours, theirs = _by_inputs(new), _by_inputs(old)
        if ours.keys() != theirs.keys():
            said = (" or ".join(each) for each in (ours, theirs))
            raise RequestError(f"these networks take different inputs: {'; '.join(said)}")
        return {inputs: _rounds(ours[inputs], theirs[inputs], budget_s / len(ours)) for inputs in ours}


def _by_inputs(path: Path) -> dict[str, Network]:
    return {one.description.told_inputs: one for one in networks_of(path)}


def _rounds(new: Network, old: Network, budget_s: float) -> list[float]:
    """The ratio in each round. The order of a round is drawn, so that neither always follows the other."""
    draw, found = random.Random(0), list[float]()
    tensors = [Tensor(one.name, one.shape, one.dtype) for one in new.description.inputs]
    bound = {network: network.bind(random_inputs(tensors)) for network in (new, old)}
    number = {network: max(1, int(TURN_S / network.timed(bound[network], 2))) for network in (new, old)}
    until = time.perf_counter() + budget_s
    while len(found) < ROUNDS_MIN or time.perf_counter() < until:
        order = draw.sample((new, old), 2)
        taken = {network: network.timed(bound[network], number[network]) for network in order}
        found.append(taken[new] / taken[old])
    return found
