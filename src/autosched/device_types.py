"""Types of devices in words, and their targets. Pure."""

import shlex
from collections.abc import Iterable

import msgspec

from autosched.model import CpuCores, CudaDevice, Device, RpcServer, Unit

CPU_KINDS = ("llvm", "c")
CUDA_KINDS = ("cuda", "nvptx")
TARGET_KINDS = (*CPU_KINDS, *CUDA_KINDS, "opencl", "vulkan", "metal", "rocm", "hexagon", "webgpu")
"""Kinds of TVM targets."""
BOARD_TARGET = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -num-cores=4"
"""An example of a target."""
UUID_CHARS = 12
"""Characters of a GPU's UUID that are shown."""
CUDA_TAG = "nvidia/"
"""Prefix of TVM's tags for NVIDIA's devices: "nvidia/geforce-rtx-4090"."""


def words(device: Device) -> str:
    """A device's type, for people: "CPU cores 2,3", "GPU sm_90 GPU-5f2c81d4"."""
    match device:
        case CpuCores(cores=cores):
            return f"CPU cores {','.join(map(str, cores))}" if cores else "CPU cores"
        case CudaDevice(uuid=uuid, arch=arch):
            return f"GPU sm_{arch} {uuid[:UUID_CHARS]}"
        case RpcServer(address=address):
            return f"RPC server {address}"


def target_kind(target: str) -> str | None:
    """The kind of a target as its user wrote it: "llvm" for the name of a CPU; None for one that depends on the
    device."""
    text = target.strip()
    if text in ("", "auto"):
        return None
    if text.startswith("{"):
        try:
            return str(msgspec.json.decode(text, type=dict[str, object]).get("kind", "llvm"))
        except (msgspec.MsgspecError, RecursionError):
            return None
    try:
        first = (shlex.split(text) or [""])[0]
    except ValueError:
        return None
    return first if first in TARGET_KINDS else "cuda" if first.startswith(CUDA_TAG) else "llvm"


def fits(target: str, device: Device) -> bool:
    """Whether code for a target runs on a device. A target that cannot be judged here counts as fitting."""
    kind = target_kind(target)
    if kind not in TARGET_KINDS or isinstance(device, RpcServer) or (isinstance(device, CpuCores) and not device.cores):
        return True
    return kind in (CUDA_KINDS if isinstance(device, CudaDevice) else CPU_KINDS)


def refusal(target: str, kind: str, kinds: dict[str, tuple[Unit, ...]]) -> str:
    """Why a job for a target gets no device of a kind, and what to change; empty if it can get one.

    `kinds`: the devices of all kinds.
    """
    first = kinds[kind][0].device
    if isinstance(first, CudaDevice):
        usable = _listed(name for name, units in kinds.items() if isinstance(units[0].device, CpuCores))
        return f"devices of the kind {kind!r} get no jobs yet: {words(first)}. Kinds of CPU cores: {usable}"
    if isinstance(first, RpcServer) and target_kind(target) is None:
        return (
            f"what the devices of the kind {kind!r} run is not known: {words(first)}. Name the target, as in --target"
            f" '{BOARD_TARGET}', or let your operator write it beside the device in the daemon's settings (target ="
            " ...)"
        )
    if fits(target, first):
        return ""
    fitting = _listed(name for name, units in kinds.items() if fits(target, units[0].device))
    return (
        f"the target {target[:100]!r} does not fit the devices of the kind {kind!r}, which are CPU cores. Try"
        f" auto, llvm, or a CPU such as x86-64-v3: they fit. Kinds of devices that fit the target: {fitting}"
    )


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
