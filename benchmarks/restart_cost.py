"""Measures the time of a restart with 10,000 jobs and a million rows.

``python benchmarks/restart_cost.py`` prints one JSON object. The daemon's own journal and store write a database, from
jobs that a scripted client runs one step after the other; then the daemon is started on it. `serving_s` is the time
from the start of its process to the answer to a user's first request, `serving_cpu_s` its CPU time, which other load on
the machine does not affect.
"""

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from autosched.api.connection import Daemon
from autosched.backend import Network
from autosched.core.events import ClientAttached, ClientLost, Event, JobSubmitted, ResourcesDeclared, StepEnded
from autosched.core.scheduler import Scheduler
from autosched.daemon.recovery import backups, snapshot
from autosched.daemon.storage import database
from autosched.daemon.storage.job_store import JobStore, Planned, span_rows
from autosched.daemon.storage.journal import Journal
from autosched.daemon.storage.schema import checked
from autosched.daemon.storage.stage_times import PUT
from autosched.errors import DaemonUnreachable
from autosched.model import JobLoad, JobSpec, Outcome, Pool, Record, Step, TaskInfo, TaskLoad, Unit
from autosched.network_status import NOT_MEASURED
from autosched.protocol import Span
from autosched.records import identity

HOST, DEVICE = "host", "device:cpu"
STAGES = (("build", HOST), ("profile", DEVICE), ("update", HOST))
TASKS = 20
TARGET = identity.loose(JobSpec(name="net", model="0" * 64))
RUNS = 3
DEADLINE_S = 300.0
POLL_S = 0.01
AT_ONCE = 20_000


