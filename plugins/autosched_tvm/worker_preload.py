"""Imports of the fork server, made once, so that a worker is a fork and not a start of TVM.

TVM starts its threads with the first parallel kernel, so that forking is safe after its import.
"""

import os
import sys

sys.modules.setdefault("torch", None)  # type: ignore[arg-type] # TVM would load it, which takes a second, for nothing

from autosched_tvm.compile import candidate_build, intrinsics  # noqa: E402, F401 # once PyTorch is hidden
from autosched_tvm.device import kernel_profiling  # noqa: E402, F401

intrinsics.install()


def settle(cores: tuple[int, ...]) -> None:
    """Let TVM use as many threads as a new worker has cores; one if it has no cores of its own."""
    os.environ["TVM_NUM_THREADS"] = str(max(1, len(cores)))
    os.environ["TVM_BIND_THREADS"] = "0"  # otherwise TVM's threads leave their cores
