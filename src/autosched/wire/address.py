"""Addresses of daemons: "unix:/path/to/socket", "tcp://host:port", or "tls://host:port"."""

import socket
from typing import TYPE_CHECKING

from autosched.errors import RequestError
from autosched.model import split_address

if TYPE_CHECKING:
    from ssl import SSLContext

UNIX, TCP, TLS = "unix:", "tcp://", "tls://"
TLS_UNIX = "tls+unix:"
"""Beginning of the address of a unix socket behind which a daemon is reached that speaks TLS."""
PROBES = 3
"""Number of TCP keep-alive probes without an answer after which a peer is given up."""
SERVICE = "/run/autosched/api.sock"
"""The socket of the daemon of the machine (systemd/autosched.socket)."""


def tcp(address: str) -> tuple[str, int]:
    """Host and port of "tcp://host:port", "tls://host:port" or "host:port", without the brackets of an IPv6 host.

    Raises RequestError.
    """
    host, port = split_address(address.removeprefix(TCP).removeprefix(TLS))
    if not host or not port.isdecimal() or int(port) > 65_535:
        raise RequestError(_no_address(address))
    return host, int(port)


def tls_to(address: str) -> "SSLContext | None":
    """TLS settings for an address; None without encryption.

    The certificate is not verified here: it is part of the proof of a key (keys.py), which a peer without the key
    cannot give. Certificate authorities and names are therefore not needed.
    """
    if not address.startswith((TLS, TLS_UNIX)):
        return None
    import ssl  # imported here, because commands that use the unix socket must start fast

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _no_address(text: str) -> str:
    return f"{text!r} is no address of a daemon. Write tcp://HOST:PORT, tls://HOST:PORT or unix:/path/to/socket"


def notice_silence(sock: socket.socket | None, within_s: int = 20) -> None:
    """Have the system report a vanished peer within `within_s` seconds rather than 15 minutes."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    every_s = max(1, within_s // 5)
    for option, value in (
        ("TCP_KEEPIDLE", max(1, within_s - PROBES * every_s)), ("TCP_KEEPINTVL", every_s), ("TCP_KEEPCNT", PROBES),
        ("TCP_USER_TIMEOUT", 1_000 * within_s),
    ):  # fmt: skip
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
