"""Latencies that cannot be."""

import pytest

from autosched.records.latency_bound import LEAST_S, OPERATIONS_OF_CORE_HZ, impossible


@pytest.mark.parametrize(
    ("latencies_s", "flops", "cores", "words"),
    [
        ((1e-3,), 2e9, 1, ""),
        ((1e-3, 1e-6), 2e9, 1, "2e+09 operations on 1 cores takes more than 4.07e-05 s"),
        ((3e-5,), 2e9, 4, ""),
        ((1e-6,), 2e9, 0, ""),
        ((1e-9,), 0.0, 1, "a latency of 1e-09 s is impossible: a call takes more than 1e-09 s"),
        ((7.58e-9,), 0.0, 1, ""),
        ((LEAST_S / 2,), 0.0, 1, "is impossible"),
        ((), 1e12, 1, ""),
    ],
)
def test_a_latency_below_the_bound_is_told(
    latencies_s: tuple[float, ...], flops: float, cores: int, words: str
) -> None:
    said = impossible(latencies_s, flops, cores)
    assert words in said
    assert bool(said) is bool(words)


def test_the_bound_is_above_every_core() -> None:
    assert OPERATIONS_OF_CORE_HZ > 4 * 5e12, "a matrix unit at 5 TFLOPS, with Winograd's algorithm"
