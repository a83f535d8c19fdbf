"""``python -m autosched.gpu_probe [parts | watch]``: lists the NVIDIA GPUs of this machine as JSON, the parts that TVM
needs for them, or their states once a second, a line each.

A process of its own: a driver that hangs or crashes ends it alone. GPUs are asked through NVML, which does not
initialise CUDA; with "parts" the driver is asked as well.
"""

import ctypes
import ctypes.util
import importlib.util
import os
import shutil
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from autosched import cuda_libraries
from autosched.cuda_libraries import INSTALL
from autosched.process import process_tree

NVML_PACKAGE = "nvidia-ml-py"
EVERY_S, WATCH_S = 1.0, 3_600.0
"""Seconds between two states, and those after which the watch ends: its output lies in a file."""
CUDA_VERSION_NEEDED = 13_000
"""Version of CUDA that TVM's library is built for: 1,000 * major + 10 * minor."""
DRIVER_NEEDED = "580"
"""The first driver with that version."""


class Gpu(Struct, frozen=True):
    """A GPU."""

    uuid: str
    name: str
    """NVIDIA's name: "NVIDIA H200"."""
    arch: int
    """Compute capability: 90 for 9.0."""
    memory_bytes: int
    divided: bool = False
    """Whether MIG divides it into slices."""
    processes: tuple[int, ...] = ()
    """Processes of other programs than jobs that have opened it."""


class Inventory(Struct, frozen=True):
    """The GPUs in the driver's order, or why they are not known."""

    gpus: tuple[Gpu, ...] = ()
    driver: str = ""
    """The driver's version; empty: unknown."""
    cuda_version: int = 0
    """The newest version of CUDA that the driver runs, as CUDA_VERSION_NEEDED; 0: unknown."""
    silent: tuple[str, ...] = ()
    """A sentence for each GPU that does not answer."""
    trouble: str = ""


class GpuState(Struct, frozen=True):
    """The state of a GPU now. A value that the driver does not tell is 0."""

    uuid: str
    trouble: str = ""
    """Why it does not answer; empty if it does."""
    temperature_c: int = 0
    slowdown_c: int = 0
    """Temperature from which the GPU slows itself down."""
    clock_mhz: int = 0
    clock_max_mhz: int = 0
    reasons: int = 0
    """NVML's bits for the reasons of its clock (nvmlClocksEventReason)."""
    processes: tuple[int, ...] = ()
    """Processes of other programs than jobs that have opened it."""
    busy: tuple[int, ...] = ()
    """Those of them that computed there in the last second, as far as the driver tells."""
    ecc_errors: int = 0
    """Errors of its memory since the boot that were not corrected."""


class Part(Struct, frozen=True):
    """Something that TVM needs for GPUs."""

    there: bool
    what: str
    fix: str = ""


def inventory() -> Inventory:
    """Asks NVML."""
    try:
        import pynvml
    except ImportError:
        return Inventory(trouble=f"the package {NVML_PACKAGE} is not installed")
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return Inventory(trouble=f"NVIDIA's driver does not answer: {error}")
    found, silent = list[Gpu](), list[str]()
    try:
        for number in range(pynvml.nvmlDeviceGetCount()):
            try:
                found.append(_gpu(pynvml, number))
            except pynvml.NVMLError as error:
                silent.append(f"the GPU with number {number} does not answer: {error}. Reset it, or reboot")
        driver, version = pynvml.nvmlSystemGetDriverVersion(), pynvml.nvmlSystemGetCudaDriverVersion()
        return Inventory(tuple(found), driver, version, tuple(silent))
    except pynvml.NVMLError as error:
        return Inventory(trouble=f"NVIDIA's driver does not tell of its GPUs: {error}")
    finally:
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def _gpu(nvml: Any, number: int) -> Gpu:
    handle = nvml.nvmlDeviceGetHandleByIndex(number)
    major, minor = nvml.nvmlDeviceGetCudaComputeCapability(handle)
    divided = False
    with suppress(nvml.NVMLError_NotSupported):  # most GPUs have no MIG
        divided = nvml.nvmlDeviceGetMigMode(handle)[0] == nvml.NVML_DEVICE_MIG_ENABLE
    return Gpu(
        nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle), 10 * major + minor,
        nvml.nvmlDeviceGetMemoryInfo(handle).total, divided, _processes(nvml, handle),
    )  # fmt: skip


