"""The NVIDIA GPUs of this machine: which of them may be devices, and under which names. Never initialises CUDA."""

import ctypes
import importlib.util
import os
import re
import subprocess

import msgspec

from autosched.cuda_libraries import INSTALL
from autosched.device_types import OLDEST_ARCH, UUID_CHARS, runs
from autosched.errors import NotFound
from autosched.gpu_probe import NVML_PACKAGE, Gpu, Inventory, Part
from autosched.process import isolated_python

PROBE = "autosched.gpu_probe"
NVML = "libnvidia-ml.so.1"
"""The driver's library that tells of GPUs."""
PROBE_S = 30.0
"""Maximum seconds of the probe. A driver that is loaded for the first time takes some."""
NAME_MAX = 60
"""Maximum characters of a kind."""


def installed() -> bool:
    """Whether the package that asks for GPUs is installed."""
    return importlib.util.find_spec("pynvml") is not None


def inventory() -> Inventory:
    """The GPUs of this machine, from a probe with a deadline; without the package that asks for them, none."""
    if not installed():
        return Inventory(trouble=f"the package {NVML_PACKAGE} is not installed: {INSTALL}")
    try:
        ctypes.CDLL(NVML)
    except OSError:
        return Inventory(trouble=f"no driver of NVIDIA is installed: {NVML} is missing")
    try:
        return msgspec.json.decode(_probed(), type=Inventory)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return Inventory(trouble=f"NVIDIA's driver does not answer: {error}")


def parts() -> list[Part]:
    """The parts that TVM needs for GPUs, each of them there or missing."""
    try:
        return msgspec.json.decode(_probed("parts"), type=list[Part])
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError) as error:
        return [Part(False, f"the check of the driver failed: {error}", "reboot, or install the driver again")]


def _probed(*words: str) -> bytes:
    done = subprocess.run(
        isolated_python.command(PROBE, *words), env=isolated_python.environment(), stdin=subprocess.DEVNULL,
        capture_output=True, timeout=PROBE_S, check=True,
    )  # fmt: skip
    return done.stdout


def kind_of(gpu: Gpu) -> str:
    """The kind of a GPU, from its model: "nvidia-h200"."""
    name = re.sub(r"[^a-z0-9]+", "-", gpu.name.lower()).strip("-")
    return ("nvidia-" + name.removeprefix("nvidia-"))[:NAME_MAX].rstrip("-")


def unit_of(gpu: Gpu) -> str:
    """The name of a GPU that is a device without being listed: "gpu-5f2c81d4". It stays when others come or go."""
    return gpu.uuid[:UUID_CHARS].lower()


def unfit(gpu: Gpu) -> str:
    """Why a GPU can be no device, and what to do; empty if it can."""
    if gpu.divided:
        return (
            f"{told(gpu)} is divided into slices (MIG), which share its memory and clocks, so that measurements on one"
            f" disturb those on another. Turn that off: nvidia-smi -i {gpu.uuid} -mig 0"
        )
    if gpu.arch < OLDEST_ARCH:
        return (
            f"{told(gpu)} has compute capability {gpu.arch // 10}.{gpu.arch % 10}, and CUDA 13 compiles for"
            f" {OLDEST_ARCH // 10}.{OLDEST_ARCH % 10} and newer alone"
        )
    return ""


def disturbed(gpu: Gpu) -> str:
    """Why measurements on a GPU would be disturbed now; empty if they would not."""
    if not gpu.processes:
        return ""
    which = ", ".join(map(str, gpu.processes[:5]))
    return f"{told(gpu)} is used by other programs (process {which}), which disturb measurements: end them first"


def chosen(arch: int) -> Gpu:
    """The first GPU of this machine that runs code for a compute capability, as CUDA_VISIBLE_DEVICES lists them. Raises
    NotFound.

    `arch`: 90 for 9.0.
    """
    there = inventory()
    gpus = there.gpus
    if (listed := os.environ.get("CUDA_VISIBLE_DEVICES")) is not None:
        named = enumerate(gpus)
        by_name = {name: gpu for number, gpu in named for name in (str(number), gpu.uuid)}
        gpus = tuple(by_name[name] for name in listed.split(",") if name in by_name)
    for gpu in gpus:
        if runs(arch, gpu.arch) and not unfit(gpu):
            return gpu
    have = "; ".join(f"{told(gpu)}, {gpu.arch // 10}.{gpu.arch % 10}" for gpu in gpus) or there.trouble or "none"
    raise NotFound(
        f"no GPU here runs code for compute capability {arch // 10}.{arch % 10}. GPUs of this machine: {have}. See:"
        "  autosched doctor --target cuda"
    )


def told(gpu: Gpu) -> str:
    """A GPU in words."""
    return f"the GPU {gpu.name} ({gpu.uuid[:UUID_CHARS]})"
