"""Believed and true states in a simulated world."""

import heapq
from collections.abc import Callable

import pytest

from autosched.core.events import Event, UnitDrained, UnitReturned
from autosched.model import JobId, Outcome, Step
from autosched.records.failure_attribution import MISHAPS_MAX
from autosched.sim import fault_model
from autosched.sim.fault_model import PAUSE_S, Sickness
from autosched.sim.scenario import DEVICE, Faults, ScenarioJob, Work
from autosched.sim.simulated_client import SimClient


class Lab:
    """Runs measurements; delayed events happen when their time has come."""

    def __init__(self, **faults: object) -> None:
        self.now = 0.0
        self.drained: dict[str, UnitDrained] = {}
        self.happened: list[tuple[float, Event]] = []
        self._due: list[tuple[float, int, Callable[[], Event | None]]] = []
        self._steps = 0
        self.world = Sickness(Faults(**faults), 0, self.drained, lambda: self.now, self._later)  # type: ignore[arg-type]

    def _later(self, after_s: float, job: JobId, happen: Callable[[], Event | None]) -> None:
        heapq.heappush(self._due, (self.now + after_s, len(self.happened), happen))

    def until(self, at: float) -> None:
        while self._due and self._due[0][0] <= at:
            self.now, _, happen = heapq.heappop(self._due)
            if (event := happen()) is not None:
                self.happened.append((self.now, event))
            match event:
                case UnitDrained(unit=unit):
                    self.drained[unit] = event
                case UnitReturned(unit=unit):
                    del self.drained[unit]
        self.now = at

    def again(self, candidate: str, device: str, at: float, outcome: Outcome = Outcome.DONE) -> bool:
        """Measures; returns whether the measurement is to be repeated."""
        self.until(at)
        self._steps += 1
        step = Step(
            id=self._steps, job=1, task=self._steps, stage="profile", units=(device,), started_at=at, deadline_at=at + 9
        )  # fmt: skip
        client = SimClient(ScenarioJob(tasks=((((Work("profile", (DEVICE,), 1.0)),),),)))
        self.world.blocks(candidate, step)
        return self.world.is_to_be_repeated(step, candidate, outcome, client)


def test_a_broken_candidate_fails_everywhere_and_is_blocked_after_two_failures() -> None:
    lab = Lab(broken=("x",))
    assert lab.again("x", "cpu0", 1.0)
    assert not lab.again("y", "cpu1", 2.0)
    assert not lab.again("x", "cpu1", 3.0)
    assert lab.world.is_blocked("x")
    lab.world.restart()
    assert not lab.again("x", "cpu0", 4.0)
    assert list(lab.world.blocked) == [4]


def test_a_sick_device_is_found_and_returns_when_it_is_well() -> None:
    lab = Lab(sick=((0.0, "cpu0", 30.0),))
    names = [f"c{n}" for n in range(20)]
    failed = [name for name in names if lab.again(name, "cpu0", 1.0)]
    assert MISHAPS_MAX <= len(failed) < len(names)
    assert not any(lab.again(name, "cpu1", 2.0) for name in failed)
    lab.until(100.0)
    assert [(at, type(event)) for at, event in lab.happened] == [
        (2.0, UnitDrained), (2.0 + PAUSE_S * (1 + 2 + 4), UnitReturned),
    ]  # fmt: skip


def test_steps_that_fail_count_against_a_device() -> None:
    lab = Lab()
    for _ in range(MISHAPS_MAX):
        lab.again("x", "cpu0", 1.0, Outcome.FAILED)
    lab.until(2.0)
    assert list(lab.drained) == ["cpu0"]


def test_a_verdict_without_a_reason_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fault_model, "SICK_FAILS", 1.0)
    lab = Lab(broken=("x",), sick=((3.0, "cpu0", 4.0),))
    lab.again("x", "cpu0", 1.0)
    lab.again("y", "cpu0", 2.0)
    lab.world._faults = Faults(sick=lab.world._faults.sick)
    with pytest.raises(AssertionError, match="x was blamed without a reason"):
        lab.again("x", "cpu0", 3.0)
