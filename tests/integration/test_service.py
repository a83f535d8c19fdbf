"""The daemon as a systemd service: its sockets exist before it, and it reports its state."""

import asyncio
import contextlib
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import pytest

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.errors import DaemonUnreachable
from autosched.protocol import DaemonInfo
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.whereabouts import WHEREABOUTS
from deadlines import DEADLINE_S
from integration.lab import MODEL, Lab, command_line
from terminal import bash

SOURCE = Path(__file__).parents[2]
INSTALL_MAX_S = 300.0

HAND_OVER = """
import os, sys
*fds, names = sys.argv[1].split(",")
for at, fd in enumerate(map(int, fds)):
    os.dup2(fd, 3 + at)
os.environ |= {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(len(fds)), "LISTEN_FDNAMES": names}
os.execv(sys.argv[2], sys.argv[2:])
"""
"""Program that does systemd's work between fork and exec."""


class Service:
    """A daemon with a service manager: its listeners, and its status messages."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.notify.bind(str(folder / "notify"))
        self.notify.settimeout(DEADLINE_S)
        self.unix, self.tcp = socket.socket(socket.AF_UNIX), socket.create_server(("127.0.0.1", 0))
        self.unix.bind(str(folder / "wire.sock"))
        self.unix.listen()
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *command: str) -> None:
        settings = self.folder / "autosched.toml"
        settings.write_text(f'[daemon]\nstate_dir = "{self.folder}/state"\n')
        command = command or (sys.executable, "-m", "autosched", "serve", "-c", str(settings))
        listeners = [self.unix.fileno(), self.tcp.fileno()]
        words = f"{listeners[0]},{listeners[1]},wire:wire"
        with (self.folder / "daemon.log").open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", HAND_OVER, words, *command],
                pass_fds=listeners,
                stderr=log,
                env={**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": "200000"},
            )

    def hears(self, *wanted: str) -> list[str]:
        """Returns all lines up to the message after which all of these were sent."""
        seen: list[str] = []
        until = time.monotonic() + DEADLINE_S
        while not set(wanted) <= set(seen):
            assert time.monotonic() < until, seen  # the watchdog is fed for ever, even if other messages are missing
            seen += self.notify.recv(4_096).decode().split("\n")
        return seen

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        return self.process.wait(DEADLINE_S)


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    if made.process is not None and made.process.poll() is None:
        made.end(signal.SIGKILL)
    for one in (made.notify, made.unix, made.tcp):
        one.close()


def info(address: str) -> DaemonInfo:
    async def ask() -> DaemonInfo:
        daemon = await Daemon.connect(address, timeout_s=DEADLINE_S)
        try:
            return await daemon.info()
        finally:
            daemon.close()

    return asyncio.run(ask())


def test_a_service_from_its_start_to_the_next_one(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    service.start()
    seen = service.hears("READY=1")
    assert seen[0].startswith("EXTEND_TIMEOUT_USEC=")  # first it asks for time to replay its journal
    service.hears("WATCHDOG=1", "STATUS=0 running, 0 waiting; host 0%, devices 1/1 up, 1 free")
    unix, tcp = f"unix:{service.folder}/wire.sock", f"tcp://127.0.0.1:{service.tcp.getsockname()[1]}"
    assert info(unix).address == unix
    monkeypatch.setenv(keys.VARIABLE, keyring.make(service.folder / "state/keys", Role.VIEWER)[0].line())
    assert info(tcp).address == unix  # the address for clients on this machine
    monkeypatch.delenv(keys.VARIABLE)

    assert service.process is not None
    service.process.send_signal(signal.SIGHUP)
    seen = service.hears("READY=1")
    assert any(line.startswith("MONOTONIC_USEC=") for line in seen)

    assert service.end() == 0
    service.hears("STOPPING=1", "STATUS=stops: SIGTERM")
    assert (service.folder / "wire.sock").exists()  # it is systemd's
    with pytest.raises(DaemonUnreachable, match=r"not answer|in time"):  # callers are not refused: they wait
        asyncio.run(Daemon.connect(unix, timeout_s=0.05))
    service.start()
    assert info(unix).jobs_total == 0


@pytest.mark.fetch
def test_the_documented_commands_install_a_service(service: Service, tmp_path: Path) -> None:
    """Runs on a machine without systemd; `make service` boots one."""
    home, root = tmp_path / "opt/autosched", tmp_path / "root"
    shell = bash(tmp_path)
    try:
        for line in (
            f"{quote(sys.executable)} -m venv {home}",
            f"{home}/bin/pip install -c {quote(str(SOURCE / 'etc/constraints.txt'))} {quote(str(SOURCE))}",
            f"{home}/bin/autosched install-systemd --root {root}",
        ):
            said = shell.type(line, INSTALL_MAX_S)
            assert shell.type("echo $?").split()[-1] == "0", said
        settings = root / "etc/autosched/autosched.toml"
        text = re.sub(r"^group = .*", "", settings.read_text(), flags=re.MULTILINE)
        for there, here in (("/var/lib/", f"{root}/"), ("/run/autosched/api", f"{tmp_path}/wire")):
            assert there in text
            text = text.replace(there, here)
        settings.write_text(text)
        unit = (root / "etc/systemd/system/autosched.service").read_text()
        (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
        service.start(*line.replace("/etc/autosched", f"{root}/etc/autosched").split())
        service.hears("READY=1", "STATUS=0 running, 0 waiting; host 0%, devices 1/1 up, 1 free")
        told = shell.type(f"{home}/bin/autosched --host unix:{tmp_path}/wire.sock status")
        assert "0 of 0 jobs active" in told
        page = json.loads((root / "autosched" / WHEREABOUTS).read_text())["page"]
        with urllib.request.urlopen(page, timeout=DEADLINE_S) as answer:
            assert b"<title>autosched" in answer.read(), "the page is in the wheel"
    finally:
        shell.close()
    assert service.end() == 0


# The agent ------------------------------------------------------------------------------------------------------------


def test_an_agent_runs_the_client_of_a_job(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cli = command_line(there, tmp_path, monkeypatch, capsys)
    (tmp_path / "net.onnx").write_bytes(MODEL)
    code, out, err = cli("submit", "net.onnx", "--backend", "mock", "--trials", 8, "--external")
    assert code == 0
    assert "AUTOSCHED_TOKEN=TOKEN python -m autosched.client" in err
    job, token = out.split()[-2:]
    unit = (Path(__file__).parents[2] / "systemd/autosched-client@.service").read_text()
    (line,) = re.findall(r"^ExecStart=(.+)$", unit, re.MULTILINE)
    known = {"/opt/autosched/bin/python": quote(sys.executable), "${AUTOSCHED_HOST}": there.address, "%i": job}
    for what, instead in (known | {"%S": str(tmp_path)}).items():
        line = line.replace(what, instead)
    environment = {**os.environ, "AUTOSCHED_TOKEN": token}
    with subprocess.Popen(shlex.split(line), env=environment, start_new_session=True) as agent:
        try:
            assert there.wait(int(job)).state == "done"
            assert agent.wait(DEADLINE_S) == 0  # systemd does not restart it
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(agent.pid, signal.SIGKILL)
    assert (tmp_path / f"autosched-client/{job}").is_dir()
