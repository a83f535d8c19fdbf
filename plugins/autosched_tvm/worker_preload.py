"""Imports of the fork server, made once, so that each worker is a fork and not a start of TVM."""

import sys

sys.modules.setdefault("torch", None)  # type: ignore[arg-type] # TVM would load it, which takes a second, for nothing

from autosched_tvm.compile import candidate_build, intrinsics  # noqa: E402, F401 # once PyTorch is hidden; they are only loaded
from autosched_tvm.device import kernel_profiling  # noqa: E402, F401 # once PyTorch is hidden; they are only loaded

intrinsics.install()
