"""`autosched key`: the secret is printed once, and never listed."""

import json
from pathlib import Path

import pytest

from autosched.cli.command_table import run
from autosched.daemon.access.keyring import Keyring
from autosched.wire import keys


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    monkeypatch.setenv("AUTOSCHED_OUTPUT", "table")
    path = tmp_path / "autosched.toml"
    path.write_text(f'[daemon]\nstate_dir = "{tmp_path}"\n')
    return path


def test_a_key_is_made_listed_and_revoked(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["-c", str(settings)]
    assert run(["key", "list", *at]) == 0
    assert "autosched key new user" in capsys.readouterr().err
    assert run(["key", "new", "operator", *at]) == 0
    said = capsys.readouterr()
    made = keys.parse(said.out, "what was printed")
    assert Keyring(tmp_path / "keys").get(made.id) == made
    assert f"autosched key revoke {made.id}" in said.err
    assert run(["key", "list", *at]) == 0
    table = capsys.readouterr().out
    assert made.id in table
    assert "operator" in table
    assert run(["key", "list", "-o", "json", *at]) == 0
    listed = capsys.readouterr().out
    assert json.loads(listed)["keys"][0]["id"] == made.id
    assert made.secret.hex() not in table + listed
    assert run(["key", "revoke", made.id, *at]) == 0
    assert run(["key", "revoke", made.id, *at]) == 4
    assert "autosched key list" in capsys.readouterr().err
    assert len(Keyring(tmp_path / "keys")) == 0


def test_names_of_keys_are_unique(settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["-c", str(settings)]
    assert run(["key", "new", "user", "alice", *at]) == 0
    assert keys.parse(capsys.readouterr().out, "what was printed").id == "alice"
    assert run(["key", "new", "viewer", "alice", *at]) == 2
    assert "autosched key revoke alice" in capsys.readouterr().err
    assert run(["key", "new", "user", "Alice Smith", *at]) == 2
    assert "for example: alice" in capsys.readouterr().err
    assert len(Keyring(tmp_path / "keys")) == 1


def test_there_are_four_roles(settings: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["key", "new", "king", "-c", str(settings)]) == 2
    assert "viewer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "jobs"),
    [
        (["key", "new", "user", "alice", "--jobs", "50"], 50),
        (["token", "add", "alice", "--role", "user", "--quota", "share=1 jobs=50"], 50),
        (["token", "add", "alice", "--role", "user"], None),
    ],
)
def test_a_key_may_have_a_quota(words: list[str], jobs: int | None, settings: Path, tmp_path: Path) -> None:
    assert run([*words, "-c", str(settings)]) == 0
    made = Keyring(tmp_path / "keys").get("alice")
    assert made is not None
    assert made.jobs_max == jobs


@pytest.mark.parametrize("quota", ["share=2", "jobs=0", "jobs=many", "memory=4G", f"jobs={10**10}"])
def test_a_quota_that_is_not_enforced_is_refused(
    quota: str, settings: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["token", "add", "alice", "--role", "user", "--quota", quota, "-c", str(settings)]) == 2
    assert "Write jobs=N" in capsys.readouterr().err
    assert len(Keyring(tmp_path / "keys")) == 0
