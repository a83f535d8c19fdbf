"""Notifications to the service manager (systemd), and listeners that it passes.

The daemon removes the manager's variables from the environment, so that no client acts as the service. Without a
manager it sends no notifications, and opens all listeners itself.
"""

import asyncio
import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping

from autosched.daemon.storage.journal import Journal
from autosched.errors import ConfigError

WIRE, CONSOLE, HTTP = "wire", "console", "http"
"""Names of listeners in FileDescriptorName=."""
LISTENERS = (WIRE, CONSOLE, HTTP)
LISTEN_FDS_START = 3
EXTEND_EVERY_S, EXTEND_S = 5.0, 30.0
STARTING_MAX_S = 3_600.0
"""Maximum seconds for a start with a long journal; then systemd ends the daemon."""
REPORT_EVERY_S = 5.0
RESTART_PAUSE_S = 30.0
"""Seconds before the end of a start that failed for lack of space: systemd starts a unit five times in two minutes."""


class Manager:
    """The service manager of this process; does nothing without one."""

    def __init__(self, environment: MutableMapping[str, str] = os.environ) -> None:
        address = environment.pop("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        limit_us, whom = environment.pop("WATCHDOG_USEC", ""), environment.pop("WATCHDOG_PID", "")
        watches = limit_us.isdecimal() and int(limit_us) > 0 and whom in ("", str(os.getpid()))
        self.feed_s = int(limit_us) / 2e6 if watches else None
        """Seconds between two watchdog notifications, half of the limit; None without a watchdog."""

    def __bool__(self) -> bool:
        return bool(self._address)

    def tell(self, *lines: str) -> None:
        """Send a notification (sd_notify): "READY=1", "STATUS=..."."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as out, contextlib.suppress(OSError):
            out.setblocking(False)
            out.sendto("\n".join(lines).encode(), self._address)

    def pause(self, reason: str) -> None:
        """Let time pass before the end of a start that may succeed later, so that the manager does not give up."""
        if self:
            self.tell(f"EXTEND_TIMEOUT_USEC={2e6 * RESTART_PAUSE_S:.0f}", f"STATUS={reason}")
            time.sleep(RESTART_PAUSE_S)

    @contextlib.contextmanager
    def starting(self, what: str) -> Iterator[None]:
        """Ask for more time while the daemon reads its journal."""
        over = threading.Event()

        def extend() -> None:
            until = time.monotonic() + STARTING_MAX_S
            while time.monotonic() < until:
                self.tell(f"EXTEND_TIMEOUT_USEC={EXTEND_S * 1e6:.0f}", f"STATUS={what}")
                if over.wait(EXTEND_EVERY_S):
                    return

        thread = threading.Thread(target=extend, name="asks for time", daemon=True)
        if self:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if self:
                thread.join()

    @contextlib.contextmanager
    def reloading(self) -> Iterator[None]:
        """Context of a reload of the settings."""
        self.tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1_000}")
        try:
            yield
        finally:
            self.tell("READY=1")

    async def feed(self, journal: Journal) -> None:
        """Send watchdog notifications, unless the journal's writer has stalled since the last one. Never returns.

        A writer that waits for room on the disk moves; one that hangs in the middle of a commit does not.
        """
        if self.feed_s is None:
            return
        turns = -1
        while True:
            if journal.turns != turns:
                self.tell("WATCHDOG=1")
            turns = journal.turns
            journal.write()  # makes the writer run once, even with nothing to write
            await asyncio.sleep(self.feed_s)

    async def report(self, line: Callable[[], str]) -> None:
        """Update the line that `systemctl status` shows. Never returns."""
        said = ""
        while self:
            if (words := line()) != said:
                said = words
                self.tell(f"STATUS={words}")
            await asyncio.sleep(REPORT_EVERY_S)


def passed_listeners(environment: MutableMapping[str, str] = os.environ) -> dict[str, list[socket.socket]]:
    """Listeners that systemd has passed (sd_listen_fds), by name. Raises ConfigError."""
    whom, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    names = environment.pop("LISTEN_FDNAMES", "").split(":")
    passed: dict[str, list[socket.socket]] = {name: [] for name in LISTENERS}
    if whom != str(os.getpid()) or not count.isdecimal():
        return passed
    for at in range(int(count)):
        name = names[at] if at < len(names) else ""
        if name not in passed:
            raise ConfigError(
                f"systemd hands over a listener named {name!r}; write FileDescriptorName= with one of"
                f" {', '.join(LISTENERS)} into its socket unit"
            )
        passed[name].append(_listener(LISTEN_FDS_START + at, name))
    return passed


def _listener(descriptor: int, name: str) -> socket.socket:
    try:
        os.set_inheritable(descriptor, False)
        sock = socket.socket(fileno=descriptor)
    except OSError as error:
        raise ConfigError(
            f"the listener {name!r}, which systemd is to hand over, is none ({error.strerror}); look at its socket unit"
        ) from None
    if sock.type != socket.SOCK_STREAM or not sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        sock.close()
        raise ConfigError(
            f"the listener {name!r} of systemd takes no connections; its socket unit needs ListenStream= and Accept=no"
        )
    return sock
