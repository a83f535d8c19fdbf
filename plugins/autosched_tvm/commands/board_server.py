"""A TVM RPC server for boards that survives its sessions.

TVM's own server stops accepting sessions, though its process lives on, when a session's process ends badly (as after a
crash of a kernel), when its tracker was absent for a minute, and for ever when a peer connects and sends nothing. It
does not notice a pulled cable. This server restarts TVM's each time, and accepts listed machines only.
"""

import argparse
import errno
import ipaddress
import logging
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence

from tvm.rpc import server as tvm_server

log = logging.getLogger("autosched.board")

PAUSE_S = 1.0
"""Seconds until it restarts."""
HELLO_S = 5.0
"""Maximum seconds until a peer sends its hello."""
KEEP_ALIVE = {socket.TCP_KEEPIDLE: 2, socket.TCP_KEEPINTVL: 1, socket.TCP_KEEPCNT: 3, socket.TCP_USER_TIMEOUT: 5_000}
"""Socket options that end a session within 5 s after the other machine has vanished; TVM's own server waits for the
whole time limit of the session."""
LOOK_AGAIN_S = 0.01
HEAD = struct.Struct("<ii")
"""Magic number and length of the key."""
KEY_BYTES_MAX = 4_096
PORTS = 100
"""Number of ports to try."""
PORT_MAX = 65_535
LOOPBACK, LOOPBACK_IPV6 = "127.0.0.1", "::1"

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ChoosySocket(socket.socket):
    """A listening socket that accepts connections from some networks only, after the peer's hello."""

    networks: Sequence[Network] = ()

    def accept(self) -> tuple[socket.socket, object]:
        """The next connection. In place of a refused one it returns a connection that TVM turns away, so that TVM
        reports to its tracker again."""
        connection, address = super().accept()
        peer = ipaddress.ip_address(address[0].partition("%")[0])
        if isinstance(peer, ipaddress.IPv6Address) and peer.ipv4_mapped is not None:  # of a socket for both protocols
            peer = peer.ipv4_mapped
        if not peer.is_loopback and not any(peer in network for network in self.networks):
            log.warning(
                "%s is refused: this server listens to %s", peer, ", ".join(map(str, self.networks)) or "itself"
            )
        elif has_said_hello(connection):
            for option, value in KEEP_ALIVE.items():
                connection.setsockopt(socket.IPPROTO_TCP, option, value)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            return connection, address
        connection.close()
        theirs, own = socket.socketpair()
        with own:
            own.sendall(bytes(HEAD.size))
        return theirs, address


def has_said_hello(connection: socket.socket) -> bool:
    """Whether a peer sends its whole hello in time. The bytes stay in the connection."""
    until = time.monotonic() + HELLO_S
    while (left_s := until - time.monotonic()) > 0 and select.select([connection], [], [], left_s)[0]:
        head = connection.recv(HEAD.size, socket.MSG_PEEK)
        if len(head) == HEAD.size:
            length = HEAD.unpack(head)[1]
            if not 0 <= length <= KEY_BYTES_MAX:
                return False
            if len(connection.recv(HEAD.size + length, socket.MSG_PEEK)) == HEAD.size + length:
                return True
        if not head:
            return False
        time.sleep(LOOK_AGAIN_S)
    return False


def listen(host: str, port: int, networks: Sequence[Network]) -> ChoosySocket:
    """A socket at the first free port from this one on. Raises OSError if there is none, or no such address here.

    On a machine without IPv4, which has no 127.0.0.1, it is on ::1 instead.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
    made = ChoosySocket(family, socket.SOCK_STREAM)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    made.networks = networks
    ports = range(port, min(port + PORTS, PORT_MAX + 1))
    for one in ports:
        try:
            made.bind((host, one))
            break
        except OSError as error:
            if error.errno == errno.EADDRINUSE and one != ports[-1]:
                continue
            made.close()
            if host == LOOPBACK and error.errno == errno.EADDRNOTAVAIL:
                return listen(LOOPBACK_IPV6, port, networks)
            raise
    made.listen(1)
    return made


def serve(own: ChoosySocket, key: str, tracker: tuple[str, int] | None, custom_address: str | None) -> None:
    """Serve without end."""
    port = own.getsockname()[1]
    host = own.getsockname()[0]
    log.info("bind to %s:%d", f"[{host}]" if ":" in host else host, port)
    home = os.getcwd()
    while True:
        os.chdir(home)  # TVM leaves a removed current folder behind
        try:
            tvm_server._listen_loop(own, port, key, tracker, "", custom_address)
        except Exception as error:  # any end of TVM's loop is no reason to end the server
            log.warning("a session ended badly, and the next one is waited for: %s", error)
            time.sleep(PAUSE_S)


def address_of(text: str) -> tuple[str, int]:
    """Parse HOST:PORT. Raises ArgumentTypeError."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not HOST:PORT")
    return host.removeprefix("[").removesuffix("]"), int(port)


def networks_of(words: Sequence[str], tracker: tuple[str, int] | None) -> list[Network]:
    """The networks that may connect: the named ones, otherwise the tracker's own address."""
    if words:
        return [ipaddress.ip_network(word, strict=False) for word in words]
    if tracker is None:
        return []
    found = socket.getaddrinfo(*tracker, type=socket.SOCK_STREAM)
    return [ipaddress.ip_network(one[4][0]) for one in found]


def main(words: Sequence[str]) -> None:
    """Parse the command line and serve."""
    parser = argparse.ArgumentParser(prog="python -m autosched_tvm.commands.board_server", description=__doc__)
    parser.add_argument("--key", required=True)
    parser.add_argument("--tracker", type=address_of)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=9091)
    parser.add_argument("--custom-addr")
    parser.add_argument("--allow", action="append", default=[])
    args = parser.parse_args(words)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s", stream=sys.stderr)
    networks = networks_of(args.allow, args.tracker)
    try:
        listening = listen(args.host, args.port, networks)
    except OSError as error:
        sys.exit(
            f"autosched board: {args.host}:{args.port} cannot be used ({error.strerror}); name an address of this board"
            " (--host 127.0.0.1, or 0.0.0.0 for all) and a free port (--port)"
        )
    serve(listening, args.key, args.tracker, args.custom_addr)


if __name__ == "__main__":
    main(sys.argv[1:])
