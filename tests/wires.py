"""Network namespaces on wires that are slow, lose packets, or are cut, on a kernel without such features.

Each wire joins this machine and a namespace by a pair of TUN devices; a thread passes the packets on.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache

TUN, SETIFF, TUN_IP_WITHOUT_HEADER = "/dev/net/tun", 0x400454CA, 0x0001 | 0x1000
PACKET_BYTES = 65_536
IDLE_S = 0.2
"""Seconds between two checks for the end of an idle wire."""


@cache
def possible() -> str:
    """Returns the reason why this machine cannot have namespaces on wires; empty: it can. Processes may call it
    concurrently."""
    if os.geteuid() != 0:
        return "only root makes network namespaces"
    if shutil.which("ip") is None:
        return "no ip: apt-get install iproute2"
    probe = f"asp{os.getpid()}"
    try:
        os.close(_tun(probe))
    except OSError as error:
        return f"no TUN devices: {error}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    if made.returncode:
        return f"no network namespaces: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", probe], check=False)
    return ""


def _tun(name: str) -> int:
    device = os.open(TUN, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.ioctl(device, SETIFF, struct.pack("16sH22x", name.encode(), TUN_IP_WITHOUT_HEADER))
    except OSError:
        os.close(device)
        raise
    return device


class Wire:
    """A wire from this machine into a namespace."""

    def __init__(self, number: int, delay_s: float = 0.0, loss: float = 0.0, seed: int = 0) -> None:
        """`number`: below 64, and unused on this machine. `delay_s`: delay of each packet, one way. `loss`: share of
        lost packets."""
        self.namespace = f"as{os.getpid()}n{number}"
        self.near, self.far = (f"10.{100 + os.getpid() % 100}.{number}.{end}" for end in (1, 2))
        self.delay_s, self.loss = delay_s, loss
        self.cut_out = self.cut_in = False
        """Whether packets from here, or to here, are dropped."""
        self._random = random.Random(seed)
        names = [f"as{os.getpid() % 100_000}{end}{number}" for end in "nf"]
        self._ends = [_tun(name) for name in names]
        inside = ["ip", "-n", self.namespace]
        for command in (
            ["ip", "netns", "add", self.namespace],
            ["ip", "link", "set", names[1], "netns", self.namespace],
            ["ip", "addr", "add", self.near, "peer", self.far, "dev", names[0]],
            ["ip", "link", "set", names[0], "up"],
            [*inside, "addr", "add", self.far, "peer", self.near, "dev", names[1]],
            [*inside, "link", "set", names[1], "up"],
            [*inside, "link", "set", "lo", "up"],
        ):
            subprocess.run(command, check=True, capture_output=True)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._carry, name="wire", daemon=True)
        self._thread.start()

    def within(self, command: Sequence[str]) -> list[str]:
        """Returns the command to run in the namespace."""
        return ["ip", "netns", "exec", self.namespace, *command]

    def cut(self, *, out: bool = True, back: bool = True) -> None:
        """Drops all packets from here, to here, or both."""
        self.cut_out, self.cut_in = out, back

    def mend(self) -> None:
        """Carries packets again."""
        self.cut_out = self.cut_in = False

    def close(self) -> None:
        """Removes the wire and its namespace."""
        self._over.set()
        self._thread.join()
        for end in self._ends:
            os.close(end)
        subprocess.run(["ip", "netns", "del", self.namespace], check=False, capture_output=True)

    def _carry(self) -> None:
        near, far = self._ends
        under_way: list[tuple[float, int, int, bytes]] = []
        count = 0
        while not self._over.is_set():
            pause_s = min(IDLE_S, max(0.0, under_way[0][0] - time.monotonic())) if under_way else IDLE_S
            for end in select.select(self._ends, [], [], pause_s)[0]:
                with suppress(OSError):
                    packet = os.read(end, PACKET_BYTES)
                    dropped = self.cut_out if end == near else self.cut_in
                    if not dropped and self._random.random() >= self.loss:
                        count += 1
                        other = far if end == near else near
                        heapq.heappush(under_way, (time.monotonic() + self.delay_s, count, other, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                with suppress(OSError):
                    os.write(under_way[0][2], under_way[0][3])
                heapq.heappop(under_way)


@contextmanager
def wire(number: int, delay_s: float = 0.0, loss: float = 0.0) -> Iterator[Wire]:
    """Yields a wire while the block runs."""
    made = Wire(number, delay_s, loss)
    try:
        yield made
    finally:
        made.close()
