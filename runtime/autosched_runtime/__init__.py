"""Runs networks that autosched has compiled. Needs NumPy, and neither TVM nor a compiler.

    network = autosched_runtime.load("net-tuned/net.so")
    outputs = network.run({"x": x})

A program that was written for onnxruntime changes its import:

    import autosched_runtime as ort
    session = ort.InferenceSession("net.onnx")  # or "net-tuned/net.so"
    outputs = session.run(None, {"x": x})

Files: network.py (runs a network), network_of_shapes.py (several, for different inputs), padding.py, executable.py
(loads a library), weights.py, inputs.py (checks arrays), side_file.py (NAME.json), network_file.py (NAME.asn),
samples.py, inference_threads.py and thread_pool.py (threads that run kernels), session.py, session_options.py and
ort_value.py (onnxruntime's interface), capi/ (names from its inside), networks_by_model.py (finds the network of a
model), tvm_interface.py (the C interface of TVM's runtime), libraries.py (finds it), cpu_features.py, cpu_model.py,
control_groups.py, check.py (the command `check`), disturbances.py, errors.py, version.py.
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

from autosched_runtime.errors import FileMissing, InvalidInput, NetworkError, OutOfMemory
from autosched_runtime.version import __version__

if TYPE_CHECKING:
    from autosched_runtime.network import Network
    from autosched_runtime.network_of_shapes import NetworkOfShapes
    from autosched_runtime.ort_value import IOBinding, OrtValue
    from autosched_runtime.session import (
        InferenceSession,
        ModelMetadata,
        NodeArg,
        get_all_providers,
        get_available_providers,
        get_device,
    )
    from autosched_runtime.session_options import (
        ExecutionMode,
        ExecutionOrder,
        GraphOptimizationLevel,
        RunOptions,
        SessionOptions,
        disable_telemetry_events,
        enable_telemetry_events,
        set_default_logger_severity,
        set_default_logger_verbosity,
        set_seed,
    )

__all__ = [
    "ExecutionMode", "ExecutionOrder", "FileMissing", "GraphOptimizationLevel", "IOBinding", "InferenceSession",
    "InvalidInput", "ModelMetadata", "Network", "NetworkError", "NetworkOfShapes", "NodeArg", "OrtValue",
    "OutOfMemory", "RunOptions", "SessionOptions", "__version__", "disable_telemetry_events",
    "enable_telemetry_events", "get_all_providers", "get_available_providers", "get_device", "load",
    "set_default_logger_severity", "set_default_logger_verbosity", "set_seed",
]  # fmt: skip
_HOMES = {
    "network": ("Network",),
    "network_of_shapes": ("NetworkOfShapes",),
    "ort_value": ("IOBinding", "OrtValue"),
    "session": (
        "InferenceSession", "ModelMetadata", "NodeArg", "get_all_providers", "get_available_providers", "get_device",
    ),
    "session_options": (
        "ExecutionMode", "ExecutionOrder", "GraphOptimizationLevel", "RunOptions", "SessionOptions",
        "disable_telemetry_events", "enable_telemetry_events", "set_default_logger_severity",
        "set_default_logger_verbosity", "set_seed",
    ),
}  # fmt: skip
"""Module -> the names that it defines, which are loaded when they are asked for: most need NumPy."""
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> "Network | NetworkOfShapes":
    """Load a compiled network: NAME.asn, or NAME.so with NAME.json beside it.

    `threads`: number of threads of an inference; None: the cores that it was tuned for, at most those that this process
    may use. Raises NetworkError.
    """
    from autosched_runtime.network_of_shapes import loaded

    return loaded(path, threads)


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Load a name from its module."""
        if name == "capi":
            import_module(f"{__name__}.capi._pybind_state")  # programs take it as an attribute
            return import_module(f"{__name__}.capi")
        if name not in _HOME_OF:
            raise AttributeError(_unknown(name) if name[0].isupper() else f"module {__name__!r} has no {name!r}")
        found = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return found


def _unknown(name: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(name, __all__, 1)
    more = f"; did you mean {near[0]!r}?" if near else f"; it has: {', '.join(__all__)}"
    return f"module {__name__!r} has no attribute {name!r}{more}"
