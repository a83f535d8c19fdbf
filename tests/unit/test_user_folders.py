"""Folders of a user with and without a home."""

import os
from pathlib import Path

import pytest

from autosched import user_folders
from autosched.errors import ConfigError

UNKNOWN_UID = 4_000_000_000


@pytest.fixture
def without_home(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A user without HOME who is in no list of users."""
    for name in ("HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: UNKNOWN_UID)
    return monkeypatch


def test_the_list_of_users_names_a_home_if_the_environment_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    for value in (None, ""):
        monkeypatch.setenv("HOME", value) if value is not None else monkeypatch.delenv("HOME")
        monkeypatch.setattr(os, "getuid", lambda: 0)
        assert user_folders.home() == Path("/root")


@pytest.mark.parametrize("folder", [user_folders.state, user_folders.settings, user_folders.cache, user_folders.home])
def test_an_unknown_user_without_home_is_told_what_to_set(without_home: pytest.MonkeyPatch, folder: object) -> None:
    assert callable(folder)
    with pytest.raises(ConfigError, match=r"uid 4000000000\) has no home folder.*HOME=/path autosched"):
        folder()
    with pytest.raises(ConfigError, match="Set HOME"):
        user_folders.expanded("~/lab")


def test_a_named_folder_needs_no_home(without_home: pytest.MonkeyPatch) -> None:
    without_home.setenv("XDG_STATE_HOME", "/state")
    assert user_folders.state() == Path("/state")
    assert user_folders.expanded("/lab/x") == Path("/lab/x")


def test_the_home_of_a_user_that_does_not_exist() -> None:
    with pytest.raises(ConfigError, match="~no-such-user"):
        user_folders.expanded("~no-such-user/x")


def test_a_relative_path_is_made_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert user_folders.expanded("lab") == tmp_path / "lab"
