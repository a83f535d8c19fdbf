"""Cost of idle connections: processor time and memory of the daemon, for each of them.

``python benchmarks/idle_connections.py`` prints one JSON object. A private daemon runs in a folder of its own; another
process opens the connections, each with a key and hello, and then says nothing but a heartbeat now and then (with
--beat-s 0 nothing at all). It opens some at a time, as many as the daemon lets in before they have said who they are;
how long all of them take is what a storm of reconnects costs (`opening`).
"""

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import msgspec
import psutil
import uvloop

from autosched.api.connection import BEAT_S
from autosched.daemon.access import keyring
from autosched.protocol import PROTOCOL, Done, Heartbeat, Hello
from autosched.protocol.roles import Role
from autosched.wire import keys, whereabouts
from autosched.wire.handshake import introduce
from autosched.wire.link import Link

AT_ONCE = 48
SETTLE_S = 3.0
DEADLINE_S = 600.0
CERTIFICATE = Path(__file__).parents[1] / "tests/tls"


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--beat-s", type=float, default=BEAT_S)
    parser.add_argument("--kinds", nargs="+", default=["plain", "tls"], choices=("plain", "tls"))
    parser.add_argument("--visit", metavar="ADDRESS", help=argparse.SUPPRESS)
    args = parser.parse_args()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if args.visit:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(visit(args.visit, args.connections, args.beat_s))
    else:
        print(json.dumps({kind: measure(kind, args) for kind in args.kinds}, indent=1))


def measure(kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measures one kind of connection, with a separate daemon."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as made:
        folder = Path(made)
        key, _ = keyring.make(folder / "keys", Role.VIEWER)
        daemon = start(folder, args.connections, tls=kind == "tls")
        try:
            whereabouts = wait_for(folder)
            process = psutil.Process(daemon.pid)
            before = process.memory_info().rss
            began_at, cpu_before = time.monotonic(), cpu_s(process)
            command = [sys.executable, __file__, "--visit", whereabouts.addresses[1]]
            command += ["--connections", str(args.connections), "--beat-s", str(args.beat_s)]
            environment = {**os.environ, keys.VARIABLE: key.line()}
            with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as visitor:
                assert visitor.stdin is not None and visitor.stdout is not None
                told = visitor.stdout.readline()
                assert told == b"open\n", told
                opening_s, opening_cpu_s = time.monotonic() - began_at, cpu_s(process) - cpu_before
                time.sleep(SETTLE_S)
                began_at, cpu_before = time.monotonic(), cpu_s(process)
                time.sleep(args.seconds)
                used_s, lasted_s = cpu_s(process) - cpu_before, time.monotonic() - began_at
                grown = process.memory_info().rss - before
                visitor.stdin.close()
                beats_per_s = float(visitor.stdout.readline())
                visitor.wait(DEADLINE_S)
        finally:
            daemon.terminate()
            daemon.wait(DEADLINE_S)
    return {
        "connections": args.connections,
        "beats_per_s": round(beats_per_s, 1),
        "share_of_a_core": round(used_s / lasted_s, 4),
        "kB_each": round(grown / args.connections / 1e3, 2),
        "opening": {
            "seconds": round(opening_s, 2),
            "daemon_ms_each": round(opening_cpu_s / args.connections * 1e3, 3),
        },
    }


def cpu_s(process: psutil.Process) -> float:
    """Returns its CPU time in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


def start(folder: Path, connections: int, *, tls: bool) -> subprocess.Popen[bytes]:
    """Starts a daemon that admits a number of connections."""
    certificate = f'tls_certificate = "{CERTIFICATE}/tls.crt"\ntls_key = "{CERTIFICATE}/tls.key"\n' if tls else ""
    limits = f"[limits]\nconnections_max = {2 * connections + 100}\nuser_connections_max = {connections + 10}\n"
    settings = f'[daemon]\nstate_dir = "{folder}"\nlisten = "127.0.0.1:0"\n{certificate}{limits}'
    (folder / "autosched.toml").write_text(settings)
    command = [sys.executable, "-m", "autosched", "serve", "-c", str(folder / "autosched.toml")]
    with (folder / "daemon.log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log)


def wait_for(folder: Path) -> whereabouts.Whereabouts:
    """Returns the daemon's address, once it listens."""
    path = folder / whereabouts.WHEREABOUTS
    give_up_at = time.monotonic() + DEADLINE_S
    while not path.exists():
        assert time.monotonic() < give_up_at, (folder / "daemon.log").read_text()
        time.sleep(0.05)
    return msgspec.json.decode(path.read_bytes(), type=whereabouts.Whereabouts)


# The other end --------------------------------------------------------------------------------------------------------


async def visit(address: str, connections: int, beat_s: float) -> None:
    """Opens connections, reports it, and stays until stdin is closed."""
    turns = asyncio.Semaphore(AT_ONCE)
    links: list[Link] = []

    async def come() -> None:
        async with turns:
            link = await Link.open(address, timeout_s=60.0)
            await introduce(link, Hello(protocol=PROTOCOL, software="idle"), timeout_s=60.0)
            links.append(link)

    await asyncio.gather(*(come() for _ in range(connections)))
    print("open", flush=True)
    beats, began_at = [0], time.monotonic()
    beating = asyncio.ensure_future(beat(links, beat_s, beats))
    await asyncio.to_thread(sys.stdin.read)
    beating.cancel()
    assert not any(link.lost for link in links), "connections were lost meanwhile"
    print(beats[0] / (time.monotonic() - began_at), flush=True)
    os._exit(0)  # the system closes them faster than we do


async def beat(links: list[Link], beat_s: float, beats: list[int]) -> None:
    """Sends one heartbeat on each link in this time, evenly."""
    began_at = time.monotonic()
    while beat_s:
        for link in links:
            await link.call(Heartbeat(), Done)
            beats[0] += 1
            due_s = began_at + beats[0] * beat_s / len(links) - time.monotonic()
            await asyncio.sleep(max(0.0, due_s))


if __name__ == "__main__":
    main()
