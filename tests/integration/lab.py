"""A real daemon in its own folder, with real clients of the mock backend."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar

import pytest

from autosched.api.connection import Daemon
from autosched.cli.command_table import run
from autosched.daemon.clients.adoption import clear
from autosched.launch.job_folder import kill_strays
from autosched.model import JobId, JobSpec, JobState, Record
from autosched.protocol import JobView, Span
from deadlines import DEADLINE_S

Said = tuple[int, str, str]
T = TypeVar("T")
MODEL = b"any bytes: the mock backend reads no model"
BOARD = '[[device]]\nname = "board"\nkind = "cpu"\n'
"""A device without cores: other load causes no repeated measurements, and equal jobs have equal results."""


def two_cores() -> list[int]:
    """Returns two of the usable cores where there are two, different ones for different test processes.

    A daemon on them has one host lane and one device of one core, however many cores the machine has.
    """
    cores = sorted(os.sched_getaffinity(0))
    first = os.getpid() % len(cores)
    return (cores[first:] + cores[:first])[:2]


class Lab:
    """Starts, kills and queries one daemon. Each query returns with its answer."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = folder / "autosched.toml"
        self.address = f"unix:{folder}/api.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Process id of the daemon."""
        assert self._process is not None
        return self._process.pid

    def start(self, settings: str = "", words: Sequence[str] = ()) -> None:
        """Starts the daemon and waits until it answers; on two cores, unless the settings name others."""
        self.config.write_text(f'[daemon]\nstate_dir = "{self.folder}"\nsocket = "{self.folder}/api.sock"\n{settings}')
        command = [sys.executable, "-m", "autosched", "serve", "-c", str(self.config), *words]
        home = os.sched_getaffinity(0)
        if "cores" not in settings:
            os.sched_setaffinity(0, two_cores())
        try:
            with (self.folder / "daemon.log").open("ab") as log:
                self._process = subprocess.Popen(command, stdout=log, stderr=log)
        finally:
            os.sched_setaffinity(0, home)
        asyncio.run(self._answering())

    async def _answering(self) -> None:
        from autosched.errors import DaemonUnreachable

        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    (await Daemon.connect(self.address)).close()
                except DaemonUnreachable:
                    assert self._process is not None
                    code = self._process.poll()
                    assert code is None, f"it ended with {code}: {(self.folder / 'daemon.log').read_text()}"
                    await asyncio.sleep(0.02)
                else:
                    return

    def end(self, how: signal.Signals) -> int:
        """Sends a signal to the daemon and waits for its end."""
        assert self._process is not None
        self._process.send_signal(how)
        return self.gone()

    def gone(self) -> int:
        """Waits for the daemon's end; returns its exit code."""
        assert self._process is not None
        return self._process.wait(DEADLINE_S)

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[Daemon]:
        """Opens a new connection to the daemon."""
        daemon = await Daemon.connect(self.address)
        try:
            yield daemon
        finally:
            daemon.close()

    def ask(self, work: Callable[[Daemon], Awaitable[T]]) -> T:
        """Does this on a new connection to the daemon."""

        async def done() -> T:
            async with self.connected() as daemon:
                return await work(daemon)

        return asyncio.run(done())

    def submit(self, **words: object) -> JobId:
        """Submits a job of the mock backend. Keywords are fields of JobSpec or options of the backend.

        The mock backend has one network for all models, so by default a job takes nothing from earlier ones.
        """
        fields = {name: words.pop(name) for name in list(words) if name in JobSpec.__struct_fields__}

        path = self.folder / "model.onnx"
        path.write_bytes(MODEL)

        async def ask(daemon: Daemon) -> JobId:
            sha256 = await daemon.upload(path)
            spec = JobSpec(
                **{"name": "net", "backend": "mock", "fresh": True, **fields, "model": sha256, "options": words}
            )  # type: ignore[arg-type]
            return (await daemon.submit(spec)).job

        return self.ask(ask)

    def wait(self, job: JobId, until: str = "ended", trials: int = 0) -> JobView:
        """Waits until the job has ended, or has a number of trials, as long as it makes progress."""

        async def ask(daemon: Daemon) -> JobView:
            version = -1
            async with asyncio.timeout(DEADLINE_S) as limit:
                async for view in daemon.follow(job, wait_s=5.0):
                    if until == "trials" and view.trials >= trials:
                        return view
                    if view.version != version:
                        version = view.version
                        limit.reschedule(asyncio.get_running_loop().time() + DEADLINE_S)
            return view

        return self.ask(ask)

    def cancel(self, job: JobId) -> None:
        """Cancels a job."""
        self.ask(lambda daemon: daemon.cancel(job))

    def records(self, job: JobId) -> list[Record]:
        """Returns all records of a job."""
        return self.ask(lambda daemon: daemon.records(job))

    def spans(self) -> list[Span]:
        """Returns all steps."""
        return self.ask(lambda daemon: daemon.spans())

    def boards(self) -> list[str]:
        """Returns the names of the boards."""

        async def ask(daemon: Daemon) -> list[str]:
            return [unit.unit for unit in await daemon.units() if unit.accelerator is not None]

        return self.ask(ask)

    def clients(self, job: JobId) -> list[int]:
        """Returns the process ids of the job's living clients."""
        wanted = f"--job\0{job}\0".encode()
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    command = (entry / "cmdline").read_bytes()
                    environment = (entry / "environ").read_bytes()
                except OSError:
                    continue
                if wanted in command and str(self.folder).encode() in environment and b"autosched.client" in command:
                    found.append(int(entry.name))
        return found

    def kill_client(self, job: JobId) -> None:
        """Kills the job's client (kill -9)."""
        for pid in self.clients(job):
            with suppress(ProcessLookupError):  # it may just have ended
                os.kill(pid, signal.SIGKILL)


def command_line(
    there: Lab, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    """Runs commands in the folder against the lab; returns exit code, stdout, stderr of each."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("AUTOSCHED_HOST", there.address)

    def command(*words: object) -> Said:
        code = run([str(word) for word in words])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, said.out, said.err

    return command


@contextmanager
def lab(folder: Path, settings: str = "") -> Iterator[Lab]:
    """A running lab. At the end the daemon is killed, and then all clients, which would wait for the next one."""
    made = Lab(folder)
    try:
        made.start(settings)
        yield made
    finally:
        if made._process is not None and made._process.poll() is None:
            made.end(signal.SIGKILL)
        kill_strays(folder / "jobs")
        clear(folder / "jobs")


def ended(view: JobView) -> bool:
    """Returns whether the job is over."""
    return JobState(view.state).ended
