"""Floods: connections of strangers on each listener, while the owner works.

`pytest -rP` shows the figures.
"""

import contextlib
import resource
import selectors
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autosched.daemon.access import keyring
from autosched.process.detached_process import resident_bytes
from autosched.protocol import Done, Heartbeat
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.blocking_link import BlockingLink
from autosched.wire.keys import Key
from hostile.listeners import OPEN_TO_ALL, address_of, whereabouts
from hostile.other_users import STRANGER, beside_user, needs_root
from integration.lab import Lab, lab

CROWD = 1_000
"""Connections of a stranger at each listener."""
ANSWER_S = 1.0
"""Seconds within which 99 of 100 answers are to come on a quiet machine."""
NOISE = 5.0
"""Factor by which a busy machine may be slower."""
MEMORY_BYTES = 250_000_000
ROUNDS = 10


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, OPEN_TO_ALL) as running:
        yield running


def memory(there: Lab) -> int:
    assert there._process is not None
    return resident_bytes(there._process.pid)


def crowd(addresses: list[tuple[str, int]], said: bytes) -> None:
    """Holds many connections, and opens each again that is closed. Never returns."""
    most = CROWD * len(addresses) + 100
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, max(most, resource.getrlimit(resource.RLIMIT_NOFILE)[1])))
    waiting = selectors.DefaultSelector()

    def come(address: tuple[str, int]) -> None:
        peer = socket.socket()
        peer.setblocking(False)
        peer.connect_ex(address)
        waiting.register(peer, selectors.EVENT_READ, address)
        with contextlib.suppress(OSError):
            peer.send(said)

    for address in addresses:
        for _ in range(CROWD):
            come(address)
    while True:
        for key, _ in waiting.select():
            peer = key.fileobj
            assert isinstance(peer, socket.socket)
            try:
                ended = not peer.recv(65_536)
            except OSError:
                ended = True
            if ended:
                waiting.unregister(peer)
                peer.close()
                come(key.data)


class Owner:
    """Asks each listener in the name of a key or of this user, and notes how long the answers take."""

    def __init__(self, there: Lab, key: Key) -> None:
        self._there, self._key = there, key
        self.took_s: dict[str, list[float]] = {}

    def ask(self, name: str, work: Callable[[], object]) -> None:
        began_at = time.monotonic()
        work()
        self.took_s.setdefault(name, []).append(time.monotonic() - began_at)

    def socket(self) -> object:
        with BlockingLink(self._there.address) as daemon:
            return daemon.welcome

    def wire(self) -> object:
        with BlockingLink(whereabouts(self._there)["wire"]) as daemon:
            return daemon.welcome

    def page(self) -> object:
        url = f"{whereabouts(self._there)['page']}api/past"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self._key.line()}"})
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return answer.read()

    def console(self) -> object:
        with socket.create_connection(address_of(self._there, "console"), timeout=30.0) as peer:
            peer.sendall(f"auth {self._key.id} {self._key.secret.hex()}\njobs\nquit\n".encode())
            heard = b"".join(iter(lambda: peer.recv(65_536), b""))
        assert heard.count(b"\nOK") >= 3, heard
        return heard

    def beat(self, until: threading.Event) -> None:
        """Sends heartbeats, as a client does, until the event is set."""
        with BlockingLink(self._there.address, timeout_s=60.0) as daemon:
            while not until.wait(0.02):
                self.ask("heartbeat", lambda: daemon.call(Heartbeat(), Done))

    def work(self) -> None:
        """Asks each listener in turn."""
        over = threading.Event()
        heart = threading.Thread(target=self.beat, args=(over,))
        heart.start()
        try:
            for _ in range(ROUNDS):
                for ask in (self.socket, self.wire, self.page, self.console):
                    self.ask(ask.__name__, ask)
        finally:
            over.set()
            heart.join()

    def figures(self) -> dict[str, float]:
        """The seconds within which 99 of 100 answers came, by the listener."""
        return {name: sorted(took)[int(0.99 * (len(took) - 1))] for name, took in self.took_s.items()}


@pytest.fixture
def owner(there: Lab, monkeypatch: pytest.MonkeyPatch) -> Owner:
    key, _ = keyring.make(there.folder / "keys", Role.OPERATOR, "owner")
    monkeypatch.setenv(keys.VARIABLE, key.line())
    return Owner(there, key)


def check(there: Lab, owner: Owner, what: str) -> None:
    took, held = owner.figures(), memory(there)
    print(f"{what}: 99 % of the answers within", {name: f"{1e3 * s:.0f} ms" for name, s in took.items()})
    print(f"{what}: the daemon holds {held / 1e6:.0f} MB")
    assert all(s <= NOISE * ANSWER_S for s in took.values()), took
    assert held <= MEMORY_BYTES


@needs_root
@pytest.mark.parametrize("said", [b"", b"GET /healthz HT", b"\x00\x00\x00\x40"], ids=["silent", "half", "frame"])
def test_a_crowd_at_each_listener_keeps_no_user_out(there: Lab, owner: Owner, said: bytes) -> None:
    job = there.submit(trials=400, profile_s=0.02)
    there.wait(job, "trials", 2)
    addresses = [address_of(there, listener) for listener in ("wire", "page", "console")]
    with beside_user(STRANGER, crowd, addresses, said):
        owner.work()
    check(there, owner, f"{CROWD} connections")
    there.cancel(job)
    assert "lost" not in {span.outcome for span in there.spans()}
