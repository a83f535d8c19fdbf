"""Registers the tensor intrinsics of one architecture: TVM's and ours.

Importing TVM's own ``tvm.s_tir.tensor_intrin`` parses the intrinsics of all GPUs and CPUs, which takes more than ten
seconds of CPU time; those of one CPU take a third of a second. A substitute package of that name, installed before TVM
imports it, avoids the cost of later imports.
"""

import importlib
import platform
import sys
import types
from pathlib import Path

from autosched_tvm.compile.integers import dot_instructions

PACKAGE = "tvm.s_tir.tensor_intrin"
_BY_MACHINE = {"x86_64": "x86", "AMD64": "x86", "aarch64": "arm_cpu", "arm64": "arm_cpu", "riscv64": "riscv_cpu"}


def install_for(triple: str) -> None:
    """Registers the intrinsics of the machine with this LLVM triple, and of this machine."""
    install()
    if triple:
        install(_BY_MACHINE.get(triple.partition("-")[0]))


def install(architecture: str | None = None) -> None:
    """Registers one architecture's intrinsics (default: this machine's). Repeated calls are cheap."""
    import tvm.s_tir

    package = sys.modules.get(PACKAGE)
    if package is None:
        package = types.ModuleType(PACKAGE)
        package.__package__ = PACKAGE
        package.__path__ = [str(Path(tvm.s_tir.__file__).parent / "tensor_intrin")]
        sys.modules[PACKAGE] = package
        tvm.s_tir.tensor_intrin = package
    name = architecture or _BY_MACHINE.get(platform.machine())
    if name is not None and not hasattr(package, name):
        setattr(package, name, importlib.import_module(f"{PACKAGE}.{name}"))
    for instruction in dot_instructions.ALL:
        dot_instructions.register(instruction)
