"""Compiles TVM's CUDA C++ to code for a GPU: with NVRTC, a library, or with nvcc. Needs neither a GPU nor a driver.

NVRTC takes a tenth of nvcc's time for a small kernel: it starts no process, and reads no headers of C++. TVM's source
asks for CUDA's C++ library there, whose parsing takes most of the time; PRELUDE has all that kernels use of it. Fast
inexact arithmetic, which TVM's own calls of both compilers ask for (--use_fast_math), is left out: results are compared
with those of a CPU.
"""

import ctypes
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Protocol

from autosched import cuda_libraries
from autosched.errors import RequestError

PRELUDE = """
typedef signed char int8_t; typedef unsigned char uint8_t; typedef short int16_t; typedef unsigned short uint16_t;
typedef int int32_t; typedef unsigned uint32_t; typedef long long int64_t; typedef unsigned long long uint64_t;
#define INFINITY __int_as_float(0x7f800000)
#define __asm__ asm
#define __volatile__ volatile
"""
CONSTANTS = "#include <math_constants.h>\n"
"""A header that TVM's source lacks where it has an infinity of float64, and includes where it has one of float32."""
HEAD = re.compile(r"#ifdef __CUDACC_RTC__\n.*?\n#else\n.*?\n#endif\n", re.DOTALL)
"""Head of TVM's source, which includes headers: those before #else for NVRTC."""
NVCC_S = 300.0
"""Maximum seconds of nvcc."""
MESSAGE_MAX = 2_000
"""Maximum characters of a compiler's messages that are passed on."""


class CudaRefused(RuntimeError):
    """The compiler refuses a source: the candidate's fault, such as too much shared memory."""


class CudaCompiler(Protocol):
    """Compiles a source."""

    @property
    def name(self) -> str:
        """Name and version, which are part of what determines the code: "nvrtc 13.0"."""

    def cubin(self, source: str, arch: str) -> bytes:
        """Code for an architecture ("sm_90"). Raises CudaRefused."""


@cache
def compiler() -> CudaCompiler:
    """Returns the compiler of this machine: NVRTC, or else nvcc. Raises RequestError where neither is there."""
    with suppress(OSError):
        return Nvrtc(cuda_libraries.load(cuda_libraries.COMPILER))
    if path := shutil.which("nvcc"):
        return Nvcc(path)
    raise RequestError(
        "no compiler for GPUs is here, neither NVRTC nor nvcc, so nothing can be built for them:"
        f" {cuda_libraries.INSTALL}"
    )


class Nvrtc:
    """NVIDIA's runtime compiler. Source: NVRTC 13.0, User's Guide."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        includes = cuda_libraries.folders("include")
        self._includes = [f"-I{folder}" for folder in includes if (folder / "cuda_fp16.h").exists()]

    @property
    def name(self) -> str:
        """Name and version."""
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
        return f"nvrtc {major.value}.{minor.value}"

    def cubin(self, source: str, arch: str) -> bytes:
        """Raises CudaRefused."""
        library, program = self._library, ctypes.c_void_p()
        text = HEAD.sub(lambda _: PRELUDE, _completed(source), count=1).encode()
        library.nvrtcCreateProgram(ctypes.byref(program), text, b"kernels.cu", 0, None, None)
        try:
            words = [word.encode() for word in (f"--gpu-architecture={arch}", "-default-device", *self._includes)]
            if library.nvrtcCompileProgram(program, len(words), (ctypes.c_char_p * len(words))(*words)):
                said = self._text(program, library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog)
                raise CudaRefused(_short(said.decode(errors="replace").rstrip("\0")))
            return self._text(program, library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN)
        finally:
            library.nvrtcDestroyProgram(ctypes.byref(program))

    @staticmethod
    def _text(program: ctypes.c_void_p, size_of: Callable[..., object], read: Callable[..., object]) -> bytes:
        size = ctypes.c_size_t()
        size_of(program, ctypes.byref(size))
        text = ctypes.create_string_buffer(max(1, size.value))
        read(program, text)
        return text.raw[: size.value]


class Nvcc:
    """NVIDIA's compiler as a program, which needs g++."""

    def __init__(self, path: str) -> None:
        self._path = path

    @property
    def name(self) -> str:
        """Name and version."""
        said = _run([self._path, "--version"]).stdout
        found = re.search(r"release ([\d.]+)", said)
        return f"nvcc {found[1] if found else 'of unknown version'}"

    def cubin(self, source: str, arch: str) -> bytes:
        """Raises CudaRefused."""
        with tempfile.TemporaryDirectory(prefix="autosched-cuda-") as folder:
            file, output = Path(folder, "kernels.cu"), Path(folder, "kernels.cubin")
            file.write_text(_completed(source))
            done = _run([self._path, "--cubin", "-O3", f"-arch={arch}", "-o", str(output), str(file)])
            if done.returncode:
                raise CudaRefused(_short(done.stderr))
            return output.read_bytes()


def _completed(source: str) -> str:
    """Returns TVM's source with all that it includes."""
    return source if "CUDART_" not in source or CONSTANTS in source else CONSTANTS + source


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=NVCC_S)


def _short(said: str) -> str:
    """Returns a compiler's errors, without its warnings where there are errors."""
    errors = [line for line in said.splitlines() if "error" in line.lower() or "fatal" in line.lower()]
    return "\n".join(errors or said.splitlines())[:MESSAGE_MAX]
