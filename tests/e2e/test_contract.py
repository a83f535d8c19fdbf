"""The backends on TVM pass the checks of `autosched.conformance`."""

import pytest

from autosched.conformance import BackendContract
from autosched_backend_ansor import AnsorBackend
from nets import conv_net

pytestmark = pytest.mark.tvm


class OnTvm(BackendContract):
    model = conv_net(4, 8).SerializeToString()
    options = {"repeat": 1, "min_repeat_ms": 0.1}
    count = 2
    rounds = 3
    growth_bytes = 256 * 1024**2  # TVM itself, which the first select imports
    kill_s = 20.0  # this machine may be busy


class TestAnsor(OnTvm):
    backend = AnsorBackend
