"""Places of authenticated peers, and the room for strangers."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.daemon.access import acceptor, peer_identity
from autosched.daemon.access.acceptor import CONNECTIONS_OF_JOB_MAX, Acceptor, Connection, Farewell, Places, Room
from autosched.daemon.access.login_rate_limit import LoginRateLimit
from autosched.daemon.access.peer_identity import Principal
from autosched.errors import Busy
from autosched.protocol.roles import Role
from deadlines import DEADLINE_S

PLACES = Places(16, 4, "all", "those of one")
OWNER, ALICE, BOB = (
    Principal("uid 0", Role.OPERATOR), Principal("key alice", Role.USER), Principal("uid 61002", Role.VIEWER)
)  # fmt: skip


@pytest.fixture
def there() -> Iterator["Peers"]:
    peers = Peers()
    yield peers
    for connection in peers.made:
        connection.sock.close()


class Peers:
    """An acceptor and the peers that come to it."""

    def __init__(self) -> None:
        self.acceptor = Acceptor(LoginRateLimit(), lambda: PLACES)
        self.made: list[Connection] = []

    def comes(self, who: Principal) -> Connection:
        ours, theirs = socket.socketpair()
        theirs.close()
        connection = Connection(ours, "", asyncio.run(room(100)))
        self.made.append(connection)
        assert self.acceptor.enter(connection)
        try:
            self.acceptor.check(who)
        except Busy:
            self.acceptor.leave(connection)
            raise
        self.acceptor.know(connection, who)
        return connection

    def fill(self, who: Principal) -> int:
        """Number of places that one peer gets."""
        for number in range(1_000):
            try:
                self.comes(who)
            except Busy:
                return number
        raise AssertionError("there is no end")


async def room(size: int, farewell: Farewell | None = None) -> Room:
    return Room(size, farewell)


def test_one_user_gets_a_part_of_the_places_and_is_told_whose_they_are(there: Peers) -> None:
    assert there.fill(ALICE) == PLACES.of_one
    with pytest.raises(Busy, match="refuses: 4 connections of key alice are open, which is those of one"):
        there.acceptor.check(ALICE)
    assert there.fill(BOB) == PLACES.of_one


def test_operators_have_places_that_no_user_takes(there: Peers) -> None:
    assert sum(there.fill(Principal(f"key {number}", Role.USER)) for number in range(9)) == PLACES.of_users == 14
    with pytest.raises(Busy, match="14 connections are open, and all has room for 14 of viewers"):
        there.acceptor.check(BOB)
    assert there.fill(OWNER) == PLACES.total - PLACES.of_users


def test_clients_and_agents_come_however_many_users_are_there(there: Peers) -> None:
    assert there.fill(OWNER) == PLACES.total
    assert there.fill(Principal("job 1", Role.CLIENT)) == CONNECTIONS_OF_JOB_MAX
    there.comes(Principal("job 2", Role.CLIENT))
    for _ in range(2 * CONNECTIONS_OF_JOB_MAX):
        there.comes(Principal("key agents", Role.AGENT))


def test_a_place_is_free_again_when_its_connection_ends(there: Peers) -> None:
    there.fill(ALICE)
    for connection in there.made[:2]:
        there.acceptor.leave(connection)
    assert there.fill(ALICE) == 2
    for connection in list(there.acceptor._connections):
        there.acceptor.leave(connection)
    assert (len(there.acceptor), there.acceptor._taken, there.acceptor._held) == (0, 0, {})


def test_a_connection_keeps_its_first_place(there: Peers) -> None:
    connection = there.comes(ALICE)
    there.acceptor.know(connection, BOB)
    there.acceptor.leave(connection)
    assert there.fill(ALICE) == there.fill(BOB) == PLACES.of_one


def test_a_full_room_is_emptied_of_the_crowd_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acceptor, "PATIENCE_MAX_S", 0.01)
    pairs = [socket.socketpair(type=socket.SOCK_STREAM) for _ in range(4)]

    async def work() -> None:
        full = Room(4, lambda why: why.encode())
        hosts = ["10.0.0.9", "10.0.0.7", "10.0.0.9", "10.0.0.8"]
        strangers = [Connection(ours, host, full) for host, (ours, _) in zip(hosts, pairs, strict=True)]
        for stranger in strangers:
            await full.wait()
            full.enter(stranger)
        waiting = asyncio.ensure_future(full.wait())
        for number in (0, 2):
            assert await asyncio.to_thread(pairs[number][1].recv, 1) == b""
            full.leave(strangers[number])
        async with asyncio.timeout(DEADLINE_S):
            await waiting
        for number in (1, 3):
            pairs[number][1].setblocking(False)
            with pytest.raises(BlockingIOError):
                pairs[number][1].recv(1)

    asyncio.run(work())
    for ours, theirs in pairs:
        ours.close()
        theirs.close()


def test_users_of_a_unix_socket_are_told_apart_and_told_why(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    connection = Connection(ours, "", asyncio.run(room(1, lambda why: why.encode())))
    assert connection.source == f"uid {peer_identity.peer_uid(theirs)}"
    connection.refuse("too many")
    assert theirs.recv(100) == b"too many"
    assert theirs.recv(100) == b""
    ours.close()
    connection.refuse("twice")
    assert connection.source == ""
    theirs.close()


def test_strangers_leave_files_for_work(monkeypatch: pytest.MonkeyPatch) -> None:
    for files, most in ((64, 8), (1_024, 128), (100_000, acceptor.STRANGERS_MAX)):
        monkeypatch.setattr("resource.getrlimit", lambda kind, files=files: (files, files))
        assert acceptor.strangers_max() == most
