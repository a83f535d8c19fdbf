"""Cost of a durable transition: a step ends, that is on disk, and the next one is ordered; with 1,000 clients.

``python benchmarks/transitions.py`` prints one JSON object. A private daemon runs in a folder of its own; all clients
live in one other process that speaks the wire and does nothing else. Each job has one task, which is built on one of
500 units and profiled on one of 500 others, in turn.

`paced`: stages are as long as lets 1,000 end in a second (--rate). `saturated`: no stage takes any time, and what
the daemon can do is what limits it. `crowded` is `paced` while submissions come, and `overload` while ten times as many
come, from users who do not wait when they are told to. `ack_ms` is what lies between a client's word that a step has
ended and the answer that this is durable, by the clients' clock. Processor time is the daemon's, all its threads
together.
"""

import argparse
import asyncio
import hashlib
import json
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import uvloop
from mock_load import MEMORY, Machine, in_ms
from private import answering, private_daemon

from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.errors import AutoschedError
from autosched.model import JobLoad, JobSpec, Outcome, Record, TaskInfo, TaskLoad
from autosched.protocol import (
    DAEMON_METHODS,
    PROTOCOL,
    AddRecord,
    CancelJob,
    Done,
    EndStep,
    Hello,
    PlanNetwork,
    Shutdown,
    StartStep,
    Submit,
    Submitted,
    Welcome,
)
from autosched.wire.frames import Answer, Call, Peer
from autosched.wire.link import Link

UNITS = 500
SUBMITS_PER_S = 10.0
USERS = 20
COME_AT_ONCE = 50
COMING_S, SETTLE_S = 4.0, 6.0
"""Seconds of a stage while clients connect; seconds until no such stage runs any more."""
DEADLINE_S = 300.0
MODEL = b"these clients read no model"
POOLS = {"build": "device:lane", "profile": "device:cpu"}
NEXT = {"build": "profile", "profile": "build"}


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1_000)
    parser.add_argument("--rate", type=float, default=1_000.0, help="transitions a second, where they are paced")
    parser.add_argument("--seconds", type=float, default=15.0, help="length of each part")
    parser.add_argument("--policy", default="predictive")
    parser.add_argument("--parts", nargs="+", default=["paced", "crowded", "overload", "saturated"])
    parser.add_argument("--records", type=int, default=0, help="records in each profile step")
    parser.add_argument("--no-store", action="store_true", help="without a record store")
    parser.add_argument("--in-memory", action="store_true", help=f"the daemon's files in {MEMORY}: no disk to wait for")
    args = parser.parse_args()
    with (
        tempfile.TemporaryDirectory(prefix="autosched-bench-", dir=MEMORY if args.in_memory else None) as folder,
        private_daemon(Path(folder), settings(args)) as process,
        asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner,
    ):
        told = runner.run(measure(args, Path(folder), psutil.Process(process.pid)))
    print(json.dumps(told, indent=1))


def settings(args: argparse.Namespace) -> str:
    """Returns many units that are only names, and sufficient limits."""
    units = "".join(
        f'[[device]]\nname = "{kind}{number}"\nkind = "{kind}"\n' for kind in ("cpu", "lane") for number in range(UNITS)
    )
    limits = f"[limits]\njobs_active_max = {args.clients + 200}\nconnections_max = {args.clients + 200}\n"
    store = '[records]\nurl = "off"\n' if args.no_store else ""
    return f'[scheduler]\npolicy = "{args.policy}"\n{limits}{store}{units}'


