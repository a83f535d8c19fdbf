"""Pauses between attempts to reconnect to a daemon."""

from itertools import islice
from random import Random

import pytest

from autosched.wire.pauses import PAUSE_FIRST_S, PAUSE_MAX_S, pauses


@pytest.mark.parametrize("most_s", [PAUSE_MAX_S, 5.0])
def test_pauses_grow_differ_and_are_bounded(most_s: float) -> None:
    one, other = (list(islice(pauses(Random(seed), most_s), 60)) for seed in (1, 2))
    assert one[0] <= PAUSE_FIRST_S
    assert max(one) <= most_s
    assert min(one[30:]) >= most_s / 2
    assert not set(one) & set(other)
