"""Checks the installation: matching TVM packages, and a linker. Loads without TVM."""

import os
import platform
import shutil
import subprocess
from collections.abc import Callable, Sequence
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from autosched.errors import RequestError
from autosched_tvm.source_fingerprint import fingerprint_of

LINK_TIMEOUT_S = 300.0
LLD = ("ld.lld", "ld.lld-19", "ld.lld-18", "ld.lld-17", "ld.lld-16", "ld.lld-15", "ld.lld-14")
"""Names of LLVM's linker, which links for all processors."""
PINS = {"apache-tvm": "0.27", "apache-tvm-ffi": "0.1.14"}
LOWERING = (
    "candidate_build", "cuda_code", "cuda_compiler", "integers", "intrinsics", "lowering", "rules", "vector_math",
    "winograd",
)  # fmt: skip
"""Modules that determine the code of a schedule."""
INSTALL = "pip install 'autosched[tvm]'"


def check_packages() -> str:
    """Returns the pair of TVM packages. Raises RequestError unless the pair is known to work."""
    said = []
    for package, wanted in PINS.items():
        try:
            found = version(package)
        except PackageNotFoundError:
            raise RequestError(
                f"{package} is not installed, so nothing can be tuned here. Install it: {INSTALL}"
            ) from None
        if not f"{found}.".startswith(f"{wanted}."):
            pair = " ".join(f"'{name}=={number}.*'" for name, number in PINS.items())
            raise RequestError(
                f"{package} {found} is installed, {wanted}.* is needed: other pairs crash while searching."
                f" Install the pair that works: pip install {pair}"
            )
        said.append(f"{package} {found}")
    return ", ".join(said)


@cache
def versions(target: str = "") -> str:
    """Returns what determines the code of a schedule for a resolved target: packages with their versions, the compiler
    for GPUs if the target is one, and the fingerprint of our own modules.

    Loads TVM. Raises RequestError as `check_packages` does, and without a compiler for a GPU.
    """
    from tvm.target import codegen

    from autosched_tvm.compile import cuda_compiler, targets

    packages = f"{check_packages()}, llvm {codegen.llvm_version_major()}"
    if target and targets.arch_of(target):
        packages += f", {cuda_compiler.compiler().name}"
    return f"{packages}, lowering {fingerprint_of(*(f'autosched_tvm.compile.{name}' for name in LOWERING))}"


def program_form() -> str:
    """Returns name and version of the TVM that can read a module's JSON from this one."""
    return f"tvm {version('apache-tvm')}"


@cache
def linker(triple: str = "") -> tuple[str, ...]:
    """Returns the linker (a fifth of the compiler driver's time), or else a compiler. Raises RequestError for neither.

    `triple`: LLVM triple of the machine for which it links; empty: this machine's.
    """
    if is_foreign(triple):
        return _cross_linker(triple)
    if not os.environ.get("CXX") and (ld := shutil.which("ld")):
        return (ld, "--eh-frame-hdr")
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "g++", "gcc", "clang++", "clang", "c++", "cc"):
        if name and (path := shutil.which(name)):
            return (path, "-nostdlib")
    raise RequestError(
        "neither a linker (ld) nor a C compiler is on PATH, so nothing can be built."
        " On Debian: apt-get install gcc libc6-dev; or set CXX to your compiler"
    )


def is_foreign(triple: str) -> bool:
    """Returns whether code for a machine does not run on this one."""
    return bool(triple) and _processor(triple) != _processor(platform.machine())


def _processor(triple: str) -> str:
    """Returns the processor of a triple, normalised."""
    name = triple.partition("-")[0].lower()
    if name in ("amd64", "x64"):
        return "x86_64"
    return "aarch64" if name == "arm64" else "arm" if name.startswith("armv") else name


def _cross_linker(triple: str) -> tuple[str, ...]:
    """Returns a linker for another machine. Raises RequestError where there is none."""
    prefixes = dict.fromkeys((triple, f"{_processor(triple)}-linux-gnu", f"{_processor(triple)}-linux-gnueabihf"))
    for name in (*(f"{prefix}-ld" for prefix in prefixes), *LLD):
        if path := shutil.which(name):
            return (path, "--eh-frame-hdr")
    for name in (f"{prefix}-gcc" for prefix in prefixes):
        if path := shutil.which(name):
            return (path, "-nostdlib")
    raise RequestError(
        f"no linker for {triple} is on PATH, so nothing can be built for it: neither ld.lld, which links for every"
        f" processor (Debian: apt-get install lld), nor {next(iter(prefixes))}-ld"
        f" (apt-get install binutils-{_processor(triple).replace('_', '-')}-linux-gnu)"
    )


def _c_compiler(triple: str) -> str:
    """Returns a C compiler. Raises RequestError where there is none."""
    prefix = f"{_processor(triple)}-linux-gnu-" if is_foreign(triple) else ""
    for name in (f"{prefix}gcc", *([] if prefix else (os.environ.get("CC"), "cc", "clang"))):
        if name and (path := shutil.which(name)):
            return path
    raise RequestError("the network has no operators to compile, and there is no C compiler (apt-get install gcc)")


def exporter(triple: str) -> Callable[..., None]:
    """Returns what links objects for TVM's `export_library` (`fcompile`); `triple` as in `link`."""

    def linked(output: str, objects: Sequence[str], **_options: object) -> None:
        link(output, objects, triple)

    return linked


def link(output: str, objects: Sequence[str], triple: str = "") -> None:
    """Links object files into a shared library. `triple`: LLVM triple of the machine that runs it; empty: this
    machine's. A network without kernels comes as C files, which need a C compiler."""
    sources = any(name.endswith(".c") for name in objects)
    program = (_c_compiler(triple), "-nostdlib", "-fPIC") if sources else linker(triple)
    command = [*program, "-shared", "-o", output, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LINK_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:1])} failed: {done.stderr.strip()[-2_000:]}")
