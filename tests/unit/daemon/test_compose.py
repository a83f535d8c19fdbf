"""Warnings about settings that are valid, and that give others access."""

from pathlib import Path

import pytest

from autosched import config
from autosched.daemon.compose import warnings_of

WITH_PASSWORD = "postgresql://lab:secret@dbhost/autosched"
WITHOUT_PASSWORD = "postgresql://lab@dbhost/autosched"


@pytest.mark.parametrize(
    ("url", "mode", "warned"),
    [
        (WITH_PASSWORD, 0o644, True),
        (WITH_PASSWORD, 0o640, False),
        (WITHOUT_PASSWORD, 0o644, False),
        ("", 0o644, False),
    ],
)  # fmt: skip
def test_a_password_that_all_users_can_read(url: str, mode: int, warned: bool, tmp_path: Path) -> None:
    file = tmp_path / "autosched.toml"
    file.write_text(f"[records]\nurl = '{url}'\n")
    file.chmod(mode)
    found = list(warnings_of(config.load(file), file))
    assert len(found) == warned
    assert all(f"chmod o= {file}" in warning and "secret" not in warning for warning in found)


def test_settings_without_a_file_hold_no_readable_password() -> None:
    assert list(warnings_of(config.parse(f"[records]\nurl = '{WITH_PASSWORD}'\n", "test"))) == []


def test_a_port_for_boards_without_a_key() -> None:
    settings = config.parse("[boards]\nlisten = '192.0.2.1:9190'\nnetworks = ['192.0.2.0/24']\n", "test")
    (warning,) = warnings_of(settings)
    assert "any peer in this machine and 192.0.2.0/24 may run any program" in warning
