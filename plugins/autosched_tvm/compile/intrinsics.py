"""Registers TVM's tensor intrinsics of one architecture, without those of all others, and ours.

Importing TVM's own ``tvm.s_tir.tensor_intrin`` parses the intrinsics of every GPU and CPU it knows, more than ten
seconds of processor time; a search on a CPU needs those of that CPU, a third of a second. A package of that name which
is in place before TVM asks for it makes TVM's later imports of it free.
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
    """Register the intrinsics of the machine with this name of LLVM's, and of this machine."""
    install()
    if triple:
        install(_BY_MACHINE.get(triple.partition("-")[0]))


def install(architecture: str | None = None) -> None:
    """Register one architecture's intrinsics (default: this machine's); cheap when it was done before."""
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
