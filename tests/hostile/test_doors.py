"""Small doors: the console's port, the page's numbers, the state folder, a daemon that starts."""

import os
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import aiohttp
import pytest

from autosched.cli.command_table import run
from autosched.daemon import state_folder
from autosched.daemon.access import sockets
from autosched.errors import ConfigError, Refused
from deadlines import DEADLINE_S
from hostile.other_users import STRANGER, needs_root
from integration.lab import BOARD, Lab, lab
from integration.served import run as live
from integration.served import serving, signed_in


@pytest.mark.parametrize("method", ["POST", "GET", "OPTIONS", "post"])
def test_the_console_obeys_no_request_of_a_browser(tmp_path: Path, method: str) -> None:
    with lab(tmp_path, BOARD) as there, socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(tmp_path / "console.sock"))
        peer.settimeout(DEADLINE_S)
        peer.sendall(
            f"{method} / HTTP/1.1\r\nHost: 127.0.0.1:1\r\nContent-Length: 13\r\n\r\npause\r\nquit\r\n".encode()
        )
        heard = b""
        try:
            while piece := peer.recv(4_096):
                heard += piece
        except ConnectionResetError:
            pass
        assert b"OK" not in heard.partition(b"\n")[2]
        assert not there.ask(lambda daemon: daemon.info()).paused


@pytest.mark.parametrize("path", [f"/api/jobs?before={'9' * 5_000}", f"/api/jobs/{'9' * 5_000}", "/api/jobs?before=²"])
def test_a_number_without_end_is_a_mistake_of_the_caller(tmp_path: Path, path: str) -> None:
    async def work() -> None:
        async with serving(tmp_path) as served:
            assert served._page is not None
            headers = {"Authorization": f"Bearer {await signed_in(served)}"}
            async with aiohttp.ClientSession(served._page.url, headers=headers) as session, session.get(path) as answer:
                assert 400 <= answer.status < 500, await answer.text()

    live(work)


def test_what_a_key_is_made_in_is_private(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = tmp_path / "autosched.toml"
    settings.write_text(f'[daemon]\nstate_dir = "{tmp_path}/state"\n')
    mask = os.umask(0o022)
    try:
        assert run(["key", "new", "user", "alice", "-c", str(settings)]) == 0
    finally:
        os.umask(mask)
    assert "user:alice:" in capsys.readouterr().out
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "state/keys").stat().st_mode) == 0o700


def test_files_of_a_daemon_are_private_whatever_the_umask(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o755)
    (folder / "blobs").mkdir(mode=0o755)
    (folder / "records.db").touch(0o644)
    made = Lab(folder)
    mask = os.umask(0o022)
    try:
        made.start(BOARD)
    finally:
        os.umask(mask)
    made.wait(made.submit(trials=2))
    beside = {"autosched.toml", "daemon.log", "model.onnx"}  # the test's
    open_to_others = [
        path.name
        for path in folder.iterdir()
        if path.name not in beside and path.lstat().st_mode & 0o077 and not path.is_socket()
    ]
    assert open_to_others == []
    made.end(signal.SIGTERM)


def test_a_state_folder_that_others_may_write_is_closed_or_told_with_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(path: Path, mode: int) -> None:
        raise PermissionError(1, "not permitted")

    tmp_path.chmod(0o1777)
    with monkeypatch.context() as others:
        others.setattr(Path, "chmod", refuses)
        state_folder.close_to_others(tmp_path)
        assert f"chmod go-w {tmp_path}" in state_folder.exposed(tmp_path)
    state_folder.close_to_others(tmp_path)
    assert state_folder.exposed(tmp_path) == ""
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o1755


@needs_root
def test_a_state_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.chown(tmp_path, STRANGER, -1)
    monkeypatch.setattr(os, "geteuid", lambda: STRANGER + 1)
    with pytest.raises(ConfigError, match=f"belongs to uid {STRANGER}.*chown {STRANGER + 1}"):
        state_folder.check_owner(tmp_path)


def test_a_daemon_that_still_starts_is_not_taken_for_dead(tmp_path: Path) -> None:
    first = sockets.bind_unix(tmp_path / "api.sock")
    with first, pytest.raises(Refused, match="another daemon answers"):
        sockets.bind_unix(tmp_path / "api.sock")
    sockets.bind_unix(tmp_path / "api.sock").close()


def test_a_second_daemon_leaves_the_socket_of_the_first(tmp_path: Path) -> None:
    with lab(tmp_path, BOARD) as there:
        other = tmp_path / "other.toml"
        other.write_text(f'[daemon]\nstate_dir = "{tmp_path}/other"\nsocket = "{tmp_path}/api.sock"\n')
        command = [sys.executable, "-m", "autosched", "serve", "-c", str(other)]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)
        assert (ended.returncode, "another daemon answers" in ended.stderr) == (5, True)
        assert there.ask(lambda daemon: daemon.info()).pid > 0
