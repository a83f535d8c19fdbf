"""Whether the devices of several hosts are comparable."""

import asyncio
from collections.abc import Mapping
from typing import Any, cast

import pytest

from autosched.core.events import UnitDrained, UnitReturned
from autosched.daemon.hosts import device_comparison
from autosched.daemon.hosts.device_comparison import DeviceComparison, Reference, difference
from autosched.daemon.hosts.lent_units import lent
from autosched.daemon.runtime import Runtime
from autosched.device_probe import Pace, Unwell
from autosched.errors import Busy
from autosched.model import Pool, device_kind, lent_by
from autosched.protocol import ProbedUnit
from autosched.sim.scenario import pools
from autosched_runtime.cpu_model import cpu_model
from unit.daemon.hosts.test_host_registry import Told

HERE = Pace(1e-3, 2e-3)


def kinds(reference: Reference, cpu: str = "a CPU", paces: Mapping[str, ProbedUnit] | None = None) -> list[str]:
    found = lent("lab2", pools(1, 2), cpu, {"cpu": reference}, paces or {})
    return [device_kind(pool.name) for pool in found if device_kind(pool.name)]


@pytest.mark.parametrize(
    ("core_s", "memory_s", "expected"),
    [
        (1e-3, 2e-3, "cpu"),
        (1.08e-3, 1.9e-3, "cpu"),
        (1.2e-3, 2e-3, "cpu.lab2"),
        (0.85e-3, 2e-3, "cpu.lab2"),
        (1e-3, 3e-3, "cpu.lab2"),
        (None, None, "cpu"),
    ],
)
def test_the_same_processor_with_another_pace_is_another_kind(
    core_s: float | None, memory_s: float | None, expected: str
) -> None:
    assert kinds(Reference("a CPU", HERE), paces={"cpu0": ProbedUnit(core_s, memory_s)}) == [expected]


def test_the_slowest_device_of_a_host_decides() -> None:
    paces = {"cpu0": ProbedUnit(1e-3, 2e-3), "cpu1": ProbedUnit(1.5e-3, 2e-3)}
    assert kinds(Reference("a CPU", HERE), paces=paces) == ["cpu.lab2"]


def test_another_processor_is_another_kind_whatever_its_pace() -> None:
    assert kinds(Reference("another CPU", HERE), paces={"cpu0": ProbedUnit(1e-3, 2e-3)}) == ["cpu.a-cpu"]


def test_devices_without_a_measured_pace_are_taken_to_be_equal() -> None:
    assert kinds(Reference("a CPU", None), paces={"cpu0": ProbedUnit(9.0, 9.0)}) == ["cpu"]
    assert kinds(Reference(), paces={"cpu0": ProbedUnit(9.0, 9.0)}) == ["cpu"]
    assert difference(None, HERE) == 0.0


def measured(told: Told, measured_there: bool = True) -> Reference:
    comparison = DeviceComparison(cast(Runtime, told))
    return asyncio.run(comparison.reference("cpu", "lab2", measured=measured_there))


def test_a_device_of_the_daemon_gets_no_steps_while_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told()

    async def treat(unit: str, *_: Any) -> Pace:
        assert unit in told.state.drained
        return HERE

    monkeypatch.setattr(device_comparison, "treat", treat)
    assert measured(told) == Reference(cpu_model(), HERE)
    assert [type(event) for event in told.events] == [UnitDrained, UnitReturned]
    assert not told.state.drained


def test_a_sentinel_that_fails_compares_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def treat(*_: Any) -> Pace:
        raise Unwell("its sentinel was killed")

    monkeypatch.setattr(device_comparison, "treat", treat)
    told = Told()
    assert measured(told) == Reference(cpu_model(), None)
    assert not told.state.drained


def test_a_busy_device_is_waited_for_and_the_host_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_comparison, "FREE_S", 0.05)
    told = Told()
    told.state.slots["cpu0"].holder = 1
    with pytest.raises(Busy, match="are busy and cannot be compared with those of lab2 yet"):
        measured(told)
    assert not told.state.drained


def test_nothing_is_measured_for_a_host_that_was_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_comparison, "treat", None)
    assert measured(Told(), measured_there=False) == Reference(cpu_model(), None)


def test_hosts_are_compared_with_each_other_where_the_daemon_has_no_such_devices() -> None:
    told = Told()
    comparison = DeviceComparison(cast(Runtime, told))
    there = lent_by("lab1", (Pool("device:npu", pools(1, 1)[1].units),))
    told.state.join("lab1", there, "", "")
    comparison.remember("lab1", there, {"cpu0": ProbedUnit(1e-3, 2e-3)})
    assert asyncio.run(comparison.reference("npu", "lab2", measured=True)) == Reference("", HERE)
