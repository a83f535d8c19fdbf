"""The backend without a compiler keeps what every backend promises."""

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
