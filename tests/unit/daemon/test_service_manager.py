"""Messages to systemd, and the listeners that it passes."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.daemon import service_manager
from autosched.daemon.service_manager import Manager, passed_listeners
from autosched.daemon.storage.journal import Journal
from autosched.errors import ConfigError
from deadlines import DEADLINE_S


class Systemd:
    """The other end of the notify socket."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.settimeout(DEADLINE_S)
        self.socket.bind(str(path))
        self.environment = {"NOTIFY_SOCKET": str(path), "WATCHDOG_USEC": "20000", "WATCHDOG_PID": str(os.getpid())}

    def hears(self) -> list[str]:
        """Returns the lines of the next message."""
        return self.socket.recv(4_096).decode().split("\n")

    def hears_nothing_more(self) -> bool:
        self.socket.setblocking(False)
        try:
            return not self.socket.recv(4_096)
        except BlockingIOError:
            return True


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[Systemd]:
    there = Systemd(tmp_path / "notify")
    with there.socket:
        yield there


def test_a_message_is_one_datagram(systemd: Systemd) -> None:
    manager = Manager(systemd.environment)
    manager.tell("READY=1", "STATUS=all is well")
    assert systemd.hears() == ["READY=1", "STATUS=all is well"]


def test_clients_inherit_nothing_of_it(systemd: Systemd) -> None:
    Manager(systemd.environment)
    assert not systemd.environment


def test_without_a_manager_nothing_is_told() -> None:
    manager = Manager({})
    assert not manager
    manager.tell("READY=1")
    with manager.starting("reads"):
        pass


def test_a_manager_that_is_gone_is_no_reason_to_fail(tmp_path: Path) -> None:
    Manager({"NOTIFY_SOCKET": str(tmp_path / "gone")}).tell("READY=1")


def test_a_socket_without_a_file_is_told_too() -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as there:
        there.bind("")  # the kernel chooses an abstract name
        address = there.getsockname().decode()
        there.settimeout(DEADLINE_S)
        Manager({"NOTIFY_SOCKET": "@" + address[1:]}).tell("READY=1")
        assert there.recv(100) == b"READY=1"


@pytest.mark.parametrize(
    ("limit_us", "whom", "every_s"),
    [
        ("30000000", "", 15.0),
        pytest.param("30000000", str(os.getpid()), 15.0, id="this process"),
        ("30000000", "1", None),
        ("0", "", None),
        ("x", "", None),
    ],
)
def test_the_watchdog_is_fed_twice_in_its_time(limit_us: str, whom: str, every_s: float | None) -> None:
    assert Manager({"WATCHDOG_USEC": limit_us, "WATCHDOG_PID": whom}).feed_s == every_s


def test_a_long_replay_asks_systemd_for_time(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "EXTEND_EVERY_S", 0.001)
    with Manager(systemd.environment).starting("reads its past"):
        for _ in range(3):
            assert systemd.hears() == ["EXTEND_TIMEOUT_USEC=30000000", "STATUS=reads its past"]


def test_it_asks_for_an_hour_at_most(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "STARTING_MAX_S", -1.0)
    with Manager(systemd.environment).starting("reads its past"):
        pass
    assert systemd.hears_nothing_more()


def test_a_reload_says_when_it_began_and_when_it_is_over(systemd: Systemd) -> None:
    manager = Manager(systemd.environment)
    with manager.reloading():
        begun = systemd.hears()
        assert begun[0] == "RELOADING=1"
        assert begun[1].removeprefix("MONOTONIC_USEC=").isdecimal()
        assert systemd.hears_nothing_more()
    systemd.socket.settimeout(DEADLINE_S)
    assert systemd.hears() == ["READY=1"]


def test_the_status_line_is_told_when_it_changes(systemd: Systemd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service_manager, "REPORT_EVERY_S", 0.0)
    lines = iter(["idle", "idle", "idle", "busy"])

    async def report() -> None:
        with pytest.raises(RuntimeError):  # the lines are used up
            await Manager(systemd.environment).report(lambda: next(lines))

    asyncio.run(report())
    assert [systemd.hears(), systemd.hears()] == [["STATUS=idle"], ["STATUS=busy"]]
    assert systemd.hears_nothing_more()


