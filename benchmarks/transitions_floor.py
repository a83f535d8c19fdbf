"""Least cost of a durable transition: the same messages and the same journal as in transitions.py, without decisions.

``python benchmarks/transitions_floor.py`` prints one JSON object. Instead of the daemon, a process answers each end of
a step with its success and the order of the next step, as soon as both are in the journal. It has no jobs, leases,
estimates, spans or deadlines, and publishes nothing; the clients are those of transitions.py, first saturated and then
paced. `wire` does not even write. The difference to the second is the cost of the daemon's decisions; the additional
cost of both when paced is the price of each wake-up.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import uvloop
from mock_load import MEMORY
from transitions import NEXT, SETTLE_S, Client, Crowd, cpu_s

from autosched.backend import Network
from autosched.core.events import StepEnded
from autosched.daemon.storage.journal import Journal
from autosched.model import Step, TaskInfo
from autosched.protocol import (
    CLIENT_METHODS,
    FRAME_BYTES,
    HELLO,
    PROTOCOL,
    Done,
    EndStep,
    Hello,
    PlanNetwork,
    StartStep,
)
from autosched.wire.frames import Call, Peer

DEADLINE_S = 60.0
POLL_S = 0.05
STEP_S = 600.0


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1_000.0, help="transitions a second, where they are paced")
    parser.add_argument("--in-memory", action="store_true", help=f"files in {MEMORY}: no disk to wait for")
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", choices=("wire", "durable"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        return uvloop.run(serve(args.serve, durable=args.part == "durable"))
    told = {"clients": args.clients, "in_memory": args.in_memory}
    print(json.dumps(told | {part: measure(part, args) for part in ("wire", "durable")}, indent=1))


def measure(part: str, args: argparse.Namespace) -> dict[str, Any]:
    """Measures one part."""
    with tempfile.TemporaryDirectory(prefix="autosched-bench-", dir=MEMORY if args.in_memory else None) as folder:
        command = [sys.executable, __file__, "--serve", folder, "--part", part]
        with subprocess.Popen(command) as process:
            try:
                address, until = Path(folder) / "sock", time.monotonic() + DEADLINE_S
                while not address.exists():
                    assert time.monotonic() < until, "the answering process did not start"
                    time.sleep(POLL_S)
                return uvloop.run(drive(address, args, psutil.Process(process.pid)))
            finally:
                process.kill()


async def drive(address: Path, args: argparse.Namespace, process: psutil.Process) -> dict[str, Any]:
    """Runs all clients for a while."""
    loop, crowd = asyncio.get_running_loop(), Crowd()
    crowd.stage_s = 0.0
    network = Network(tasks=(TaskInfo(task=1, name="conv", workload="w", weight=1),))
    for job in range(1, args.clients + 1):
        _, client = await loop.create_unix_connection(lambda: Client(crowd), str(address))
        await client.call(Hello(protocol=PROTOCOL, software="crowd", role="client", job=job, token=""))
        await client.call(PlanNetwork(network=network, trials=1))
    saturated = await count(crowd, args.seconds, process)
    crowd.stage_s = args.clients / args.rate
    return {**saturated, "paced": await count(crowd, args.seconds, process)}


async def count(crowd: Crowd, seconds: float, process: psutil.Process) -> dict[str, float]:
    """Returns counts of a number of seconds, once the load is steady."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(SETTLE_S)
    began_at, used_s, crowd.acks_s = loop.time(), cpu_s(process), []
    await asyncio.sleep(seconds)
    acks, lasted_s, used_s = len(crowd.acks_s), loop.time() - began_at, cpu_s(process) - used_s
    return {"transitions_per_s": acks / lasted_s, "cpu_us": 1e6 * used_s / acks, "share_of_a_core": used_s / lasted_s}


# In the daemon's place ------------------------------------------------------------------------------------------------


async def serve(folder: Path, *, durable: bool) -> None:
    """Serves until killed."""
    journal = Journal(folder / "db")
    list(journal.replay())
    journal.start()
    await asyncio.get_running_loop().create_unix_server(lambda: Answering(journal, durable), str(folder / "sock"))
    await asyncio.Event().wait()


class Answering(asyncio.Protocol):
    """One connection."""

    last_step = 0

    def __init__(self, journal: Journal, durable: bool) -> None:
        self._peer, self._job = Peer(HELLO | CLIENT_METHODS, FRAME_BYTES), 0
        self._journal, self._durable = journal, durable
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is open."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Handles a message of the client."""
        for message in self._peer.receive(data):
            match message:
                case Call(id=id, method=EndStep(step=number, outcome=outcome, load=load, worked_s=worked_s)):
                    assert load is not None
                    step = self._next(load.tasks[0].stage_next)
                    if self._durable:
                        event = StepEnded(number, outcome, load, "", worked_s)
                        stored = self._journal.append(time.monotonic(), event, (step,))
                        stored.add_done_callback(partial(self._go_on, id, step))
                    else:
                        self._go_on(id, step)
                case Call(id=id, method=Hello(job=job)):
                    self._job = job or 0
                    self._transport.write(self._peer.respond(id, Done()))
                case Call(id=id, method=PlanNetwork()):
                    self._go_on(id, self._next(NEXT["profile"]))

    def _next(self, stage: str) -> Step:
        Answering.last_step += 1
        now = time.monotonic()
        return Step(
            id=Answering.last_step, job=self._job, task=1, stage=stage, units=("cpu0",), started_at=now,
            deadline_at=now + STEP_S,
        )  # fmt: skip

    def _go_on(self, answered: int, step: Step, _: object = None) -> None:
        order = StartStep(step=step, cores=(), timeout_s=STEP_S, sentinel=False)
        self._transport.write(self._peer.respond(answered, Done()) + self._peer.request(order)[1])


if __name__ == "__main__":
    main()
