"""The believed and the true in a simulated world."""

from random import Random

import pytest

from autosched.blame import MISHAPS_MAX
from autosched.model import Step
from autosched.sim.scenario import Faults
from autosched.sim.sickness import PAUSE_S, Sickness


def step(number: int = 1) -> Step:
    return Step(
        id=number, job=1, task=number, stage="profile", units=("cpu0",), started_at=0.0, deadline_at=9.0
    )  # fmt: skip


def test_poison_fails_everywhere_and_is_barred_after_two_failures() -> None:
    world = Sickness(Faults(poison=("x",)), 0)
    assert world.measured(step(), "x", "cpu0", 1.0) == (False, "")
    assert not world.bars("x")
    assert world.measured(step(), "y", "cpu1", 2.0) == (True, "")
    assert world.measured(step(), "x", "cpu1", 3.0) == (False, "")
    assert world.bars("x")
    world.restart()
    assert world.bars("x")


def test_a_sick_device_is_found_and_returns_when_it_is_well() -> None:
    world = Sickness(Faults(sick=((0.0, "cpu0", 50.0),)), 0)
    names = [f"c{n}" for n in range(20)]
    failed = [name for name in names if not world.measured(step(), name, "cpu0", 1.0)[0]]
    assert MISHAPS_MAX <= len(failed) < len(names)
    assert "cpu0" in [world.measured(step(), name, "cpu1", 2.0)[1] for name in failed]
    assert world.enters("cpu0", 3.0) == PAUSE_S
    assert world.probe("cpu0", 8.0) == 2 * PAUSE_S
    assert world.probe("cpu0", 50.0) is None


def test_steps_that_fail_count_against_a_device() -> None:
    world = Sickness(Faults(), 0)
    assert [world.failed("cpu0", 1, task, 1.0) for task in range(MISHAPS_MAX)] == [False, False, True]


def test_a_verdict_without_a_reason_is_noticed() -> None:
    world = Sickness(Faults(poison=("x",)), 0)
    world.measured(step(), "x", "cpu0", 1.0)
    world.measured(step(), "y", "cpu0", 2.0)
    world._faults = Faults(sick=((3.0, "cpu0", 4.0),))
    world._rng = Random(3)
    with pytest.raises(AssertionError, match="x was blamed without a reason"):
        world.measured(step(), "x", "cpu0", 3.0)
