"""Averages of the schedulers' figures."""

from typing import Any

import msgspec
import pytest
from scheduling import summary

from autosched.model import Goal
from autosched.sim.policy_benchmark import Row

ANY: dict[str, Any] = {
    "policy": "predictive", "goal": Goal.BALANCED, "estimates": "learned", "jobs": 1, "hosts": 1,
    "devices": 1, "steps": 3, "bound_s": 1.0, "best_known_s": None, "mean_slowdown": 1.0, "max_slowdown": 1.0,
    "hosts_busy": 1.0, "devices_busy": 1.0,
}  # fmt: skip


def row(name: str, makespan_s: float, completion_s: float) -> Row:
    return Row(name=name, makespan_s=makespan_s, ratio=makespan_s, mean_completion_s=completion_s, **ANY)


def test_a_kind_of_load_counts_once_however_many_seeds_of_it_there_are() -> None:
    rows = [row("hom-N2-C1-M1-s1", 1.0, 1.0), row("het-N8-C1-M1-s1", 1.2, 0.6), row("het-N8-C1-M1-s12", 1.4, 0.8)]
    base = [msgspec.structs.replace(one, mean_completion_s=1.0) for one in rows]
    told = summary(rows, base, "balanced", "learned")
    assert (told["ratio_mean"], told["completion"]) == (pytest.approx(1.2), pytest.approx(0.8))
    assert told["of_kinds"] == [pytest.approx(1.15), pytest.approx(0.85)]
