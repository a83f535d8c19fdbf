"""The units: systemd accepts them as installed, they confine jobs, and name existing files."""

import configparser
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from autosched import config
from autosched.cli import systemd
from autosched.cli.command_table import run
from autosched.daemon import service_manager
from autosched.errors import ConfigError
from deadlines import DEADLINE_S

ROOT = Path(__file__).parents[3]
UNITS = sorted(name for name in systemd.PLACES if not name.endswith(".conf"))
EXPOSURE_MAX = {"autosched.service": 30, "autosched-agent.service": 30, "autosched-client@.service": 15}
"""Maximum exposure in tenths, as systemd-analyze counts. Services that run jobs apart may make namespaces."""
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="no systemd-analyze: apt-get install systemd"
)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A machine's root after the command."""
    bin = tmp_path / "opt/autosched/bin"
    bin.mkdir(parents=True)
    for name in ("autosched", "python"):
        (bin / name).symlink_to(sys.executable)
    monkeypatch.setattr(sys, "executable", str(bin / "python"))
    assert run(["install-systemd", "--root", str(tmp_path)]) == 0
    capsys.readouterr()
    return tmp_path


def test_the_account_of_the_service_can_read_all_files_whatever_the_umask(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = os.umask(0o077)
    try:
        assert run(["install-systemd", "--root", str(tmp_path)]) == 0
    finally:
        os.umask(before)
    capsys.readouterr()
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    folders = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_dir()}
    assert (modes, folders) == ({0o644}, {0o755})


def analyze(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *map(str, words)], capture_output=True, text=True, timeout=DEADLINE_S)


@needs_systemd
def test_systemd_accepts_the_units(installed: Path) -> None:
    units = [installed / systemd.PLACES[name] for name in UNITS]
    done = analyze("verify", "--man=no", "--recursive-errors=no", *[str(u).replace("@.", "@7.") for u in units])
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@needs_systemd
@pytest.mark.parametrize("name", [name for name in UNITS if name.endswith(".service")])
def test_jobs_are_kept_in(installed: Path, name: str) -> None:
    done = analyze("security", "--offline=true", f"--threshold={EXPOSURE_MAX[name]}", installed / systemd.PLACES[name])
    assert done.returncode == 0, done.stdout[-200:]


