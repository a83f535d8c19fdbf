"""Writes the machine code of kernels as a shared library."""

from pathlib import Path
from typing import Any

from autosched_tvm.compile import toolchain


def write(code: Any, output: str, triple: str = "") -> str:
    """Leave a shared library with what TVM compiled at `output`; return the digest of its object code.

    `triple`: LLVM's name of the machine that runs it; empty: this one.
    """
    from autosched_tvm.compile import object_digest  # a machine that runs modules alone lacks what it needs

    object_file = Path(f"{output}.o")
    code.write_to_file(str(object_file))
    digest = object_digest.digest_of(object_file)
    toolchain.link(output, [str(object_file)], triple)
    object_file.unlink()
    return digest


def target_of(triple: str) -> Any:
    """TVM's target for any processor of this kind; empty: of this machine's kind."""
    import tvm

    return tvm.target.Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
