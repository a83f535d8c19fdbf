"""Completion of a submission with defaults before its check."""

import pytest

from autosched.daemon.jobs.submissions import for_device
from autosched.model import CudaDevice, JobSpec, RpcServer, Unit

ARM = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=4"
KINDS = {
    "cpu": (Unit("cpu0", (1,)),),
    "pi4": (Unit("b0", accelerator=RpcServer("b0.lab:9091", "", ARM)),),
    "nvidia-h200": (Unit("gpu-0", accelerator=CudaDevice("GPU-" + 36 * "0", 90)),),
    "bare": (Unit("b1", accelerator=RpcServer("b1.lab:9091")),),
}


@pytest.mark.parametrize(
    ("device", "target", "wanted"),
    [
        ("cpu", "pi4", ("pi4", ARM)),
        ("pi4", "pi4", ("pi4", ARM)),
        ("pi4", "auto", ("pi4", ARM)),
        ("pi4", "llvm -mcpu=cortex-a53", ("pi4", "llvm -mcpu=cortex-a53")),
        ("cpu", "bare", ("bare", "auto")),
        ("bare", "auto", ("bare", "auto")),
        ("cpu", "cpu", ("cpu", "cpu")),
        ("cpu", "auto", ("cpu", "auto")),
        ("unknown", "auto", ("unknown", "auto")),
        ("nvidia-h200", "auto", ("nvidia-h200", "cuda -arch=sm_90")),
        ("nvidia-h200", "cuda", ("nvidia-h200", "cuda -arch=sm_90")),
        ("nvidia-h200", "cuda -arch=sm_89", ("nvidia-h200", "cuda -arch=sm_89")),
        ("nvidia-h200", "llvm", ("nvidia-h200", "llvm")),
        ("cpu", "nvidia-h200", ("nvidia-h200", "cuda -arch=sm_90")),
    ],
)
def test_a_kind_of_boards_or_gpus_stands_for_its_target(device: str, target: str, wanted: tuple[str, str]) -> None:
    spec = for_device(JobSpec(name="net", model="0" * 64, device=device, target=target), KINDS)
    assert (spec.device, spec.target) == wanted