def sections(name: str) -> configparser.RawConfigParser:
    """Returns a unit; of repeated keys, the last value."""
    parser = configparser.RawConfigParser(strict=False, delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(systemd.shipped(name))
    return parser


def test_units_run_the_command_of_this_installation(installed: Path) -> None:
    text = (installed / systemd.PLACES["autosched.service"]).read_text()
    assert f"ExecStart={installed}/opt/autosched/bin/autosched serve -c /etc/autosched/autosched.toml" in text
    assert run(["serve", "--help"]) == 0


def test_sockets_have_the_names_and_the_address_that_daemon_and_users_expect() -> None:
    for name in UNITS:
        if name.endswith(".socket"):
            assert sections(name)["Socket"]["FileDescriptorName"] in service_manager.LISTENERS
    assert sections("autosched.socket")["Socket"]["ListenStream"] == systemd.OF_THE_SERVICE["socket"]
    assert sections("autosched.socket")["Socket"]["SocketGroup"] == systemd.OF_THE_SERVICE["group"]
    passed = sections("autosched.service")["Service"]["Sockets"].split()
    assert sorted(passed) == [name for name in UNITS if name.endswith(".socket")]
    console = config.parse(systemd.settings(), "x").console_socket
    assert sections("autosched-console.socket")["Socket"]["ListenStream"] == str(console)


def test_the_settings_of_the_service_are_the_defaults_with_some_changes(installed: Path) -> None:
    path = installed / systemd.SETTINGS
    ours = tomllib.loads(path.read_text())
    theirs = tomllib.loads((ROOT / "etc/autosched.toml").read_text())
    assert ours == theirs | {"daemon": theirs["daemon"] | systemd.OF_THE_SERVICE}
    assert config.load(path).state_dir == Path("/var/lib/autosched")


def test_folders_of_the_units_are_created() -> None:
    made = set(re.findall(r"^d (\S+)", systemd.shipped("tmpfiles.conf"), re.MULTILINE))
    named = {
        path
        for name in UNITS
        for path in re.findall(r"^(?:LoadCredential=\w+:|EnvironmentFile=)(\S+)", systemd.shipped(name), re.MULTILINE)
    }
    assert named
    assert not [path for path in named if path not in made and str(Path(path).parent) not in made]
    assert str(Path(systemd.OF_THE_SERVICE["socket"]).parent) in made
    assert systemd.OF_THE_SERVICE["keys"] in named


def test_accounts_of_the_units_are_created() -> None:
    made = dict(re.findall(r"^([ug]) (\S+)", systemd.shipped("sysusers.conf"), re.MULTILINE))
    assert made == {"g": systemd.GROUP, "u": sections("autosched.service")["Service"]["User"]}


def test_a_second_time_changes_nothing_and_keeps_the_settings(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (installed / systemd.SETTINGS).write_text("# mine\n")
    unit = installed / systemd.PLACES["autosched.socket"]
    unit.write_text("# old\n")
    assert run(["install-systemd", "--dry-run", "--root", str(installed)]) == 0
    said = capsys.readouterr()
    words = [line.split()[0] for line in said.out.splitlines()]
    assert words == ["same", "changed", *["same"] * (len(systemd.PLACES) - 2), "kept"]
    assert "Nothing was written" in said.err
    assert unit.read_text() == "# old\n"
    assert run(["install-systemd", "--root", str(installed)]) == 0
    assert unit.read_text() != "# old\n"
    assert (installed / systemd.SETTINGS).read_text() == "# mine\n"
    said = capsys.readouterr()
    assert "systemctl enable --now autosched.service" in said.err
    assert "is hidden from services" in said.err  # the tests' folder is in /tmp


def test_on_a_running_machine_accounts_and_folders_are_created_and_units_reloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("systemd-sysusers", "systemd-tmpfiles", "systemctl"):
        (tmp_path / name).write_text(
            '#!/bin/sh\necho "${0##*/} $*" >>"${0%/*}/log"; [ "$1" != fails ] || { echo no >&2; exit 1; }\n'
        )
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    systemd.settle()
    ran = (tmp_path / "log").read_text()
    assert ran == "".join(f"{' '.join(words)}\n" for words in systemd.SETTLE)
    assert capsys.readouterr().out == "".join(f" ran     {line}\n" for line in ran.splitlines())
    monkeypatch.setattr(systemd, "SETTLE", (("systemctl", "fails"),))
    with pytest.raises(ConfigError, match="systemctl fails failed: no; mend that"):
        systemd.settle()
    monkeypatch.setattr(systemd, "SETTLE", (("no-such-program",),))
    with pytest.raises(ConfigError, match="run it yourself: no-such-program"):
        systemd.settle()


def test_a_python_that_services_cannot_see_is_named(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    python = Path(sys.executable).resolve()
    monkeypatch.setattr(systemd, "HIDDEN", (python.parent,))
    assert run(["install-systemd", "--dry-run", "--root", str(installed)]) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "hidden" in line]
    assert said.startswith(f" ! {python} is hidden from services")
    assert "make its venv with /usr/bin/python3" in said


def test_without_permission_the_error_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "etc").write_text("a file")
    assert run(["install-systemd", "--root", str(tmp_path)]) == 2
    assert "be root, or choose another place: --root DIR" in capsys.readouterr().err


def test_the_wheel_contains_the_units() -> None:
    included = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert included["force-include"] == {
        "systemd": "autosched/systemd",
        "etc/autosched.toml": "autosched/systemd/autosched.toml",
    }
    for name in (*systemd.PLACES, "autosched.toml"):
        assert systemd.shipped(name)
