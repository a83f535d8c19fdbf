"""Hosts behind cables that are slow, lose packets, or are cut."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import wires
from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from deadlines import until
from integration.lab import Lab, command_line, lab
from integration.lender import LEASE_S, PATIENT, SETTINGS, Lender, check_records, hosts_of, on_the_host, tls_address
from lent_host import tls
from wires import Wire, wire

pytestmark = pytest.mark.skipif(bool(wires.possible()), reason=wires.possible())
SHORT_S = LEASE_S / 3
"""Duration in seconds of a cut that does not end a lease."""
NO_LEASE_ENDS = pytest.mark.parametrize("settings", [PATIENT])
"""Marks tests in which no lease may end, even on a busy machine."""


@pytest.fixture
def settings() -> str:
    return SETTINGS


@pytest.fixture
def there(tmp_path: Path, settings: str) -> Iterator[Lab]:
    keyring.make(tmp_path / "keys", Role.AGENT, "lab2")
    with lab(tmp_path, tls("0.0.0.0:0") + settings) as made:
        yield made


@pytest.fixture
def cable() -> Iterator[Wire]:
    with wire(1) as made:
        yield made


@pytest.fixture
def lender(there: Lab, cable: Wire) -> Iterator[Lender]:
    made = Lender(there)
    made.reach(cable, tls_address(there).rpartition(":")[2])
    made.start("--key", str(there.folder / "keys" / "agent-lab2.key"))
    try:
        until(lambda: made.is_("here"), "the host joins")
        yield made
    finally:
        made.end()


def pause(seconds: float) -> None:
    """Waits for the duration of a fault."""
    signal.sigtimedwait([], seconds)


@NO_LEASE_ENDS
def test_a_slow_connection_with_packet_loss_loses_nothing(there: Lab, cable: Wire, lender: Lender) -> None:
    cable.delay_s, cable.loss = 0.01, 0.02
    job = on_the_host(lender)
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2"}
    check_records(there, job, 40)


@NO_LEASE_ENDS
def test_a_short_cut_loses_nothing(there: Lab, cable: Wire, lender: Lender) -> None:
    job = on_the_host(lender)
    clients = lender.clients()
    cable.cut()
    pause(SHORT_S)
    assert lender.clients() == clients
    cable.mend()
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2"}
    check_records(there, job, 40)


@pytest.mark.parametrize("way", ["both", "out", "back"])
def test_a_long_cut_ends_the_clients_of_the_host(there: Lab, cable: Wire, lender: Lender, way: str) -> None:
    """Includes a half-open cut: one end receives and cannot send."""
    job = on_the_host(lender, trials=80)
    cable.cut(out=way != "back", back=way != "out")
    until(lambda: not lender.clients(), "the host ends its clients itself")
    assert not lender.is_("left"), "it did so before its devices were given away"
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2", ""}
    check_records(there, job, 80)
    cable.mend()
    until(lambda: lender.is_("here"), "the host is back")
    assert there.wait(on_the_host(lender)).state == "done"


def test_repeated_cuts_lose_nothing(there: Lab, cable: Wire, lender: Lender) -> None:
    """Some cuts end the lease, others have no effect."""
    job = on_the_host(lender, trials=120)
    for seconds in (0.05, LEASE_S / 2, 0.3, 1.5 * LEASE_S, 0.1):
        cable.cut()
        pause(seconds)
        cable.mend()
        pause(0.3)
    assert there.wait(job).state == "done"
    check_records(there, job, 120)


def test_explain_says_until_when_a_cut_host_is_waited_for(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The daemon learns of the end of the agent at once, whereas a cut cable is detected by its silence."""
    command = command_line(there, tmp_path, monkeypatch, capsys)
    lender = Lender(there)
    lender.start()
    try:
        until(lambda: lender.is_("here"), "the host joins")
        job = on_the_host(lender, trials=400)
        lender.send(signal.SIGKILL)
        said = "that host must have ended its clients itself: then the job goes on elsewhere"
        until(lambda: said in command("explain", job)[1], "the job's user is told")
        there.cancel(job)
    finally:
        lender.end()
