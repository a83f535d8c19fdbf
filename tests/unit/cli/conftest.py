from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest

from fake import Answer, Said, fake_commands


class Fake(Protocol):
    """The fixture of this name, which each file defines."""

    @property
    def answer(self) -> Answer:
        """Answers of the daemon."""


@pytest.fixture
def command(
    fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Iterator[Callable[..., Said]]:
    """Runs commands against a daemon with the answers of the file's `fake`."""
    with fake_commands(tmp_path, fake.answer, monkeypatch, capsys) as say:
        yield say
