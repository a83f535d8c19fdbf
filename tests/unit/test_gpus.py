"""GPUs as devices: found by NVML, named by their models, refused with a reason."""

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

import fakecuda
from autosched import config, gpus
from autosched.config import Config, DeviceConfig, ResourcesConfig
from autosched.errors import ConfigError
from autosched.gpu_probe import Gpu, Inventory
from autosched.model import CudaDevice


def uuid(number: int) -> str:
    return f"GPU-fa4e{number:04d}-0000-0000-0000-000000000000"


H200, OTHER = Gpu(uuid(0), "NVIDIA H200", 90, 150 << 30), Gpu(uuid(1), "NVIDIA H200", 90, 150 << 30)
DIVIDED, OLD = (
    Gpu(uuid(2), "NVIDIA A100-SXM4-80GB", 80, 80 << 30, divided=True),
    Gpu(uuid(3), "Tesla K80", 37, 12 << 30),
)
BUSY = Gpu(uuid(4), "NVIDIA GeForce RTX 4090", 89, 24 << 30, processes=(4242, 77))


def named(*entries: DeviceConfig) -> Config:
    return Config(device=entries)


@pytest.mark.parametrize(
    ("gpu", "kind"),
    [
        (H200, "nvidia-h200"), (DIVIDED, "nvidia-a100-sxm4-80gb"), (OLD, "nvidia-tesla-k80"),
        (BUSY, "nvidia-geforce-rtx-4090"), (msgspec.structs.replace(H200, name="Orin (nvgpu)"), "nvidia-orin-nvgpu"),
        (msgspec.structs.replace(H200, name="NVIDIA " + 90 * "x"), "nvidia-" + 53 * "x"),
    ],
)  # fmt: skip
def test_a_kind_is_named_after_the_model(gpu: Gpu, kind: str) -> None:
    assert gpus.kind_of(gpu) == kind
    msgspec.convert({"name": "x", "kind": kind}, type=DeviceConfig)  # as settings have it


def test_gpus_are_devices_beside_the_cores() -> None:
    found = config.resources(Config(), [0, 1], Inventory((H200, DIVIDED, OTHER, OLD, BUSY)))
    pools = {pool.name: pool.units for pool in found.pools}
    assert list(pools) == ["host", "device:cpu", "device:nvidia-h200", "device:nvidia-geforce-rtx-4090"]
    assert [(unit.name, unit.accelerator, unit.model) for unit in pools["device:nvidia-h200"]] == [
        ("gpu-fa4e0000", CudaDevice(uuid(0), 90), "NVIDIA H200"),
        ("gpu-fa4e0001", CudaDevice(uuid(1), 90), "NVIDIA H200"),
    ]  # fmt: skip
    divided, old, busy = found.warnings
    assert "is divided into slices (MIG)" in divided
    assert f"nvidia-smi -i {uuid(2)} -mig 0" in divided
    assert "the GPU Tesla K80 (GPU-fa4e0003) has compute capability 3.7, and CUDA 13 compiles for 7.5 and newer" in old
    assert "is used by other programs (process 4242, 77)" in busy


def test_settings_may_leave_gpus_out() -> None:
    settings = Config(resources=ResourcesConfig(gpus="none"))
    found = config.resources(settings, [0, 1], Inventory((H200, DIVIDED)))
    assert [pool.name for pool in found.pools] == ["host", "device:cpu"]
    assert not found.warnings


@pytest.mark.parametrize("wanted", [1, uuid(1), "GPU-fa4e0001"])
def test_settings_name_a_gpu_by_uuid_or_number(wanted: int | str) -> None:
    found = config.resources(named(DeviceConfig("g", "big", cuda=wanted)), [0, 1], Inventory((H200, OTHER, DIVIDED)))
    pools = {pool.name: pool.units[0] for pool in found.pools}
    assert list(pools) == ["host", "device:big"]
    assert pools["device:big"].accelerator == CudaDevice(uuid(1), 90)
    assert not found.warnings  # of GPUs that are not listed


