"""Any user of this machine reaches the port for boards on loopback: nothing that he invents there lasts."""

import json
import re
import signal
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.other_users import STRANGER, as_user, needs_root
from integration.lab import BOARD, Lab, lab

pytestmark = needs_root
PORT = f'{BOARD}[boards]\nlisten = "127.0.0.1:0"\n'
INVENTED = 300


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, PORT) as running:
        yield running


def port(there: Lab) -> int:
    log = (there.folder / "daemon.log").read_text()
    return int(re.findall(r"boards register themselves at 127.0.0.1:(\d+)", log)[-1])


class Server:
    """A server at the port for boards."""

    def __init__(self, port: int) -> None:
        self._peer = socket.create_connection(("127.0.0.1", port))
        self._peer.settimeout(30.0)
        self._peer.sendall(struct.pack("<i", 0x2F271))
        assert self._read(4) == struct.pack("<i", 0x2F271)

    def _read(self, count: int) -> bytes:
        heard = b""
        while len(heard) < count:
            if not (piece := self._peer.recv(count - len(heard))):
                raise ConnectionError("closed")
            heard += piece
        return heard

    def say(self, message: object) -> object:
        text = json.dumps(message).encode()
        self._peer.sendall(struct.pack("<i", len(text)) + text)
        return json.loads(self._read(struct.unpack("<i", self._read(4))[0]))

    def register(self, kind: str, port: int, host: str | None = None) -> object:
        return self.say([3, kind, [port, f"{kind}:0.5"], host])

    def close(self) -> None:
        self._peer.close()


def invents(port: int) -> int:
    """Registers many boards, and leaves; returns how many were taken."""
    taken = 0
    for number in range(INVENTED):
        server = Server(port)
        try:
            server.register("fake", 9_000, f"127.0.{number >> 8}.{number & 255}")
            taken += 1
        except ConnectionError:
            pass
        server.close()
    return taken


def test_invented_boards_keep_no_real_one_out(there: Lab) -> None:
    assert as_user(STRANGER, invents, port(there)) > 0
    real = Server(port(there))
    assert real.register("pi4", 9_090) == 0
    assert "pi4-127.0.0.1" in there.boards()
    assert sum(name.startswith("fake") for name in there.boards()) <= 101
    real.close()
    there.end(signal.SIGTERM)
    there.start(PORT)
    real = Server(port(there))
    assert real.register("pi4", 9_090) == 0
    real.close()


def test_a_registration_stays_with_its_board(there: Lab) -> None:
    real = Server(port(there))
    assert real.register("pi4", 9_090) == 0

    def steal(port: int) -> object:
        return Server(port).register("pi4", 9_090)

    stolen: list[object] = []
    thief = threading.Thread(target=lambda: stolen.append(as_user(STRANGER, steal, port(there))))
    thief.start()
    while thief.is_alive():
        assert real.say([1]) == 0
        thief.join(0.5)
    assert "ConnectionError" in str(stolen[0])
    assert real.say([1]) == 0
    real.close()


@pytest.mark.parametrize("host", ["192.0.2.1", "10.1.1.1", "elsewhere.example"])
def test_the_daemon_connects_nowhere_that_it_is_told(there: Lab, host: str) -> None:
    def tell(port: int) -> object:
        return Server(port).register("pi5", 22, host)

    assert "ConnectionError" in as_user(STRANGER, tell, port(there))
    assert there.boards() == []
