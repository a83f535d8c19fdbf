"""Every user is taken for himself only: attacks of a local user on the listeners that every local user reaches.

The kernel's table of TCP connections lists a socket that its owner has closed as one of root. So each attack sends what
root may do, and closes its end while the daemon has no time for it.
"""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

from autosched.daemon.access.acceptor import STRANGERS_MAX
from autosched.protocol import PROTOCOL, AuditList, ListAudit, ListDevices, UnitList
from deadlines import DEADLINE_S
from hostile.listeners import OPEN_TO_ALL, address_of
from hostile.other_users import STRANGER, as_user, needs_root
from integration.lab import Lab, lab

pytestmark = needs_root
REASON = "by a stranger"
DRAIN = {"unit": "board", "reason": REASON}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, OPEN_TO_ALL) as running:
        yield running


def frames(*calls: tuple[str, dict[str, object]]) -> bytes:
    """Calls of the wire protocol, behind a hello."""
    hello = {"protocol": list(PROTOCOL), "software": "hostile", "role": "user"}
    packed = [msgpack.packb([0, number, *call]) for number, call in enumerate((("hello", hello), *calls), 1)]
    return b"".join(len(one).to_bytes(4, "big") + one for one in packed)


def post(path: str, body: bytes) -> bytes:
    """A request of the page."""
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
    return f"{head}\r\n\r\n".encode() + body


ATTACKS = {
    "wire": lambda: frames(("drain_unit", DRAIN), ("pause", {"reason": REASON}), ("shutdown", {})),
    "page": lambda: post("/api/do/drain", json.dumps(DRAIN).encode()),
    "console": lambda: f"drain board --reason {REASON.split()[0]}\npause\nshutdown\n".encode(),
}


def sent_and_closed(address: tuple[str, int], said: bytes) -> str:
    """Takes all places for connections that have not authenticated, and leaves an attack in the queue behind them."""
    silent = [socket.create_connection(address) for _ in range(STRANGERS_MAX)]
    with socket.create_connection(address) as attack:
        own = attack.getsockname()[1]
        attack.sendall(said)
    until = time.monotonic() + DEADLINE_S
    while uid := listed_uid(own, address[1]):
        assert time.monotonic() < until, f"the kernel lists the closed connection with uid {uid}"
        time.sleep(0.01)
    for one in silent:
        one.close()
    return "sent"


def listed_uid(own: int, peer: int) -> int | None:
    """The uid in the kernel's table for a connection between two ports; None if it is not listed."""
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, here, there, _, _, _, _, uid, *_ = line.split()
        if (here[-4:], there[-4:]) == (f"{own:04X}", f"{peer:04X}"):
            return int(uid)
    return None


def answer(address: tuple[str, int], said: bytes) -> str:
    """The answer, until the connection ends or nothing more comes."""
    heard = b""
    with socket.create_connection(address) as peer:
        peer.settimeout(2.0)
        peer.sendall(said)
        try:
            while piece := peer.recv(65_536):
                heard += piece
        except (TimeoutError, ConnectionError):
            pass
    return heard.decode(errors="replace")


def unharmed(there: Lab) -> bool:
    """Whether the daemon runs, is not paused, and nothing is drained."""
    info = there.ask(lambda daemon: daemon.info())
    units = there.ask(lambda daemon: daemon.link.call(ListDevices(), UnitList)).units
    entries = there.ask(lambda daemon: daemon.link.call(ListAudit(), AuditList)).entries
    return not info.paused and not any(REASON in str(one) for one in (*units, *entries))


@pytest.mark.parametrize("listener", ATTACKS)
def test_a_closed_connection_is_not_taken_for_root(there: Lab, listener: str) -> None:
    for _ in range(3):
        assert as_user(STRANGER, sent_and_closed, address_of(there, listener), ATTACKS[listener]()) == "sent"
    answer(address_of(there, listener), ATTACKS[listener]())  # the daemon has handled the earlier connections
    assert unharmed(there)


@pytest.mark.parametrize(
    ("listener", "refusal"), [("wire", "wants to see a key"), ("page", "401"), ("console", "who are you?")]
)
@pytest.mark.parametrize("uid", [STRANGER, 0], ids=["stranger", "root"])
def test_a_port_gives_no_rights(there: Lab, listener: str, refusal: str, uid: int) -> None:
    assert refusal in as_user(uid, answer, address_of(there, listener), ATTACKS[listener]())
    assert unharmed(there)


def test_the_unix_socket_refuses_other_users(there: Lab, tmp_path: Path) -> None:
    def knock() -> str:
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(5.0)
            peer.connect(str(there.folder / "api.sock"))
            peer.sendall(ATTACKS["wire"]())
            return peer.recv(65_536).decode(errors="replace")

    assert "PermissionError" in as_user(STRANGER, knock)
    for folder in (there.folder, *there.folder.parents):
        if folder.stat().st_mode & 0o1 == 0:
            folder.chmod(folder.stat().st_mode | 0o11)
    (there.folder / "api.sock").chmod(0o666)
    assert "belongs to another user" in as_user(STRANGER, knock)
    assert unharmed(there)
