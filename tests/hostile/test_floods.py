"""Floods: connections of strangers on each listener, and everything that a user may do, while the owner works.

`pytest -rP` shows the figures.
"""

import asyncio
import contextlib
import os
import resource
import selectors
import socket
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.model import JobSpec
from autosched.process.process_tree import resident_bytes
from autosched.protocol import AddRecord, Done, ExplainJob, GetBlob, GetJob, Heartbeat, ListJobs, Method, SetJob
from autosched.protocol.roles import Role
from autosched.wire import keys
from autosched.wire.blocking_link import BlockingLink
from autosched.wire.keys import Key
from hostile.listeners import OPEN_TO_ALL, address_of, whereabouts
from hostile.other_users import STRANGER, beside_user, needs_root
from hostile.test_reports import hostile
from integration import served
from integration.lab import MODEL, Lab, lab
from integration.served import record

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
    return resident_bytes(there.pid)


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
        self._there, self.key = there, key
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
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {self.key.line()}"})
        with urllib.request.urlopen(request, timeout=30.0) as answer:
            return answer.read()

    def console(self) -> object:
        with socket.create_connection(address_of(self._there, "console"), timeout=30.0) as peer:
            peer.sendall(f"auth {self.key.id} {self.key.secret.hex()}\njobs\nquit\n".encode())
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


# A user who is no operator -------------------------------------------------------------------------------------------

JOBS = 300
PIPELINED = 64
"""Requests that a connection has under way."""


@pytest.fixture
def mallory(there: Lab, owner: Owner) -> Key:
    """A user with a key; most floods are in her name."""
    return keyring.make(there.folder / "keys", Role.USER, "mallory")[0]


def known(address: str, key: str) -> BlockingLink:
    """A connection in the name of a key."""
    os.environ[keys.VARIABLE] = key
    return BlockingLink(address, timeout_s=60.0)


def pump(address: str, key: str, method: Method, connections: int, reads: bool) -> None:
    """Asks without end on several connections, with many requests under way on each. Never returns."""
    links = [known(address, key) for _ in range(connections)]
    while True:
        for number, link in enumerate(links):
            link._socket.setblocking(False)
            try:
                link._socket.send(b"".join(link._peer.request(method)[1] for _ in range(PIPELINED)))
            except BlockingIOError:
                pass
            except OSError:  # the daemon has closed it
                links[number] = known(address, key)
                continue
            with contextlib.suppress(OSError):
                while reads and link._socket.recv(1 << 20):
                    pass
        time.sleep(0.002)


def with_jobs(there: Lab) -> int:
    """Submits many jobs without clients; returns the last."""

    async def ask(daemon: Daemon) -> int:
        (there.folder / "model.onnx").write_bytes(MODEL)
        model = await daemon.upload(there.folder / "model.onnx")
        spec = JobSpec(name="net", model=model, backend="mock", external=True, options={"o": "x" * 200})
        return (await asyncio.gather(*(daemon.submit(spec) for _ in range(JOBS))))[-1].job

    return there.ask(ask)


FLOODS: dict[str, tuple[Callable[[int], Method], bool]] = {
    "list": (lambda job: ListJobs(limit=500), True),
    "list, never read": (lambda job: ListJobs(limit=500), False),
    "explain": (lambda job: ExplainJob(job=job), True),
    "wait": (lambda job: GetJob(job=job, since=10**6, wait_s=30.0), True),
    "heartbeats": (lambda job: Heartbeat(), True),
    "alter": (lambda job: SetJob(job=job, priority=7), True),
    "download": (lambda job: GetBlob(sha256="0" * 64, offset=0), True),
}


@needs_root
@pytest.mark.parametrize("flood", FLOODS)
def test_a_user_who_asks_without_end_delays_no_other(there: Lab, owner: Owner, mallory: Key, flood: str) -> None:
    job = with_jobs(there)
    method, reads = FLOODS[flood]
    address = whereabouts(there)["wire"]
    with beside_user(STRANGER, pump, address, mallory.line(), method(job), 20, reads):
        owner.work()
    check(there, owner, flood)


async def upload_build(daemon: Daemon) -> None:
    """Uploads the model of `served.spec`."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(served.MODEL)
        file.flush()
        await daemon.upload(Path(file.name))


RECORDS = 20_000
REPORTS = 60


@needs_root
def test_a_viewer_who_has_many_reports_drawn_delays_no_other(
    there: Lab, owner: Owner, mallory: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def measured() -> None:
        puppet = await hostile(whereabouts(there)["wire"], there.folder, monkeypatch, mallory)
        step = await puppet.steps.get()
        assert puppet.link is not None
        for number in range(RECORDS):
            puppet.link.notify(AddRecord(record=replace(record(number), unit=step.units[0])))
            if number % 500 == 499:
                await puppet.ask(Heartbeat(), Done)
        await puppet.ask(AddRecord(record=replace(record(RECORDS), unit=step.units[0])))
        assert puppet.heart is not None
        puppet.heart.cancel()
        puppet.link.close()
        await puppet.link.wait_closed()

    there.ask(upload_build)
    asyncio.run(measured())
    monkeypatch.setenv(keys.VARIABLE, owner.key.line())
    page, header = whereabouts(there)["page"], {"Authorization": f"Bearer {mallory.line()}"}
    told: Counter[int] = Counter()

    def report() -> None:
        try:
            with urllib.request.urlopen(
                urllib.request.Request(f"{page}api/jobs/1/report", headers=header), timeout=120.0
            ) as answer:
                answer.read()
                told[answer.status] += 1
        except urllib.error.HTTPError as error:
            told[error.code] += 1

    readers = [threading.Thread(target=report) for _ in range(REPORTS)]
    for reader in readers:
        reader.start()
    peaks = []
    while any(reader.is_alive() for reader in readers):
        owner.ask("socket", owner.socket)
        owner.ask("page", owner.page)
        peaks.append(memory(there))
    for reader in readers:
        reader.join()
    print(f"{REPORTS} reports of {RECORDS} records: {dict(told)}, at most {max(peaks) / 1e6:.0f} MB")
    assert max(peaks) <= MEMORY_BYTES
    check(there, owner, "reports")
    assert told[200] >= 1
