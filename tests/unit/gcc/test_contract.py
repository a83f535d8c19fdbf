"""The example backend passes the checks of `autosched.conformance`."""

import shutil

import pytest

from autosched.conformance import BackendContract
from autosched_backend_gcc import GccBackend

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("gcc") is None, reason="needs gcc")]


class TestGcc(BackendContract):
    backend = GccBackend
    options = {"repeat": 1}
    count = 2
    rounds = 3
    kill_s = 20.0  # this machine may be busy
