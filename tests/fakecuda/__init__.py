"""Fake GPUs, for tests of function on any machine; README.md says what that proves.

`Machine` is a folder with the state of a fake machine, and the environment in which programs see its GPUs.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
BUILD = HERE / "build"
"""The libraries, built when they are first needed."""
LIBRARIES = {
    "libcuda.so.1": ("driver.cpp", "blocks.cpp", "memory.cpp", "machine.cpp", "races.cpp"),
    "libcudart.so.13": ("runtime.cpp",),
    "libnvidia-ml.so.1": ("nvml.cpp",),
    "libnvrtc.so.13": ("nvrtc.cpp",),
}
OPTIONS = ("-std=c++17", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror")
VERSIONS = "libcudart.so.13 { global: cuda*; local: *; };\n"
"""The version of its symbols for which TVM's library asks."""


def missing() -> str | None:
    """The program that fake GPUs need and that this machine lacks, in words; None: it has all."""
    return None if shutil.which("g++") else "no g++ here: install it, for example with apt-get install g++"


def build() -> Path:
    """Builds the libraries, in some seconds, unless they are up to date; returns their folder."""
    sources = sorted((HERE / "source").iterdir())
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources) + repr((OPTIONS, VERSIONS)).encode())
    BUILD.mkdir(exist_ok=True)
    stamp = BUILD / "digest"
    with (BUILD / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if stamp.exists() and stamp.read_text() == digest.hexdigest():
            return BUILD
        versions = BUILD / "versions.map"
        versions.write_text(VERSIONS)
        for library, files in LIBRARIES.items():
            more = () if library == "libcuda.so.1" else (f"-L{BUILD}", "-l:libcuda.so.1", "-Wl,-rpath,$ORIGIN")
            if library.startswith("libcudart"):
                more = (*more, f"-Wl,--version-script={versions}")
            words = ["g++", *OPTIONS, f"-Wl,-soname,{library}", *(str(HERE / "source" / name) for name in files)]
            subprocess.run([*words, *more, "-ldl", "-o", str(BUILD / library)], check=True, timeout=300)
        stamp.write_text(digest.hexdigest())
    return BUILD


class Machine:
    """A fake machine. What is written to its folder holds at once, for all processes."""

    def __init__(self, folder: Path, *devices: str) -> None:
        """`devices`: "NAME:ARCH:GiB" of each, such as "NVIDIA Fake GPU:89:8"; none: two of that kind."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        if devices:
            (folder / "devices").write_text("".join(f"{device}\n" for device in devices))

    def environment(self, **more: str) -> dict[str, str]:
        """The variables in which a program sees the GPUs. `more`: CUDA_FAKE_ORDER and others; see README.md."""
        libraries = [str(build()), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
        return {
            **os.environ, "PATH": f"{HERE / 'bin'}:{os.environ['PATH']}", "LD_LIBRARY_PATH": ":".join(libraries),
            "TVM_CUDA_COMPILE_MODE": "nvcc", "CUDA_FAKE": str(self.folder), "CUDA_FAKE_PYTHON": sys.executable, **more,
        }  # fmt: skip

    def python(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Runs Python there, with the modules of the tests. `more`: as in `environment`."""
        environment = self.environment(PYTHONPATH=str(HERE.parent), **more)
        command = [sys.executable, *words]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=False)

    def fail(self, device: int, fault: str, when: int | str = "") -> None:
        """Let a launch fail: the next one on the device, launch number `when` of a process, or "always" each."""
        (self.folder / f"fault-{device}").write_text(f"{fault} {when}\n")

    def health(self, *lines: str) -> None:
        """Let NVML say something of devices; a line: "DEVICE KEY VALUE"."""
        (self.folder / "health").write_text("".join(f"{line}\n" for line in lines))

    def log(self) -> list[str]:
        """Lines of the libraries and the compiler about launches, faults and compilations."""
        path = self.folder / "log"
        return path.read_text().splitlines() if path.exists() else []

    @staticmethod
    def uuid(device: int) -> str:
        """The UUID of a device."""
        return f"GPU-fa4e{device:04d}-0000-0000-0000-000000000000"
