"""The backend without a compiler passes the checks of `autosched.conformance`."""

from autosched.conformance import BackendContract
from autosched_backend_mock import MockBackend


class TestMock(BackendContract):
    backend = MockBackend
    options = {"rival_s": 1.0}
    kill_s = 20.0  # this machine may be busy
    hanging = {
        stage: {"hang_stage": stage}
        for stage in ("import", "select", "build", "profile", "update", "compile", "evaluate")
    }