async def measure(args: argparse.Namespace, folder: Path, process: psutil.Process) -> dict[str, Any]:
    """Connects all clients, then runs one part after the other."""
    address = f"unix:{folder}/api.sock"
    daemon = await answering(address, process)
    (model := folder / "model.onnx").write_bytes(MODEL)
    await daemon.upload(model)
    crowd = Crowd(args.records)
    try:
        for first in range(0, args.clients, COME_AT_ONCE):
            numbers = range(first, min(first + COME_AT_ONCE, args.clients))
            await asyncio.gather(*(crowd.add(daemon, address, number) for number in numbers))
        parts = {part: await run_part(part, args, folder, process, crowd, address) for part in args.parts}
        info = await daemon.info()
    finally:
        crowd.close()
    await daemon.link.call(Shutdown(), Done)
    daemon.close()
    return {"clients": args.clients, "in_memory": args.in_memory, "daemon_rss_mb": info.rss_bytes / 1e6, **parts}


async def run_part(
    part: str, args: argparse.Namespace, folder: Path, process: psutil.Process, crowd: "Crowd", address: str
) -> dict[str, Any]:
    """Runs one part; returns its figures."""
    crowd.stage_s = 0.0 if part == "saturated" else args.clients / args.rate
    users = {"crowded": 1.0, "overload": 10.0}.get(part)
    await asyncio.sleep(SETTLE_S)
    flood = Flood(address, SUBMITS_PER_S * users) if users is not None else None
    if flood is not None:
        await flood.begin()
    machine = Machine(folder, process.cpu_affinity())
    machine.start()
    loop = asyncio.get_running_loop()
    began_at, used_s, own_s, crowd.acks_s = loop.time(), cpu_s(process), time.process_time(), []
    await asyncio.sleep(args.seconds)
    acks_s, lasted_s, used_s = crowd.acks_s, loop.time() - began_at, cpu_s(process) - used_s
    own_s = time.process_time() - own_s
    machine.stop()
    told = {
        "transitions_per_s": len(acks_s) / lasted_s,
        "daemon_cpu_us": 1e6 * used_s / len(acks_s),
        "daemon_share_of_a_core": used_s / lasted_s,
        "clients_share_of_a_core": own_s / lasted_s,
        "ack_ms": in_ms(acks_s),
        "meanwhile": {"late_ms": in_ms(machine.late_s), "fsync_ms": in_ms(machine.fsync_s)},
    }
    return told if flood is None else {**told, "submits": await flood.end(lasted_s)}


def cpu_s(process: psutil.Process) -> float:
    """Returns its CPU time in seconds."""
    times = process.cpu_times()
    return float(times.user + times.system)


# Clients --------------------------------------------------------------------------------------------------------------


class Crowd:
    """All clients."""

    def __init__(self, records: int = 0) -> None:
        self.stage_s, self.records = COMING_S, records
        self.acks_s: list[float] = []
        self._clients: list[Client] = []

    async def add(self, daemon: Daemon, address: str, number: int) -> None:
        """Adds one job with its client at work."""
        submitted = await daemon.submit(spec(f"net{number}", seed=number))
        loop = asyncio.get_running_loop()
        _, client = await loop.create_unix_connection(lambda: Client(self), address.removeprefix("unix:"))
        self._clients.append(client)
        hello = Hello(protocol=PROTOCOL, software="crowd", role="client", job=submitted.job, token=submitted.token)
        await client.call(hello)
        network = Network(tasks=(TaskInfo(task=1, name="conv", workload=f"w{number % 50}", weight=1),))
        await client.call(PlanNetwork(network=network, trials=1_000_000))

    def close(self) -> None:
        """Closes all connections."""
        for client in self._clients:
            client.transport.close()


