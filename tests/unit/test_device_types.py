"""Types of devices, and their targets."""

import msgspec
import pytest

from autosched import device_types
from autosched.model import CpuCores, CudaDevice, Device, RpcServer, Unit

CPU, GPU, BOARD = CpuCores((2, 3)), CudaDevice("GPU-" + 36 * "0", 89), RpcServer("board:9090", "pi4")
KINDS = {
    "cpu": (Unit("cpu0", (2, 3)),),
    "gpu": (Unit("gpu0", accelerator=GPU),),
    "pi4": (Unit("b", accelerator=BOARD),),
}


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("auto", None), ("", None), ("llvm", "llvm"), ("znver4", "llvm"), ("llvm -mcpu=znver4", "llvm"),
        ('{"kind": "cuda", "arch": "sm_90"}', "cuda"), ('{"mcpu": "znver4"}', "llvm"), ("cuda -arch=sm_90", "cuda"),
        ("nvidia/geforce-rtx-4090", "cuda"), ("{broken", None), ("'broken", None), ("vulkan", "vulkan"),
    ],
)  # fmt: skip
def test_the_kind_of_a_target_is_read_without_tvm(target: str, kind: str | None) -> None:
    assert device_types.target_kind(target) == kind


@pytest.mark.parametrize(
    ("target", "device", "fits"),
    [
        ("auto", CPU, True), ("llvm", CPU, True), ("c", CPU, True), ("cuda", CPU, False), ("vulkan", CPU, False),
        ("cuda", GPU, True), ("auto", GPU, True), ("llvm", GPU, False), ("llvm", BOARD, True), ("cuda", BOARD, True),
        ("cuda", CpuCores(), True), ('{"kind": "zzz"}', CPU, True),
    ],
)  # fmt: skip
def test_a_target_fits_the_devices_that_run_its_code(target: str, device: Device, fits: bool) -> None:
    assert device_types.fits(target, device) is fits


def test_a_refusal_names_what_fits() -> None:
    assert device_types.refusal("auto", "cpu", KINDS) == ""
    said = device_types.refusal("cuda", "cpu", KINDS)
    assert "'cuda' does not fit the devices of the kind 'cpu'" in said
    assert "Try auto, llvm, or a CPU such as x86-64-v3: they fit." in said
    assert said.endswith("Kinds of devices that fit the target: gpu, pi4")
    only_cpu = device_types.refusal("cuda", "cpu", {"cpu": KINDS["cpu"]})
    assert only_cpu.endswith("fit the target: none")


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("auto", ""), ("cuda", ""), ("cuda -arch=sm_89", ""), ("cuda -arch=sm_86", ""), ("nvidia/geforce-rtx-4090", ""),
        ("cuda -arch=sm_90", "compute capability 9.0, which the target 'cuda -arch=sm_90' names, does not run on"),
        ('{"kind": "cuda", "arch": "sm_75"}', "compute capability 7.5"),
        ("llvm", "'llvm' does not fit the devices of the kind 'gpu', which are GPUs. Try auto or 'cuda -arch=sm_89'"),
    ],
)  # fmt: skip
def test_a_gpu_gets_jobs_whose_code_it_runs(target: str, said: str) -> None:
    found = device_types.refusal(target, "gpu", KINDS)
    assert said in found
    assert bool(found) == bool(said)


@pytest.mark.parametrize(
    ("target", "arch"), [("cuda -arch=sm_90", 90), ('{"arch": "sm_120"}', 120), ("sm_90a", 90), ("cuda", None)]
)
def test_the_architecture_of_a_target_is_read_without_tvm(target: str, arch: int | None) -> None:
    assert device_types.named_arch(target) == arch


@pytest.mark.parametrize(
    ("arch", "on", "runs"), [(80, 86, True), (86, 80, False), (75, 90, False), (90, 100, False), (120, 121, True)]
)
def test_code_runs_on_newer_gpus_of_its_generation(arch: int, on: int, runs: bool) -> None:
    assert device_types.runs(arch, on) is runs


def test_a_board_gets_jobs_whose_target_is_named() -> None:
    assert device_types.refusal(device_types.BOARD_TARGET, "pi4", KINDS) == ""
    for target in ("auto", ""):
        said = device_types.refusal(target, "pi4", KINDS)
        assert "'pi4' run is not known: RPC server board:9090. Name the target, as in --target 'llvm -mtriple=" in said


def test_a_unit_of_a_cpu_is_written_as_before() -> None:
    """Journals hold units; an earlier program knows their name and cores only."""
    assert msgspec.json.encode(Unit("cpu0", (1,))) == b'{"name":"cpu0","cores":[1]}'
    assert msgspec.json.decode(b'{"name":"cpu0","cores":[1]}', type=Unit).device == CpuCores((1,))
    for device in (GPU, BOARD):
        unit = Unit("x", accelerator=device, host="lab2")
        again = msgspec.msgpack.decode(msgspec.msgpack.encode(unit), type=Unit)
        assert (again, again.device) == (unit, device)


@pytest.mark.parametrize(
    ("device", "words"), [(CPU, "CPU cores 2,3"), (CpuCores(), "CPU cores"), (GPU, "GPU sm_89 GPU-00000000")]
)
def test_devices_are_told_in_words(device: Device, words: str) -> None:
    assert device_types.words(device) == words
