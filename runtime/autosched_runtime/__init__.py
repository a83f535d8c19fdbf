"""Runs networks that autosched has compiled. Needs NumPy, and neither TVM nor a compiler.

    network = autosched_runtime.load("net-tuned/net.so")
    outputs = network.run({"x": x})

Files: network.py (runs a network), executable.py (loads its library), inputs.py (checks arrays), side_file.py
(NAME.json), inference_threads.py and thread_pool.py (threads that run kernels), tvm_interface.py (the C interface of
TVM's runtime), libraries.py (finds it), cpu_features.py, control_groups.py, errors.py, version.py.
"""

import os
from typing import TYPE_CHECKING, Any

from autosched_runtime.errors import FileMissing, InvalidInput, NetworkError
from autosched_runtime.version import __version__

if TYPE_CHECKING:
    from autosched_runtime.network import Network

__all__ = ["FileMissing", "InvalidInput", "Network", "NetworkError", "__version__", "load"]


def load(path: str | os.PathLike[str], *, threads: int | None = None) -> "Network":
    """Load a compiled network: its .so file, with the .json beside it.

    `threads`: number of threads of an inference; None: the cores that it was tuned for, at most those that this process
    may use. Raises NetworkError.
    """
    from autosched_runtime.network import Network

    return Network(path, threads=threads)


if not TYPE_CHECKING:  # otherwise the type checker would accept any name

    def __getattr__(name: str) -> Any:
        """Load the class of networks, and with it NumPy, when it is asked for."""
        if name == "Network":
            from autosched_runtime.network import Network

            return Network
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
