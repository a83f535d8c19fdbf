"""Speed of an agent's devices."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from autosched.agent import device_paces
from autosched.device_probe import Pace, Unwell
from autosched.model import Pool
from autosched.protocol import ProbedUnit
from autosched.sim.scenario import pools

LENT = pools(1, 2)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    asked: list[str] = []

    async def treat(unit: str, *_: Any) -> Pace:
        asked.append(unit)
        if unit == "cpu1":
            raise Unwell("its sentinel was killed")
        return Pace(1e-3, 2e-3)

    monkeypatch.setattr(device_paces, "treat", treat)
    return asked


def found(folder: Path, lent: tuple[Pool, ...] = LENT, *, busy: bool = False) -> dict[str, ProbedUnit]:
    return asyncio.run(device_paces.paces(lent, folder, busy=busy))


def test_devices_are_measured_once_after_the_start_of_a_machine(
    tmp_path: Path, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = found(tmp_path)
    assert first == {"cpu0": ProbedUnit(1e-3, 2e-3)}, "what cannot be measured is left out, and lanes are"
    assert found(tmp_path) == first == found(tmp_path, busy=True)
    assert asked == ["cpu0", "cpu1"]
    monkeypatch.setattr(device_paces, "boot_id", lambda: "another one")
    found(tmp_path)
    assert asked == ["cpu0", "cpu1"] * 2


def test_nothing_is_measured_beside_clients(tmp_path: Path, asked: list[str]) -> None:
    assert found(tmp_path, busy=True) == {}
    assert found(tmp_path, pools(1, 1), busy=False) == {"cpu0": ProbedUnit(1e-3, 2e-3)}
    assert asked == ["cpu0"]


def test_changed_devices_are_measured_again_and_a_torn_file_is_ignored(tmp_path: Path, asked: list[str]) -> None:
    found(tmp_path, pools(1, 1))
    found(tmp_path, pools(2, 1))
    (tmp_path / device_paces.FILE).write_bytes(b"{")
    found(tmp_path, pools(2, 1))
    assert asked == ["cpu0"] * 3
