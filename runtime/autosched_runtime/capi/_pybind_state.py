"""The same names, from where onnxruntime's own modules take them."""

from autosched_runtime.capi.onnxruntime_pybind11_state import *  # noqa: F403
