"""Time between two steps on a resource, while 100 real clients of the mock backend run.

``python benchmarks/mock_load.py`` prints one JSON object. A private daemon runs in a folder of its own on the default
lanes of this machine, with one device that has no cores: on one that has, the client also looks whether it is at rest,
which is no scheduling. Only pairs of steps count of which the second had been waiting for the unit when the first one
ended. `between_ms` is what lies between the end of the first stage and the begin of the second by the
clocks of their clients: the report of the end, the decision, its commit to disk, the order, and the wake of another
process. `report_ms` and `order_ms` are its two halves, before and after the moment that the daemon writes down: in
the listing of spans one step ends when the next one begins.

The start of the Python processes is told apart (`startup`) from what follows (`steady`). Meanwhile a thread that
only sleeps on the daemon's cores, and now and then has a few bytes written to its disk, tells what the machine itself
does to its users (`meanwhile`): what other work makes late there is late here as well.
"""

import argparse
import asyncio
import json
import os
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import psutil
from private import answering, private_daemon

from autosched import config
from autosched.api.connection import Daemon
from autosched.model import HOST_POOL, JobSpec
from autosched.protocol import Done, Shutdown, Span

DEADLINE_S = 300.0
NAP_S = 0.02
NAPS_PER_WRITE = 5
MEMORY = "/dev/shm"
"""A file system whose flushes are free: the remaining time is the daemon's own."""


class Logged(msgspec.Struct, frozen=True):
    """One line of a mock client's log: a stage by the machine's monotonic clock."""

    task: int
    stage: str
    units: tuple[str, ...]
    began_at: float
    ended_at: float


@dataclass(frozen=True)
class Ran:
    """One step as the daemon and its client saw it."""

    span: Span
    logged: Logged


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--tasks", type=int, default=4, help="tasks of each job")
    parser.add_argument("--stage-s", type=float, default=0.02, help="mean time of build, profile and update")
    parser.add_argument("--seconds", type=float, default=30.0, help="length of the steady state")
    parser.add_argument("--keep", type=Path, help="an empty folder to work in that stays, for a look at the logs")
    parser.add_argument("--in-memory", action="store_true", help=f"the daemon's files in {MEMORY}: no disk to wait for")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-", dir=MEMORY if args.in_memory else None) as folder:
        work = args.keep or Path(folder)
        with private_daemon(work, settings()) as process:
            told = asyncio.run(measure(args, work, psutil.Process(process.pid)))
    print(json.dumps(told, indent=1))


async def measure(args: argparse.Namespace, folder: Path, process: psutil.Process) -> dict[str, Any]:
    """Starts, waits for a steady state, measures."""
    log = folder / "steps.log"
    daemon = await answering(f"unix:{folder}/api.sock", process)
    began_at = asyncio.get_running_loop().time()
    await submit_all(daemon, args, log)
    await all_at_work(daemon, args.clients)
    took_s = asyncio.get_running_loop().time() - began_at
    steady_at, before = (await daemon.job(1)).now, cpu_s(process)
    machine = Machine(folder, process.cpu_affinity())
    machine.start()
    await asyncio.sleep(args.seconds)
    machine.stop()
    after, ended_at = cpu_s(process), (await daemon.job(1)).now
    spans = [span for span in await daemon.spans() if span.ended_at is not None]
    rss = (await daemon.info()).rss_bytes
    await daemon.link.call(Shutdown(), Done)
    daemon.close()
    ran = joined(spans, read_log(log))
    startup = [r for r in ran if r.span.started_at < steady_at]
    steady = [r for r in ran if steady_at <= r.span.started_at <= ended_at]
    count = max(1, len(steady))
    return {
        "in_memory": args.in_memory,
        "clients": args.clients,
        "tasks": args.tasks,
        "stage_s": args.stage_s,
        "startup": {"took_s": took_s, **told(startup)},
        "steady": {
            "took_s": ended_at - steady_at,
            "steps_per_s": count / (ended_at - steady_at),
            "daemon_cpu_ms_per_step": 1e3 * (after[0] - before[0]) / count,
            "clients_cpu_ms_per_step": 1e3 * (after[1] - before[1]) / count,
            **told(steady),
        },
        "meanwhile": {"late_ms": in_ms(machine.late_s), "fsync_ms": in_ms(machine.fsync_s)},
        "daemon_rss_mb": rss / 1e6,
    }


# The system -----------------------------------------------------------------------------------------------------------


def settings() -> str:
    """Returns the default lanes of this machine, and a device without cores."""
    pools = config.resources(config.Config()).pools
    cores = [core for pool in pools if pool.name == HOST_POOL for unit in pool.units for core in unit.cores]
    return (
        f"[scheduler]\nattach_timeout_s = {DEADLINE_S}\n"
        f"[resources]\nhost_cores = {cores}\n"
        '[[device]]\nname = "board0"\nkind = "cpu"\n'
    )


