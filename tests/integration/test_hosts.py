"""Hosts that agents lend: jobs run there, and nothing is lost or runs twice, whoever dies."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.daemon.access import keyring
from autosched.daemon.state_folder import whereabouts
from autosched.launch.job_folder import kill_strays
from autosched.model import JobId
from autosched.protocol import HostList, HostView, ListHosts, Span
from autosched.protocol.roles import Role
from deadlines import DEADLINE_S, until
from integration.lab import BOARD, Lab, Said, command_line, lab

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

    def start(self, settings: str = "", address: str = "", key: Path | None = None) -> "Lender":
        self.folder.mkdir(exist_ok=True)
        core = min(os.sched_getaffinity(0))
        (self.folder / "agent.toml").write_text(settings or LANE.format(core=core) + BOARD)
        command = [sys.executable, "-m", "autosched", "agent", "--daemon", address or self.there.address]
        command += ["--name", self.name, *(("--key", str(key)) if key is not None else ())]
        command += ["-c", str(self.folder / "agent.toml"), "--state-dir", str(self.folder / "state")]
        with (self.folder / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
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


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, SETTINGS + LANE.format(core=min(os.sched_getaffinity(0))) + BOARD) as made:
        yield made


@pytest.fixture
def lender(there: Lab) -> Iterator[Lender]:
    """A host that has joined."""
    made = Lender(there).start()
    try:
        until(lambda: made.is_("here"), "the host joins")
        yield made
    finally:
        made.end()


@pytest.fixture
def command(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    return command_line(there, tmp_path, monkeypatch, capsys)


def on_the_host(lender: Lender, **words: object) -> JobId:
    """A job whose client runs on the lent host, with some of its trials made."""
    there = lender.there
    first = there.submit(**{**LONG, "trials": 4_000})  # the daemon's own host comes first
    job = there.submit(**{**LONG, **words})
    there.wait(job, "trials", 8)
    assert hosts_of(there, job) == {lender.name}
    there.cancel(first)
    return job


def test_jobs_are_shared_out_over_the_hosts(there: Lab, lender: Lender) -> None:
    jobs = [there.submit(**{**LONG, "seed": number}) for number in range(4)]
    assert [there.wait(job).state for job in jobs] == ["done"] * 4
    assert sorted(len(hosts_of(there, job)) for job in jobs) == [1] * 4, "a job's steps run where its client is"
    where = [next(iter(hosts_of(there, job))) for job in jobs]
    assert set(where) == {"", "lab2"}
    assert {record.device for record in there.records(jobs[where.index("lab2")])} == {"board@lab2"}
    for job in jobs:
        check_records(there, job, 40)
    until(lambda: not lender.clients(), "its clients end")


def test_clients_outlive_their_agent(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender)
    (client,) = lender.clients()
    lender.send(signal.SIGKILL)
    lender.gone()
    until(lambda: lender.is_("away"), "the host is away")
    lender.start()
    until(lambda: lender.is_("here"), "the host is here")
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2"}
    lost = [span for span in spans(there) if span.outcome == "lost" and span.job == job]
    assert not lost, "the same client went on"
    check_records(there, job, 40)
    until(lambda: not Path(f"/proc/{client}").exists(), "its client ends")


def test_clients_of_a_host_outlive_the_daemon(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender)
    clients = lender.clients()
    there.end(signal.SIGKILL)
    there.start(SETTINGS + LANE.format(core=min(os.sched_getaffinity(0))) + BOARD)
    there.wait(job, "trials", 16)
    assert lender.clients() == clients
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2"}
    check_records(there, job, 40)


def test_a_client_that_dies_is_started_again(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender)
    for pid in lender.clients():
        os.kill(pid, signal.SIGKILL)
    assert there.wait(job).state == "done"
    check_records(there, job, 40)


def test_an_agent_that_is_stopped_gives_its_host_back(there: Lab, lender: Lender, command: Callable[..., Said]) -> None:
    job = on_the_host(lender)
    lender.send(signal.SIGTERM)
    assert lender.gone() == 0
    assert not lender.clients()
    until(lambda: lender.is_("left"), "the host has left")
    assert there.wait(job).state == "done"
    assert hosts_of(there, job) == {"lab2", ""}, "it went on elsewhere"
    check_records(there, job, 40)
    assert "its agent was stopped" in command("hosts")[1]
    assert command("hosts", "forget", "lab2")[0] == 0
    assert hosts(there) == ()


def test_a_frozen_agent_loses_its_clients_before_its_host_is_given_up(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender)
    lender.send(signal.SIGSTOP)
    until(lambda: not lender.clients(), "its clients end")
    assert not lender.is_("left"), "the host itself ended them first"
    until(lambda: lender.is_("left"), "the host has left")
    assert there.wait(job).state == "done"
    check_records(there, job, 40)
    lender.send(signal.SIGCONT)
    until(lambda: lender.is_("here"), "the host is here")
    other = there.submit(trials=4)
    assert there.wait(other).state == "done"


def test_clients_of_a_dead_agent_are_ended_with_the_lease(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender, trials=400)
    lender.send(signal.SIGKILL)
    lender.gone()
    until(lambda: not lender.clients(), "the process beside the agent ends them")
    assert not lender.is_("left"), "the host itself ended them first"
    until(lambda: hosts_of(there, job) == {"lab2", ""}, "the job goes on elsewhere")
    there.cancel(job)
    numbers = [record.trial for record in there.records(job)]
    assert len(numbers) == len(set(numbers))


def test_a_second_machine_may_not_take_a_name(there: Lab, lender: Lender) -> None:
    second = Lender(there, folder="other").start()
    assert second.gone() != 0
    assert "another machine lends a host of the name lab2" in (second.folder / "agent.log").read_text()
    assert lender.is_("here")
    third = Lender(there).start()
    assert third.gone() != 0
    assert "another agent works in" in (third.folder / "agent.log").read_text()


def test_a_host_is_drained_and_returned(there: Lab, lender: Lender, command: Callable[..., Said]) -> None:
    assert command("hosts", "drain", "lab2", "its", "fan", "is", "loud")[0] == 0
    jobs = [there.submit(trials=4) for _ in range(3)]
    assert [there.wait(job).state for job in jobs] == ["done"] * 3
    assert {host for job in jobs for host in hosts_of(there, job)} == {""}
    said = command("hosts", "show", "lab2")[1]
    assert "2 drained" in said
    assert command("hosts", "undrain", "lab2")[0] == 0
    assert "0 drained" in command("hosts", "show", "lab2")[1]
    code, _, complaint = command("hosts", "undrain", "lab2")
    assert code == 5
    assert "no unit of host lab2 is drained" in complaint
    code, _, complaint = command("hosts", "forget", "lab2")
    assert code == 5
    assert "has not left" in complaint
    code, _, complaint = command("hosts", "show", "lab3")
    assert code != 0
    assert "there is no host 'lab3'; there are: lab2" in complaint


def test_a_host_joins_over_tls_with_a_key(tmp_path: Path) -> None:
    """So do its clients, with the same key."""
    (tmp_path / "daemon").mkdir()
    with lab(tmp_path / "daemon", TLS + SETTINGS + LANE.format(core=min(os.sched_getaffinity(0))) + BOARD) as there:
        secret, path = keyring.make(tmp_path / "daemon/keys", Role.AGENT, "lab2")
        address = tls(there)
        lender = Lender(there).start(address=address, key=path)
        try:
            until(lambda: lender.is_("here"), "the host joins")
            there.wait(on_the_host(lender))
            assert secret.line() not in (lender.folder / "agent.log").read_text()
            keyring.revoke(tmp_path / "daemon/keys", "lab2")
            until(lambda: lender.is_("left"), "a withdrawn key takes the host away")
            assert not lender.clients()
        finally:
            lender.end()


def test_a_users_key_lends_no_host(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    with lab(tmp_path / "daemon", TLS + SETTINGS) as there:
        _, path = keyring.make(tmp_path / "daemon/keys", Role.USER, "ada")
        address = tls(there)
        lender = Lender(there).start(address=address, key=path)
        assert lender.gone() == 5
        assert "has the role user, which cannot come as an agent" in (lender.folder / "agent.log").read_text()


def tls(there: Lab) -> str:
    return next(one for one in whereabouts(there.folder).addresses if one.startswith("tls://"))


def test_a_kind_of_devices_that_the_daemon_lacks(there: Lab) -> None:
    lender = Lender(there).start(LANE.format(core=min(os.sched_getaffinity(0))) + BOARD.replace('"cpu"', '"board"'))
    try:
        until(lambda: lender.is_("here"), "the host is here")
        job = there.submit(trials=4, device="board")
        assert there.wait(job).state == "done"
        assert hosts_of(there, job) == {"lab2"}
    finally:
        lender.end()
