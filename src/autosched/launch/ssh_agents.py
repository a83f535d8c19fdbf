"""Agents on machines reached by ssh: installed there in a separate environment, and run by systemd."""

import re
import shlex
import subprocess
from pathlib import Path

from msgspec import Struct

from autosched.errors import RequestError
from autosched.version import __version__

INSTALL_S = 1_800.0
"""Maximum seconds of installing autosched on a machine."""
ADDRESS = re.compile(
    r"ssh://(?:(?P<user>[A-Za-z0-9_][A-Za-z0-9_.-]*)@)?(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)(?::(?P<port>[0-9]{1,5}))?"
)
SCRIPT = """\
set -eu
umask 077
say() {{ echo "autosched: $*" >&2; }}
home="${{XDG_DATA_HOME:-$HOME/.local/share}}/autosched"
python="$home/venv/bin/python"
mkdir -p "$home"
command -v systemd-run >/dev/null || {{ say "there is no systemd-run: start the agent by hand"; exit 3; }}
if [ ! -x "$python" ]; then
  python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' || {{ say "it needs Python 3.11 or newer"; exit 3; }}
  python3 -m venv "$home/venv" || {{ say "python3 -m venv failed: install python3-venv"; exit 3; }}
fi
there=$("$python" -c 'import importlib.metadata as m; print(m.version("autosched"))' 2>/dev/null || true)
if [ "$there" != {version} ]; then
  say "installs autosched, which takes some minutes"
  "$python" -m pip --disable-pip-version-check -q install {requirement} >&2
fi
cat >"$home/agent.key" <<'END-OF-KEY'
{key}
END-OF-KEY
user=--user
[ "$(id -u)" != 0 ] || user=--system
systemctl "$user" stop autosched-agent 2>/dev/null || true
systemctl "$user" reset-failed autosched-agent 2>/dev/null || true
[ "$user" = --system ] || loginctl enable-linger 2>/dev/null || say "it ends when you log out: loginctl enable-linger"
systemd-run "$user" --quiet --unit=autosched-agent --property=Restart=on-failure --property=RestartSec=1 \\
  --property=KillMode=process --property=TimeoutStopSec=40 \\
  "$home/venv/bin/autosched" agent --daemon {address} --name {name} --key "$home/agent.key"
"""
"""Shell script for the machine. It contains the key, and is therefore sent over standard input, so that no process list
shows it."""


class Machine(Struct, frozen=True):
    """A machine that ssh reaches."""

    host: str
    user: str = ""
    port: str = ""

    @property
    def name(self) -> str:
        """Default name of the machine in the lab: the first label of its domain name, or its IP address."""
        label = self.host.partition(".")[0]
        return self.host if label.isdecimal() else label

    @property
    def command(self) -> list[str]:
        """The command that runs a shell on the machine."""
        where = f"{self.user}@{self.host}" if self.user else self.host
        return ["ssh", *(["-p", self.port] if self.port else []), where, "sh", "-s"]


def machine(address: str) -> Machine:
    """Read ssh://USER@HOST:PORT. Raises RequestError."""
    if (found := ADDRESS.fullmatch(address)) is None:
        raise RequestError(f"{address!r} is no address for ssh. Write ssh://USER@HOST or ssh://USER@HOST:PORT")
    return Machine(found["host"], found["user"] or "", found["port"] or "")


def script(address: str, key: str, name: str, requirement: str = "") -> str:
    """Return the script that installs and starts an agent. `address`: at which it reaches the daemon."""
    words = {
        "address": address, "name": name, "version": __version__,
        "requirement": requirement or f"autosched[tvm,onnxruntime]=={__version__}",
    }  # fmt: skip
    if "END-OF-KEY" in key:
        raise RequestError("this is no key")
    return SCRIPT.format(key=key.strip(), **{name: shlex.quote(word) for name, word in words.items()})


def add(there: Machine, text: str) -> None:
    """Run a script on a machine; its output goes to this process' standard error. Raises RequestError."""
    try:
        ended = subprocess.run(there.command, input=text.encode(), timeout=INSTALL_S)
    except FileNotFoundError:
        raise RequestError("there is no ssh here: start the agent there by hand, see docs/fleet.md") from None
    except subprocess.TimeoutExpired:
        raise RequestError(f"{there.host} did not finish within {INSTALL_S:g} s: try again") from None
    if ended.returncode == 255:
        raise RequestError(f"ssh does not get to {there.host}: try  {' '.join(there.command[:-2])} true")
    if ended.returncode:
        raise RequestError(f"no agent runs on {there.host}: its last words are above (exit code {ended.returncode})")


def key_of(path: Path) -> str:
    """Read the key in a file. Raises RequestError."""
    try:
        return path.read_text()
    except OSError as error:
        raise RequestError(
            f"the key {path} cannot be read ({error.strerror}). Make one:  autosched key new agent NAME"
        ) from None
