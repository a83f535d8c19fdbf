"""Admission to a board's server: allowed networks, and the handshake that a peer must send first."""

import argparse
import ipaddress
import socket
import struct
from collections.abc import Iterator

import pytest

pytest.importorskip("tvm")
pytestmark = pytest.mark.tvm

from autosched_tvm.commands import board_server  # noqa: E402

HELLO = struct.pack("<ii", 0xFF271, 9) + b"client:ab"


@pytest.fixture
def listening() -> Iterator[board_server.ChoosySocket]:
    with board_server.listen("127.0.0.1", 30_000, ()) as made:
        yield made


def accepted(listening: board_server.ChoosySocket, said: bytes, *, hangs_up: bool = False) -> bytes:
    """Returns the first bytes of the connection that TVM gets for a peer that sends this."""
    with socket.create_connection(listening.getsockname()) as peer:
        peer.sendall(said)
        if hangs_up:
            peer.shutdown(socket.SHUT_WR)
        given, _ = listening.accept()
        with given:
            return given.recv(8)


def test_a_peer_with_a_handshake_is_accepted_and_its_bytes_stay_readable(listening: board_server.ChoosySocket) -> None:
    assert accepted(listening, HELLO) == HELLO[:8]


@pytest.mark.parametrize("said", [b"", HELLO[:5], HELLO[:-1], struct.pack("<ii", 0xFF271, -1), bytes(7)])
def test_a_peer_without_a_handshake_is_refused_and_delays_no_other_peer(
    said: bytes, listening: board_server.ChoosySocket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(board_server, "HELLO_S", 0.05)
    assert accepted(listening, said) == bytes(8), "a magic number that TVM turns away"
    assert accepted(listening, said, hangs_up=True) == bytes(8)


def test_other_networks_are_refused(listening: board_server.ChoosySocket, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = socket.socket.accept
    monkeypatch.setattr(socket.socket, "accept", lambda own: (plain(own)[0], ("192.0.2.7", 1)))
    assert accepted(listening, HELLO) == bytes(8)
    listening.networks = [ipaddress.ip_network("192.0.2.0/24")]
    assert accepted(listening, HELLO) == HELLO[:8]


def test_the_next_free_port_is_taken(listening: board_server.ChoosySocket) -> None:
    with board_server.listen("127.0.0.1", port := listening.getsockname()[1], ()) as second:
        assert second.getsockname()[1] > port


def test_after_the_last_port_there_is_none() -> None:
    with board_server.listen("127.0.0.1", board_server.PORT_MAX, ()) as last:
        assert last.getsockname()[1] == board_server.PORT_MAX
        with pytest.raises(OSError, match="in use"):
            board_server.listen("127.0.0.1", board_server.PORT_MAX, ())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_socket_for_both_protocols_knows_the_networks_of_both() -> None:
    with board_server.listen("::", 30_000, ()) as both:
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, both.getsockname()[1])) as peer:
                peer.sendall(HELLO)
                given, _ = both.accept()
                with given:
                    assert given.recv(8) == HELLO[:8]


def test_an_address_of_another_machine_is_refused_in_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"203\.0\.113\.1:9091 cannot be used .*--host 127\.0\.0\.1"):
        board_server.main(["--key", "k", "--host", "203.0.113.1"])


def test_allowed_networks_are_the_named_ones_or_that_of_the_tracker() -> None:
    assert board_server.networks_of(["192.168.7.5/24"], None) == [ipaddress.ip_network("192.168.7.0/24")]
    assert board_server.networks_of([], ("127.0.0.1", 9190)) == [ipaddress.ip_network("127.0.0.1/32")]
    assert board_server.networks_of([], None) == []


@pytest.mark.parametrize("text", ["lab", "lab:", ":9190", "lab:x"])
def test_a_tracker_address_needs_a_host_and_a_port(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        board_server.address_of(text)
