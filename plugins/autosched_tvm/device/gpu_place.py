"""A GPU of this machine as the place of kernels. The process uses it alone, and never forks afterwards."""

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from autosched import cuda_libraries
from autosched.errors import DeviceLost
from autosched_tvm.device import gpu_faults, gpu_library
from autosched_tvm.tensors import Array
from autosched_tvm.tvm_types import Device, DeviceTensor, Module

DRIVER, OF_TVM = "libcuda.so.1", "lib/libtvm_runtime_cuda.so"
API = "device_api.cuda"
"""TVM's function that is there when its library for GPUs is loaded."""
FLUSH = "autosched.flush_gpu_cache"
"""Name of our function that displaces what lies in a GPU's cache, for TVM's timer."""
FLUSHED_BYTES = 256 << 20
"""Bytes that are copied to displace it: more than twice the largest cache, of 126 MB."""


class GpuPlace:
    """A GPU."""

    on_gpu, flush = True, FLUSH

    def __init__(self, uuid: str) -> None:
        """Raises DeviceLost."""
        self.uuid = uuid
        os.environ["CUDA_VISIBLE_DEVICES"] = uuid  # before the first call of CUDA: numbers may change, UUIDs do not
        import tvm

        if tvm.get_global_func(API, allow_missing=True) is None:
            _load_libraries(Path(tvm.__file__).parent / OF_TVM)
        tvm.register_global_func(FLUSH, lambda *_: self._flush(), override=True)
        with faults_told():
            self.device: Device = tvm.cuda(0)
            self.device.sync()

    def load(self, path: str) -> Module:
        """The compiled module of a file."""
        return gpu_library.load(Path(path))

    def tensor(self, array: Array) -> DeviceTensor:
        """A copy of an array on the GPU."""
        import tvm

        return tvm.runtime.tensor(array, self.device)

    def sync(self) -> None:
        """Wait for what was launched."""
        self.device.sync()

    @cached_property
    def _displacing(self) -> tuple[Any, Any]:
        content = np.zeros(FLUSHED_BYTES // 2, np.uint8)
        return self.tensor(content), self.tensor(content)

    def _flush(self) -> None:
        source, target = self._displacing
        source.copyto(target)
        self.device.sync()


def _load_libraries(of_tvm: Path) -> None:
    """Loads the driver, CUDA's runtime and TVM's library for GPUs. Raises DeviceLost."""
    try:
        ctypes.CDLL(DRIVER, ctypes.RTLD_GLOBAL)
        cuda_libraries.load(cuda_libraries.RUNTIME, ctypes.RTLD_GLOBAL)
        ctypes.CDLL(str(of_tvm), ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise DeviceLost(
            f"CUDA cannot be used here: {error}. See: autosched doctor --target cuda; what is missing may come with"
            f" {cuda_libraries.INSTALL}"
        ) from error


@contextmanager
def faults_told() -> Iterator[None]:
    """Raise exceptions of `gpu_faults` for errors that CUDA reports."""
    try:
        yield
    except Exception as error:
        told = gpu_faults.in_words(error)
        if told is error:
            raise
        raise told from error