def main() -> None:
    """Prepares, starts, prints the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the journal, of spans and of records together")
    parser.add_argument("--keep", type=Path, help="a folder that stays; a database that lies there is used again")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="autosched-bench-") as folder:
        state = args.keep or Path(folder)
        path = database.database(state)
        if not path.exists():
            state.mkdir(exist_ok=True)
            asyncio.run(make(path, args.jobs, args.rows))
        print(json.dumps({"jobs": args.jobs, **measured(state)}, indent=1))


# The past -------------------------------------------------------------------------------------------------------------


async def make(path: Path, jobs: int, rows: int) -> None:
    """Writes the database. Half of the rows are records; the others are events and the steps that they end, and the
    stage times of all tasks. No two jobs share a task, which gives the maximum number."""
    journal = Journal(path, *database.TABLES)
    journal.start()
    store, life = JobStore(journal), Life()
    steps = max(3, rows // jobs // 4)
    waiting: list[asyncio.Future[None]] = []
    for job in range(1, jobs + 1):
        for now, event, started, ended in life.of_job(job, steps):
            waiting.append(journal.append(now, event, started, span_rows(ended)))
        infos = tuple(
            TaskInfo(task=task, name=f"conv2d {task}", workload=f"{job * TASKS + task:016x}")
            for task in range(1, TASKS)
        )
        waiting.append(store.plan(job, Planned(Network(tasks=infos), 1_000, NOT_MEASURED)))
        times = (checked(info.workload, TARGET, stage, 4, 3.6) for info in infos for stage, _ in STAGES)
        waiting.append(journal.write(*((PUT, row) for row in times)))
        for trial in range(rows // jobs // 2):
            latency_s = tuple(1e-3 * (1 + (7 * trial + repeat) % 11) for repeat in range(3))
            waiting.append(
                store.add_record(
                    job,
                    trial,
                    Record(task=1 + trial % (TASKS - 1), number=trial, candidate=bytes(400), latency_s=latency_s),
                )
            )
        if len(waiting) > AT_ONCE:
            await asyncio.gather(*waiting)
            waiting.clear()
    await asyncio.gather(*waiting)
    journal.close()


class Life:
    """A daemon with one job at a time."""

    def __init__(self) -> None:
        self.now = 0.0
        self.core = Scheduler()
        pools = (Pool(HOST, (Unit("host/0", (0,)),)), Pool(DEVICE, (Unit("cpu0", (1,)),)))
        self.first: Event | None = ResourcesDeclared(pools, 600.0, 60.0)

    def of_job(self, job: int, steps: int) -> Iterator[tuple[float, Event, tuple[Step, ...], list[Span]]]:
        """Yields time, event, started steps and ended steps."""
        if self.first is not None:
            yield (*self._happens(self.first), [])
            self.first = None
        yield (*self._happens(JobSubmitted(job, JobSpec(name=f"net{job}", model="0" * 64, trials=1_000))), [])
        now, event, started = self._happens(ClientAttached(job, self._load(0)))
        yield now, event, started, []
        for number in range(1, steps):
            (step,) = started
            load = self._load(number) if number < steps - 1 else JobLoad(complete=True)
            now, event, started = self._happens(StepEnded(step.id, Outcome.DONE, load, worked_s=0.9))
            span = Span(
                step.id, job, 1, step.stage, step.units, step.started_at, step.started_at, now, Outcome.DONE.value, 0.9
            )
            yield now, event, started, [span]
        yield (*self._happens(ClientLost(job, "it ended")), [])

    def _happens(self, event: Event) -> tuple[float, Event, tuple[Step, ...]]:
        self.now += 1.0
        return self.now, event, self.core.handle(self.now, event).steps

    def _load(self, number: int) -> JobLoad:
        stage, pool = STAGES[number % len(STAGES)]
        task = 1 + number // len(STAGES) % (TASKS - 1)
        return JobLoad(tasks=(TaskLoad(task=task, resources_next=(pool,), stage_next=stage),))


# The restart ----------------------------------------------------------------------------------------------------------


def measured(state: Path) -> dict[str, Any]:
    """Measures the first start, which has no snapshot, and later ones."""
    path = database.database(state)
    snapshot.forget(database.snapshots(state))
    began_at = time.process_time()
    found = backups.verify(path)
    check_cpu_s = time.process_time() - began_at
    first = start(state)
    began_at = time.monotonic()
    command = [sys.executable, "-m", "autosched.daemon.recovery.maintenance", "snapshot", str(state)]
    subprocess.run(command, check=True, timeout=DEADLINE_S)
    snapshot_s = time.monotonic() - began_at
    runs = [start(state) for _ in range(RUNS)]
    return {
        "rows": sum(found.rows.values()),
        "events": found.rows["journal"],
        "records": found.rows["records"],
        "spans": found.rows["spans"],
        "stage_times": found.rows["stage_times"],
        "runs": RUNS,
        "check_cpu_s": check_cpu_s,
        "database_mb": path.stat().st_size / 1e6,
        "snapshot_mb": max(file.stat().st_size for file in database.snapshots(state).iterdir()) / 1e6,
        "snapshot_s": snapshot_s,
        "without_snapshot_s": first["serving_s"],
        **sorted(runs, key=lambda run: float(run["serving_s"]))[RUNS // 2],
    }


def start(state: Path) -> dict[str, Any]:
    """Starts the daemon once, and ends it by kill -9."""
    environment = {**os.environ, "AUTOSCHED_STATE_DIR": str(state)}
    began_at = time.monotonic()
    with (state / "daemon.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "autosched", "serve"], env=environment, stderr=log)
    try:
        told = asyncio.run(_answers(f"unix:{state}/api.sock", process))
        serving_s = time.monotonic() - began_at
        cpu_s = sum(psutil.Process(process.pid).cpu_times()[:2])
        return {"serving_s": serving_s, "serving_cpu_s": cpu_s, **told}
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


async def _answers(address: str, process: subprocess.Popen[bytes]) -> dict[str, Any]:
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                daemon = await Daemon.connect(address)
                break
            except DaemonUnreachable:
                if process.poll() is not None:
                    raise
                await asyncio.sleep(POLL_S)
        info = await daemon.info()
        return {"jobs_total": info.jobs_total, "steps": info.steps_started, "daemon_rss_mb": info.rss_bytes / 1e6}


if __name__ == "__main__":
    main()