async def _turns(journal: Journal, manager: Manager, turns: int) -> None:
    """Runs the feeder for a number of turns, with a writer that had enough time in each."""
    pauses = iter(range(turns))

    async def pause(_: float) -> None:
        if next(pauses, None) is None:
            raise asyncio.CancelledError
        if journal._thread is not None:
            await journal.write()

    original, asyncio.sleep = asyncio.sleep, pause  # type: ignore[assignment]
    try:
        with pytest.raises(asyncio.CancelledError):
            await manager.feed(journal)
    finally:
        asyncio.sleep = original


def test_the_watchdog_is_fed_while_loop_and_writer_go_round(systemd: Systemd, tmp_path: Path) -> None:
    async def feed() -> None:
        journal = Journal(tmp_path / "db")
        list(journal.replay())
        journal.start()
        try:
            await _turns(journal, Manager(systemd.environment), 3)
        finally:
            journal.close()

    asyncio.run(feed())
    assert [systemd.hears() for _ in range(4)] == [["WATCHDOG=1"]] * 4


def test_the_watchdog_is_not_fed_while_the_writer_hangs(systemd: Systemd, tmp_path: Path) -> None:
    class Hanging(Journal):
        """Its writer thread has stopped during a commit."""

        def write(self, *statements: object, lazy: bool = False) -> asyncio.Future[None]:
            return asyncio.get_running_loop().create_future()

    async def feed() -> None:
        journal = Hanging(tmp_path / "db")
        try:
            await _turns(journal, Manager(systemd.environment), 3)
        finally:
            journal.close()

    asyncio.run(feed())
    assert systemd.hears() == ["WATCHDOG=1"]  # the first time there is no evidence against it
    assert systemd.hears_nothing_more()


# Listeners ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def descriptors(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Consecutive descriptors, as systemd passes them; the first two are free for sockets."""
    first = 200
    monkeypatch.setattr(service_manager, "LISTEN_FDS_START", first)
    yield [first, first + 1]
    for number in (first, first + 1):
        with contextlib.suppress(OSError):  # closed by the socket that was made of it
            os.close(number)


def handed_over(names: str, count: int) -> dict[str, str]:
    return {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": str(count), "LISTEN_FDNAMES": names}


def test_listeners_come_by_name(descriptors: list[int], tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as local, socket.create_server(("127.0.0.1", 0)) as tcp:
        local.bind(str(tmp_path / "api.sock"))
        local.listen()
        os.dup2(local.fileno(), descriptors[0])
        os.dup2(tcp.fileno(), descriptors[1], inheritable=True)
        environment = handed_over("wire:http", 2)
        passed = passed_listeners(environment)
    (wire,), (http,) = passed["wire"], passed["http"]
    with wire, http:
        assert wire.getsockname() == str(tmp_path / "api.sock")
        assert http.getsockname()[1]
        assert not http.get_inheritable()
    assert passed["console"] == []
    assert not environment


@pytest.mark.parametrize("change", [{"LISTEN_PID": "1"}, {"LISTEN_FDS": ""}, {"LISTEN_FDS": "0"}])
def test_what_was_meant_for_others_is_left_alone(change: dict[str, str]) -> None:
    assert not any(passed_listeners(handed_over("wire", 1) | change).values())


def test_an_unknown_name_says_what_to_write(descriptors: list[int]) -> None:
    with pytest.raises(
        ConfigError, match=r"named 'autosched\.socket'; write FileDescriptorName= with one of wire, con"
    ):
        passed_listeners(handed_over("autosched.socket", 1))


def test_what_is_no_socket_is_refused(descriptors: list[int], tmp_path: Path) -> None:
    with (tmp_path / "file").open("w") as file:
        os.dup2(file.fileno(), descriptors[0])
    with pytest.raises(ConfigError, match="is none"):
        passed_listeners(handed_over("wire", 1))


def test_a_socket_that_does_not_listen_is_refused(descriptors: list[int]) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as deaf:
        os.dup2(deaf.fileno(), descriptors[0])
    with pytest.raises(ConfigError, match="needs ListenStream="):
        passed_listeners(handed_over("wire", 1))


def test_a_start_that_may_succeed_later_does_not_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    paused: list[float] = []
    monkeypatch.setattr(service_manager.time, "sleep", paused.append)
    Manager({}).pause("the disk is full")
    assert paused == []
    Manager({"NOTIFY_SOCKET": "/nowhere"}).pause("the disk is full")
    assert paused == [service_manager.RESTART_PAUSE_S]
