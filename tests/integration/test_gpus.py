"""A daemon on a machine with GPUs: they are devices, and it never opens CUDA."""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

import fakecuda
from autosched.api.connection import Daemon
from autosched.errors import RequestError
from autosched.model import CudaDevice, Purpose
from autosched.protocol import DeviceCondition, UnitView
from deadlines import DEADLINE_S, until
from integration.lab import command_line, lab
from integration.lender import SETTINGS, Lender
from lent_host import lane

pytestmark = pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing()))
KIND = "nvidia-h200"


def test_gpus_are_listed_by_their_uuids_and_the_daemon_never_opens_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = fakecuda.Machine(tmp_path / "machine", "NVIDIA H200:90:141", "NVIDIA H200:90:141", "Tesla K80:37:12")
    machine.health("1 process 4242")
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "lab"
    folder.mkdir()
    with lab(folder) as there:
        cli = command_line(there, folder, monkeypatch, capsys)
        units = {unit.unit: unit for unit in there.ask(lambda daemon: daemon.units())}
        assert {name: unit.accelerator for name, unit in units.items() if name.startswith("gpu")} == {
            "gpu-fa4e0000": CudaDevice(machine.uuid(0), 90), "gpu-fa4e0001": CudaDevice(machine.uuid(1), 90),
        }  # fmt: skip
        assert units["gpu-fa4e0001"].pools == (f"device:{KIND}",)
        busy, old = there.ask(lambda daemon: daemon.info()).warnings
        assert "is used by other programs (process 4242)" in busy
        assert "the GPU Tesla K80 (GPU-fa4e0002) has compute capability 3.7" in old
        _, said, _ = cli("devices")
        assert said.count(KIND) == 2
        with pytest.raises(RequestError, match="'llvm' does not fit the devices of the kind 'nvidia-h200'"):
            there.submit(device=KIND, target="llvm")
        with pytest.raises(RequestError, match=r"compute capability 8\.0, which the target .* does not run on"):
            there.submit(device=KIND, target="cuda -arch=sm_80")
        for words in ({}, {"device": KIND}, {"target": KIND}):
            view = there.wait(there.submit(trials=4, **words))
            assert view.target == ("cuda -arch=sm_90" if words else "auto")
        assert {record.unit for record in there.records(3) if record.unit} <= set(units)
        machine.health("0 lost 1")
        there.end(signal.SIGKILL)
        there.start()
        old, silent = there.ask(lambda daemon: daemon.info()).warnings
        assert "compute capability 3.7" in old
        assert silent == "the GPU with number 0 does not answer: GPU is lost. Reset it, or reboot"
        units = {unit.unit: unit for unit in there.ask(lambda daemon: daemon.units())}
        assert [name for name in units if name.startswith("gpu")] == ["gpu-fa4e0001"]
        assert units["gpu-fa4e0001"].accelerator == CudaDevice(machine.uuid(1), 90)
    assert not [line for line in machine.log() if line.startswith("opened")]


def test_a_gpu_that_is_lost_is_quarantined_until_it_is_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = fakecuda.Machine(tmp_path / "machine", "NVIDIA H200:90:141", "NVIDIA H200:90:141")
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "lab"
    folder.mkdir()

    def until(holds: Callable[[UnitView], bool]) -> UnitView:
        """Waits for a state of the first GPU."""

        async def ask(daemon: Daemon) -> UnitView:
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    unit = next(unit for unit in await daemon.units() if unit.unit == "gpu-fa4e0000")
                    if holds(unit):
                        return unit
                    await asyncio.sleep(0.05)

        return there.ask(ask)

    with lab(folder, "[guard]\nquarantine_s = 0.1\n") as there:
        assert until(lambda unit: unit.condition is DeviceCondition.STEADY).health == (
            "41 °C (slows down at 90); 2,500 of 2,500 MHz"
        )
        machine.health("0 reasons 64", "0 sm_clock 900", "0 process 4242")
        hot = until(lambda unit: unit.condition is DeviceCondition.DRIFTING)
        assert hot.health.startswith("slowed down by heat (the hardware) to 900 of 2,500 MHz; 41 °C")
        assert hot.health.endswith("; open in 1 other program")
        machine.health("0 lost 1")
        assert "GPU is lost" in until(lambda unit: unit.quarantined).drained
        machine.health()
        until(lambda unit: not unit.drained)
        other = next(unit for unit in there.ask(lambda daemon: daemon.units()) if unit.unit == "gpu-fa4e0001")
        assert not other.drained
    assert not [line for line in machine.log() if line.startswith("opened")]


def test_records_that_another_program_or_heat_disturbed_are_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = fakecuda.Machine(tmp_path / "machine", "NVIDIA H200:90:141")
    for name, value in machine.environment().items():
        monkeypatch.setenv(name, value)
    folder = tmp_path / "lab"
    folder.mkdir()
    with lab(folder) as there:
        job = there.submit(target=KIND, trials=60, tasks=1, build_s=0.0, profile_s=0.1)
        there.wait(job, "trials", 8)
        machine.health(f"0 computing {os.getpid()}")

        async def disturbed(daemon: Daemon) -> int:
            async with asyncio.timeout(DEADLINE_S):
                async for view in daemon.follow(job):
                    if view.disturbed_records:
                        return view.disturbed_records
            return 0

        assert there.ask(disturbed)
        machine.health()
        there.wait(job)
        records = there.records(job)
    tags = {record.disturbed for record in records} - {""}
    assert tags == {f"other programs (process {os.getpid()}) computed on the GPU"}
    assert any(record.purpose is Purpose.AGAIN for record in records)


def test_an_agent_tells_how_its_gpus_are(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path / "machine", "NVIDIA H200:90:141")
    folder = tmp_path / "lab"
    folder.mkdir()
    with lab(folder, SETTINGS) as there:
        lender = Lender(there)
        lender.environment = machine.environment()
        lender.settings = lane() + f'[[device]]\nname = "gpu"\nkind = "{KIND}"\ncuda = "{machine.uuid(0)}"\n'
        lender.start()

        def unit() -> UnitView | None:
            units = there.ask(lambda daemon: daemon.units())
            return next((one for one in units if one.unit == "gpu@lab2"), None)

        try:
            until(lambda: (found := unit()) is not None and found.health.startswith("41 °C"), "the GPU is watched")
            machine.health("0 temperature 77")
            until(lambda: (found := unit()) is not None and found.health.startswith("77 °C"), "its state is reported")
            machine.health("0 lost 1")
            until(lambda: (found := unit()) is not None and found.quarantined, "it is quarantined")
            assert there.wait(there.submit(trials=4)).state == "done", "other devices go on"
        finally:
            lender.end()
