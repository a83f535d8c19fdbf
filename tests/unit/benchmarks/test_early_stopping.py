"""How rules of early stopping are judged."""

import math
from typing import Any

import numpy as np
import pytest
from early_stopping import Rule, again, chosen, judged, known, margin_of, outcome, section, stopped

FLAT = [3.0, *[3.0] * 63]
LATE = [3.0, *[3.0] * 47, *[2.0] * 16]
SOON = Rule(16, 0.0, 0.01, 4, 2)


def test_a_search_is_asked_before_each_round() -> None:
    assert stopped(Rule(16, 0.0, 0.01, 100, 2), FLAT) == 24
    assert stopped(Rule(15, 0.0, 0.01, 100, 2), FLAT) == 16
    assert stopped(SOON, FLAT) == 16
    assert stopped(SOON, [None, *FLAT[1:]]) == 16
    assert stopped(Rule(47, 0.0, 0.01, 100, 2), LATE) == 48
    assert stopped(Rule(48, 0.0, 0.01, 100, 2), LATE) == 64


def test_what_is_saved_and_lost() -> None:
    saved, loss = outcome(SOON, [FLAT, LATE])
    assert saved == 0.75
    assert loss == pytest.approx(math.log(1.5) / 2)


BOLD, TIMID, NOTHING = 0, 1, 2
PLAYED = np.array([[(0.9, 0.1), (0.8, 0.0)], [(0.5, 0.001), (0.4, 0.002)], [(0.0, 0.0), (0.0, 0.0)]])
"""Of three rules on two tasks, what they save and lose."""


def test_the_rule_that_saves_most_and_loses_little_is_chosen_on_the_given_tasks_alone() -> None:
    assert chosen(PLAYED, [0, 1], 0.6) == TIMID
    assert chosen(PLAYED, [1], 0.6) == BOLD
    assert chosen(PLAYED[[BOLD, BOLD, NOTHING]], [0], 1.0) == NOTHING


def test_the_margin_is_narrow_enough_for_tasks_that_had_no_part_in_choosing() -> None:
    """A rule that loses 0.9 % on two tasks each and 3 % on the third would be chosen by these two."""
    one, other = [(0.5, 0.009), (0.5, 0.009), (0.5, 0.03)], [(0.3, 0.004)] * 3
    assert margin_of(np.array([one, other]), [0, 1, 2]) < 0.9
    assert margin_of(np.array([one[:2], other[:2]]), [0, 1]) > 0.9


def run(task: str, method: str, latencies_s: list[float], again_s: float = 1.0, seed: int = 1) -> dict[str, Any]:
    return {"task": task, "method": method, "latencies_s": latencies_s, "again_s": {"64": again_s}, "seed": seed}


def test_only_whole_searches_of_the_method_are_played_on() -> None:
    runs = [run("a", "autotvm xgb", FLAT), run("a", "autotvm xgb", FLAT[:32]), run("a", "autotvm stopping", FLAT)]
    assert known(runs) == {"a": [FLAT]}


def test_what_was_lost_as_measured_again() -> None:
    runs = [run("a", "autotvm xgb", FLAT, 2.0), run("a", "autotvm stopping", FLAT, 2.2)]
    runs += [run("a", "autotvm xgb", FLAT, 2.0, seed=2), run("a", "autotvm stopping", FLAT, 2.0, seed=2)]
    assert again([*runs, run("b", "autotvm xgb", FLAT)]) == {"a": pytest.approx(math.log(1.1) / 2)}


def test_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("early_stopping.GRID", [SOON])
    monkeypatch.setattr("early_stopping.NOW", Rule(48, 0.0, 0.01, 100, 2))
    told = {**judged({"a": [FLAT], "b": [LATE], "c": [FLAT]}), "again": {"a": 0.01}}
    *_, first, second, _, mean = section(told)
    assert tuple(told["best"]) == (48, 0.0, 0.01, 100, 2)
    assert first == "| a | 1 | 12% | 0.00% | 1.01% | 12% | 0.00% | 48, 0, 0.01, 100, 2 |"
    assert second == "| b | 1 | 0% | 0.00% | - | 75% | 50.00% | 16, 0, 0.01, 4, 2 |"
    assert mean == "| all | | 8% | 0.00% | 1.01% | 33% | 14.47% | |"