@pytest.mark.parametrize(
    ("devices", "there", "said"),
    [
        ((7,), Inventory((H200,)), f"d0 is the GPU 7, which is not here. This machine has: 0: NVIDIA H200, {uuid(0)}"),
        ((0,), Inventory(), "which is not here. This machine has: no GPUs"),
        ((0,), Inventory(trouble="the driver sleeps"), "This machine has: the driver sleeps"),
        (("GPU-fa4e00",), Inventory((H200, OTHER)), "which is the beginning of 2 UUIDs"),
        ((0, 0), Inventory((H200,)), "d0 and d1 are the same GPU"),
        ((0,), Inventory((DIVIDED,)), "the device d0 cannot be used: the GPU NVIDIA A100-SXM4-80GB .*MIG"),
        ((0,), Inventory((OLD,)), "compute capability 3.7"),
    ],
)  # fmt: skip
def test_a_gpu_that_cannot_be_a_device_is_refused(devices: tuple[int | str, ...], there: Inventory, said: str) -> None:
    entries = [DeviceConfig(f"d{number}", "gpu", cuda=wanted) for number, wanted in enumerate(devices)]
    with pytest.raises(ConfigError, match=said):
        config.resources(named(*entries), [0, 1], there)


PROGRAM = "import msgspec, sys; from autosched import gpus; print(msgspec.json.encode(gpus.inventory()).decode())"
needs_compiler = pytest.mark.skipif(fakecuda.missing() is not None, reason=str(fakecuda.missing()))


def inventory(machine: fakecuda.Machine) -> Inventory:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=machine.environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return msgspec.json.decode(done.stdout, type=Inventory)


@needs_compiler
def test_gpus_are_asked_for_through_nvml(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path, "NVIDIA H200:90:141", "Tesla T4:75:16")
    machine.health("1 process 4242", "0 mig 1")
    found = inventory(machine)
    assert [(gpu.name, gpu.arch, gpu.divided, gpu.processes) for gpu in found.gpus] == [
        ("NVIDIA H200", 90, True, ()), ("Tesla T4", 75, False, (4242,)),
    ]  # fmt: skip
    assert found.gpus[1].uuid == machine.uuid(1)
    assert found.gpus[1].memory_bytes == 16 << 30
    assert (found.cuda_version, found.trouble) == (13_000, "")
    assert not machine.log()  # CUDA was not opened


@needs_compiler
def test_a_gpu_without_mig_is_whole(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path)
    machine.health("0 mig -1", "1 mig -1")
    assert [gpu.divided for gpu in inventory(machine).gpus] == [False, False]


@needs_compiler
def test_a_gpu_that_is_lost_is_told_and_the_others_stay(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path)
    machine.health("0 lost 1")
    found = inventory(machine)
    assert [gpu.uuid for gpu in found.gpus] == [machine.uuid(1)]
    (silent,) = found.silent
    assert silent == "the GPU with number 0 does not answer: GPU is lost. Reset it, or reboot"
    resources = config.resources(Config(), [0, 1], found)
    assert resources.warnings == (silent,)
    assert [unit.name for pool in resources.pools[2:] for unit in pool.units] == ["gpu-fa4e0001"]


def test_without_a_driver_there_are_no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus, "NVML", "libnvidia-ml-that-is-nowhere.so.1")
    assert "no driver of NVIDIA is installed" in gpus.inventory().trouble


def test_without_the_package_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    monkeypatch.setattr(gpus, "installed", lambda: False)
    monkeypatch.setattr(gpus, "_probed", lambda *_words: pytest.fail("the driver was asked"))
    assert "pip install 'autosched[cuda]'" in gpus.inventory().trouble


@needs_compiler
@pytest.mark.tvm
def test_doctor_names_each_missing_part(tmp_path: Path) -> None:
    machine = fakecuda.Machine(tmp_path)
    words = [sys.executable, "-m", "autosched", "doctor", "--target", "cuda"]

    def told(**more: str) -> tuple[int, str]:
        environment = {**machine.environment(), **more}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    code, said = told()
    assert code == 0, said
    for part in (
        "nvidia-ml-py",
        "the driver runs CUDA 13.0",
        "libcudart.so.13",
        "a compiler for GPUs",
        "TVM's library",
    ):
        assert f" ok  {part}" in said.replace("CUDA's runtime, ", "")
    assert said.count("Fake GPU, compute capability 8.9") == 2
    code, said = told(LD_LIBRARY_PATH="")
    assert code == 1
    assert " X  the driver's library libcuda.so.1 cannot be loaded" in said
    assert " X  no GPU of this machine can be a device" in said
    code, said = told(CUDA_VISIBLE_DEVICES="")
    assert code == 1
    assert "the driver refuses to start: CUDA_ERROR_NO_DEVICE (100)" in said
