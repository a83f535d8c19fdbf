"""ONNX Runtime's errors, as the runtime's."""

from autosched_runtime.errors import FileMissing as NoSuchFile
from autosched_runtime.errors import InvalidInput as InvalidArgument
from autosched_runtime.errors import NetworkError as Fail
from autosched_runtime.ort_value import OrtValue
from autosched_runtime.session import get_all_providers, get_available_providers, get_device
from autosched_runtime.session_options import RunOptions, SessionOptions

InvalidGraph = InvalidProtobuf = NoModel = NotImplemented = RuntimeException = Fail

__all__ = [
    "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "NoModel", "NoSuchFile", "NotImplemented", "OrtValue",
    "RunOptions", "RuntimeException", "SessionOptions", "get_all_providers", "get_available_providers", "get_device",
]  # fmt: skip