def watch() -> None:
    """Writes the states of all GPUs once a second, until WATCH_S are over or the process that started it is gone."""
    import pynvml

    pynvml.nvmlInit()
    named = []
    for number in range(pynvml.nvmlDeviceGetCount()):
        with suppress(pynvml.NVMLError_GpuIsLost):  # who listens misses it
            handle = pynvml.nvmlDeviceGetHandleByIndex(number)
            named.append((pynvml.nvmlDeviceGetUUID(handle), handle))
    until, parent = time.monotonic() + WATCH_S, os.getppid()
    since = {uuid: time.time_ns() // 1_000 for uuid, _ in named}
    while time.monotonic() < until and os.getppid() == parent:
        states = [_state(pynvml, uuid, handle, since) for uuid, handle in named]
        sys.stdout.buffer.write(msgspec.json.encode(states) + b"\n")
        sys.stdout.flush()
        time.sleep(EVERY_S)


def _state(nvml: Any, uuid: str, handle: Any, since: dict[str, int]) -> GpuState:
    """The state of a GPU. `since`: time of the last sample of each GPU's users, in microseconds, which is updated."""

    def told(function: str, *words: int) -> int:
        """A number of the driver; 0 if this GPU has none."""
        with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
            return int(getattr(nvml, function)(handle, *words))
        return 0

    try:
        return GpuState(
            uuid,
            temperature_c=told("nvmlDeviceGetTemperature", nvml.NVML_TEMPERATURE_GPU),
            slowdown_c=told("nvmlDeviceGetTemperatureThreshold", nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
            clock_mhz=told("nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM),
            clock_max_mhz=told("nvmlDeviceGetMaxClockInfo", nvml.NVML_CLOCK_SM),
            reasons=told("nvmlDeviceGetCurrentClocksEventReasons"),
            processes=_processes(nvml, handle),
            busy=_busy(nvml, uuid, handle, since),
            ecc_errors=told(
                "nvmlDeviceGetTotalEccErrors", nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
            ),
        )
    except nvml.NVMLError as error:
        return GpuState(uuid, str(error))


def _processes(nvml: Any, handle: Any) -> tuple[int, ...]:
    with suppress(nvml.NVMLError_NotSupported, nvml.NVMLError_NoPermission):
        found = nvml.nvmlDeviceGetComputeRunningProcesses(handle)
        return tuple(process.pid for process in found if process_tree.mark_of(process.pid) is None)
    return ()


def _busy(nvml: Any, uuid: str, handle: Any, since: dict[str, int]) -> tuple[int, ...]:
    """Processes of other programs that have computed since the last call. Those that this machine does not list belong
    to other containers, or have ended: of them nothing is said, since they may be jobs."""
    try:
        samples = nvml.nvmlDeviceGetProcessUtilization(handle, since.get(uuid, 0))
    except nvml.NVMLError:  # no samples, or none on this GPU
        return ()
    since[uuid] = max((sample.timeStamp for sample in samples), default=since.get(uuid, 0))
    used = {sample.pid for sample in samples if sample.smUtil > 0}
    return tuple(sorted(pid for pid in used if _is_foreign(pid)))


def _is_foreign(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists() and process_tree.mark_of(pid) is None


def parts() -> list[Part]:
    """Looks for each part that TVM needs to build for GPUs and to run there."""
    return [_driver(), _runtime(), _compiler(), _tvm_library()]


def _driver() -> Part:
    fix = f"install NVIDIA's driver {DRIVER_NEEDED} or newer; in a container, start it with --gpus all"
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return Part(False, f"the driver's library libcuda.so.1 cannot be loaded: {error}", fix)
    version = ctypes.c_int()
    if refused := driver.cuInit(0) or driver.cuDriverGetVersion(ctypes.byref(version)):
        name = ctypes.c_char_p()
        driver.cuGetErrorName(refused, ctypes.byref(name))
        return Part(False, f"the driver refuses to start: {(name.value or b'error').decode()} ({refused})", fix)
    found = f"{version.value // 1000}.{version.value % 1000 // 10}"
    if version.value < CUDA_VERSION_NEEDED:
        return Part(False, f"the driver runs CUDA up to {found}, and TVM needs {CUDA_VERSION_NEEDED // 1000}", fix)
    return Part(True, f"the driver runs CUDA {found}")


def _runtime() -> Part:
    with suppress(OSError):
        cuda_libraries.load(cuda_libraries.RUNTIME)
        return Part(True, "CUDA's runtime, libcudart.so.13")
    return Part(False, "CUDA's runtime, libcudart.so.13, is missing", INSTALL)


def _compiler() -> Part:
    with suppress(OSError):
        cuda_libraries.load(cuda_libraries.COMPILER)
        return Part(True, "a compiler for GPUs: NVRTC")
    if found := shutil.which("nvcc"):
        return Part(True, f"a compiler for GPUs: {found}")
    return Part(False, "no compiler for GPUs is here, neither NVRTC nor nvcc", INSTALL)


def _tvm_library() -> Part:
    spec = importlib.util.find_spec("tvm")
    folders = spec.submodule_search_locations if spec else None
    if any(Path(folder, "lib/libtvm_runtime_cuda.so").exists() for folder in folders or ()):
        return Part(True, "TVM's library for GPUs")
    return Part(False, "TVM's library for GPUs is missing", "pip install 'autosched[tvm]'")


def main() -> None:
    """Writes the answer."""
    if "watch" in sys.argv[1:]:
        watch()
        return
    sys.stdout.buffer.write(msgspec.json.encode(parts() if "parts" in sys.argv[1:] else inventory()))


if __name__ == "__main__":
    main()
