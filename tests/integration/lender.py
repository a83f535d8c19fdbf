"""Agents that lend hosts to a lab, for tests."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from autosched.api.connection import Daemon
from autosched.daemon.state_folder import whereabouts
from autosched.launch.job_folder import kill_strays
from autosched.model import JobId
from autosched.protocol import HostList, HostView, ListHosts, Span
from deadlines import DEADLINE_S
from integration.lab import BOARD, Lab

LANE = "[resources]\nhost_cores = [{core}]\n"
LEASE_S = 3.0
TLS_FILES = Path(__file__).parents[1] / "tls"
TLS = f'listen = "127.0.0.1:0"\ntls_certificate = "{TLS_FILES}/tls.crt"\ntls_key = "{TLS_FILES}/tls.key"\n'
SETTINGS = f"[scheduler]\nhost_lease_s = {LEASE_S}\nattach_timeout_s = 30\n"
LONG = {"trials": 40, "build_s": 0.05, "profile_s": 0.05}


class Lender:
    """An agent of its own state folder."""

    def __init__(self, there: Lab, name: str = "lab2", folder: str = "") -> None:
        self.there, self.name, self.folder = there, name, there.folder / (folder or name)
        self.process: subprocess.Popen[bytes] | None = None

    def start(
        self,
        settings: str = "",
        address: str = "",
        key: Path | None = None,
        within: Callable[[Sequence[str]], list[str]] = list,
    ) -> "Lender":
        """`within`: turns the command into one that runs in a network namespace."""
        self.folder.mkdir(exist_ok=True)
        core = min(os.sched_getaffinity(0))
        (self.folder / "agent.toml").write_text(settings or LANE.format(core=core) + BOARD)
        command = [sys.executable, "-m", "autosched", "agent", "--daemon", address or self.there.address]
        command += ["--name", self.name, *(("--key", str(key)) if key is not None else ())]
        command += ["-c", str(self.folder / "agent.toml"), "--state-dir", str(self.folder / "state")]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(within(command), stdout=log, stderr=log)
        return self

    def send(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)

    def gone(self) -> int:
        assert self.process is not None
        return self.process.wait(DEADLINE_S)

    def view(self) -> HostView | None:
        return next((host for host in hosts(self.there) if host.host == self.name), None)

    def is_(self, state: str) -> bool:
        view = self.view()
        return view is not None and view.state == state

    def clients(self) -> list[int]:
        """Process ids of the clients that it has started and that are alive."""
        mark = f"AUTOSCHED_JOB_DIR={self.folder / 'state'}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with suppress(OSError):
                ours = entry.name.isdigit() and mark in (entry / "environ").read_bytes()
                if ours and b"autosched.client" in (entry / "cmdline").read_bytes():
                    found.append(int(entry.name))
        return found

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.kill()
            self.process.wait(DEADLINE_S)
        kill_strays(self.folder / "state" / "jobs")


def hosts(there: Lab) -> tuple[HostView, ...]:
    async def ask() -> tuple[HostView, ...]:
        daemon = await Daemon.connect(there.address)
        try:
            return (await daemon.link.call(ListHosts(), HostList)).hosts
        finally:
            daemon.close()

    return asyncio.run(ask())


def spans(there: Lab) -> list[Span]:
    async def ask() -> list[Span]:
        daemon = await Daemon.connect(there.address)
        try:
            return list(await daemon.spans())
        finally:
            daemon.close()

    return asyncio.run(ask())


def hosts_of(there: Lab, job: JobId) -> set[str]:
    """Hosts on which steps of the job ran."""
    return {unit.partition("@")[2] for span in spans(there) if span.job == job for unit in span.units}


def check_records(there: Lab, job: JobId, trials: int) -> None:
    """All trials are there, each once."""
    numbers = [record.trial for record in there.records(job) if record.purpose.value == "trial"]
    assert len(numbers) == len(set(numbers)) == trials


def tls(there: Lab) -> str:
    return next(one for one in whereabouts(there.folder).addresses if one.startswith("tls://"))


def on_the_host(lender: Lender, **words: object) -> JobId:
    """A job whose client runs on the lent host, with some of its trials made."""
    there = lender.there
    first = there.submit(**{**LONG, "trials": 4_000})  # the daemon's own host comes first
    job = there.submit(**{**LONG, **words})
    there.wait(job, "trials", 8)
    assert hosts_of(there, job) == {lender.name}
    there.cancel(first)
    return job
