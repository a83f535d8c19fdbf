"""The package that `autosched plugin new` writes keeps what every backend promises, before anybody changes it."""

import sys

from autosched.plugin import scaffold
from autosched.testing import BackendContract

sys.path.append(str(scaffold.TEMPLATE))

from autosched_backend_mytuner import MytunerBackend


class TestTemplate(BackendContract):
    backend = MytunerBackend
    model = b'{"short": 200}'
    options = {"repeat": 1}
    count = 2
    rounds = 3
    kill_s = 20.0  # this machine may be busy
