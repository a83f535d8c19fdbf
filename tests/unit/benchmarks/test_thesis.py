"""Figures of the thesis' evaluation, from steps and pairs."""

import pytest
from thesis_numbers import CAUSES, WORKING, causes, geometric, overheads_s, packed, paired, quantile, unpacked

from autosched.protocol import Span

HOST, DEVICE = "host/0", "cpu0"


def span(unit: str, queued_at: float, started_at: float, ended_at: float, *, job: int = 1, worked: float = 1.0) -> Span:
    """`worked`: share of the lease."""
    took_s = (ended_at - started_at) * worked
    return Span(1, job, 1, "build", (unit,), queued_at, started_at, ended_at, "done", took_s)


def test_idle_time_is_split_by_cause_and_adds_up() -> None:
    spans = [
        span(HOST, 2, 2, 6, worked=0.75),
        span(DEVICE, 6, 6, 9),
        span(HOST, 9, 9, 10),
        span(HOST, 10, 12, 13, job=2),  # the policy let it wait for 2 s
        span(DEVICE, 14, 14, 18, job=2),  # its client took a second to report the next stage
    ]
    host, device = (causes(spans, unit, 0.0, 20.0) for unit in (HOST, DEVICE))
    assert {name: s for name, s in host.items() if s} == pytest.approx(
        {WORKING: 5, "handing over": 1, "held back": 2, "other resource": 3, "start": 2, "tail": 7}
    )
    assert {name: s for name, s in device.items() if s} == pytest.approx(
        {WORKING: 7, "start": 6, "other resource": 4, "clients": 1, "tail": 2}
    )
    assert sum(host.values()) == sum(device.values()) == pytest.approx(20.0)
    assert host.keys() == CAUSES.keys()


def test_steps_that_share_a_unit_are_busy_once() -> None:
    spans = [span(HOST, 0, 0, 4), span(HOST, 0, 0, 6, job=2, worked=0.5)]
    assert causes(spans, HOST, 0.0, 6.0)[WORKING] == pytest.approx(5.0)


def test_a_unit_that_was_never_used_waits_for_its_start() -> None:
    assert causes([span(HOST, 0, 0, 4)], DEVICE, 0.0, 4.0)["start"] == pytest.approx(4.0)


def test_overhead_counts_steps_that_waited_for_the_one_before() -> None:
    spans = [
        span(HOST, 0, 0, 2, worked=0.5),  # no step before it
        span(HOST, 1, 2, 4, worked=0.9),
        span(HOST, 4, 4, 6, worked=0.5),  # did not wait
        span(HOST, 5, 7, 8, worked=0.5),  # was delayed
        span(DEVICE, 3, 4, 5, worked=0.5),  # on another unit
    ]
    assert overheads_s(spans, HOST) == pytest.approx([0.2])


def test_a_median_of_ratios_is_a_bias_with_an_interval_and_a_spread() -> None:
    found = paired([(1.0, 1.0), (1.1, 1.0), (2.2, 2.0), (1.1, 1.0), (1.3, 1.0), (4.4, 4.0), (1.2, 1.0)])
    assert found.bias == pytest.approx(0.1)
    assert (found.low, found.high) == pytest.approx((0.0, 0.3))
    assert 0.0 <= found.spread < 0.1
    assert found.count == 7


def test_equal_measurements_have_no_bias() -> None:
    for estimate in (paired, geometric):
        found = estimate([(2.0, 2.0)] * 8)
        assert (found.bias, found.low, found.high, found.spread) == (0.0, 0.0, 0.0, 0.0)
        assert estimate([]).count == 0


def test_a_geometric_mean_weighs_faster_and_slower_alike() -> None:
    found = geometric([(2.0, 1.0), (1.0, 2.0)] * 6)
    assert found.bias == pytest.approx(0.0)
    assert found.low < 0.0 < found.high
    assert geometric([(2.0, 1.0), (1.0, 2.0)] * 6) == found


def test_quantiles_go_by_rank() -> None:
    assert [quantile([3, 1, 2], part) for part in (0.0, 0.5, 1.0)] == [1, 2, 3]
    assert quantile([], 0.5) == 0.0


def test_packed_steps_are_unpacked_again() -> None:
    spans = [span(HOST, 10, 11, 12, job=3, worked=0.5), span(DEVICE, 12, 12, 14.5)]
    back = unpacked(packed(spans, 10.0))
    assert [(s.job, s.units, s.queued_at, s.started_at, s.ended_at, s.worked_s) for s in back] == [
        (3, (HOST,), 0.0, 1.0, 2.0, 0.5),
        (1, (DEVICE,), 2.0, 2.0, 4.5, 2.5),
    ]
