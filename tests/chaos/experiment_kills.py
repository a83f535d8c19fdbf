"""An experiment whose daemon, clients and own process are killed at random, while the machine's clock is set. Its table
must equal that of an undisturbed run."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from autosched.api.connection import Daemon
from autosched.errors import AutoschedError
from autosched.experiments import table
from autosched.launch.job_folder import JOB_DIR
from autosched.protocol import Done, JobList, ListJobs, Shutdown
from chaos.clock import WallClock

KILLS = 20
NAME = "chaos"
FILE = """
at_once = 3
[parameters]
model = ["a.bin", "b.bin"]
backend = "mock"
trials = [12, 24, 48]
seed = [0, 1, 2, 3]
option.tasks = 1
option.build_s = 0.4
option.profile_s = 0.3
settings = "lab.toml"
[daemon]
own = true
"""
LAB = '[daemon]\nsocket = "{folder}/api.sock"\n[[device]]\nname = "board"\nkind = "cpu"\n'
"""A device without cores, so that other load causes no repeated measurements."""
JOBS = 24
PAUSE_S = (0.5, 4.0)
"""Minimum and maximum seconds between two kills."""
DEADLINE_S = 600.0
DAY_S = 86_400
SAME = {*table.TIMES, "job"}
"""Columns that may differ."""


class Run:
    """One run of the experiment in its own folder."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        folder.mkdir()
        self.folder, self.address = folder, f"unix:{folder}/api.sock"
        self._jobs = f"{JOB_DIR}={folder}".encode()
        self._environment = {**os.environ, **environment, "AUTOSCHED_STATE_DIR": str(folder / "s")}
        self._environment.pop("AUTOSCHED_HOST", None)
        for name in "ab":
            (folder / f"{name}.bin").write_bytes(b"any bytes: " + name.encode())
        (folder / f"{NAME}.toml").write_text(FILE)
        (folder / "lab.toml").write_text(LAB.format(folder=folder))
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts or resumes the experiment."""
        command = [sys.executable, "-m", "autosched", "experiment", "run", f"{NAME}.toml"]
        with (self.folder / "run.log").open("ab") as log:
            self.process = subprocess.Popen(command, cwd=self.folder, env=self._environment, stdout=log, stderr=log)

    def wait(self) -> int:
        """Waits for the end of the process; returns its exit code."""
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def rows(self) -> list[dict[str, Any]]:
        """Returns the table."""
        command = [sys.executable, "-m", "autosched", "experiment", "results", NAME, "-o", "json"]
        done = subprocess.run(command, env=self._environment, stdout=subprocess.PIPE, check=True, timeout=60.0)
        found: list[dict[str, Any]] = json.loads(done.stdout)["rows"]
        return found

    async def pid(self) -> int | None:
        """Returns the daemon's process id; None where none answers."""
        try:
            daemon = await Daemon.connect(self.address, timeout_s=5.0)
            try:
                return (await daemon.info()).pid
            finally:
                daemon.close()
        except AutoschedError:
            return None

    def clients(self) -> list[int]:
        """Returns the process ids of clients."""
        found = []
        for path in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if self._jobs in (path / "environ").read_bytes():
                    found.append(int(path.name))
        return found

    async def jobs(self) -> Counter[str]:
        """Returns the number of the daemon's jobs for each combination."""
        daemon = await Daemon.connect(self.address)
        try:
            page = await daemon.link.call(ListJobs(limit=500, labels={"experiment": NAME}), JobList)
            return Counter(view.labels["combination"] for view in page.jobs)
        finally:
            await daemon.link.call(Shutdown(), Done)
            daemon.close()


async def kills(folder: Path, count: int, rng: random.Random) -> dict[str, Any]:
    """Runs it once undisturbed and once with kills; returns the differences."""
    calm = Run(folder / "calm", {})
    calm.start()
    code = await asyncio.to_thread(calm.wait)
    expected, _ = calm.rows(), await calm.jobs()
    clock = WallClock(folder)
    run, died = Run(folder / "chaos", clock.environment), Counter[str]()
    run.start()
    while sum(died.values()) < count:
        await asyncio.sleep(rng.uniform(*PAUSE_S))
        assert run.process is not None
        if run.process.poll() is not None:
            break
        died.update([await _kill(run, clock, rng)])
    assert run.process is not None
    if run.process.poll() is None or run.process.returncode != 0:
        await asyncio.to_thread(run.wait)
        if run.process.returncode != 0:
            run.start()
    codes = (code, await asyncio.to_thread(run.wait))
    found, jobs = run.rows(), await run.jobs()
    violations = [f"exit codes {codes}"] if codes != (0, 0) else []
    violations += [f"{name} was submitted {count} times" for name, count in jobs.items() if count > 1]
    violations += [f"{len(rows)} rows, not {JOBS}" for rows in (expected, found) if len(rows) != JOBS]
    violations += [
        f"{one['combination']}: {key} is {other.get(key)!r}, not {one[key]!r}"
        for one, other in zip(expected, found, strict=False)
        for key in one.keys() - SAME
        if one[key] != other.get(key)
    ]
    return {"jobs": len(found), "kills": sum(died.values()), **{f"{who}_kills": n for who, n in died.items()},
        "violations": violations[:50]}  # fmt: skip


async def _kill(run: Run, clock: WallClock, rng: random.Random) -> str:
    """Kills one of the processes, or sets the clock; returns which."""
    what = rng.choice(("daemon", "client", "runner", "clock"))
    pids = {"daemon": [await run.pid()], "client": run.clients(), "runner": [run.process.pid] if run.process else []}
    if what == "clock" or not (able := [pid for pid in pids[what] if pid]):
        clock.set_ahead(rng.randint(-DAY_S, DAY_S))
        return "clock"
    with suppress(ProcessLookupError):
        os.kill(rng.choice(able), signal.SIGKILL)
    if what == "runner":
        await asyncio.to_thread(run.wait)
        run.start()
    return what
