"""``python launch.py FILE KERNEL BLOCKS THREADS FLOATS [DYNAMIC]``: runs a kernel of a compiled file.

Its arguments are two buffers of FLOATS numbers: 0 1 2 ... in the first one. Prints the second one, then the names of
the errors of the launch and of waiting for it. The driver is called through its C interface, without TVM.
"""

import ctypes
import sys
from pathlib import Path


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        *((name, ctypes.c_uint) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "shared")),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.c_void_p), ("count", ctypes.c_uint),
    )  # fmt: skip


def main(file: str, kernel: str, *numbers: str) -> None:
    """Runs the kernel."""
    blocks, threads, floats, dynamic = (int(number) for number in (*numbers, "0")[:4])
    driver, runtime = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcudart.so.13")
    module, function = ctypes.c_void_p(), ctypes.c_void_p()
    error = driver.cuModuleLoadData(ctypes.byref(module), Path(file).read_bytes())
    if error:
        print(name(driver, error))
        return
    assert driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()) == 0
    size = ctypes.c_size_t(4 * floats)
    buffers = [ctypes.c_void_p(), ctypes.c_void_p()]
    for buffer in buffers:
        assert runtime.cudaMalloc(ctypes.byref(buffer), size) == 0
    host = (ctypes.c_float * floats)(*range(floats))
    assert runtime.cudaMemcpyAsync(buffers[0], host, size, 1, None) == 0
    words = (ctypes.c_void_p * 2)(*(ctypes.addressof(buffer) for buffer in buffers))
    config = LaunchConfig(blocks, 1, 1, threads, 1, 1, dynamic, None, None, 0)
    launched = driver.cuLaunchKernelEx(ctypes.byref(config), function, words, None)
    waited = runtime.cudaStreamSynchronize(None)
    runtime.cudaMemcpyAsync(host, buffers[1], size, 2, None)
    print(*host)
    print(name(driver, launched), name(driver, waited))


def name(driver: ctypes.CDLL, error: int) -> str:
    """The name of an error."""
    text = ctypes.c_char_p()
    driver.cuGetErrorName(error, ctypes.byref(text))
    return str((text.value or b"").decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
