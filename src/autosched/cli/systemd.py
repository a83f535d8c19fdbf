"""`autosched install-systemd`: writes the units that make the daemon a service of this machine."""

import subprocess
import sys
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import click
from msgspec import Struct

from autosched.cli.output import data, say
from autosched.errors import ConfigError
from autosched.wire.address import SERVICE

PLACES = {
    "autosched.service": "etc/systemd/system/autosched.service",
    "autosched.socket": "etc/systemd/system/autosched.socket",
    "autosched-console.socket": "etc/systemd/system/autosched-console.socket",
    "autosched-http.socket": "etc/systemd/system/autosched-http.socket",
    "autosched-agent.service": "etc/systemd/system/autosched-agent.service",
    "autosched-client@.service": "etc/systemd/system/autosched-client@.service",
    "sysusers.conf": "etc/sysusers.d/autosched.conf",
    "tmpfiles.conf": "etc/tmpfiles.d/autosched.conf",
}
SETTINGS = "etc/autosched/autosched.toml"
SHIPPED_BIN = "/opt/autosched/bin"
GROUP = "autosched-users"
OF_THE_SERVICE = {
    "state_dir": "/var/lib/autosched",
    "socket": SERVICE,
    "group": GROUP,
    "keys": "/etc/autosched/keys",
}
"""Settings of the service that differ from the defaults, which suit a single user."""
SETTLE = (
    ("systemd-sysusers", f"/{PLACES['sysusers.conf']}"),
    ("systemd-tmpfiles", "--create", f"/{PLACES['tmpfiles.conf']}"),
    ("systemctl", "daemon-reload"),
)
"""Commands that create the account and the folders, and make systemd read its new units."""
SETTLE_MAX_S = 60.0
BOOTED = Path("/run/systemd/system")
"""Exists if systemd runs (sd_booted)."""
HIDDEN = (Path("/home"), Path("/root"), Path("/run/user"), Path("/tmp"), Path("/var/tmp"))
"""Folders that ProtectHome= and PrivateTmp= hide from the service."""


class Change(Struct, frozen=True):
    """One file to be installed."""

    path: Path
    text: str

    @property
    def word(self) -> str:
        """The change of the file, in one word."""
        if not self.path.exists():
            return "new"
        if self.path.name == Path(SETTINGS).name:
            return "kept"  # its operator may have changed it
        return "same" if self.path.read_text() == self.text else "changed"


def shipped(name: str) -> str:
    """A file that belongs to autosched: in the package, or in the source tree."""
    tree = Path(__file__).parents[3]
    for path in (Path(str(files("autosched"))) / "systemd" / name, tree / "systemd" / name, tree / "etc" / name):
        if path.is_file():
            return path.read_text()
    raise ConfigError(f"this installation of autosched lacks its file {name}; install it again")


def settings() -> str:
    """All settings with their comments, with the service's values."""
    text = shipped("autosched.toml")
    for name, value in OF_THE_SERVICE.items():
        text = text.replace(f'\n{name} = ""\n', f'\n{name} = "{value}"\n', 1)  # the table [daemon] comes first
    return text


def changes(root: Path, bin: Path) -> Iterator[Change]:
    """All files below `root`, for the autosched in the folder `bin`."""
    for name, place in PLACES.items():
        yield Change(root / place, shipped(name).replace(SHIPPED_BIN, str(bin)))
    yield Change(root / SETTINGS, settings())


@click.command()
@click.option("--dry-run", is_flag=True, help="Only print what would be written.")
@click.option(
    "--root", type=click.Path(path_type=Path, file_okay=False), default=Path("/"), metavar="DIR",
    help="Write below this folder, to look at it or to make a package.",
)  # fmt: skip
def install(dry_run: bool, root: Path) -> None:
    """Make the daemon a service of this machine: units for systemd, its account, its settings.

    Writes files, creates the account and the folders they name, and starts nothing. Existing settings are kept.
    """
    bin = Path(sys.executable).absolute().parent
    if not (bin / "autosched").exists():
        raise ConfigError(
            f"there is no autosched in {bin}, beside this Python; install it there: pip install autosched"
        )
    for change in changes(root, bin):
        word = change.word
        data(f" {word:<8}{change.path}")
        if word in ("new", "changed") and not dry_run:
            _write(change)
    python = Path(sys.executable).resolve()
    for path, instead in ((bin, "install autosched below /opt"), (python, "make its venv with /usr/bin/python3")):
        if any(path.is_relative_to(folder) for folder in HIDDEN):
            say(f" ! {path} is hidden from services (ProtectHome=, PrivateTmp=): {instead}, then again")
    if dry_run:
        return say("Nothing was written.")
    settled = root.resolve() == Path("/") and BOOTED.is_dir()
    if settled:
        settle()
    for line in _next_steps(settled):
        say(line)


def settle() -> None:
    """Create what the files declare and the service needs. Raises ConfigError."""
    for words in SETTLE:
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=SETTLE_MAX_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ConfigError(f"{words[0]} cannot be run ({error}); run it yourself: {' '.join(words)}") from None
        if done.returncode:
            raise ConfigError(f"{' '.join(words)} failed: {done.stderr.strip()}; mend that, then install again")
        data(f" ran     {' '.join(words)}")


def _write(change: Change) -> None:
    try:
        for folder in reversed(change.path.parents):
            if not folder.exists():
                folder.mkdir()
                folder.chmod(0o755)  # whatever the umask of root: the service's account reads them
        change.path.write_text(change.text)
        change.path.chmod(0o644)
    except OSError as error:
        raise ConfigError(
            f"{change.path} cannot be written ({error.strerror}); be root, or choose another place: --root DIR"
        ) from None


def _next_steps(settled: bool) -> list[str]:
    return [
        "Next:",
        *([] if settled else ["  systemd-sysusers && systemd-tmpfiles --create && systemctl daemon-reload"]),
        "  systemctl enable --now autosched.service",
        f"  usermod -aG {GROUP} NAME      # lets NAME use it; counts from his next login",
        "  systemctl status autosched && autosched doctor",
    ]
