"""Keys in a folder: created, listed, revoked, and reloaded."""

import os
import stat
from pathlib import Path

import pytest

from autosched import config
from autosched.daemon.access import keyring
from autosched.daemon.access.keyring import Keyring
from autosched.errors import ConfigError, NotFound
from autosched.protocol.roles import Role


def test_a_key_is_in_a_file_that_only_its_owner_may_read(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    made, path = keyring.make(folder, Role.USER)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert len(made.secret) == 32
    assert Keyring(folder).get(made.id) == made


def test_several_keys_of_a_role_are_valid_until_revoked(tmp_path: Path) -> None:
    old, _ = keyring.make(tmp_path, Role.USER)
    ring = Keyring(tmp_path)
    new, _ = keyring.make(tmp_path, Role.USER)
    assert ring.get(new.id) is None
    assert ring.refresh()
    assert (ring.get(old.id), ring.get(new.id)) == (old, new)
    assert not ring.refresh()
    assert keyring.revoke(tmp_path, old.id).role == "user"
    assert ring.refresh()
    assert (ring.get(old.id), ring.get(new.id)) == (None, new)


def test_two_changes_within_a_tick_of_the_file_systems_clock_are_seen(tmp_path: Path) -> None:
    old, _ = keyring.make(tmp_path, Role.USER)
    ring = Keyring(tmp_path)
    at_ns = tmp_path.stat().st_mtime_ns
    keyring.revoke(tmp_path, old.id)
    os.utime(tmp_path, ns=(at_ns, at_ns))
    assert ring.refresh()
    assert ring.get(old.id) is None


def test_only_the_daemons_copy_of_a_key_has_its_quota(tmp_path: Path) -> None:
    made, path = keyring.make(tmp_path, Role.USER, "alice", 50)
    assert path.read_text() == f"{made.line()} jobs=50\n"
    found = Keyring(tmp_path).get("alice")
    assert found is not None
    assert (found, found.jobs_max) == (made, 50)
    assert [one.jobs for one in keyring.kept(tmp_path)] == ["50"]


def test_the_list_has_no_secrets(tmp_path: Path) -> None:
    made = [keyring.make(tmp_path, role)[0] for role in (Role.VIEWER, Role.OPERATOR)]
    listed = keyring.kept(tmp_path)
    assert [(one.id, one.role) for one in listed] == [(key.id, key.role.value) for key in made]
    assert not any(key.secret.hex() in str(listed) for key in made)


def test_a_broken_key_file_disables_no_other_key(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    made, _ = keyring.make(tmp_path, Role.USER)
    (tmp_path / "broken-key.key").write_text("nonsense")
    shared, path = keyring.make(tmp_path, Role.USER)
    path.chmod(0o644)
    ring = Keyring(tmp_path)
    assert (ring.get(made.id), ring.get(shared.id), len(ring)) == (made, None, 1)
    assert "chmod 600" in caplog.text


def test_an_unknown_key_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="autosched key list"):
        keyring.revoke(tmp_path, "deadbeef")
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"set daemon\.keys"):
        keyring.make(tmp_path / "file", Role.USER)


def test_the_folder_of_keys_follows_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    settings = config.parse(f'[daemon]\nstate_dir = "{tmp_path}"', "x")
    assert keyring.folder_of(settings) == tmp_path / "keys"
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/tls.key").touch()  # a file of another program
    assert keyring.folder_of(settings) == tmp_path / "keys"
    (tmp_path / "credentials/keys_user-3f2a91bc.key").touch()
    assert keyring.folder_of(settings) == tmp_path / "credentials"
    named = config.parse('[daemon]\nkeys = "/etc/keys"', "x")
    assert keyring.folder_of(named) == tmp_path / "credentials"  # copies of /etc/keys, which the daemon cannot read
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert keyring.folder_of(named) == Path("/etc/keys")


def test_credentials_of_systemd_may_be_readable_by_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, path = keyring.make(tmp_path, Role.USER)
    path.chmod(0o440)
    assert Keyring(tmp_path).get(made.id) is None
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert Keyring(tmp_path).get(made.id) == made


def test_a_missing_folder_has_no_keys(tmp_path: Path) -> None:
    ring = Keyring(tmp_path / "none")
    assert len(ring) == 0
    assert not ring.refresh()
    os.mkdir(tmp_path / "none")
    keyring.make(tmp_path / "none", Role.VIEWER)
    assert ring.refresh()
    assert len(ring) == 1
