"""A real daemon in its own folder, its clients as they log themselves, and a user who keeps it busy."""

import asyncio
import json
import multiprocessing
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from msgspec.msgpack import decode

from autosched.api.connection import Daemon
from autosched.daemon.clients.adoption import clear
from autosched.daemon.storage.database import DATABASE
from autosched.errors import DaemonUnreachable, StorageFull
from autosched.launch.job_folder import JOB_DIR, kill_strays
from autosched.model import JobId, JobSpec, JobState, Outcome, StepId
from autosched.protocol import JobList, ListJobs, Span
from chaos import witness
from chaos.evidence import LOGS, USER, Life, lines, lives

BOARDS = 4
DEADLINE_S = 120.0
POLL_S = 0.02
MODEL = b"any bytes: the mock backend reads no model"
_forks = multiprocessing.get_context("forkserver")


def _serve(config: str, log: str, path: list[str]) -> None:
    """Runs the daemon in a separate process that has imported everything already."""
    sys.path[:0], os.environ["PYTHONPATH"] = path, os.pathsep.join(path)
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.setsid()
    from autosched.cli.command_table import run

    os._exit(run(["serve", "-c", config]))


class Lab:
    """Starts, kills and queries one daemon."""

    def __init__(
        self, folder: Path, boards: int = BOARDS, environment: Mapping[str, str] | None = None, settings: str = "",
        listen: str = 'listen = "127.0.0.1:0"\n',
    ) -> None:  # fmt: skip
        """`boards`: number of devices without cores; 0: the default devices. `environment`: of daemons started as
        programs, and of all clients. `settings`: further settings as TOML; `listen`: further settings of [daemon]."""
        self.folder, self.address = folder, f"unix:{folder}/api.sock"
        for name in (LOGS, "locks"):
            (folder / name).mkdir(exist_ok=True)
        self._config = folder / "autosched.toml"
        devices = "".join(f'[[device]]\nname = "board{n}"\nkind = "cpu"\n' for n in range(boards))
        head = f'[daemon]\nstate_dir = "{folder}"\nsocket = "{folder}/api.sock"\n{listen}'
        self._config.write_text(head + devices + settings)
        before = os.environ.get("PYTHONPATH")
        self._path = [*map(str, witness.on_path(folder)), *([before] if before else [])]
        self.environment = {**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(self._path)}
        _forks.set_forkserver_preload(["autosched.cli.command_table", "autosched.daemon.compose"])
        self._process: ForkServerProcess | subprocess.Popen[bytes] | None = None
        self._spawned_at: float | None = None
        self.only_programs = False
        """Whether all daemons are started as programs, such as those with libraries of their own."""
        self.pids: list[int] = []
        """Process ids of all daemons so far."""
        self.serving_s: list[float] = []
        """Seconds from its start to its first answer, for each daemon so far."""

    # The daemon -------------------------------------------------------------------------------------------------------

    def spawn(self, *, as_program: bool = False) -> None:
        """Starts the daemon as a program, or as a fork of a process that has imported it."""
        log = self.folder / "daemon.log"
        self._spawned_at = time.monotonic()
        if as_program:
            command = [sys.executable, "-m", "autosched", "serve", "-c", str(self._config)]
            with log.open("ab") as file:
                self._process = subprocess.Popen(
                    command, stdout=file, stderr=file, env=self.environment, start_new_session=True
                )
        else:
            self._process = _forks.Process(target=_serve, args=(str(self._config), str(log), self._path))
            self._process.start()
        self.pids.append(self.pid)

    async def serving(self) -> Daemon:
        """Waits until the daemon answers. Raises AssertionError if it has ended."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                with suppress(DaemonUnreachable):
                    daemon = await Daemon.connect(self.address)
                    if self._spawned_at is not None:
                        self.serving_s.append(time.monotonic() - self._spawned_at)
                        self._spawned_at = None
                    return daemon
                assert self.alive, f"the daemon has ended: {self.last_words()}"
                await asyncio.sleep(POLL_S)

    async def start(self, *, as_program: bool = False) -> None:
        """Starts it and waits until it answers."""
        self.spawn(as_program=as_program)
        (await self.serving()).close()

    async def end(self, how: signal.Signals = signal.SIGKILL) -> float:
        """Sends it a signal and waits for its end; returns the seconds until then."""
        began_at = time.monotonic()
        assert self._process is not None and self._process.pid is not None
        with suppress(ProcessLookupError):
            os.kill(self._process.pid, how)
        wait = self._process.wait if isinstance(self._process, subprocess.Popen) else self._process.join
        await asyncio.to_thread(wait, DEADLINE_S)
        return time.monotonic() - began_at

    @property
    def alive(self) -> bool:
        """Returns whether it runs."""
        if isinstance(self._process, subprocess.Popen):
            return self._process.poll() is None
        return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int:
        """Process id of the daemon."""
        assert self._process is not None and self._process.pid is not None
        return self._process.pid

    def rows(self) -> int:
        """Returns the number of events in the journal."""
        with closing(self._database()) as db:
            return int(db.execute("SELECT coalesce(max(seq), 0) FROM journal").fetchone()[0])

    def spoilt(self) -> set[tuple[JobId, StepId]]:
        """Returns the steps that are stored as lost or failed."""
        with closing(self._database()) as db:
            spans = [decode(body, type=Span) for (body,) in db.execute("SELECT body FROM spans")]
        return {(span.job, span.step) for span in spans if span.outcome != Outcome.DONE}

    def _database(self) -> sqlite3.Connection:
        return sqlite3.connect(f"file:{self.folder / DATABASE}?mode=ro", uri=True, timeout=DEADLINE_S)

    def last_words(self) -> str:
        """Returns the end of its log."""
        return "\n".join((self.folder / "daemon.log").read_text(errors="replace").splitlines()[-30:])

    def clean(self) -> None:
        """Ends all processes and empties the temporary folder."""
        kill_strays(self.folder / "jobs")
        clear(self.folder / "jobs")

    # Clients ----------------------------------------------------------------------------------------------------------

    def clients(self, job: str) -> list[Life]:
        """Returns the clients as they logged themselves."""
        return lives(job, lines(self.folder / LOGS / f"{job}.log"))

    def host(self, job: JobId, token: str, address: str = "") -> subprocess.Popen[bytes]:
        """Starts the client of an external job."""
        folder = self.folder / "jobs" / f"external-{job}"
        folder.mkdir(parents=True)
        words = {"AUTOSCHED_TOKEN": token, JOB_DIR: str(folder)}
        command = [sys.executable, "-m", "autosched.client", "--connect", address or self.address, "--job", str(job)]
        with (folder / "client.log").open("ab") as log:
            return subprocess.Popen(
                command, stdout=log, stderr=log, env={**self.environment, **words}, start_new_session=True
            )

    def spec(self, name: str, *, model: str, lets: str = "mock", **words: Any) -> JobSpec:
        """Returns a job whose client writes its log. Keywords are fields of JobSpec or options of the backend."""
        fields = {key: words.pop(key) for key in list(words) if key in JobSpec.__struct_fields__}
        options = {"log": f"{self.folder / LOGS / name}.log", "locks": f"{self.folder}/locks", "lets": lets, **words}
        return JobSpec(name=name, model=model, backend=witness.NAME, options=options, **{"fresh": True, **fields})


class User:
    """A user who submits jobs, cancels some, queries them, and logs the daemon's acknowledgements."""

    def __init__(self, lab: Lab, rng: random.Random) -> None:
        self._lab, self._rng, self._log = lab, rng, lab.folder / USER
        self._names = 0
        self.active: dict[JobId, str] = {}
        """Acknowledged jobs that are not known to have ended."""
        self.cancelled: set[JobId] = set()
        self.ended = 0
        self._model = ""

    def tell(self, **words: Any) -> None:
        """Logs an acknowledgement."""
        with self._log.open("a") as file:
            file.write(json.dumps({"at": time.monotonic(), **words}) + "\n")

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Daemon]:
        """Opens a connection once the daemon answers."""
        while True:
            with suppress(DaemonUnreachable):
                daemon = await Daemon.connect(self._lab.address)
                break
            await asyncio.sleep(POLL_S)
        try:
            yield daemon
        finally:
            daemon.close()

    async def submit(self, daemon: Daemon, **words: Any) -> tuple[JobId, str]:
        """Submits one job; returns its number and, for an external job, its token. Raises AutoschedError, after which
        the outcome is unknown."""
        if not self._model:
            path = self._lab.folder / "model.onnx"
            path.write_bytes(MODEL)
            self._model = await daemon.upload(path)
        self._names += 1
        name = f"net{self._names}"
        spec = self._lab.spec(name, **{"model": self._model, "seed": self._names, **words})
        submitted = await daemon.submit(spec)
        self.tell(event="submitted", job=submitted.job, name=name)
        self.active[submitted.job] = name
        return submitted.job, submitted.token

    async def cancel(self, daemon: Daemon, job: JobId) -> None:
        """Cancels a job."""
        self.cancelled.add(job)
        await daemon.cancel(job)
        self.tell(event="cancelled", job=job)

    async def look(self, daemon: Daemon) -> bool:
        """Queries which jobs have ended; returns whether all have, including those whose acknowledgement a dying daemon
        did not send."""
        views = (await daemon.link.call(ListJobs(limit=500), JobList)).jobs
        for view in views:
            if view.job in self.active and JobState(view.state).ended:
                self.tell(event="ended", job=view.job, state=view.state)
                del self.active[view.job]
                self.ended += 1
        return all(JobState(view.state).ended for view in views)

    async def keep_busy(self, jobs: int, cancel_ratio: float, **words: Any) -> None:
        """Keeps a number of jobs active for ever, and cancels one now and then."""
        own: set[JobId] = set()
        while True:
            async with self.connected() as daemon:
                with suppress(DaemonUnreachable, StorageFull):
                    while True:
                        await self.look(daemon)
                        while len(self.active) < jobs:
                            own.add((await self.submit(daemon, **words))[0])
                            if self._rng.random() < cancel_ratio:
                                await self.cancel(daemon, self._rng.choice([job for job in self.active if job in own]))
                        await asyncio.sleep(0.1)

    async def rest(self, timeout_s: float) -> None:
        """Waits until all jobs have ended. Raises TimeoutError."""
        async with asyncio.timeout(timeout_s):
            while True:
                async with self.connected() as daemon:
                    with suppress(DaemonUnreachable):
                        if await self.look(daemon) and not self.active:
                            return
                await asyncio.sleep(0.1)