async def submit_all(daemon: Daemon, args: argparse.Namespace, log: Path) -> None:
    """Submits jobs that do not end."""
    model = log.with_name("model.onnx")
    model.write_bytes(b"the mock backend reads no model")
    sha256 = await daemon.upload(model)
    seconds = {f"{stage}_s": args.stage_s for stage in ("build", "profile", "update")}
    options = {"tasks": args.tasks, "spread": 0.3, "log": str(log), **seconds}
    for number in range(args.clients):
        await daemon.submit(
            JobSpec(
                name=f"net{number}",
                model=sha256,
                backend="mock",
                fresh=True,
                trials=1_000_000,
                seed=number,
                options=options,
            )
        )


async def all_at_work(daemon: Daemon, clients: int) -> None:
    """Waits until each job has a first record, which ends the start-up."""
    async with asyncio.timeout(DEADLINE_S):
        for job in range(1, clients + 1):
            async for view in daemon.follow(job, wait_s=5.0):
                if view.trials:
                    break
                if view.failure is not None:
                    raise RuntimeError(f"job {job} failed: {view.failure.message}")


def cpu_s(daemon: psutil.Process) -> tuple[float, float]:
    """Returns the CPU time of the daemon and of all its clients so far."""
    own, *clients = (sum(process.cpu_times()[:2]) for process in (daemon, *daemon.children()))
    return own, sum(clients)


class Machine(threading.Thread):
    """Delays of a thread that does almost nothing."""

    def __init__(self, folder: Path, cores: Sequence[int]) -> None:
        super().__init__(daemon=True)
        self.late_s: list[float] = []
        self.fsync_s: list[float] = []
        self._path, self._cores = folder / "probe", cores
        self._stopped = threading.Event()

    def run(self) -> None:
        """Sleeps, and writes now and then."""
        os.sched_setaffinity(0, self._cores)
        with self._path.open("wb") as file:
            slept = 0
            while True:
                began_at = time.monotonic()
                if self._stopped.wait(NAP_S):
                    return
                self.late_s.append(time.monotonic() - began_at - NAP_S)
                slept += 1
                if slept % NAPS_PER_WRITE == 0:
                    began_at = time.monotonic()
                    file.write(b"some bytes")
                    file.flush()
                    os.fsync(file.fileno())
                    self.fsync_s.append(time.monotonic() - began_at)

    def stop(self) -> None:
        """Stops the thread."""
        self._stopped.set()
        self.join()


def read_log(path: Path) -> list[Logged]:
    """Returns the lines that the clients wrote."""
    decode = msgspec.json.Decoder(Logged).decode
    return [decode(line) for line in path.read_bytes().splitlines()]


# Numbers --------------------------------------------------------------------------------------------------------------


def joined(spans: Iterable[Span], logged: Iterable[Logged]) -> list[Ran]:
    """Pairs spans with log lines: steps on one unit do not overlap, so the nth span has the nth line."""
    by_unit: dict[str, tuple[list[Span], list[Logged]]] = defaultdict(lambda: ([], []))
    for span in spans:
        by_unit[span.units[0]][0].append(span)
    for line in logged:
        by_unit[line.units[0]][1].append(line)
    ran = []
    for of_unit, lines in by_unit.values():
        of_unit.sort(key=lambda span: span.step)
        lines.sort(key=lambda line: line.began_at)
        for span, line in zip(of_unit, lines, strict=False):  # the last steps have ended in one of the two only
            assert (span.stage, span.task) == (line.stage, line.task), f"{span} is not {line}"
            ran.append(Ran(span, line))
    return ran


def told(ran: Sequence[Ran]) -> dict[str, Any]:
    """Returns percentiles of the time between two steps on a unit for which the second had been waiting."""
    if not ran:
        return {"between_ms": in_ms([])}
    by_unit: dict[str, list[Ran]] = defaultdict(list)
    for one in ran:
        by_unit[one.span.units[0]].append(one)
    pairs = [
        (before, after)
        for of_unit in by_unit.values()
        for before, after in pairwise(of_unit)
        if after.span.queued_at <= ended(before)
    ]
    # The scheduler's clock lies somewhere between the tightest reports and the tightest orders.
    earliest = max(one.logged.ended_at - ended(one) for one in ran)
    latest = min(one.logged.began_at - one.span.started_at for one in ran)
    offset_s = (earliest + latest) / 2
    return {
        "between_ms": in_ms([after.logged.began_at - before.logged.ended_at for before, after in pairs]),
        "report_ms": in_ms([ended(before) + offset_s - before.logged.ended_at for before, _ in pairs]),
        "order_ms": in_ms([after.logged.began_at - offset_s - after.span.started_at for _, after in pairs]),
    }


def ended(ran: Ran) -> float:
    """Returns the end by the scheduler's clock."""
    assert ran.span.ended_at is not None
    return ran.span.ended_at


def in_ms(seconds: Sequence[float]) -> dict[str, float]:
    """Returns p50, p90, p99 and maximum, in milliseconds."""
    ordered = sorted(1e3 * s for s in seconds)
    if not ordered:
        return {"count": 0}
    last = len(ordered) - 1
    quantiles = {f"p{percent}": ordered[round(last * percent / 100)] for percent in (50, 90, 99)}
    return {**quantiles, "max": ordered[-1], "count": len(ordered)}


if __name__ == "__main__":
    main()
