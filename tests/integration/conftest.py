import pytest

from autosched.remote import Daemon
from autosched.wire.blocking import Caller
from autosched.wire.link import Link
from deadlines import DEADLINE_S


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing else is said, this process waits as long for a daemon on a busy machine as tests wait."""
    for function in (Caller.__init__, Daemon.connect.__func__, Link.open.__func__):  # type: ignore[attr-defined]
        monkeypatch.setattr(function, "__kwdefaults__", {**function.__kwdefaults__, "timeout_s": DEADLINE_S})
