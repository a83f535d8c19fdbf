"""Unix sockets with long paths."""

import os
import socket
from pathlib import Path

import pytest

from autosched.wire import unix_sockets


@pytest.mark.parametrize("length", [20, 107, 108, 400])
def test_a_socket_is_served_and_reached_at_a_path_of_any_length(tmp_path: Path, length: int) -> None:
    folder = tmp_path
    while len(os.fsencode(folder)) + 10 < length:
        folder = folder / ("ü" * 20)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "s.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        with unix_sockets.short(path) as name:
            server.bind(name)
        server.listen()
        assert path.is_socket()
        with unix_sockets.short(path) as name:
            client.connect(name)
        accepted, _ = server.accept()
        accepted.close()


def test_no_descriptor_is_left(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    before = len(os.listdir("/proc/self/fd"))
    with unix_sockets.short(folder / "s") as name:
        assert len(name) < 40
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_missing_folder_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), unix_sockets.short(tmp_path / ("x" * 120) / "s"):
        raise AssertionError("not reached")
