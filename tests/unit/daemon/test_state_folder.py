"""Lock, sockets and service manager: a used folder is refused with a message, remains of a dead daemon are replaced."""

import asyncio
import contextlib
import gc
import os
import resource
import socket
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.daemon import environment, state_folder
from autosched.daemon.access import sockets
from autosched.errors import ConfigError, Refused
from autosched.wire import whereabouts
from autosched.wire.whereabouts import Whereabouts


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    opened: list[socket.socket] = []
    yield opened
    for one in opened:
        one.close()


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "then"),
    [(1_024, 20_000, 5_000, 6_024), (1_024, 4_096, 5_000, 4_096), (8_000, 20_000, 5_000, None),
     (1_024, resource.RLIM_INFINITY, 5_000, 6_024), (resource.RLIM_INFINITY, resource.RLIM_INFINITY, 5_000, None),
     (1_024, 1_024, 5_000, None)],
)  # fmt: skip
def test_so_many_connections_may_be_open_as_the_settings_say(
    soft: int, hard: int, wanted: int, then: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_to: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda which, limits: set_to.append(limits))
    environment.allow_connections(wanted)
    assert set_to == ([(then, hard)] if then is not None else [])


def test_too_few_files_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda which: (16, 16))
    with pytest.raises(ConfigError, match=r"may open 16 files at once .* ulimit -n 2024"):
        environment.allow_connections(1_000)


@pytest.mark.parametrize("known", [None, "1"])
def test_proc_of_other_processes_is_refused(tmp_path: Path, known: str | None) -> None:
    environment.check_proc()
    if known is not None:
        (tmp_path / "self").symlink_to(known)
    with pytest.raises(ConfigError, match="mount -t proc"):
        environment.check_proc(tmp_path)


def test_a_state_folder_has_one_daemon(tmp_path: Path) -> None:
    lock = state_folder.take_state_dir(tmp_path / "state")
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o700
    whereabouts.write(tmp_path / "state", Whereabouts(77, "0.1", ("unix:/s",), "now"))
    with pytest.raises(Refused, match=r"process 77, at unix:/s"):
        state_folder.take_state_dir(tmp_path / "state")
    os.close(lock)
    os.close(state_folder.take_state_dir(tmp_path / "state"))


def test_a_state_folder_that_cannot_be_made_is_the_operators_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"daemon\.state_dir"):
        state_folder.take_state_dir(tmp_path / "file" / "state")


def test_the_socket_is_for_this_user_only(tmp_path: Path, listening: list[socket.socket]) -> None:
    listening.append(sockets.bind_unix(tmp_path / "run" / "api.sock"))
    assert stat.S_IMODE((tmp_path / "run" / "api.sock").stat().st_mode) == 0o600


def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path, listening: list[socket.socket]) -> None:
    path = tmp_path / "api.sock"
    dead = sockets.bind_unix(path)
    dead.listen()
    dead.close()
    assert path.exists()
    listening.append(sockets.bind_unix(path))
    listening[0].listen()
    probe = socket.socket(socket.AF_UNIX)
    listening.append(probe)
    probe.connect(str(path))


def test_the_socket_of_a_live_daemon_is_left_alone(tmp_path: Path, listening: list[socket.socket]) -> None:
    path = tmp_path / "api.sock"
    listening.append(sockets.bind_unix(path))
    listening[0].listen()
    with pytest.raises(Refused, match="another daemon answers"):
        sockets.bind_unix(path)
    assert path.exists()


def test_a_daemon_that_ends_removes_its_own_socket_only(tmp_path: Path, listening: list[socket.socket]) -> None:
    path = tmp_path / "api.sock"
    with contextlib.ExitStack() as held:
        sockets.own_unix(path, held)
    assert not path.exists()
    with contextlib.ExitStack() as held:
        sockets.own_unix(path, held)
        path.unlink()  # with the state folder; the next daemon makes both again
        listening.append(sockets.bind_unix(path))
    assert path.exists()


def test_a_daemon_that_ends_removes_its_own_whereabouts_only(tmp_path: Path) -> None:
    whereabouts.remove(tmp_path)
    whereabouts.write(tmp_path, Whereabouts(os.getpid() + 1, "0.1", ("unix:/s",), "now"))
    whereabouts.remove(tmp_path)
    assert (tmp_path / whereabouts.WHEREABOUTS).exists()
    whereabouts.write(tmp_path, Whereabouts(os.getpid(), "0.1", ("unix:/s",), "now"))
    whereabouts.remove(tmp_path)
    assert not (tmp_path / whereabouts.WHEREABOUTS).exists()


def test_a_file_in_the_place_of_the_socket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "api.sock").write_text("mine")
    with pytest.raises(ConfigError, match="is not a socket"):
        sockets.bind_unix(tmp_path / "api.sock")
    assert (tmp_path / "api.sock").read_text() == "mine"


def test_a_path_too_long_for_a_socket_is_the_operators_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"File name too long.*set daemon.socket"):
        sockets.bind_unix(tmp_path / ("x" * 120))


def test_a_taken_port_is_named(listening: list[socket.socket]) -> None:
    listening.append(sockets.bind_tcp("daemon.listen", "127.0.0.1", 0))
    address = sockets.tcp_address(listening[0])
    with pytest.raises(ConfigError, match=r"daemon\.listen: 127\.0\.0\.1:\d+ cannot be used .*in use"):
        sockets.bind_tcp("daemon.listen", "127.0.0.1", int(address.rpartition(":")[2]))


def test_an_unknown_host_name_is_not_blamed_on_the_port() -> None:
    with pytest.raises(ConfigError, match=r"daemon\.listen: 'no such host' cannot be resolved .* 127\.0\.0\.1"):
        sockets.bind_tcp("daemon.listen", "no such host", 0)


def test_what_is_there_at_the_start_is_spared_until_the_end() -> None:
    with contextlib.ExitStack() as held:
        environment.spare_the_collector(held)
        assert gc.get_freeze_count() > 1_000
    assert gc.get_freeze_count() == 0


@pytest.mark.parametrize(("active", "decided", "looks"), [({}, 1, True), ({1: 1}, 1, False), ({}, 0, False)])
def test_garbage_is_collected_when_no_job_is_active(
    active: dict[int, int], decided: int, looks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Node:
        me: "Node"

    async def work() -> None:
        decisions = iter((5, 5 + decided, 5 + decided))
        tidy = asyncio.ensure_future(environment.collect_when_idle(active, lambda: next(decisions, 5 + decided)))
        await asyncio.sleep(0)
        node = Node()
        node.me, gone = node, weakref.ref(node)
        gc.freeze()
        del node
        for _ in range(5):
            await asyncio.sleep(0)
        tidy.cancel()
        assert (gone() is None) is looks

    monkeypatch.setattr(environment, "IDLE_EVERY_S", 0.0)
    gc.disable()
    try:
        asyncio.run(work())
    finally:
        gc.unfreeze()
        gc.enable()


def test_a_socket_with_a_long_path_is_named_by_that_path(tmp_path: Path) -> None:
    path = tmp_path / ("x" * 60) / ("y" * 60) / "api.sock"
    with sockets.bind_unix(path) as listener:
        assert sockets.unix_address(listener) == f"unix:{path}"
