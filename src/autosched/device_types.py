"""Types of devices in words, and their targets. Pure."""

import re
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
OLDEST_ARCH = 75
"""The oldest compute capability for which CUDA 13 compiles: Turing, 7.5."""
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


def gpu_target(arch: int) -> str:
    """The target of a GPU as its user may write it. `arch`: compute capability, 90 for 9.0."""
    return f"cuda -arch=sm_{arch}"


def named_arch(target: str) -> int | None:
    """The compute capability that a target for GPUs names, 90 for "sm_90a"; None if it names none."""
    found = re.search(r"\bsm_(\d+)", target)
    return int(found[1]) if found is not None else None


def refusal(target: str, kind: str, kinds: dict[str, tuple[Unit, ...]]) -> str:
    """Why a job for a target gets no device of a kind, and what to change; empty if it can get one.

    `kinds`: the devices of all kinds.
    """
    first = kinds[kind][0].device
    if isinstance(first, RpcServer) and target_kind(target) is None:
        return (
            f"what the devices of the kind {kind!r} run is not known: {words(first)}. Name the target, as in --target"
            f" '{BOARD_TARGET}', or let your operator write it beside the device in the daemon's settings (target ="
            " ...)"
        )
    if fits(target, first):
        arch = named_arch(target)
        if not isinstance(first, CudaDevice) or arch is None or runs(arch, first.arch):
            return ""
        return (
            f"code for compute capability {arch // 10}.{arch % 10}, which the target {target[:100]!r} names, does not"
            f" run on devices of the kind {kind!r}: {words(first)}. Use --target auto"
        )
    fitting = _listed(name for name, units in kinds.items() if fits(target, units[0].device))
    return (
        f"the target {target[:100]!r} does not fit the devices of the kind {kind!r}, which are {_are(first)}:"
        f" they fit. Kinds of devices that fit the target: {fitting}"
    )


def runs(arch: int, on: int) -> bool:
    """Whether code for a compute capability runs `on` a GPU: on one of the same generation that is not older. Source:
    CUDA C++ Programming Guide 13, binary compatibility."""
    return arch // 10 == on // 10 and arch <= on


def _are(device: Device) -> str:
    if isinstance(device, CudaDevice):
        return f"GPUs. Try auto or {gpu_target(device.arch)!r}"
    return "CPU cores. Try auto, llvm, or a CPU such as x86-64-v3"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"
