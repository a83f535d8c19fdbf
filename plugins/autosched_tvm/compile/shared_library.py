"""Writes the machine code of kernels as a shared library."""

from pathlib import Path
from typing import Any

from autosched.model import code_name
from autosched_tvm.compile import cuda_code, toolchain


def write(code: Any, output: str, triple: str = "", arch: str = "") -> str:
    """Writes TVM's compiled code to a shared library at `output`; returns the digest of its object code.

    `triple`: LLVM triple of the machine that runs it; empty: this machine's. `arch`: architecture of the GPU for which
    kernels in it are ("sm_90"), whose code is written behind the library; empty: none. Raises CudaRefused.
    """
    # imported here: a machine that only runs modules lacks its packages
    from autosched_tvm.compile import object_digest

    object_file = Path(f"{output}.o")
    code.write_to_file(str(object_file))
    digest = object_digest.digest_of(object_file)
    if not arch:
        toolchain.link(output, [str(object_file)], triple)
        object_file.unlink()
        return digest
    object_file.unlink()
    kernels = cuda_code.of_library(code, arch)
    code.export_library(output, fcompile=toolchain.exporter(triple))
    cuda_code.append_to(Path(output), kernels)
    return code_name(b"".join([digest.encode(), *kernels.values()]), sum(map(len, kernels.values())))


def target_of(triple: str) -> Any:
    """Returns TVM's generic target for this kind of processor; empty: for this machine's kind."""
    import tvm

    return tvm.target.Target({"kind": "llvm", **({"mtriple": triple} if triple else {})})
