"""Listening sockets of the daemon: the unix socket and TCP. Other machines need TLS and keys."""

import contextlib
import hashlib
import os
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from autosched import user_folders
from autosched.config import Config, check_protected, loopback
from autosched.daemon.access import keyring, peer_identity, sockets
from autosched.errors import ConfigError

MAKE_CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 3650 -subj /CN=autosched"
    " -keyout tls.key -out tls.crt"
)


DOOR = "door"
"""Name of the folder with the socket for clients."""


class Endpoint(Struct, frozen=True, eq=False):
    """One listening socket."""

    listener: socket.socket
    local: bool = False
    """Whether it is a unix socket, for which the kernel names the peer's user."""
    clients_only: bool = False
    """Whether it admits clients of jobs only, and takes no peer for its user."""
    tls: ssl.SSLContext | None = None
    channel: bytes = b""
    """SHA-256 of the certificate, to which proofs of keys are bound (channel binding)."""

    @property
    def address(self) -> str:
        """Address for clients."""
        if self.local:
            return sockets.unix_address(self.listener)
        return sockets.tcp_address(self.listener, tls=self.tls is not None)


def open_all(config: Config, passed: Sequence[socket.socket], held: contextlib.ExitStack) -> tuple[Endpoint, ...]:
    """The listeners that systemd has passed; for a kind that it has not passed, the daemon's own.

    Unix sockets come first, and clients on this machine use the first one. `held` closes all. Raises ConfigError and
    Refused.
    """
    for listener in passed:
        held.enter_context(listener)
    unix = [Endpoint(listener, local=True) for listener in passed if listener.family == socket.AF_UNIX]
    tcp = [on_tcp(listener, config) for listener in passed if listener.family != socket.AF_UNIX]
    if not unix:
        unix = [on_unix(sockets.own_unix(config.socket, held), config)]
    if not tcp and (where := config.listen()) is not None:
        tcp = [on_tcp(held.enter_context(sockets.bind_tcp("daemon.listen", *where)), config)]
    return (*unix, *tcp)


def door(folder: Path, held: contextlib.ExitStack) -> Endpoint:
    """The socket in the state folder for clients of jobs, whose places no user takes, and the only one that those see
    which run apart. It has a folder of its own, in which they find the next daemon's socket too. Raises ConfigError and
    Refused."""
    path = folder / DOOR / "clients.sock"
    return Endpoint(sockets.own_unix(path, held), local=True, clients_only=True)


def on_unix(listener: socket.socket, config: Config) -> Endpoint:
    """Serve the daemon's own unix socket, shared with the group of the settings. Raises ConfigError."""
    group = peer_identity.group_id(config.daemon.group)
    if group is not None:
        share(config.socket, group, config)
    return Endpoint(listener, local=True)


def share(path: Path, group: int, config: Config) -> None:
    """Give the group of the settings access to a socket. Raises ConfigError."""
    try:
        os.chown(path, -1, group)
        os.chmod(path, 0o660)
    except OSError as error:
        raise ConfigError(
            f"the socket cannot be given to daemon.group {config.daemon.group!r} ({error.strerror}); the daemon"
            " must run as root or be a member of it"
        ) from None


def on_tcp(listener: socket.socket, config: Config) -> Endpoint:
    """Serve a TCP socket. Raises ConfigError if other machines can reach it and it is not protected."""
    host = listener.getsockname()[0]
    check_protected(config.daemon, host, f"the daemon listens on {host}")
    if config.daemon.tls_certificate:
        _ask_for_keys(config, f"the daemon listens on {host}", host)
        context, channel = _tls(config)
        return Endpoint(listener, tls=context, channel=channel)
    return Endpoint(listener)


def tls_for_others(config: Config, listener: socket.socket, what: str) -> ssl.SSLContext | None:
    """TLS settings of a listener; None if only this machine can reach it. Raises ConfigError. `what`: its name."""
    host = listener.getsockname()[0]
    if loopback(host):
        return None
    check_protected(config.daemon, host, f"{what} is at {host}")
    _ask_for_keys(config, f"{what} is at {host}", host)
    return _tls(config)[0]


def _ask_for_keys(config: Config, what: str, host: str) -> None:
    if not loopback(host) and not keyring.kept(folder := keyring.folder_of(config)):
        raise ConfigError(
            f"{what}, which other machines can reach, but no key is in {folder}:"
            " no user could connect. Make one for each who may, with: autosched key new ROLE -c FILE"
        )


def _tls(config: Config) -> tuple[ssl.SSLContext, bytes]:
    certificate = user_folders.expanded(config.daemon.tls_certificate)
    private = user_folders.expanded(config.daemon.tls_key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.num_tickets = 0  # no client resumes a session, and each ticket costs memory
    try:
        context.load_cert_chain(certificate, private)
        first, _, _ = certificate.read_text(encoding="ascii").partition("-----END CERTIFICATE-----")
        shown = ssl.PEM_cert_to_DER_cert(first[first.index("-----BEGIN") :] + "-----END CERTIFICATE-----\n")
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"daemon.tls_certificate {certificate} and daemon.tls_key {private} cannot be used ({why});"
            f" make them anew, for example with: {MAKE_CERTIFICATE}"
        ) from None
    return context, hashlib.sha256(shown).digest()
