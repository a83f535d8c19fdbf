"""Agents on machines that ssh reaches."""

import os
import subprocess
import sys
from pathlib import Path
from shlex import quote

import pytest

from autosched.errors import RequestError
from autosched.launch import ssh_agents
from autosched.launch.ssh_agents import Machine, machine, script
from autosched.version import __version__

KEY = "agent:lab2:secret\n"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("ssh://me@lab2", ["ssh", "me@lab2", "sh", "-s"]),
        ("ssh://lab2.example.org:2222", ["ssh", "-p", "2222", "lab2.example.org", "sh", "-s"]),
    ],
)
def test_an_address(address: str, expected: list[str]) -> None:
    assert machine(address).command == expected


@pytest.mark.parametrize(
    ("address", "name"), [("lab2", "lab2"), ("lab2.example.org", "lab2"), ("192.0.2.7:22", "192.0.2.7")]
)
def test_name_of_a_machine_is_its_label_or_its_address(address: str, name: str) -> None:
    assert machine(f"ssh://{address}").name == name


@pytest.mark.parametrize("address", ["lab2", "ssh://", "ssh://-oProxyCommand=x", "ssh://me@lab2;reboot", "ssh://a b"])
def test_what_is_no_address(address: str) -> None:
    with pytest.raises(RequestError, match="is no address for ssh"):
        machine(address)


@pytest.fixture
def there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine reached by ssh, with autosched; its programs log their calls."""
    programs = {
        "ssh": 'shift; exec "$@"',
        "systemctl": f'echo "systemctl $*" >> {tmp_path}/log',
        "loginctl": "exit 1",
        "systemd-run": f'for word; do echo "$word" >> {tmp_path}/run; done',
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    venv = tmp_path / "data/autosched/venv/bin"
    venv.mkdir(parents=True)
    notes_pip = f'[ "$2" = pip ] && echo "$@" >> {tmp_path}/log && exit 0'
    (venv / "python").write_text(f'#!/bin/sh\n{notes_pip}\nexec {quote(sys.executable)} "$@"\n')
    (venv / "python").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    return tmp_path


def test_an_agent_is_started_with_its_key(there: Path) -> None:
    ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "lab two"))
    key = there / "data/autosched/agent.key"
    assert (key.read_text(), key.stat().st_mode & 0o777) == (KEY, 0o600)
    words = (there / "run").read_text().splitlines()
    assert words[-8:] == [
        str(there / "data/autosched/venv/bin/autosched"), "agent", "--daemon", "tls://lab:7433", "--name", "lab two",
        "--key", str(key),
    ]  # fmt: skip
    assert "--property=KillMode=process" in words
    assert "secret" not in " ".join(words)
    assert "pip" not in (there / "log").read_text(), "the same version is there already"


def test_another_version_is_replaced(there: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ssh_agents, "__version__", "99.0")
    ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "lab2"))
    assert "install autosched[tvm,onnxruntime]==99.0" in (there / "log").read_text()
    ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "lab2", "/srv/a wheel.whl"))
    assert "install /srv/a wheel.whl" in (there / "log").read_text()


def test_words_of_users_are_no_commands(there: Path) -> None:
    ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "$(touch bad); touch bad"))
    assert not (Path.cwd() / "bad").exists()
    assert "$(touch bad); touch bad" in (there / "run").read_text()
    with pytest.raises(RequestError, match="this is no key"):
        script("tls://lab:7433", "x\nEND-OF-KEY\nreboot", "lab2")


@pytest.mark.parametrize(
    ("ssh", "said"),
    [("exit 255", "ssh does not get to lab2: try  ssh lab2 true"), ("exit 3", "no agent runs on lab2.*exit code 3")],
)
def test_what_fails_is_told(there: Path, ssh: str, said: str) -> None:
    (there / "ssh").write_text(f"#!/bin/sh\n{ssh}\n")
    with pytest.raises(RequestError, match=said):
        ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "lab2"))


def test_a_machine_without_systemd_is_told(
    there: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (there / "systemd-run").unlink()
    for name in ("sh", "mkdir"):
        (there / name).symlink_to(subprocess.check_output(["which", name], text=True).strip())
    monkeypatch.setenv("PATH", str(there))
    with pytest.raises(RequestError, match="exit code 3"):
        ssh_agents.add(Machine("lab2"), script("tls://lab:7433", KEY, "lab2"))
    assert "there is no systemd-run" in capfd.readouterr().err


def test_the_version_is_this_one() -> None:
    assert f"autosched[tvm,onnxruntime]=={__version__}" in script("tls://lab:7433", KEY, "lab2")


def test_a_key_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="autosched key new agent NAME"):
        ssh_agents.key_of(tmp_path / "nowhere")
