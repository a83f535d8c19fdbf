"""A daemon on a machine with GPUs: they are devices, and it never opens CUDA."""

import signal
from pathlib import Path

import pytest

import fakecuda
from autosched.errors import RequestError
from autosched.model import CudaDevice
from integration.lab import command_line, lab

pytestmark = pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing()))
KIND = "nvidia-h200"


def test_gpus_are_listed_and_refuse_jobs_for_now(
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
        with pytest.raises(RequestError, match=f"devices of the kind '{KIND}' get no jobs yet: GPU sm_90 GPU-fa4e0000"):
            there.submit(device=KIND)
        there.wait(there.submit(trials=4))  # on the CPU, as ever
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
