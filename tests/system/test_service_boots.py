"""An operator's first commands, typed at the console of a machine that systemd boots: `make service`."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import booted_machine
from booted_machine import INSTALL_MAX_S, succeeds
from nets import conv_net
from terminal import Terminal

onnx = pytest.importorskip("onnx")
pytestmark = booted_machine.NEEDED


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Terminal]:
    """The console of a machine with a network in root's home."""
    with booted_machine.files(tmp_path) as root:
        onnx.save(conv_net(), root / "root/net.onnx")
        with booted_machine.booted(root) as console:
            yield console


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
