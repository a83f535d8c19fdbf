"""The command that runs a program apart."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.launch import sandbox
from autosched.launch.sandbox import Bounds
from autosched.process import isolated_python


@pytest.fixture(autouse=True)
def tried_anew() -> Iterator[None]:
    sandbox.unavailable.cache_clear()
    yield
    sandbox.unavailable.cache_clear()


def pairs(words: list[str], option: str) -> list[str]:
    return [words[index + 1] for index, word in enumerate(words) if word == option]


def test_own_folders_come_after_hidden_ones_and_stay_writable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, own, package = tmp_path / "packages/state", tmp_path / "packages/state/jobs/7", tmp_path / "packages"
    own.mkdir(parents=True)
    monkeypatch.setattr(sys, "path", [str(package), "", str(tmp_path / "none")])
    words = sandbox.command(["program", "--word"], [own], Bounds(hidden=(state,), readable=(state / "jobs",)))
    assert words[-3:] == ["--", "program", "--word"]
    order = [words.index(str(path)) for path in (package, state, state / "jobs", own)]
    assert order == sorted(order)
    assert pairs(words, "--bind") == [str(own)]
    assert str(tmp_path / "none") not in words
    assert {str(state), "/", "/tmp"} == set(pairs(words, "--remount-ro"))


def test_no_folder_that_contains_the_users_home_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "ada"
    (home / "packages").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"/:{home}:{tmp_path}:/usr/bin")
    monkeypatch.setattr(sys, "path", [str(home), str(home / "packages")])
    shown = pairs(sandbox.command(["true"], [], Bounds()), "--ro-bind-try")
    assert str(home / "packages") in shown
    assert not {"/", str(home), str(tmp_path)} & set(shown)


@pytest.mark.parametrize("network", [False, True])
def test_there_is_a_network_only_where_it_is_wanted(network: bool) -> None:
    words = sandbox.command(["true"], [], Bounds(network=network))
    assert ("--share-net" in words, "--unshare-net" in words) == (network, not network)
    assert ("/etc/resolv.conf" in words) is network


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (None, "bubblewrap is not installed"),
        ("echo bwrap: no permissions to create new namespace >&2; exit 1", "no permissions to create new namespace"),
        ("exit 3", "exit code 3"),
    ],
)
def test_the_reason_why_it_does_not_work_is_told(
    script: str | None, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if script is not None:
        (tmp_path / "bwrap").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert reason in sandbox.unavailable()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="no bubblewrap")
def test_a_program_sees_its_own_files_alone(tmp_path: Path) -> None:
    if why := sandbox.unavailable():
        pytest.skip(why)
    secret, own = tmp_path / "state/keys", tmp_path / "state/jobs/7"
    own.mkdir(parents=True)
    secret.write_text("secret")
    script = (
        f"import os; print(os.path.exists({str(secret)!r}), os.listdir({str(tmp_path / 'state')!r}),"
        f" open('made', 'w').write('x'), len(os.listdir('/sys/class/net')), os.getpid() < 9)"
    )
    words = sandbox.command([sys.executable, "-c", script], [own], Bounds(hidden=(tmp_path / "state",)))
    done = subprocess.run(words, capture_output=True, text=True, cwd=own, check=False)
    assert done.stdout.split() == ["False", "['jobs']", "1", done.stdout.split()[3], "True"], done
    assert (own / "made").read_text() == "x"


def test_its_environment_holds_no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = (
        "AUTOSCHED_KEY",
        "AUTOSCHED_KEY_FILE",
        "PGPASSWORD",
        "SSH_AUTH_SOCK",
        "https_proxy",
        "AWS_SECRET_ACCESS_KEY",
    )
    for name in (*secrets, "LC_ALL", "LD_LIBRARY_PATH"):
        monkeypatch.setenv(name, "x")
    known = isolated_python.environment_apart({"HOME": "/job"})
    assert not set(secrets) & set(known)
    assert (known["HOME"], known["LC_ALL"], known["PATH"]) == ("/job", "x", os.environ["PATH"])
