"""Links shared libraries. Loads without TVM."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache

from autosched.errors import RequestError

LINK_TIMEOUT_S = 300.0


@cache
def linker() -> tuple[str, ...]:
    """The linker itself (a fifth of the compiler driver's time), else a compiler. Raises RequestError for neither."""
    if not os.environ.get("CXX") and (ld := shutil.which("ld")):
        return (ld, "--eh-frame-hdr")
    for name in (os.environ.get("CXX"), os.environ.get("CC"), "g++", "gcc", "clang++", "clang", "c++", "cc"):
        if name and (path := shutil.which(name)):
            return (path, "-nostdlib")
    raise RequestError(
        "neither a linker (ld) nor a C compiler is on PATH, so nothing can be built."
        " On Debian: apt-get install gcc libc6-dev; or set CXX to your compiler"
    )


def link(output: str, objects: Sequence[str]) -> None:
    """Make a shared library of object files."""
    command = [*linker(), "-shared", "-o", output, *objects]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LINK_TIMEOUT_S)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command[:1])} failed: {done.stderr.strip()[-2_000:]}")
