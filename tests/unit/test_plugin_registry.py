"""Entry points are read once, and again only after a possible installation."""

import importlib.metadata
from pathlib import Path

import pytest

from autosched import backend, plugin_registry
from autosched.errors import NotFound
from packages import install


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The groups whose metadata were read, in order."""
    seen: list[str] = []
    read = importlib.metadata.entry_points

    def counting(*, group: str) -> importlib.metadata.EntryPoints:
        seen.append(group)
        return read(group=group)

    monkeypatch.setattr(importlib.metadata, "entry_points", counting)
    monkeypatch.setattr(plugin_registry, "_read", {})
    return seen


def test_a_name_that_was_seen_costs_nothing(reads: list[str]) -> None:
    for _ in range(3):
        backend.check_name("mock")
    assert reads == [backend.GROUP]


def test_groups_are_apart(reads: list[str]) -> None:
    assert "mock" in plugin_registry.installed_plugins(backend.GROUP)
    assert "mock" not in plugin_registry.installed_plugins("autosched.policies")
    assert reads == [backend.GROUP, "autosched.policies"]


def test_a_backend_installed_meanwhile_is_found(
    reads: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="theirs"):
        backend.check_name("theirs")
    monkeypatch.syspath_prepend(str(install(tmp_path / "packages", backend.GROUP, theirs="their_policies:lifo")))
    backend.check_name("theirs")
    assert "theirs" in backend.available()
