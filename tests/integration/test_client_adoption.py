"""Clients continue when their daemon dies, and the next daemon adopts them: no step runs twice, nothing is lost."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from autosched.api.connection import Daemon
from autosched.daemon.recovery import backups
from autosched.model import JobId, Record
from autosched.protocol import Done, Shutdown
from integration.lab import BOARD, Lab, lab
from processes import dies, is_dead

WORDS: dict[str, object] = {"trials": 16, "tasks": 1, "build_s": 0.15, "update_s": 0.1}


@pytest.fixture
def there(tmp_path: Path) -> Iterator[Lab]:
    with lab(tmp_path, BOARD) as running:
        yield running


def found(records: list[Record]) -> list[tuple[int, int, bytes, tuple[float, ...]]]:
    return [(r.number, r.task, r.candidate, r.latency_s) for r in records]


def made(log: Path) -> list[tuple[int, str]]:
    """Returns task and stage of each step in the clients' own logs, in order."""
    return [(line["task"], line["stage"]) for line in map(json.loads, log.read_text().splitlines())]


def undisturbed(there: Lab, job: JobId, **words: object) -> bool:
    """Returns whether an undisturbed job with the same options has the same results."""
    other = there.submit(**words)
    assert there.wait(other).state == "done"
    return found(there.records(job)) == found(there.records(other))


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=str)
def test_no_step_runs_twice_when_the_daemon_dies(there: Lab, how: signal.Signals) -> None:
    log, other = there.folder / "steps", there.folder / "undisturbed"
    job = there.submit(**WORDS, log=str(log))
    pids: list[int] = []
    for trials in (2, 10):
        there.wait(job, until="trials", trials=trials)
        pids += there.clients(job)
        there.end(how)
        there.start(BOARD)
    assert there.wait(job).state == "done"
    assert len(set(pids)) == 1, "the client is the first one"
    assert undisturbed(there, job, **WORDS, log=str(other))
    assert made(log) == made(other)
    if how is signal.SIGTERM:
        assert {span.outcome for span in there.spans()} == {"done"}, "who stops in order loses not even an order"


def test_a_daemon_that_stops_for_good_leaves_no_client(there: Lab) -> None:
    job = there.submit(**WORDS)
    there.wait(job, until="trials", trials=2)
    (pid,) = there.clients(job)

    async def stop(daemon: Daemon) -> None:
        await daemon.link.call(Shutdown(), Done)
        await daemon.link.wait_closed()

    there.ask(stop)
    assert there.gone() == 0
    assert dies(pid)
    there.start(BOARD)
    assert there.wait(job).state == "done"


def test_a_dead_client_is_replaced_and_the_new_one_finds_the_same_result(there: Lab) -> None:
    job = there.submit(**WORDS)
    there.wait(job, until="trials", trials=2)
    there.kill_client(job)
    there.wait(job, until="trials", trials=10)
    there.end(signal.SIGKILL)
    there.kill_client(job)
    there.start(BOARD)
    assert there.wait(job).state == "done"
    assert undisturbed(there, job, **WORDS)


def test_a_client_that_does_not_come_back_is_killed_and_replaced(there: Lab) -> None:
    job = there.submit(**WORDS)
    there.wait(job, until="trials", trials=2)
    (pid,) = there.clients(job)
    os.kill(pid, signal.SIGSTOP)
    there.end(signal.SIGKILL)
    there.start(BOARD + "[scheduler]\nattach_timeout_s = 2.0\n")
    assert dies(pid)
    there.end(signal.SIGKILL)  # a short timeout may be too short for another client on a busy machine
    there.start(BOARD)
    assert there.wait(job).state == "done"


def test_after_a_restore_clients_of_forgotten_steps_are_ended(there: Lab) -> None:
    """Numbers of steps and trials are reused then: its answers would count for others."""
    job = there.submit(**WORDS)
    there.wait(job, until="trials", trials=2)
    (pid,) = there.clients(job)
    backup = backups.make(there.folder)
    there.wait(job, until="trials", trials=6)
    there.end(signal.SIGKILL)
    assert not is_dead(pid)
    backups.restore(there.folder, backup)
    there.start(BOARD)
    assert dies(pid)
    assert there.wait(job).state == "done"
    assert undisturbed(there, job, **WORDS)
