"""A machine that systemd boots for a test, on an in-memory layer over this machine's files.

It runs none of this machine's services, and shares its network.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from terminal import PROMPT, Terminal

ROOT = Path(__file__).parents[1]
INSTALL_MAX_S = 500.0
"""Maximum time for the installation of packages, in seconds."""
PATH = "/opt/autosched/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Search path with the system's own Python: services cannot see one in a user's home."""
CONSOLE = """
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear --keep-baud 115200 - $TERM
"""
NEEDED = [
    pytest.mark.fetch,
    pytest.mark.skipif(
        shutil.which("systemd-nspawn") is None, reason="no systemd-nspawn: apt-get install systemd-container"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may boot a machine"),
]
"""Marks of tests with such a machine."""


def _do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, timeout=INSTALL_MAX_S)


@contextmanager
def _mounted(kind: str, where: Path, options: str) -> Iterator[Path]:
    """Mounts a file system until the end of the block."""
    where.mkdir()
    _do("mount", "-t", kind, "-o", options, "autosched-test", where)
    try:
        yield where
    finally:
        _do("umount", "--lazy", where)


@contextmanager
def files(folder: Path) -> Iterator[Path]:
    """Yields the root of the machine, with a wheel of this tree and the constraints in root's home."""
    with ExitStack() as mounts:
        layer = mounts.enter_context(_mounted("tmpfs", folder / "layer", "size=4g"))
        for name in ("upper", "work"):
            (layer / name).mkdir()
        layers = f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work"
        root = mounts.enter_context(_mounted("overlay", folder / "root", layers))
        for path in (root / "etc/systemd/system", root / "opt/autosched"):
            shutil.rmtree(path, ignore_errors=True)
        console = root / "etc/systemd/system/console-getty.service.d/autologin.conf"
        console.parent.mkdir(parents=True)
        console.write_text(CONSOLE)
        _do(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", root / "root", ROOT)
        shutil.copy(ROOT / "etc/constraints.txt", root / "root")
        yield root


@contextmanager
def booted(root: Path) -> Iterator[Terminal]:
    """Boots the machine; returns its console with root logged in."""
    words = ["--quiet", "--boot", "--register=no", "--keep-unit", "--console=interactive", f"--directory={root}"]
    console = Terminal("systemd-nspawn", *words, "--machine=autosched-test", folder=root.parent)
    try:
        console.wait(r"root@\S+# ")
        console.start(f"export PIP_FIND_LINKS=. SYSTEMD_PAGER=cat PATH={PATH}")
        console.type(f"PS1='{PROMPT[:2]}''{PROMPT[2:]}'")
        yield console
    finally:
        console.terminate()


def succeeds(machine: Terminal, line: str, within_s: float = DEADLINE_S) -> str:
    """Returns the output of a command, which must succeed."""
    said = machine.type(line, within_s)
    assert machine.type("echo $?").split()[-1] == "0", said
    return said
