"""Hosts that agents lend: jobs run there, and nothing is lost or runs twice when a host dies."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import borrowed_machine
from autosched.daemon.access import keyring
from autosched.protocol.roles import Role
from deadlines import until
from integration.lab import Lab, Said, command_line, lab
from integration.lender import (
    LONG,
    PATIENT,
    SETTINGS,
    Lender,
    check_records,
    hosts,
    hosts_of,
    lent,
    on_the_host,
    tls_address,
)
from lent_host import boards, lane, tls


@pytest.fixture
def settings() -> str:
    """Settings of the daemon."""
    return SETTINGS


@pytest.fixture
def there(tmp_path: Path, settings: str) -> Iterator[Lab]:
    with lab(tmp_path, settings) as made:
        yield made


@pytest.fixture
def lender(there: Lab) -> Iterator[Lender]:
    """A host that has joined."""
    with lent(there) as made:
        yield made


@pytest.fixture
def command(
    there: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Said]:
    return command_line(there, tmp_path, monkeypatch, capsys)


def test_jobs_are_shared_out_over_the_hosts(there: Lab, lender: Lender) -> None:
    jobs = [there.submit(**{**LONG, "seed": number}) for number in range(4)]
    assert [there.wait(job).state for job in jobs] == ["done"] * 4
    assert sorted(len(hosts_of(there, job)) for job in jobs) == [1] * 4, "a job's steps run where its client is"
    where = [next(iter(hosts_of(there, job))) for job in jobs]
    assert set(where) == {"", "lab2"}
    assert {record.unit for record in there.records(jobs[where.index("lab2")])} == {"board@lab2"}
    for job in jobs:
        check_records(there, job, 40)
    until(lambda: not lender.clients(), "its clients end")


@pytest.mark.parametrize("settings", [PATIENT])
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
    lost = [span for span in there.spans() if span.outcome == "lost" and span.job == job]
    assert not lost, "the same client went on"
    check_records(there, job, 40)
    until(lambda: not Path(f"/proc/{client}").exists(), "its client ends")


@pytest.mark.parametrize("settings", [PATIENT])
def test_clients_of_a_host_outlive_the_daemon(there: Lab, lender: Lender) -> None:
    job = on_the_host(lender)
    clients = lender.clients()
    there.end(signal.SIGKILL)
    there.start(PATIENT)
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


def test_an_agent_that_is_stopped_returns_its_host(there: Lab, lender: Lender, command: Callable[..., Said]) -> None:
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


def test_a_machine_is_lent_only_while_its_owner_does_not_use_it(there: Lab, tmp_path: Path) -> None:
    lender, in_use = Lender(there), tmp_path / "in use"
    lender.program = [sys.executable, str(Path(borrowed_machine.__file__)), str(in_use)]
    in_use.touch()
    lender.start("--idle", "1s")
    try:
        until(lambda: "the machine is in use" in lender.log(), "the agent finds its owner there")
        assert lender.view() is None
        in_use.unlink()
        until(lambda: lender.is_("here"), "the host joins")
        job = on_the_host(lender, trials=4_000)
        in_use.touch()
        until(lambda: not lender.clients(), "its clients end")
        until(lambda: lender.is_("left"), "the host has left")
        view = lender.view()
        assert view is not None
        assert view.reason.startswith("its owner is back: other programs use ")
        until(lambda: hosts_of(there, job) == {"lab2", ""}, "the job goes on elsewhere")
        there.cancel(job)
        numbers = [record.number for record in there.records(job)]
        assert len(numbers) == len(set(numbers))
        in_use.unlink()
        until(lambda: lender.is_("here"), "the host is here again")
    finally:
        lender.end()


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
    numbers = [record.number for record in there.records(job)]
    assert len(numbers) == len(set(numbers))


def test_a_second_machine_may_not_take_a_name(there: Lab, lender: Lender) -> None:
    second = Lender(there, folder="other")
    second.start()
    assert second.gone() != 0
    assert "another machine lends a host of the name lab2" in second.log()
    assert lender.is_("here")
    third = Lender(there)
    third.start()
    assert third.gone() != 0
    assert "another agent works in" in third.log()


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
    """The host's clients connect with the same key."""
    (tmp_path / "daemon").mkdir()
    with lab(tmp_path / "daemon", tls() + SETTINGS) as there:
        secret, path = keyring.make(tmp_path / "daemon/keys", Role.AGENT, "lab2")
        lender = Lender(there)
        lender.address = tls_address(there)
        lender.start("--key", str(path))
        try:
            until(lambda: lender.is_("here"), "the host joins")
            there.wait(on_the_host(lender))
            assert secret.line() not in lender.log()
            keyring.revoke(tmp_path / "daemon/keys", "lab2")
            until(lambda: lender.is_("left"), "a withdrawn key takes the host away")
            assert not lender.clients()
        finally:
            lender.end()


def test_a_users_key_lends_no_host(tmp_path: Path) -> None:
    (tmp_path / "daemon").mkdir()
    with lab(tmp_path / "daemon", tls() + SETTINGS) as there:
        _, path = keyring.make(tmp_path / "daemon/keys", Role.USER, "ada")
        lender = Lender(there)
        lender.address = tls_address(there)
        lender.start("--key", str(path))
        assert lender.gone() == 5
        assert "has the role user, which cannot come as an agent" in lender.log()


def test_jobs_run_on_a_kind_of_device_that_only_another_host_has(there: Lab) -> None:
    lender = Lender(there)
    lender.settings = lane() + boards(1, "board")
    lender.start()
    try:
        until(lambda: lender.is_("here"), "the host is here")
        job = there.submit(trials=4, device="board")
        assert there.wait(job).state == "done"
        assert hosts_of(there, job) == {"lab2"}
    finally:
        lender.end()
