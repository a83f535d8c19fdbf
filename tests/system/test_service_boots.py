"""An operator's first lines, typed at the console of a machine that systemd boots for them: `make service`.

The machine has this one's files below a layer in memory, which goes with it, and none of its services.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from deadlines import DEADLINE_S
from nets import conv_net
from terminal import PROMPT, Terminal

onnx = pytest.importorskip("onnx")
pytestmark = [
    pytest.mark.fetch,
    pytest.mark.skipif(
        shutil.which("systemd-nspawn") is None, reason="no systemd-nspawn: apt-get install systemd-container"
    ),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may boot a machine"),
]

ROOT = Path(__file__).parents[2]
INSTALL_MAX_S = 500.0
PATH = "/opt/autosched/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""With the system's own Python: one in a user's home is hidden from services."""
CONSOLE = """
[Service]
ExecStart=
ExecStart=-/sbin/agetty --autologin root --noclear --keep-baud 115200 - $TERM
"""


def do(*words: object) -> None:
    subprocess.run([str(word) for word in words], check=True, timeout=INSTALL_MAX_S)


@contextmanager
def mounted(kind: str, where: Path, options: str) -> Iterator[Path]:
    """Something mounted, until the end."""
    where.mkdir()
    do("mount", "-t", kind, "-o", options, "autosched-test", where)
    try:
        yield where
    finally:
        do("umount", "--lazy", where)


@contextmanager
def files(folder: Path) -> Iterator[Path]:
    """The root of the machine-to-be."""
    with ExitStack() as mounts:
        layer = mounts.enter_context(mounted("tmpfs", folder / "layer", "size=4g"))
        for name in ("upper", "work"):
            (layer / name).mkdir()
        layers = f"lowerdir=/,upperdir={layer}/upper,workdir={layer}/work"
        root = mounts.enter_context(mounted("overlay", folder / "root", layers))
        for path in (root / "etc/systemd/system", root / "opt/autosched"):
            shutil.rmtree(path, ignore_errors=True)
        console = root / "etc/systemd/system/console-getty.service.d/autologin.conf"
        console.parent.mkdir(parents=True)
        console.write_text(CONSOLE)
        yield root


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Terminal]:
    """Its console, where root has logged in beside a wheel of this tree and the constraints."""
    with files(tmp_path) as root:
        do(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", root / "root", ROOT)
        shutil.copy(ROOT / "etc/constraints.txt", root / "root")
        onnx.save(conv_net(), root / "root/net.onnx")
        words = ["--quiet", "--boot", "--register=no", "--keep-unit", "--console=interactive", f"--directory={root}"]
        console = Terminal("systemd-nspawn", *words, "--machine=autosched-test", folder=tmp_path)
        try:
            console.wait(r"root@\S+# ")
            console.start(f"export PIP_FIND_LINKS=. SYSTEMD_PAGER=cat PATH={PATH}")
            console.type(f"PS1='{PROMPT[:2]}''{PROMPT[2:]}'")
            yield console
        finally:
            console.terminate()


def succeeds(machine: Terminal, line: str, within_s: float = DEADLINE_S) -> str:
    """Output of the line, which must not fail."""
    said = machine.type(line, within_s)
    assert machine.type("echo $?").split()[-1] == "0", said
    return said


def test_the_service_is_installed_started_and_served_as_it_is_written(machine: Terminal) -> None:
    succeeds(machine, "apt-get install -y python3-venv gcc libc6-dev", INSTALL_MAX_S)
    pip = "/opt/autosched/bin/pip install -c constraints.txt 'autosched[tvm]'"
    succeeds(machine, f"python3 -m venv /opt/autosched && {pip}", INSTALL_MAX_S)
    succeeds(machine, "/opt/autosched/bin/autosched install-systemd")
    said = succeeds(machine, "systemctl enable --now autosched && systemctl status autosched")
    assert "Active: active (running)" in said
    assert re.search(r'Status: "0 running, 0 waiting; host +\d+%, devices \d/\d up', said), said
    assert "WARN" not in said

    checked = succeeds(machine, "autosched doctor")
    assert "TVM, kernel: compiled, linked, run, right" in " ".join(checked.split())
    succeeds(machine, "autosched tune net.onnx --trials 8", INSTALL_MAX_S)
    succeeds(machine, "systemctl reload autosched")
    job = succeeds(machine, "autosched submit net.onnx --backend mock --option build_s=0.5 --trials 64").split()
    assert "2" in job
    succeeds(machine, "kill -9 $(systemctl show --property MainPID --value autosched)")
    assert "done" in succeeds(machine, "autosched wait 2 && autosched job 2")
    assert succeeds(machine, "systemctl show --property NRestarts --value autosched").split()[-1] == "1"
    succeeds(machine, "autosched db backup backup.db")
