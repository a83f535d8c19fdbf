from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.wire.blocking_link import BlockingLink
from autosched.wire.link import Link
from deadlines import DEADLINE_S
from integration.lab import Lab, Said, command_line, lab


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extends the wait for a daemon in this process to the tests' deadline, unless a test sets another."""
    for function in (BlockingLink.__init__, Daemon.connect.__func__, Link.open.__func__):  # type: ignore[attr-defined]
        monkeypatch.setattr(function, "__kwdefaults__", {**function.__kwdefaults__, "timeout_s": DEADLINE_S})


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    """A lab with default settings."""
    with lab(tmp_path) as running:
        yield running


@pytest.fixture
def cli(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs commands against the lab."""
    return command_line(there, tmp_path, monkeypatch, capsys)