class Client(asyncio.Protocol):
    """One client, as close to the wire as possible: it shares a core with all others."""

    def __init__(self, crowd: Crowd) -> None:
        self._crowd, self._peer = crowd, Peer(DAEMON_METHODS, 512 * 1024)
        self._loop = asyncio.get_running_loop()
        self._calls: dict[int, asyncio.Future[None] | float] = {}
        self._trial = 0
        self.transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called when the connection is open."""
        self.transport = transport

    async def call(self, method: Hello | PlanNetwork) -> None:
        """Calls a method and waits for the answer."""
        number, frame = self._peer.request(method)
        answered = self._calls[number] = self._loop.create_future()
        self.transport.write(frame)
        async with asyncio.timeout(DEADLINE_S):
            await answered

    def data_received(self, data: bytes) -> None:
        """Processes orders and answers."""
        for message in self._peer.receive(data):
            match message:
                case Answer(id=number, error=error):
                    assert error is None, error
                    began = self._calls.pop(number)
                    if isinstance(began, float):
                        self._crowd.acks_s.append(time.monotonic() - began)
                    else:
                        began.set_result(None)
                case Call(id=number, method=StartStep(step=step)):
                    self.transport.write(self._peer.respond(number, Done()))
                    took_s = self._crowd.stage_s * random.uniform(0.5, 1.5)  # else they would all end at once
                    self._loop.call_later(took_s, self._end, step.id, step.stage)
                case Call(id=number):
                    self.transport.write(self._peer.respond(number, wish("build")))

    def _end(self, step: int, stage: str) -> None:
        if self.transport.is_closing():
            return
        for _ in range(self._crowd.records if stage == "profile" else 0):
            record = Record(
                task=1, number=self._trial, candidate=random.randbytes(400), latency_s=(1e-3, 1.1e-3, 1.2e-3)
            )
            self._trial += 1
            number, frame = self._peer.request(AddRecord(record=record))
            self._calls[number] = asyncio.get_running_loop().create_future()
            self.transport.write(frame)
        method = EndStep(step=step, outcome=Outcome.DONE, load=wish(NEXT[stage]), worked_s=self._crowd.stage_s)
        number, frame = self._peer.request(method)
        self._calls[number] = time.monotonic()
        self.transport.write(frame)


def wish(stage: str) -> JobLoad:
    """Returns the load with the task's next stage."""
    return JobLoad(tasks=(TaskLoad(task=1, resources_next=(POOLS[stage],), stage_next=stage, expected_s=1.0),))


def spec(name: str, seed: int = 0) -> JobSpec:
    """Returns a job whose client is here."""
    return JobSpec(name=name, model=hashlib.sha256(MODEL).hexdigest(), external=True, seed=seed)


# Submissions ----------------------------------------------------------------------------------------------------------


class Flood:
    """Users who submit a number of jobs a second together, and cancel each accepted one."""

    def __init__(self, address: str, per_s: float) -> None:
        self._address, self._per_s = address, per_s
        self._links: list[Link] = []
        self._under_way: set[asyncio.Task[None]] = set()
        self._took_s: list[float] = []
        self._refused = 0

    async def begin(self) -> None:
        """Connects all users."""
        for _ in range(USERS):
            link = await Link.open(self._address)
            await link.call(Hello(protocol=PROTOCOL, software="flood"), Welcome)
            self._links.append(link)
        self._submitting = asyncio.ensure_future(self._submit())

    async def _submit(self) -> None:
        loop = asyncio.get_running_loop()
        began_at, count = loop.time(), 0
        while True:
            work = asyncio.ensure_future(self._one(self._links[count % USERS]))
            self._under_way.add(work)
            work.add_done_callback(self._under_way.discard)
            count += 1
            await asyncio.sleep(max(0.0, began_at + count / self._per_s - loop.time()))

    async def _one(self, link: Link) -> None:
        loop = asyncio.get_running_loop()
        began_at = loop.time()
        try:
            submitted = await link.call(Submit(spec=spec("flood")), Submitted)
            self._took_s.append(loop.time() - began_at)
            await link.call(CancelJob(job=submitted.job), Done)
        except AutoschedError:
            self._refused += 1

    async def end(self, lasted_s: float) -> dict[str, Any]:
        """Disconnects all users."""
        self._submitting.cancel()
        if self._under_way:
            await asyncio.wait(self._under_way)
        for link in self._links:
            link.close()
        taken = len(self._took_s)
        return {
            "wanted_per_s": self._per_s,
            "taken_per_s": taken / lasted_s,
            "refused_per_s": self._refused / lasted_s,
            "took_ms": in_ms(self._took_s),
        }


if __name__ == "__main__":
    main()
